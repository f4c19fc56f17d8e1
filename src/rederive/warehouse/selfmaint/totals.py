"""Counts and sums of a query by group, moved by the rows that enter and leave the query (decision 136).

The rows of the query are not stored. Law: if the update is net, and all facts of a row but the changed one are over relations
that are known completely, then the rows that enter and leave the query are known. Each has one derivation, so none is counted
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from rederive.errors import EvaluationError
from rederive.ir.rules import Atom, Literal, Negation, Relation, Rule
from rederive.ir.terms import Kind, Row, Value
from rederive.values import INTEGER_RANGES
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.canonical import after_update, known_completely, next_state
from rederive.warehouse.selfmaint.conjunctive import StoredView, Totals
from rederive.warehouse.selfmaint.source_update import KnownRelations, UpdateKind

Change = tuple[frozenset[Row], frozenset[Row]]


def are_moved(view: StoredView, views: Sequence[StoredView], kind: UpdateKind, given: KnownRelations) -> bool:
    """Tell whether every update of this kind determines the change of the totals."""
    assert view.totals is not None
    query = view.totals.query
    complete = known_completely(views, given)
    negated = [condition.atom for condition in query.conditions if isinstance(condition, Negation)]
    changed = [i for i, atom in enumerate(query.body) if atom.relation in kind.relations]
    unknown = [i for i, atom in enumerate(query.body) if atom.relation not in complete]
    knows_others = all(set(unknown) <= {i} for i in changed)
    knows_all = not any(atom.relation in kind.relations for atom in negated) or not unknown
    # Without a count, nobody knows whether a row that leaves was the last one of its group.
    may_end = any(query.body[i].relation in kind.deletes for i in changed)
    may_end |= any(atom.relation in kind.inserts for atom in negated)
    return given.net and knows_others and knows_all and (view.totals.counts or not may_end)


def totals_rules(view: StoredView, relations: Mapping[str, Relation], kind: UpdateKind) -> Iterator[Rule]:
    """Return the rules of the rows that enter and leave the query: `v.gained` and `v.lost`."""
    assert view.totals is not None
    query = view.totals.query
    after = [after_update(atom, kind) for atom in query.body]
    before = [names.at(atom, names.KNOWN) for atom in query.body]
    negated = [condition.atom for condition in query.conditions if isinstance(condition, Negation)]
    compared: list[Literal] = [condition for condition in query.conditions if not isinstance(condition, Negation)]
    holding = [*compared, *(Negation(after_update(atom, kind)) for atom in negated)]
    held = [*compared, *(Negation(names.at(atom, names.KNOWN)) for atom in negated)]
    for part, entering, leaving, body, conditions in (
        (names.GAINED, names.INSERTED, names.DELETED, after, holding),
        (names.LOST, names.DELETED, names.INSERTED, before, held),
    ):
        head = Atom(names.of(view.name, part), query.head.terms)
        changes = kind.inserts if part == names.GAINED else kind.deletes
        opposite = kind.deletes if part == names.GAINED else kind.inserts
        for i, atom in enumerate(query.body):
            if atom.relation in changes:
                # v.gained(...) :- r.inserted(...), s.next(...), conditions.
                # v.lost(...)   :- r.deleted(...), s.known(...), conditions.
                yield Rule(head, (names.at(atom, entering), *(a for j, a in enumerate(body) if j != i), *conditions))
        for atom in negated:
            if atom.relation in opposite:
                # v.gained(...) :- l.deleted(...), r.next(...), !l.next(...).
                yield Rule(head, (names.at(atom, leaving), *body, *conditions))
    for relation in dict.fromkeys(atom.relation for atom in (*query.body, *negated)):
        yield from next_state(relations[relation], kind)


def move_totals(totals: Totals, gained: Iterable[Row], lost: Iterable[Row], stored: Callable[[Row], Iterable[Row]]) -> Change:
    """Return the rows of the view that enter and leave. `stored` returns the row of a group, if there is one.

    >>> from rederive.ir.rules import Atom
    >>> from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery
    >>> totals = Totals(ConjunctiveQuery(Atom("r", ()), ()), (0,), (("group", 0), ("count", None), ("sum", 1)))
    >>> move_totals(totals, [("a", 5), ("a", 1)], [("a", 2)], lambda group: [("a", 3, 10)])
    (frozenset({('a', 4, 14)}), frozenset({('a', 3, 10)}))
    """
    moves: dict[Row, list[tuple[int, Row]]] = {}
    for sign, rows in ((1, gained), (-1, lost)):
        for row in rows:
            moves.setdefault(tuple(row[i] for i in totals.group), []).append((sign, row))
    plus: set[Row] = set()
    minus: set[Row] = set()
    for group, changes in moves.items():
        before = next(iter(stored(group)), None)
        after = _moved(totals, group, changes, before)
        if before is not None:
            minus.add(before)
        if after is not None:
            plus.add(after)
    return frozenset(plus - minus), frozenset(minus - plus)


def _moved(totals: Totals, group: Row, changes: Sequence[tuple[int, Row]], before: Row | None) -> Row | None:
    found: list[Value] = []
    for i, (function, column) in enumerate(totals.folded):
        if function == "group":
            assert column is not None
            found.append(group[column])
            continue
        total = before[i] if before is not None else 0
        for sign, row in changes:
            total = _add(total, sign, 1 if column is None else row[column])
        # A group without rows is not in the view.
        if function == "count" and total == 0:
            return None
        found.append(total)
    return tuple(found)


def _add(total: Value, sign: int, value: Value) -> Value:
    assert isinstance(total, int | Decimal)
    assert isinstance(value, int | Decimal)
    found = total + sign * value
    if isinstance(found, int) and not INTEGER_RANGES[Kind.NUMBER][0] <= found <= INTEGER_RANGES[Kind.NUMBER][1]:
        raise EvaluationError("the sum of a group does not fit 64 bits")
    return found
