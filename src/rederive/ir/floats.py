"""The one NaN, the one zero, and floats of 32 bits: what Spark finds equal is equal."""

from __future__ import annotations

import math
from ctypes import c_float
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final


class NaN(float):
    """Not a number. As in Spark, it equals itself and is greater than every other number.

    Python asks the class of the right operand first where that is a subclass of the left one's, so `1.0 < NAN` comes here too.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other or bool(isinstance(other, float) and float.__ne__(other, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return 0x7FF8

    def __lt__(self, other: float) -> bool:
        return False

    def __le__(self, other: float) -> bool:
        return self == other

    def __gt__(self, other: float) -> bool:
        return self != other

    def __ge__(self, other: float) -> bool:
        return True

    # The others give a plain NaN, which `canonical` replaces.
    def __add__(self, other: Any) -> NaN:
        return self

    __radd__ = __add__

    def __reduce__(self) -> str:
        return "NAN"


NAN: Final = NaN("nan")


def canonical(value: float) -> float:
    """The one float of all that are equal: one NaN, and 0.0 for -0.0.

    >>> canonical(float("nan")) is NAN, canonical(-0.0), sorted([NAN, 1.0, float("inf")])
    (True, 0.0, [1.0, inf, nan])
    """
    # -0.0 + 0.0 is 0.0 in IEEE 754, and no other number changes.
    return value + 0.0 if value == value else NAN


def single(value: float) -> float:
    """The nearest number of 32 bits; beyond their range an infinity, as in Java.

    >>> single(0.1), single(1e39)
    (0.10000000149011612, inf)
    """
    return canonical(c_float(value).value)


def nearest_single(exact: int | Decimal) -> float:
    """The number of 32 bits that is nearest to an exact one, which rounding to 64 bits first may miss.

    >>> nearest_single(16777217), nearest_single(Decimal("1.000000178813934326171874"))
    (16777216.0, 1.0000001192092896)
    """
    double = float(exact)
    if not math.isfinite(double) or (rest := Fraction(exact) - Fraction(double)) == 0:
        return single(double)
    beyond = math.nextafter(double, math.inf if rest > 0 else -math.inf)
    here, there = single(double), single(beyond)
    # The exact number is between two neighbours of 64 bits. Where they round differently, one of them is the middle.
    return there if here != there and _is_middle(double) else here


def _is_middle(double: float) -> bool:
    """Whether a number is as far from the next less number of 32 bits as from the next greater one."""
    nearest = c_float(double).value
    if math.isinf(nearest):
        return abs(double) == _BEYOND_SINGLE
    return abs(double) == _BEYOND_SINGLE or (nearest != double and c_float(2 * double - nearest).value == 2 * double - nearest)


_BEYOND_SINGLE: Final = 2.0**128 - 2.0**103  # the least number that rounds to an infinity of 32 bits
