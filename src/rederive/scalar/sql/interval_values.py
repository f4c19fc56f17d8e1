"""Intervals of days and parts of a day as values: differences of times, and arithmetic with them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from rederive.ir.terms import UTC
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn, Implementation
from rederive.scalar.sql.calendar_steps import MICROSECONDS
from rederive.scalar.sql.casts import wall_time
from rederive.scalar.sql.dates import DATES

MICROSECOND: Final = datetime.timedelta(microseconds=1)
_MOST: Final = 2**63 - 1  # microseconds of Spark's intervals
_ADD: Final = next(found.compute for found in DATES if found.name == "add_micros")


def _difference(end: Any, start: Any, zone: str = UTC) -> datetime.timedelta:
    """The time between two dates, or between the wall times of two timestamps."""
    if isinstance(end, datetime.datetime):
        return wall_time(end, zone) - wall_time(start, zone)
    return end - start  # type: ignore[no-any-return]


def _plus(moment: datetime.datetime, interval: datetime.timedelta, zone: str = UTC) -> Any:
    return _ADD(moment, interval // MICROSECOND, zone)


def _checked(compute: Callable[..., datetime.timedelta]) -> Implementation:
    """The computation, unless its result is longer than an interval can be."""

    def checked(*arguments: Any) -> datetime.timedelta:
        try:
            found = compute(*arguments)
        except OverflowError:
            raise ScalarError("overflow: the interval is too long") from None
        if abs(found // MICROSECOND) > _MOST:
            raise ScalarError("overflow: the interval is too long")
        return found

    return checked


def _times(interval: datetime.timedelta, factor: Any) -> datetime.timedelta:
    if isinstance(factor, float) and not math.isfinite(factor):
        raise ScalarError("an interval times NaN or an infinity")
    exact = Decimal(interval // MICROSECOND) * (Decimal(repr(factor)) if isinstance(factor, float) else Decimal(factor))
    return datetime.timedelta(microseconds=int(exact.quantize(Decimal(1), ROUND_HALF_UP)))


def _divided(interval: datetime.timedelta, by: Any) -> datetime.timedelta:
    if by == 0:
        raise ScalarError("division by zero")
    if isinstance(by, float) and not math.isfinite(by):
        return _by_infinity(by)
    exact = Decimal(interval // MICROSECOND) / (Decimal(repr(by)) if isinstance(by, float) else Decimal(by))
    return datetime.timedelta(microseconds=int(exact.quantize(Decimal(1), ROUND_HALF_UP)))


def _by_infinity(by: float) -> datetime.timedelta:
    if math.isnan(by):
        raise ScalarError("an interval divided by NaN")
    return datetime.timedelta()


def _part(unit: str, interval: datetime.timedelta) -> Any:
    """A part of an interval, with its sign: the days, or the hours, minutes or seconds of the day."""
    micros = interval // MICROSECOND
    sign, rest = (-1, -micros) if micros < 0 else (1, micros)
    if unit == "DAY":
        return sign * (rest // MICROSECONDS["DAY"])
    if unit == "SECOND":
        return Decimal(sign * (rest % MICROSECONDS["MINUTE"])).scaleb(-6)
    larger = {"HOUR": "DAY", "MINUTE": "HOUR"}[unit]
    return sign * (rest % MICROSECONDS[larger] // MICROSECONDS[unit])


def _make(days: int = 0, hours: int = 0, minutes: int = 0, seconds: Decimal = Decimal(0)) -> datetime.timedelta:
    return datetime.timedelta(days=days, hours=hours, minutes=minutes, microseconds=int(seconds.scaleb(6)))


INTERVALS: Final = (
    BuiltIn("time difference", "any, any -> interval", _difference, fallible=True, zoned=True),
    BuiltIn("time plus", "timestamp, interval -> timestamp", _plus, fallible=True, zoned=True),
    BuiltIn("interval plus", "interval, interval -> interval", _checked(lambda one, two: one + two), fallible=True),
    BuiltIn("interval minus", "interval, interval -> interval", _checked(lambda one, two: one - two), fallible=True),
    BuiltIn("interval times", "interval, number -> interval", _checked(_times), fallible=True),
    BuiltIn("interval by", "interval, number -> interval", _checked(_divided), fallible=True),
    BuiltIn("interval micros", "interval -> bigint", lambda interval: interval // MICROSECOND),
    BuiltIn(
        "interval of micros",
        "bigint -> interval",
        _checked(lambda micros: datetime.timedelta(microseconds=micros)),
        fallible=True,
    ),
    BuiltIn("interval part", "string, interval -> int", _part),
    BuiltIn("make_dt_interval", "[int], [int], [int], [decimal] -> interval", _checked(_make), fallible=True),
)
