"""Distances and steps in time: differences in units, months between, and numbers of seconds since 1970."""

from __future__ import annotations

import calendar
import datetime
import math
from decimal import Decimal
from typing import Any, Final

from rederive.errors import UnknownOption
from rederive.ir.terms import UTC
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.casts import wall_time
from rederive.scalar.sql.date_formats import DAYS, MONTHS, date_format, parse_timestamp
from rederive.scalar.sql.numbers import divide_toward_zero
from rederive.time_zones import from_wall, to_wall, zone_name

EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
MICROSECONDS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 7 * 86_400_000_000,
}
"""The length of a unit in microseconds."""
MONTH_UNITS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
"""The length of a unit in months."""


def _timestamp_diff(unit: str, start: datetime.datetime, end: datetime.datetime, zone: str = UTC) -> int:
    """timestampdiff: the whole units between two wall times, cut toward zero."""
    start, end = wall_time(start, zone), wall_time(end, zone)
    if unit in MONTH_UNITS:
        return divide_toward_zero(_whole_months(start, end), MONTH_UNITS[unit])
    return divide_toward_zero((end - start) // _MICROSECOND, MICROSECONDS[unit])


def _whole_months(start: datetime.datetime, end: datetime.datetime) -> int:
    months = (end.year - start.year) * 12 + end.month - start.month
    rest = (end.day, end.time()) < (start.day, start.time()), (end.day, end.time()) > (start.day, start.time())
    # The last month does not count if its day and time are not reached.
    return months - 1 if months > 0 and rest[0] else months + 1 if months < 0 and rest[1] else months


def _months_between(end: datetime.datetime, start: datetime.datetime, rounds: bool, zone: str = UTC) -> float:
    """months_between: whole if both are the same day of the month or the last one; else with a month of 31 days."""
    end, start = wall_time(end, zone), wall_time(start, zone)
    months = (end.year - start.year) * 12 + end.month - start.month
    last = all(day.day == calendar.monthrange(day.year, day.month)[1] for day in (end, start))
    if end.day == start.day or last:
        return float(months)
    seconds = (end.day - start.day) * 86_400 + _second_of_day(end) - _second_of_day(start)
    found = months + seconds / (31 * 86_400)
    return math.floor(found * 1e8 + 0.5) / 1e8 if rounds else found


def _second_of_day(wall: datetime.datetime) -> int:
    return wall.hour * 3600 + wall.minute * 60 + wall.second


def _next_day(day: datetime.date, name: str) -> datetime.date:
    wanted = name.strip().upper()
    number = next((i for i, full in enumerate(DAYS) if wanted in (full.upper(), full[:3].upper(), full[:2].upper())), None)
    if number is None:
        raise ScalarError(f"not a day of the week: {name!r}")
    try:
        return day + datetime.timedelta(days=(number - day.weekday() - 1) % 7 + 1)
    except OverflowError:
        raise ScalarError(f"overflow: the next {name} after {day}") from None


def _make_date(year: int, month: int, day: int) -> datetime.date:
    try:
        return datetime.date(year, month, day)
    except (ValueError, OverflowError):
        raise ScalarError(f"not a date: {year}-{month}-{day}") from None


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: Decimal, zone: str = UTC) -> Any:
    whole = int(second)
    micro = int((second - whole).scaleb(6))
    # As in PostgreSQL, 60 seconds are the next minute; 60.5 seconds are an error.
    carry = whole == 60 and micro == 0
    try:
        wall = datetime.datetime(year, month, day, hour, minute, 0 if carry else whole, micro)
        wall += datetime.timedelta(minutes=1 if carry else 0)
        return from_wall(wall, zone_name(zone)) if zone != UTC else wall
    except (ValueError, OverflowError, UnknownOption):
        raise ScalarError(f"not a timestamp: {year}-{month}-{day} {hour}:{minute}:{second} {zone}") from None


def _from_number(unit: int, number: Any) -> datetime.datetime:
    """The timestamp of a number of units since 1970; `unit` is in microseconds. Fractions of a microsecond are cut off."""
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    try:
        return EPOCH + int(exact * unit) * _MICROSECOND
    except OverflowError:
        raise ScalarError(f"overflow: {number} is too far from 1970") from None


def _from_seconds(number: Any) -> datetime.datetime | None:
    """As Spark, NULL for NaN and infinities."""
    return None if isinstance(number, float) and not math.isfinite(number) else _from_number(1_000_000, number)


