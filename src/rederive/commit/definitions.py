"""`db.definitions`: edit the rules and views of a live database.

An edit is one version with the exact change of every monitored view, and a version even if no view changes: the journal has to
hold the definitions from which later versions follow.
"""

from __future__ import annotations

from rederive.boundary import guard_class
from rederive.catalog import CatalogChange
from rederive.commit.pipeline import Pipeline
from rederive.html_tables import html_table
from rederive.ir.printing import show_relation
from rederive.result import Result


@guard_class
class Definitions:
    """The definitions of a database, to be edited.

    >>> import rederive
    >>> db = rederive.open()
    >>> _ = db.define('''
    ...     .decl e(x: number)  .decl p(x: number)  .decl q(x: number)
    ...     e(1). e(2).  p(x) :- e(x), x > 1.  q(x) :- p(x).
    ... ''')
    >>> db.definitions.add_rule("p(x) :- e(x), x < 2.").changes["q"].plus
    [(1,)]
    >>> db.definitions.remove_rule("p(x) :- e(x), x > 1.").changes["q"].minus
    [(2,)]
    >>> db.definitions.replace_view("q", "q(x + 10) :- p(x).").changes["q"].plus
    [(11,)]
    >>> db.definitions.drop_view("q").changes["q"].minus
    [(11,)]
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def add_rule(self, text: str) -> Result:
        """Add rules to views, or to relations without rows of their own."""
        return self._edit(self._pipeline.state.catalog.add_rule(text))

    def remove_rule(self, text: str) -> Result:
        """Remove rules from views; they must be written as they were defined."""
        return self._edit(self._pipeline.state.catalog.remove_rule(text))

    def replace_view(self, view: str, text: str) -> Result:
        """Give a view other rules."""
        return self._edit(self._pipeline.state.catalog.replace_view(view, text))

    def drop_view(self, view: str) -> Result:
        """Remove a view; its rows leave. Refused while another definition needs it."""
        return self._edit(self._pipeline.state.catalog.drop_view(view))

    def _repr_html_(self) -> str:
        program = self._pipeline.state.catalog.program
        rows = [
            (name, "base" if name in program.tables else "view", show_relation(relation).partition("(")[2].rstrip(")"))
            for name, relation in program.relations.items()
            if not relation.is_auxiliary
        ]
        return html_table(("relation", "kind", "columns"), rows)

    def _edit(self, change: CatalogChange) -> Result:
        self._pipeline.check_no_setup("an edit")
        result = self._pipeline.define(change)
        assert result is not None, "an edit is always a version (`CatalogChange.always`)"
        return result
