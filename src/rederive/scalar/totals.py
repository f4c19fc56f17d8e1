"""Counts, sums and means from exact totals: whole numbers of a small unit, which do not depend on the order of rows.

A sum of floats has digits above those of all finite sums, which count the values that are NaN, Infinity and -Infinity. So one
integer is the whole total, and whatever leaves a group is subtracted like all else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final, NamedTuple

from rederive.ir.floats import NAN
from rederive.ir.rules import Function
from rederive.ir.terms import Kind, Type, Value
from rederive.values import INTEGER_RANGES

FLOAT_UNIT: Final = 2**1074  # every finite float is a whole number of these parts of one
_FINITE: Final = 2200  # bits: a float is below 2**1024, so 2**100 of them are below half of this
_COUNT: Final = 100  # bits of a count of values
NOT_FINITE: Final = tuple(1 << _FINITE + _COUNT * i for i in range(3))
"""What one NaN, one Infinity and one -Infinity add to a sum of floats."""
# Digits: decimals have at most 38, and the quotient of a mean is rounded to the result's scale afterwards.
_EXACT: Final = Context(prec=100, rounding=ROUND_HALF_UP)


class Total(NamedTuple):
    """The state of a group. `values`: how many of the rows have a value that is not NULL; the others neither count nor add."""

    rows: int = 0
    sum: int = 0
    values: int = 0

    def plus(self, times: int, units: int) -> Total:
        """Return the total after so many rows with a value of this many units enter, or leave where `times` is negative."""
        return Total(self.rows + times, self.sum + units * times, self.values + times)

    def plus_null(self, times: int) -> Total:
        """Return the total after so many rows whose value is NULL enter or leave."""
        return Total(self.rows + times, self.sum, self.values)


EMPTY: Final = Total()


def total_result(function: Function, total: Total, value: Type | None, gives: Type) -> Value:
    """The count, sum or mean of a group; OverflowError if it does not fit its type.

    >>> from rederive.ir.terms import FLOAT, NUMBER
    >>> total_result(Function.MEAN, Total(3, 3, 2), NUMBER, FLOAT)
    1.5
    """
    match function:
        # COUNT of no values is 0; every other function of no values is NULL.
        case Function.COUNT:
            return total.values
        case _ if not total.values:
            return None
        case Function.MEAN if gives.kind is Kind.DECIMAL:
            quotient = _EXACT.divide(Decimal(total.sum), Decimal(total.values * unit_of(value)))
            # Rounded half up to the result's scale.
            return _EXACT.quantize(quotient, Decimal(1).scaleb(-gives.scale))
        case Function.MEAN:
            return _quotient(total.sum, unit_of(value) * total.values)
        case _:
            return _sum(total.sum, value, gives)


def _quotient(units: int, unit: int) -> float:
    """The float nearest to a sum or a mean; an infinity beyond all floats, and what values that are not finite make of it."""
    above = (units + (1 << _FINITE - 1)) >> _FINITE
    if not above:
        try:
            return units / unit
        except OverflowError:
            return math.inf if units > 0 else -math.inf
    nans, infinities, negatives = (above >> _COUNT * i & (1 << _COUNT) - 1 for i in range(3))
    return NAN if nans or (infinities and negatives) else math.inf if infinities else -math.inf


def _sum(units: int, value: Type | None, gives: Type) -> Value:
    assert value is not None
    match value.kind:
        case Kind.FLOAT:
            return _quotient(units, FLOAT_UNIT)
        # A sum that does not fit the result's type fails; it never wraps around.
        case Kind.DECIMAL if abs(units) < 10**gives.precision:
            return Decimal(units).scaleb(-value.scale, _EXACT)
        case Kind.NUMBER | Kind.UNSIGNED as kind if INTEGER_RANGES[kind][0] <= units <= INTEGER_RANGES[kind][1]:
            return units
    raise OverflowError


def unit_of(type_: Type | None) -> int:
    """How many parts of one the exact sums of this type count in."""
    match type_:
        case Type(Kind.FLOAT):
            return FLOAT_UNIT
        case Type(Kind.DECIMAL, _, scale):
            return int(10**scale)
        case _:
            return 1


def count_units(type_: Type | None) -> Callable[[Any], int]:
    """The function that counts the units of a value."""
    match type_:
        case Type(Kind.FLOAT):
            return _float_units
        case Type(Kind.DECIMAL, _, scale):
            return lambda value: int(value.scaleb(scale, _EXACT))
        case _:
            return lambda value: int(value)


def _float_units(value: float) -> int:
    if not math.isfinite(value):
        return NOT_FINITE[0 if math.isnan(value) else 1 if value > 0 else 2]
    # The denominator of a finite float is a power of two that divides FLOAT_UNIT.
    numerator, denominator = value.as_integer_ratio()
    return numerator * (FLOAT_UNIT // denominator)
