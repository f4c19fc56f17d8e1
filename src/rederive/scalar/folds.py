"""Aggregates that need all values of a group: what they compute, for both engines, as Spark does in its ANSI mode.

A fold gets the arguments of the rows of a group, in the order of the aggregate. Rows in which an argument is NULL do not count,
except for the value of `max_by` and `min_by`. Moments are computed from exact fractions and rounded once; they are NaN where a
value is not finite.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from rederive.ir.floats import NAN, canonical
from rederive.ir.nested import Array
from rederive.ir.rules import Aggregate, Function, Order
from rederive.ir.terms import Row, Type, Value
from rederive.scalar.failures import ScalarError, check_length
from rederive.scalar.totals import Total, count_units, total_result

Arguments = Sequence[tuple[Any, ...]]
Fold = Callable[[Arguments, tuple[Value, ...]], Value]


def fold_of(aggregate: Aggregate, types: Sequence[Type], gives: Type) -> Callable[[Sequence[Row]], Value]:
    """The result of an aggregate over rows of its source, which are not empty; OverflowError if it does not fit its type.

    `types` are those of the source's columns.
    """
    columns, parameters, function = aggregate.arguments, aggregate.parameters, aggregate.function
    compute = _fold(function, types[columns[0]] if columns else None, gives)
    by = (*aggregate.order, *map(Order, columns)) if aggregate.order or function in _BY_VALUE else ()

    def result(rows: Sequence[Row]) -> Value:
        if by:
            rows = sort_rows(rows, by)
        found = [tuple([row[i] for i in columns]) for row in rows]
        if function not in _BY_OTHER:
            return compute([row for row in found if None not in row], parameters)
        return compute([row for row in found if row[1] is not None], parameters)

    return result


def _fold(function: Function, value: Type | None, gives: Type) -> Fold:
    match function:
        case Function.COUNT | Function.SUM | Function.MEAN:
            units = count_units(value) if function is not Function.COUNT else lambda _: 0
            return lambda rows, _: total_result(
                function, Total(len(rows), sum(units(row[0]) for row in rows), len(rows)), value, gives
            )
        case Function.MIN:
            return lambda rows, _: min((row[0] for row in rows), default=None)
        case Function.MAX:
            return lambda rows, _: max((row[0] for row in rows), default=None)
    found = _of_finite(FOLDS[function], _MOMENTS[function]) if function in _MOMENTS else FOLDS[function]
    if function in _COLLECTING:
        return found
    return lambda rows, parameters: found(rows, parameters) if rows else None


def _of_finite(moment: Fold, least: int) -> Fold:
    """The moment, which is NaN where a value is not finite; NULL of fewer rows than `least`."""

    def compute(rows: Arguments, parameters: tuple[Value, ...]) -> Value:
        if len(rows) < least or all(math.isfinite(value) for row in rows for value in row):
            return moment(rows, parameters) if len(rows) >= least else None
        return NAN

    return compute


def sort_rows(rows: Sequence[Row], by: Sequence[Order]) -> list[Row]:
    """The rows in an order of columns; NULL is before or after all values, as the order says."""
    found = list(rows)
    # Sorting is stable: the last column first, each one by itself.
    for order in reversed(by):
        found.sort(key=_sort_key(order), reverse=order.descending)
    return found


def _sort_key(order: Order) -> Callable[[Row], tuple[bool, Any]]:
    column, null_is_less = order.column, order.nulls_first != order.descending

    def key(row: Row) -> tuple[bool, Any]:
        value = row[column]
        return (not null_is_less, 0) if value is None else (null_is_less, value)

    return key


# Moments


def _central(rows: Arguments, power: int, column: int = 0) -> Fraction:
    """The sum of a power of the distances from the mean."""
    values = [Fraction(row[column]) for row in rows]
    mean = sum(values, Fraction()) / len(values)
    return sum(((value - mean) ** power for value in values), Fraction())


def _variance(rows: Arguments, less: int) -> Fraction | None:
    """The variance, by the number of rows less 0 or 1; NULL where Spark would divide by zero."""
    return _central(rows, 2) / (len(rows) - less) if len(rows) > less else None


def _root(value: Fraction | None) -> float | None:
    return math.sqrt(_nearest(value)) if value is not None else None


def _as_float(value: Fraction | None) -> float | None:
    return _nearest(value) if value is not None else None


def _nearest(value: Fraction) -> float:
    """The nearest float; an infinity beyond them."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value.numerator)


def _products(rows: Arguments) -> Fraction:
    """The sum of the products of the distances of two arguments from their means."""
    pairs = [(Fraction(x), Fraction(y)) for x, y in rows]
    means = [sum((pair[i] for pair in pairs), Fraction()) / len(pairs) for i in (0, 1)]
    return sum(((x - means[0]) * (y - means[1]) for x, y in pairs), Fraction())


def _covariance(rows: Arguments, less: int) -> float | None:
    return _nearest(_products(rows) / (len(rows) - less)) if len(rows) > less else None


