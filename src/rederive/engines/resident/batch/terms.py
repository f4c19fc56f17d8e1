"""Terms and comparisons over whole columns.

Sums, differences and products of integers and decimals are computed in units of 64 bits, where their bounds prove that no result
overflows the type. Comparisons of numbers and times are computed in units as well. Everything else is computed by the function
that rows are evaluated with, once for each distinct combination of arguments. Where that fails for a combination, `NotByColumn`
leaves it to the evaluation by rows to say whether the failure counts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from rederive.analysis.types import term_type
from rederive.engines.resident.batch.vectors import MOST, NotByColumn, Space, Vector, group_numbers
from rederive.engines.resident.storage.row_index import Array
from rederive.engines.resident.storage.unit_codes import units_of
from rederive.engines.term_functions import row_function
from rederive.ir.rules import Comparison, Operator
from rederive.ir.terms import Call, Constant, Kind, Term, Type, Value, Variable, variables
from rederive.scalar.datalog.implementations import contains
from rederive.scalar.failures import ScalarError
from rederive.scalar.regex.matching import is_match


@dataclass(frozen=True, slots=True)
class Bindings:
    """The bindings of a body so far: a vector for each variable."""

    space: Space
    count: int
    vectors: Mapping[str, Vector]

    def take(self, rows: Array) -> Bindings:
        """The bindings at these positions."""
        return Bindings(self.space, len(rows), {name: vector.take(rows) for name, vector in self.vectors.items()})

    def where(self, holds: Array) -> Bindings:
        """The bindings for which a test holds."""
        return self if holds.all() else self.take(holds.nonzero()[0])

    def codes(self, term: Term) -> Array:
        """A simple term as codes."""
        if isinstance(term, Variable):
            return self.vectors[term.name].codes()
        assert isinstance(term, Constant)
        return np.full(self.count, self.space.codes.codec(term.type).encode(term.value), np.uint32)


def vector_of(term: Term, frame: Bindings, types: Mapping[str, Type]) -> Vector:
    """The values of a term for all bindings."""
    match term:
        case Variable():
            return frame.vectors[term.name]
        case Constant():
            return Vector(frame.space, term.type, frame.codes(term))
        case Call(functor, arguments) if functor in _ARITHMETIC and len(arguments) == 2 and _in_units(term, types):
            one, two = (_operand(argument, frame, types) for argument in arguments)
            units, nulls = _arithmetic(functor, one, two, term_type(term, types))
            if not isinstance(units, np.ndarray):
                units = np.full(frame.count, units, np.int64)
            return Vector(frame.space, term_type(term, types), units=units, nulls=nulls)
        case _:
            return _by_distinct(term, frame, types)


_ARITHMETIC: Final = frozenset("+-*")


def _in_units(term: Call, types: Mapping[str, Type]) -> bool:
    """Whether arithmetic on units is what the function computes: of integers, and of decimals whose result is not rounded."""
    gives, (one, two) = term_type(term, types), (term_type(argument, types) for argument in term.arguments)
    if gives.kind is Kind.NUMBER:
        return one.kind is two.kind is Kind.NUMBER
    # The functors of Datalog give decimals of their first argument's type, and round.
    if term.gives is None or not gives.kind is one.kind is two.kind is Kind.DECIMAL:
        return False
    return gives.scale >= (one.scale + two.scale if term.functor == "*" else max(one.scale, two.scale))


class Operand(NamedTuple):
    """A term in units: a column, or one number for all bindings. `nulls`: where it is NULL; None where it nowhere is."""

    units: Array | int
    nulls: Array | None
    type: Type


def _operand(term: Term, frame: Bindings, types: Mapping[str, Type]) -> Operand:
    if isinstance(term, Constant) and term.value is not None and (convert := units_of(term.type)) is not None:
        units = convert(term.value)
        if abs(units) <= MOST:
            return Operand(units, None, term.type)
    vector = vector_of(term, frame, types)
    return Operand(vector.units(), vector.nulls(), vector.type)


def _arithmetic(functor: str, one: Operand, two: Operand, gives: Type) -> tuple[Array | int, Array | None]:
    a, b = one.units, two.units
    most_a, most_b = _most(a), _most(b)
    if functor == "*":
        factor = 10 ** (gives.scale - one.type.scale - two.type.scale)
        bound = most_a * most_b * factor
        left = right = 1
    else:
        left, right, factor = 10 ** (gives.scale - one.type.scale), 10 ** (gives.scale - two.type.scale), 1
        bound = most_a * left + most_b * right
    if bound > MOST:
        raise NotByColumn("a result may not fit 64 bits")
    if functor == "*":
        units = a * b * factor if factor > 1 else a * b
    else:
        a, b = a * left if left > 1 else a, b * right if right > 1 else b
        units = a + b if functor == "+" else a - b
    if gives.kind is Kind.DECIMAL and bound >= 10**gives.precision and _most(units) >= 10**gives.precision:
        raise NotByColumn("a result may not fit its type")
    return units, _either(one.nulls, two.nulls)


def _most(units: Array | int) -> int:
    if not isinstance(units, np.ndarray):
        return abs(units)
    return max(abs(int(units.min())), abs(int(units.max()))) if len(units) else 0


def _either(one: Array | None, two: Array | None) -> Array | None:
    return two if one is None else one if two is None else one | two


def _by_distinct(term: Term, frame: Bindings, types: Mapping[str, Type]) -> Vector:
    """The function for rows, once for each distinct combination of the variables' values."""
    names = list(dict.fromkeys(v.name for v in variables(term)))
    gives = term_type(term, types)
    function = row_function(term, names, types)
    # A functor of Datalog gives NULL where an argument is NULL; the functions of SQL see to that themselves.
    strict = isinstance(term, Call) and term.gives is None

    def value(row: tuple[Value, ...]) -> Value:
        return None if strict and None in row else function(row)

    vectors = [frame.vectors[name] for name in names]
    found, numbers = _each_distinct(value, vectors, frame.count)
    return Vector(frame.space, gives, frame.space.encode(gives, found)[numbers])


