"""Which columns of views may hold NULL, where rules of Datalog read tables of SQL that do."""

from __future__ import annotations

from collections.abc import Collection

from rederive.ir.rules import Aggregate, Atom, Comparison, Definition, Function, Program, Rule, defines, literal_variables
from rederive.ir.terms import Constant, Simple

Place = tuple[str, int]


def nullable_columns(program: Program, views: Collection[str]) -> frozenset[Place]:
    """The columns of these views that NULL can get into, by name and position; the other relations say it themselves.

    >>> from rederive.ir.rules import Column, Relation
    >>> from rederive.ir.terms import NUMBER, Variable
    >>> x, y = Variable("x"), Variable("y")
    >>> t, p = Relation("t", (Column("a", NUMBER, nullable=True), Column("b", NUMBER))), Relation("p", (Column("a", NUMBER),) * 2)
    >>> sorted(nullable_columns(Program({"t": t, "p": p}, (Rule(Atom("p", (x, y)), (Atom("t", (x, y)),)),)), ["p"]))
    [('p', 0)]
    """
    found = {(name, i) for name, r in program.relations.items() for i, column in enumerate(r.columns) if column.nullable}
    known = frozenset(found)
    definitions = [definition for definition in program.definitions if defines(definition) in views] if found else []
    # NULL flows from columns to columns to a least fixpoint: a column is free of NULL unless some rule brings it.
    while more := {place for definition in definitions for place in _reached(definition, found)} - found:
        found |= more
    return frozenset(found - known)


def _reached(definition: Definition, found: Collection[Place]) -> set[Place]:
    match definition:
        case Rule(head):
            return {(head.relation, i) for i, term in enumerate(head.terms) if _may_be_null(term, definition, found)}
        case Aggregate(relation, function, source, group, value):
            places = {(relation, i) for i, column in enumerate(group) if (source, column) in found}
            # COUNT of NULLs is 0. Every other function of NULLs alone is NULL.
            folds = value is not None and (source, value) in found and function is not Function.COUNT
            return places | ({(relation, len(group))} if folds else set())


def _may_be_null(term: Simple, rule: Rule, found: Collection[Place]) -> bool:
    """A variable that an atom has in a column without NULL has none; one that is computed may have what it is computed from."""
    if isinstance(term, Constant):
        return term.value is None
    held = [(a.relation, i) for a in rule.body if isinstance(a, Atom) for i, other in enumerate(a.terms) if other == term]
    # A join on a column without NULL excludes NULL: one such atom suffices.
    if held:
        return all(place in found for place in held)
    equations = [one for one in rule.body if isinstance(one, Comparison) and term in literal_variables(one)]
    others = {v for one in equations for v in literal_variables(one) if v != term}
    # Without the equations that were used, so that x = y, y = x ends.
    rest = Rule(rule.head, tuple(literal for literal in rule.body if literal not in equations), rule.span)
    return any(_may_be_null(other, rest, found) for other in others)