def _correlation(rows: Arguments) -> float | None:
    if len(rows) == 1:
        return None
    spread = _central(rows, 2, 0) * _central(rows, 2, 1)
    if not spread:
        raise ScalarError("corr of an argument that has one value divides by zero")
    # The sign and the exact square: rounding happens in the root alone, so that a perfect correlation is 1.
    products = _products(rows)
    return math.copysign(math.sqrt(products**2 / spread), products)


def _skewness(rows: Arguments) -> float | None:
    second = _central(rows, 2)
    return float(_central(rows, 3)) * math.sqrt(len(rows)) / math.sqrt(second**3) if second else None


def _kurtosis(rows: Arguments) -> float | None:
    second = _central(rows, 2)
    return float(len(rows) * _central(rows, 4) / second**2 - 3) if second else None


# Values by their order


def _percentile(rows: Arguments, percentage: Value) -> float:
    """The value at a share of the sorted values, interpolated as Spark does it, in floats."""
    position = (len(rows) - 1) * float(percentage)  # type: ignore[arg-type]
    low, high = math.floor(position), math.ceil(position)
    below, above = canonical(float(rows[low][0])), canonical(float(rows[high][0]))
    return below if below == above else canonical((high - position) * below + (position - low) * above)


def _percentile_disc(rows: Arguments, percentage: Value) -> Value:
    """The first value in order for which the share of the values up to it reaches the percentage."""
    place = math.ceil(len(rows) * float(percentage))  # type: ignore[arg-type]
    return rows[max(place, 1) - 1][0]  # type: ignore[no-any-return]


def _mode(rows: Arguments) -> Value:
    """The most frequent value; among several, the first in the order."""
    (value, _), *_ = Counter(row[0] for row in rows).most_common(1)
    return value  # type: ignore[no-any-return]


def _joined(rows: Arguments, separator: str) -> str:
    texts = [row[0] for row in rows]
    check_length(sum(map(len, texts)) + len(separator) * (len(texts) - 1))
    return separator.join(texts)


def _product(rows: Arguments) -> float:
    if not all(math.isfinite(row[0]) for row in rows):
        return canonical(math.prod(float(row[0]) for row in rows))
    return _nearest(math.prod((Fraction(row[0]) for row in rows), start=Fraction(1)))


def _last_by(rows: Arguments, pick: Callable[..., Any]) -> Value:
    """The value of the row with the extreme key; among several, the greatest for `max`, the least for `min`."""
    best = pick(row[1] for row in rows)
    values = [row[0] for row in rows if row[1] == best]
    return pick((value for value in values if value is not None), default=None)  # type: ignore[no-any-return]


FOLDS: Final[dict[Function, Fold]] = {
    Function.VAR_POP: lambda rows, _: _as_float(_variance(rows, 0)),
    Function.VAR_SAMP: lambda rows, _: _as_float(_variance(rows, 1)),
    Function.STDDEV_POP: lambda rows, _: _root(_variance(rows, 0)),
    Function.STDDEV_SAMP: lambda rows, _: _root(_variance(rows, 1)),
    Function.SKEWNESS: lambda rows, _: _skewness(rows),
    Function.KURTOSIS: lambda rows, _: _kurtosis(rows),
    Function.COVAR_POP: lambda rows, _: _covariance(rows, 0),
    Function.COVAR_SAMP: lambda rows, _: _covariance(rows, 1),
    Function.CORR: lambda rows, _: _correlation(rows),
    Function.PERCENTILE: lambda rows, parameters: _percentile(rows, parameters[0]),
    Function.PERCENTILE_DISC: lambda rows, parameters: _percentile_disc(rows, parameters[0]),
    Function.MODE: lambda rows, _: _mode(rows),
    Function.LISTAGG: lambda rows, parameters: _joined(rows, str(parameters[0])),
    Function.COLLECT_LIST: lambda rows, _: Array(row[0] for row in rows),
    Function.COLLECT_SET: lambda rows, _: Array(dict.fromkeys(row[0] for row in rows)),
    Function.MAX_BY: lambda rows, _: _last_by(rows, max),
    Function.MIN_BY: lambda rows, _: _last_by(rows, min),
    Function.BIT_AND: lambda rows, _: reduce(operator.and_, (row[0] for row in rows)),
    Function.BIT_OR: lambda rows, _: reduce(operator.or_, (row[0] for row in rows)),
    Function.BIT_XOR: lambda rows, _: reduce(operator.xor, (row[0] for row in rows)),
    Function.PRODUCT: lambda rows, _: _product(rows),
}
# The moments, and of how many rows on they have a value.
_MOMENTS: Final = {
    **dict.fromkeys((Function.VAR_POP, Function.STDDEV_POP, Function.COVAR_POP, Function.SKEWNESS, Function.KURTOSIS), 1),
    **dict.fromkeys((Function.VAR_SAMP, Function.STDDEV_SAMP, Function.COVAR_SAMP, Function.CORR), 2),
}
# Of a group without values, these give an array without elements.
_COLLECTING: Final = frozenset({Function.COLLECT_LIST, Function.COLLECT_SET})
_BY_VALUE: Final = frozenset({Function.PERCENTILE, Function.PERCENTILE_DISC, Function.MODE, Function.LISTAGG, *_COLLECTING})
_BY_OTHER: Final = frozenset({Function.MAX_BY, Function.MIN_BY})
