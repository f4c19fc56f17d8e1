"""A rule over few Python rows in the driver: hash joins, tests and computed terms, without a job (decision 67)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import Any, Final

from rederive.engines.spark.plan.rule_plan import RulePlan
from rederive.engines.term_functions import row_function
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Operator
from rederive.ir.terms import Call, Constant, Row, Simple, Term, Value, Variable, variables
from rederive.scalar.datalog.implementations import contains
from rederive.scalar.failures import ScalarError
from rederive.scalar.regex.matching import is_match

_ORDER: Final[Mapping[Operator, Callable[[Any, Any], bool]]] = {
    Operator.LT: lt,
    Operator.LE: le,
    Operator.GT: gt,
    Operator.GE: ge,
    Operator.MATCH: is_match,
    Operator.NOT_MATCH: lambda one, other: not is_match(one, other),
    Operator.CONTAINS: contains,
    Operator.NOT_CONTAINS: lambda one, other: not contains(one, other),
}
_Step = Callable[[list[Row], Sequence[Row]], list[Row]]


class _LeftToOthers(Exception):
    """A value for which Spark and Python may differ, or too many rows."""


def derive_rows(compiled: RulePlan, read: Mapping[int, Sequence[Row]], most: int) -> frozenset[Row] | None:
    """What a rule derives from the rows of its literals; None where it finds more than `most` bindings, or a functor fails."""
    if "rows" not in compiled.forms:
        compiled.forms["rows"] = _compile(compiled)
    steps, head = compiled.forms["rows"]
    bindings: list[Row] = [()]
    try:
        for place, step in steps:
            bindings = step(bindings, read.get(place, ()))
            if len(bindings) > most:
                return None
        return frozenset(map(head, bindings))
    # The plan for Spark raises a failure with its row and its rule, if the whole body lets it through.
    except (ScalarError, _LeftToOthers):
        return None


def _compile(compiled: RulePlan) -> tuple[list[tuple[int, _Step]], Callable[[Row], Row]]:
    """The literals as functions from bindings to bindings, with their places in the body; and the head as one of a binding."""
    names: list[str] = []
    steps = [(place, _step(literal, names, compiled)) for place, literal in compiled.order]
    return steps, _key(compiled.rule.head.terms, names)


def _step(literal: Literal, names: list[str], compiled: RulePlan) -> _Step:
    """A literal behind those that bound `names`, to which the names that it binds are added."""
    match literal:
        case Atom():
            return _join(literal, names)
        case Negation(atom):
            return _exclude(atom, names)
        case Comparison():
            for one, other in ((literal.left, literal.right), (literal.right, literal.left)):
                if literal.operator is Operator.EQ and isinstance(one, Variable) and one.name not in names:
                    value = _value(other, names, compiled)
                    names.append(one.name)
                    return lambda bindings, _: [(*b, value(b)) for b in bindings]
            return _filter(literal, names, compiled)


def _join(atom: Atom, names: list[str]) -> _Step:
    known, new, matches = _places(atom, names)
    probe, build = _key([term for _, term in known], names), _columns([i for i, _ in known])
    rest = _columns(list(new.values()))
    names += new

    def join(bindings: list[Row], rows: Sequence[Row]) -> list[Row]:
        found: dict[Row, list[Row]] = {}
        for row in rows:
            if matches(row):
                found.setdefault(build(row), []).append(rest(row))
        return [(*b, *more) for b in bindings for more in found.get(probe(b), ())]

    return join


def _exclude(atom: Atom, names: Sequence[str]) -> _Step:
    known, _, matches = _places(atom, names)
    probe, build = _key([term for _, term in known], names), _columns([i for i, _ in known])

    def exclude(bindings: list[Row], rows: Sequence[Row]) -> list[Row]:
        found = {build(row) for row in rows if matches(row)}
        return [b for b in bindings if probe(b) not in found]

    return exclude


def _places(atom: Atom, names: Sequence[str]) -> tuple[list[tuple[int, Simple]], dict[str, int], Callable[[Row], bool]]:
    """The columns whose values are known, those that bind a name, and the test that a repeated name has one value."""
    known: list[tuple[int, Simple]] = []
    new: dict[str, int] = {}
    same: list[tuple[int, int]] = []
    for i, term in enumerate(atom.terms):
        if isinstance(term, Constant) or term.name in names:
            known.append((i, term))
        elif term.name in new:
            same.append((new[term.name], i))
        else:
            new[term.name] = i
    return known, new, lambda row: all(row[i] == row[j] for i, j in same)


def _columns(positions: Sequence[int]) -> Callable[[Row], Row]:
    return lambda row: tuple([row[i] for i in positions])


def _key(terms: Sequence[Simple], names: Sequence[str]) -> Callable[[Row], Row]:
    """The values of constants and bound variables."""
    parts = [(None, t.value) if isinstance(t, Constant) else (names.index(t.name), None) for t in terms]
    return lambda binding: tuple([binding[i] if i is not None else value for i, value in parts])


def _filter(comparison: Comparison, names: Sequence[str], compiled: RulePlan) -> _Step:
    left, right = (_value(term, names, compiled) for term in (comparison.left, comparison.right))
    match comparison.operator:
        case Operator.EQ | Operator.NE:
            equal = comparison.operator is Operator.EQ
            return lambda bindings, _: [b for b in bindings if (left(b) == right(b)) is equal]
        case operator:
            holds = _ORDER[operator]

            def ordered(bindings: list[Row], _: Sequence[Row]) -> list[Row]:
                pairs = ((b, left(b), right(b)) for b in bindings)
                # A comparison with NULL does not hold.
                return [b for b, one, other in pairs if one is not None and other is not None and holds(one, other)]

            return ordered


def _value(term: Term, names: Sequence[str], compiled: RulePlan) -> Callable[[Row], Value]:
    match term:
        case Constant(value):
            return lambda _: value
        case Variable(name):
            position = names.index(name)
            return lambda binding: binding[position]
        case Call():
            function = row_function(term, names, compiled.types)
            # A functor of Datalog is not defined for NULL, and to Spark its value is then NULL.
            strict = [names.index(v.name) for v in variables(term)] if _has_functor(term) else []

            def computed(binding: Row) -> Value:
                if any(binding[i] is None for i in strict):
                    raise _LeftToOthers
                return function(binding)

            return computed


def _has_functor(term: Term) -> bool:
    return isinstance(term, Call) and (term.gives is None or any(map(_has_functor, term.arguments)))