def _in_zone(name: str) -> str:
    try:
        return zone_name(name)
    except UnknownOption:
        raise ScalarError(f"not a time zone: {name!r}") from None


def _from_utc(moment: datetime.datetime, zone: str) -> datetime.datetime:
    try:
        return to_wall(moment, _in_zone(zone))
    except OverflowError:
        raise ScalarError(f"overflow: {moment} in {zone}") from None


def _to_utc(moment: datetime.datetime, zone: str) -> datetime.datetime:
    try:
        return from_wall(moment, _in_zone(zone))
    except OverflowError:
        raise ScalarError(f"overflow: {moment} in {zone}") from None


def _from_days(days: int) -> datetime.date:
    try:
        return EPOCH.date() + datetime.timedelta(days=days)
    except OverflowError:
        raise ScalarError(f"overflow: {days} days since 1970") from None


def _from_unixtime(seconds: int, pattern: str, zone: str = UTC) -> str:
    return date_format(_from_number(1_000_000, seconds), pattern, zone)


def _window_start(moment: datetime.datetime, length: int, offset: int) -> datetime.datetime:
    """The start of the window of this length, in microseconds, that holds a moment. Windows are aligned with 1970 in UTC."""
    micros = (moment - EPOCH) // _MICROSECOND
    try:
        return EPOCH + (micros - (micros - offset) % length) * _MICROSECOND
    except OverflowError:
        raise ScalarError(f"overflow: the window of {moment}") from None


def _second_with_fraction(moment: datetime.datetime, zone: str = UTC) -> Decimal:
    moment = wall_time(moment, zone)  # early offsets have seconds
    return Decimal(moment.second * 10**6 + moment.microsecond).scaleb(-6)


STEPS: Final = (
    BuiltIn("date_format", "timestamp, string -> string", date_format, zoned=True, fallible=True),
    BuiltIn("parse_timestamp", "string, string -> timestamp", parse_timestamp, zoned=True, fallible=True),
    BuiltIn("timestampdiff", "string, timestamp, timestamp -> bigint", _timestamp_diff, zoned=True, fallible=True),
    BuiltIn("months_between", "timestamp, timestamp, boolean -> double", _months_between, zoned=True, fallible=True),
    BuiltIn("next_day", "date, string -> date", _next_day, fallible=True),
    BuiltIn("make_date", "int, int, int -> date", _make_date, fallible=True),
    BuiltIn(
        "make_timestamp", "int, int, int, int, int, decimal, [string] -> timestamp", _make_timestamp, zoned=True, fallible=True
    ),
    BuiltIn("window_start", "timestamp, bigint, bigint -> timestamp", _window_start, fallible=True),
    BuiltIn("dayname", "date -> string", lambda date: DAYS[date.weekday()][:3]),
    BuiltIn("monthname", "date -> string", lambda date: MONTHS[date.month - 1][:3]),
    BuiltIn("yearofweek", "date -> int", lambda date: date.isocalendar().year),
    BuiltIn("second_with_fraction", "timestamp -> decimal", _second_with_fraction, zoned=True),
    BuiltIn("unix_seconds", "timestamp -> bigint", lambda moment: (moment - EPOCH) // datetime.timedelta(seconds=1)),
    BuiltIn("unix_millis", "timestamp -> bigint", lambda moment: (moment - EPOCH) // datetime.timedelta(milliseconds=1)),
    BuiltIn("unix_micros", "timestamp -> bigint", lambda moment: (moment - EPOCH) // _MICROSECOND),
    BuiltIn("unix_date", "date -> int", lambda day: (day - EPOCH.date()).days),
    BuiltIn("date_from_unix_date", "int -> date", _from_days, fallible=True),
    BuiltIn("timestamp_seconds", "number -> timestamp", _from_seconds, fallible=True),
    BuiltIn("timestamp_millis", "bigint -> timestamp", lambda n: _from_number(1_000, n), fallible=True),
    BuiltIn("timestamp_micros", "bigint -> timestamp", lambda n: _from_number(1, n), fallible=True),
    BuiltIn("from_unixtime", "bigint, string -> string", _from_unixtime, zoned=True, fallible=True),
    BuiltIn("from_utc_timestamp", "timestamp, string -> timestamp", _from_utc, fallible=True),
    BuiltIn("to_utc_timestamp", "timestamp, string -> timestamp", _to_utc, fallible=True),
)
