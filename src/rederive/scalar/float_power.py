"""The power of two floats, in Datalog and in SQL."""

from __future__ import annotations

import math

from rederive.ir.floats import NAN, canonical


def power(base: float, exponent: float) -> float:
    """As Java's pow, which differs from C's for a base of 1 or -1: NaN outside of its domain, an infinity where it overflows.

    >>> power(2.0, 0.5) == math.sqrt(2), power(-8.0, 0.5), power(-10.0, 401.0), power(0.0, -1.0)
    (True, nan, -inf, inf)
    """
    if abs(base) == 1 and not math.isfinite(exponent):
        return NAN
    if base == 0 and exponent < 0:
        return math.inf
    try:
        return canonical(math.pow(base, exponent))
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        return NAN
