"""Updates that determine the change of a view, whatever the sources hold: known when the view is defined (decision 90).

A view is monotone: an insertion only adds the rows that some query derives with an inserted fact. Law: if the other atoms of the
query are over relations that are known completely, these rows are known, so the view is always self-maintainable.

A deletion may leave a row with other derivations. Law: if the row shows the key of an atom's relation, every derivation of the
row uses the one fact with that key at this atom. So the row leaves exactly if that fact does. That needs a view of one query,
and a fact that was present: the update is net, or the row shows all columns of the fact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.ir.rules import Atom, Negation, Relation, literal_variables
from rederive.ir.terms import Constant
from rederive.warehouse.selfmaint.canonical import known_completely
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind


def is_determined(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> bool:
    """Tell whether every update of this kind determines the change of the view.

    >>> from rederive.lang import compile_program
    >>> from rederive.warehouse.selfmaint.conjunctive import stored_views
    >>> program = compile_program(".decl r(x: number, y: number)  .remote r  .decl v(x: number)  v(x) :- r(x, _).")
    >>> views = stored_views(program)
    >>> kinds = (UpdateKind.of(insert=["r"]), UpdateKind.of(delete=["r"]))
    >>> [is_determined(views[0], views, program.relations, kind, KnownRelations()) for kind in kinds]
    [True, False]
    """
    complete = known_completely(views, given)
    return all(
        (atom.relation not in kind.inserts or _knows_others(query, i, complete))
        and (atom.relation not in kind.deletes or _decides_rows(view, query, atom, relations, given))
        for query in view.queries
        for i, atom in enumerate(query.body)
    ) and all(
        (condition.atom.relation not in kind.deletes or _knows_others(query, None, complete))
        and (condition.atom.relation not in kind.inserts or _shows(view, query, condition.atom))
        for query in view.queries
        for condition in query.conditions
        if isinstance(condition, Negation)
    )


def _knows_others(query: ConjunctiveQuery, place: int | None, complete: frozenset[str]) -> bool:
    return all(atom.relation in complete for i, atom in enumerate(query.body) if i != place)


def _decides_rows(
    view: StoredView, query: ConjunctiveQuery, atom: Atom, relations: Mapping[str, Relation], given: KnownRelations
) -> bool:
    shown = set(literal_variables(query.head))
    visible = [isinstance(term, Constant) or term in shown for term in atom.terms]
    key = relations[atom.relation].key or range(len(visible))
    return len(view.queries) == 1 and all(visible[i] for i in key) and (given.net or all(visible))


def _shows(view: StoredView, query: ConjunctiveQuery, atom: Atom) -> bool:
    """Tell whether a row shows the negated fact: if it enters, no derivation of the row is left."""
    return len(view.queries) == 1 and set(query.head.terms).issuperset(literal_variables(atom))
