"""Definitions and initial rows that belong together: collected first, then evaluated once, as one version."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from types import TracebackType
from typing import Self

from rederive.catalog import Catalog, CatalogChange
from rederive.commit.pipeline import Pipeline
from rederive.errors import Mismatch
from rederive.ir.terms import Row
from rederive.lang.rules.syntax import RuleStatement
from rederive.result import Result
from rederive.rules.api import Rules


class Setup:
    """A `with` block: what is defined and loaded inside it is one version, made when it ends; an exception discards it.

    `result`: that version, or None where nothing changed. `touched`: the tuples that its evaluation touched. Statements about
    active rules run after it, in their order: initial rows fire nothing, so that this makes no difference.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.result: Result | None = None
        self.touched = 0
        self._pipeline = pipeline
        self._before: Catalog = pipeline.state.catalog
        self._changes: list[CatalogChange] = []
        self._rules: list[RuleStatement] = []

    def __enter__(self) -> Self:
        if self._pipeline.setup is not None:
            raise Mismatch("a setup is open already", hint="end its block first")
        self._pipeline.setup = self
        return self

    def add(self, change: CatalogChange) -> None:
        """Collect a change of definitions, or initial rows."""
        self._changes.append(change)

    def add_rule(self, statement: RuleStatement) -> None:
        """Collect a statement about active rules."""
        self._rules.append(statement)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pipeline, last = self._pipeline, self._pipeline.state.catalog
        # The catalog goes back in any case: `redefine` compares the
        # change with what the engine runs, and an exception discards it.
        pipeline.setup, pipeline.state.catalog = None, self._before
        if kind is None:
            if self._changes and (version := pipeline.redefine(self._merge(last))) is not None:
                self.result = version.result
                self.touched = version.propagation.touched if version.propagation is not None else 0
            for statement in self._rules:
                Rules(pipeline).run(statement)

    def _merge(self, last: Catalog) -> CatalogChange:
        parts: dict[str, list[Iterable[Row]]] = {}
        for change in self._changes:
            for relation, rows in change.facts.items():
                parts.setdefault(relation, []).append(rows)
        # A relation may be defined, loaded and dropped inside one block.
        facts = {name: _concatenate(rows) for name, rows in parts.items() if name in last.program.relations}
        changes = self._changes
        return CatalogChange(last, facts, any(c.always for c in changes), any(c.loads for c in changes))


def _concatenate(parts: list[Iterable[Row]]) -> Iterable[Row]:
    """The rows of all parts. A single part stays as it is: it may be a data frame."""
    return parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