def _each_distinct(
    function: Callable[[tuple[Value, ...]], Any], vectors: Sequence[Vector], count: int
) -> tuple[list[Any], Array]:
    numbers, first = group_numbers([vector.identity() for vector in vectors], count)
    columns = [vector.take(first).values() for vector in vectors]
    rows = zip(*columns, strict=True) if columns else [()] * len(first)
    try:
        return list(map(function, rows)), numbers
    except ScalarError as error:
        raise NotByColumn(str(error)) from None


def holds(comparison: Comparison, frame: Bindings, types: Mapping[str, Type]) -> Array:
    """For which bindings a comparison holds."""
    left, right = comparison.left, comparison.right
    if comparison.operator in (Operator.EQ, Operator.NE) and not isinstance(left, Call) and not isinstance(right, Call):
        # Identical values, and only they, share a code; NULL is one of them.
        equal: Array = _COMPARE[comparison.operator](frame.codes(left), frame.codes(right))
        return equal
    gives = term_type(left, types)
    if comparison.operator in _COMPARE and gives == term_type(right, types) and units_of(gives) is not None:
        return _units_hold(comparison.operator, _operand(left, frame, types), _operand(right, frame, types), frame.count)
    vectors = vector_of(left, frame, types), vector_of(right, frame, types)
    found, numbers = _each_distinct(_row_test(comparison.operator), vectors, frame.count)
    result: Array = np.array(found, np.bool_)[numbers]
    return result


def _units_hold(operator_: Operator, one: Operand, two: Operand, count: int) -> Array:
    compared = _COMPARE[operator_](one.units, two.units)
    result: Array = compared if isinstance(compared, np.ndarray) else np.full(count, compared, np.bool_)
    first, second = one.nulls, two.nulls
    if first is None and second is None:
        return result
    nothing = np.zeros(count, np.bool_)
    first, second = first if first is not None else nothing, second if second is not None else nothing
    match operator_:
        # As values of rows: NULL equals NULL and nothing else, and it is not more or less than anything.
        case Operator.EQ:
            return np.where(first | second, first & second, result)
        case Operator.NE:
            return np.where(first | second, first ^ second, result)
        case _:
            return result & ~(first | second)


def _row_test(operator_: Operator) -> Callable[[tuple[Value, ...]], bool]:
    """The test of two values, as compiled rules make it."""
    match operator_:
        case Operator.EQ:
            return lambda pair: pair[0] == pair[1]
        case Operator.NE:
            return lambda pair: pair[0] != pair[1]
        case Operator.MATCH | Operator.NOT_MATCH:
            test: Callable[[Any, Any], bool] = is_match
        case Operator.CONTAINS | Operator.NOT_CONTAINS:
            test = contains
        case _:
            test = _COMPARE[operator_]
    negated = operator_ in (Operator.NOT_MATCH, Operator.NOT_CONTAINS)
    return lambda pair: None not in pair and bool(test(*pair)) != negated


_COMPARE: Final[dict[Operator, Callable[[Any, Any], Any]]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
}
