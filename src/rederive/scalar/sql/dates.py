"""Functions of dates and timestamps. Outside UTC, the last argument of some is the time zone."""

from __future__ import annotations

import calendar
import datetime
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from rederive.ir.terms import TIMESTAMP, UTC
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn, Implementation
from rederive.scalar.sql.casts import to_timestamp, wall_time
from rederive.scalar.sql.numbers import divide_toward_zero
from rederive.time_zones import from_wall, offset_at

_SOME_DAY: Final = datetime.datetime(2000, 1, 1)
_DAY: Final = 86_400  # seconds
_WITHIN_A_DAY: Final = ("day", "dd", "hour", "minute", "second", "millisecond", "microsecond")


def _instant(wall: datetime.datetime, zone: str, like: datetime.datetime) -> datetime.datetime:
    """The instant of a wall time. If clocks show the time twice, it is the instant with the offset of `like`."""
    try:
        return from_wall(wall, zone, offset_at(like, zone))
    except OverflowError:
        raise ScalarError(f"overflow: {wall} in {zone}") from None


def _on_wall(move: Implementation) -> Implementation:
    """The step of a calendar. For a timestamp in a zone, it is a step of the wall time."""

    def moved(moment: Any, amount: int, zone: str = UTC) -> Any:
        return move(moment, amount) if zone == UTC else _instant(move(wall_time(moment, zone), amount), zone, moment)

    return moved


def _add_seconds(moment: datetime.datetime, amount: int, zone: str = UTC) -> Any:
    """Add seconds. In a zone, whole days are days of the calendar, and the rest is elapsed time."""
    # A day of the calendar has 23 or 25 hours where clocks change.
    days = divide_toward_zero(amount, _DAY) if zone != UTC else 0
    return _add("seconds", _on_wall(partial(_add, "days"))(moment, days, zone) if days else moment, amount - days * _DAY)


def _add_micros(moment: datetime.datetime, amount: int, zone: str = UTC) -> Any:
    """Add microseconds, as `_add_seconds` adds seconds."""
    seconds = divide_toward_zero(amount, 1_000_000)
    return _add("microseconds", _add_seconds(moment, seconds, zone), amount - seconds * 1_000_000)


def _on_some_day(moment: datetime.datetime) -> datetime.datetime:
    return datetime.datetime.combine(_SOME_DAY, moment.time())


def _clock(part: Callable[[datetime.datetime], int]) -> Implementation:
    """A part of the wall time. It is computed on a fixed day, so that no zone moves it out of the calendar."""

    def shown(moment: datetime.datetime, zone: str = UTC) -> int:
        return part(moment) if zone == UTC else part(_on_some_day(moment) + offset_at(moment, zone))

    return shown


def _date_trunc(unit: str, moment: datetime.datetime, zone: str = UTC) -> datetime.datetime | None:
    if zone == UTC:
        return _cut(moment, unit)  # type: ignore[no-any-return]
    # A unit longer than a day starts with the first instant of its first day, which is not midnight if clocks skip it.
    cut = _cut(wall_time(moment, zone), unit)
    if cut is None or unit.lower() in _WITHIN_A_DAY:
        return cut if cut is None else _instant(cut, zone, moment)
    return to_timestamp(TIMESTAMP, cut.date(), zone)


def _add_months(date: Any, months: int) -> Any:
    """Add months; the day is at most the last day of the resulting month."""
    year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
    try:
        return date.replace(year=year, month=month + 1, day=min(date.day, calendar.monthrange(year, month + 1)[1]))
    except (ValueError, OverflowError):
        raise ScalarError(f"overflow: {date} plus {months} months") from None


def _add(unit: str, moment: Any, amount: int) -> Any:
    try:
        return moment + datetime.timedelta(**{unit: amount})
    except OverflowError:
        raise ScalarError(f"overflow: {moment} plus {amount} {unit}") from None


def _trunc(date: Any, unit: str) -> Any:
    """The first day of a year, quarter, month or week; NULL for other units."""
    match unit.lower():
        case "year" | "yyyy" | "yy":
            return _midnight(date).replace(month=1, day=1)
        case "quarter":
            return _midnight(date).replace(month=(date.month - 1) // 3 * 3 + 1, day=1)
        case "month" | "mon" | "mm":
            return _midnight(date).replace(day=1)
        case "week":
            return _midnight(date) - datetime.timedelta(days=date.weekday())
        case _:
            return None


def _cut(moment: Any, unit: str) -> Any:
    """The first moment of a unit; NULL if there is no such unit."""
    match unit.lower():
        case "day" | "dd":
            return _midnight(moment)
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "minute":
            return moment.replace(second=0, microsecond=0)
        case "second":
            return moment.replace(microsecond=0)
        case "millisecond":
            return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        case "microsecond":
            return moment
        case _:
            return _trunc(moment, unit)


def _midnight(date: Any) -> Any:
    return datetime.datetime(date.year, date.month, date.day) if isinstance(date, datetime.datetime) else date


DATES: Final = (
    BuiltIn("add_days", "date, int -> date", _on_wall(partial(_add, "days")), fallible=True, zoned=True),
    BuiltIn("add_seconds", "timestamp, bigint -> timestamp", _add_seconds, fallible=True, zoned=True),
    BuiltIn("add_micros", "timestamp, bigint -> timestamp", _add_micros, fallible=True, zoned=True),
    BuiltIn("add_months", "date, int -> date", _on_wall(_add_months), fallible=True, zoned=True),
    BuiltIn("year", "date -> int", lambda date: date.year),
    BuiltIn("month", "date -> int", lambda date: date.month),
    BuiltIn("day", "date -> int", lambda date: date.day, aliases=("dayofmonth",)),
    BuiltIn("quarter", "date -> int", lambda date: (date.month + 2) // 3),
    BuiltIn("hour", "timestamp -> int", _clock(lambda clock: clock.hour), zoned=True),
    BuiltIn("minute", "timestamp -> int", _clock(lambda clock: clock.minute), zoned=True),
    BuiltIn("second", "timestamp -> int", _clock(lambda clock: clock.second), zoned=True),
    # Sunday is 1. Weeks are those of ISO 8601.
    BuiltIn("dayofweek", "date -> int", lambda date: date.isoweekday() % 7 + 1),
    BuiltIn("weekday", "date -> int", lambda date: date.weekday()),
    BuiltIn("dayofyear", "date -> int", lambda date: date.timetuple().tm_yday),
    BuiltIn("weekofyear", "date -> int", lambda date: date.isocalendar().week),
    BuiltIn("last_day", "date -> date", lambda date: date.replace(day=calendar.monthrange(date.year, date.month)[1])),
    BuiltIn("datediff", "date, date -> int", lambda end, start: (end - start).days, aliases=("date_diff",)),
    # A unit that does not exist gives NULL, and no error.
    BuiltIn("trunc", "date, string -> date", _trunc, maybe_null=True),
    BuiltIn("date_trunc", "string, timestamp -> timestamp", _date_trunc, maybe_null=True, zoned=True),
)
