"""Views with projections or unions whose change the update determines, whatever the sources hold: rules instead of a search.

A view is monotone: an insertion only adds the rows that some query derives with an inserted fact. Law: if the other atoms of the
query are over relations that are known completely, these rows are known, so the view is always self-maintainable.

A deletion may leave a row with other derivations. Law: if the row shows the key of an atom's relation, every derivation of the
row uses the one fact with that key at this atom. So the row leaves exactly if that fact does. That needs a view of one query,
and a fact that was present: the update is net, or the row shows all columns of the fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rederive.ir.rules import Atom, Negation, Relation, Rule, literal_variables
from rederive.ir.terms import Constant
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import after_update, known_completely, next_state
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
    )


def determined_rules(
    view: StoredView, views: Sequence[StoredView], relations: Mapping[str, Relation], kind: UpdateKind, given: KnownRelations
) -> Iterator[Rule]:
    """Return the rules for the change of a view, as far as updates of this kind determine it."""
    complete = known_completely(views, given)
    row = names.every(relations[view.name])
    entering = names.at(row, names.ENTERING)
    for query in view.queries:
        for i, atom in enumerate(query.body):
            if atom.relation in kind.inserts and _knows_others(query, i, complete):
                # v.entering(...) :- r.inserted(...), s.next(...), ...
                others = (after_update(other, kind) for j, other in enumerate(query.body) if j != i)
                yield Rule(names.at(query.head, names.ENTERING), (names.at(atom, names.INSERTED), *others))
            if atom.relation in kind.deletes and _decides_rows(view, query, atom, relations, given):
                # v.leaving(...) :- v(...), r.deleted(...).
                yield Rule(names.at(query.head, names.LEAVING), (query.head, names.at(atom, names.DELETED)))
    # A row that loses its fact and is derived by an inserted one stays.
    yield Rule(names.at(row, names.PLUS), (entering, Negation(row)))
    yield Rule(names.at(row, names.MINUS), (names.at(row, names.LEAVING), Negation(entering)))
    for relation in dict.fromkeys(atom.relation for query in view.queries for atom in query.body):
        yield from next_state(relations[relation], kind)


def _knows_others(query: ConjunctiveQuery, place: int, complete: frozenset[str]) -> bool:
    return all(atom.relation in complete for i, atom in enumerate(query.body) if i != place)


def _decides_rows(
    view: StoredView, query: ConjunctiveQuery, atom: Atom, relations: Mapping[str, Relation], given: KnownRelations
) -> bool:
    shown = set(literal_variables(query.head))
    visible = [isinstance(term, Constant) or term in shown for term in atom.terms]
    key = relations[atom.relation].key or range(len(visible))
    return len(view.queries) == 1 and all(visible[i] for i in key) and (given.net or all(visible))
