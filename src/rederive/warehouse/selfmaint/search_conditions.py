"""Conditions in the search: which views it can explain, and the values that it must try for them (decision 177).

Negated local relations and comparisons depend on known rows and on values alone, so a query with them is still monotone in the
remote facts, and Theorems 6.2 and 6.3 hold. What changes are the fresh values. For `=`, `!=` and `!l(x)` a symbol that occurs
nowhere else suffices. For `<` a value also has a place among the others: every gap between two values in use is tried, if a whole
number fits into it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from rederive.ir.rules import Atom, Comparison, Negation, Operator, Relation, literal_variables
from rederive.ir.terms import NUMBER, SYMBOL, Call
from rederive.warehouse.selfmaint.conjunctive import ConjunctiveQuery, StoredView, ViewClass
from rederive.warehouse.selfmaint.facts import Binding, ground, value

_COMPARES: Final[Mapping[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQ: lambda one, other: bool(one == other),
    Operator.NE: lambda one, other: bool(one != other),
    Operator.LT: lambda one, other: bool(one < other),
    Operator.LE: lambda one, other: bool(one <= other),
    Operator.GT: lambda one, other: bool(one > other),
    Operator.GE: lambda one, other: bool(one >= other),
}
_ORDER: Final = frozenset((Operator.LT, Operator.LE, Operator.GT, Operator.GE))


def is_searched(view: StoredView, relations: Mapping[str, Relation], local: Iterable[str]) -> bool:
    """Tell whether the search can explain the rows of a view; `local` are the relations whose rows are known."""
    if view.kind in (ViewClass.PLAIN, ViewClass.PROJECTION, ViewClass.UNION):
        return True
    # A functor computes new values from fresh ones, and a comparison with NULL is neither true nor false.
    is_total = not any(column.nullable for name in view.sources for column in relations[name].columns)
    known = set(local)
    return (
        view.kind is ViewClass.CONDITIONAL and is_total and all(_is_searched(query, relations, known) for query in view.queries)
    )


def _is_searched(query: ConjunctiveQuery, relations: Mapping[str, Relation], local: set[str]) -> bool:
    types = {term: type_ for atom in query.body for term, type_ in zip(atom.terms, relations[atom.relation].types, strict=True)}
    for condition in query.conditions:
        if isinstance(condition, Negation):
            if condition.atom.relation not in local:
                return False
            continue
        allowed = (NUMBER,) if condition.operator in _ORDER else (NUMBER, SYMBOL)
        sides = (condition.left, condition.right)
        is_simple = condition.operator in _COMPARES and not any(isinstance(side, Call) for side in sides)
        if not is_simple or any(types.get(variable) not in allowed for variable in literal_variables(condition)):
            return False
    return all(variable in types for variable in literal_variables(query.head))


def compares_order(views: Iterable[StoredView]) -> bool:
    """Tell whether a condition of these views depends on the order of values."""
    conditions = (condition for view in views for query in view.queries for condition in query.conditions)
    return any(isinstance(condition, Comparison) and condition.operator in _ORDER for condition in conditions)


def holds(query: ConjunctiveQuery, binding: Binding, has_row: Callable[[Atom, tuple[Any, ...]], bool]) -> bool:
    """Tell whether the conditions hold under a binding of all variables; `has_row` looks into a local relation."""
    for condition in query.conditions:
        if isinstance(condition, Negation):
            if has_row(condition.atom, ground(condition.atom, binding)[1]):
                return False
        else:
            assert not isinstance(condition.left, Call)
            assert not isinstance(condition.right, Call)
            if not _COMPARES[condition.operator](value(condition.left, binding), value(condition.right, binding)):
                return False
    return True


def places(used: Iterable[int | Fraction]) -> Iterator[Fraction]:
    """Yield a value for each gap between the whole numbers and the placed values in use, if a whole number fits into it.

    >>> list(places([0, 1, 3]))
    [Fraction(7, 2), Fraction(-1, 2), Fraction(3, 2)]
    >>> list(places([0, Fraction(1, 2), 2]))
    [Fraction(5, 2), Fraction(-1, 2)]
    """
    found: list[int | Fraction] = []
    for one in used:
        insort(found, one)
    if not found:
        yield Fraction(1, 2)
        return
    yield _between(found[-1], found[-1] + 1)
    yield _between(found[0] - 1, found[0])
    placed = [one for one in found if isinstance(one, Fraction)]
    numbers = [one for one in found if not isinstance(one, Fraction)]
    for low, high in pairwise(found):
        before = max((n for n in numbers if n <= low), default=None)
        after = min((n for n in numbers if n >= high), default=None)
        bounded = before is not None and after is not None
        # All placed values between two whole numbers need different whole numbers in between.
        if not bounded or sum(before < p < after for p in placed) < after - before - 1:  # type: ignore[operator]
            yield _between(low, high)


def _between(low: int | Fraction, high: int | Fraction) -> Fraction:
    middle = Fraction(low + high) / 2
    # Never a whole number, which the data could hold.
    return middle if middle.denominator > 1 else (low + middle) / 2
