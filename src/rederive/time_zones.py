"""Time zones: conversion between instants, which values of kind timestamp are, and wall times, as in Java and so in Spark.

An instant is a datetime without a zone, in UTC. A wall time is what the clocks of a zone show at an instant. When clocks are put
forward, a wall time in the gap means a time that is later by the gap; when they are put back, it means the first of the two
instants.

The rules come from the package tzdata on every machine, because systems differ for times before 1970.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

from rederive.errors import UnknownOption
from rederive.ir.terms import UTC as UTC_NAME

_FIRST, _LAST = datetime(1, 1, 2), datetime(9999, 12, 30)  # so far from the ends of the calendar that every wall time exists
# The limit of Java's ZoneOffset.
_FARTHEST: Final = timedelta(hours=18)
_SAME_AS_UTC: Final = frozenset({"UTC", "GMT", "UT", "Z", "UCT", "Zulu", "Universal", "Greenwich", "GMT0"})
_SHORT: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo",
    "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka", "CAT": "Africa/Harare",
    "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""The short names of Java."""
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?:(?<=\d\d)(\d\d)(\d\d)?|:(\d\d?)(?:(?<=:\d\d):(\d\d))?)?", re.ASCII)
_TEXT: Final = re.compile(
    r"\+?(?P<year>\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?(?P<zone>\D.*)?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)


def zone_name(given: str) -> str:
    """The name of a zone as databases store it: a region, an offset such as `+05:30`, or `UTC`; unknown zones are refused.

    >>> zone_name("Etc/UTC"), zone_name("Asia/Kolkata"), zone_name("UTC+5:30"), zone_name("GMT+0")
    ('UTC', 'Asia/Kolkata', '+05:30', 'UTC')
    """
    name = given.removeprefix("Etc/") if given.removeprefix("Etc/") in _SAME_AS_UTC else _SHORT.get(given, given)
    if name in _SAME_AS_UTC:
        return UTC_NAME
    if (offset := _offset(name)) is not None:
        return str(timezone(offset)).removeprefix("UTC") or UTC_NAME
    if name not in _regions():
        raise UnknownOption("time zone", given, _regions())
    return name


@cache
def _regions() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def _offset(text: str) -> timedelta | None:
    """The offset that a text such as +1, -03:30 or GMT+2 names; None if it names none."""
    found = _OFFSET.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in (found[2], found[3] or found[5], found[4] or found[6]))
    size = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if minutes > 59 or seconds > 59 or size > _FARTHEST:
        return None
    return -size if found[1] == "-" else size


@lru_cache(maxsize=1024)
def _rules(zone: str) -> tzinfo:
    offset = _offset(zone)
    return UTC if zone == UTC_NAME else timezone(offset) if offset is not None else _region(zone)


def _region(name: str) -> ZoneInfo:
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset_at(instant: datetime, zone: str) -> timedelta:
    """How far the clocks of a zone are ahead of UTC at an instant."""
    found = min(max(instant, _FIRST), _LAST).replace(tzinfo=UTC).astimezone(_rules(zone)).utcoffset()
    assert found is not None
    return found


def to_wall(instant: datetime, zone: str) -> datetime:
    """The wall time of an instant; OverflowError if it is before the year 1 or after 9999.

    >>> str(to_wall(datetime(2026, 7, 1, 12), "Europe/Berlin"))
    '2026-07-01 14:00:00'
    """
    return instant + offset_at(instant, zone)


def from_wall(wall: datetime, zone: str, offset: timedelta | None = None) -> datetime:
    """The instant of a wall time; of two instants, the one with this offset, or else the first.

    >>> str(from_wall(datetime(2026, 3, 29, 2, 30), "Europe/Berlin")), str(from_wall(datetime(2026, 7, 1), "Europe/Berlin"))
    ('2026-03-29 01:30:00', '2026-06-30 22:00:00')
    """
    # The clocks are put back if the offset shrinks: the wall time then occurs twice.
    before, after = _offsets(wall, zone)
    return wall - (after if before > after and offset == after else before)


def _offsets(wall: datetime, zone: str) -> tuple[timedelta, timedelta]:
    """The offsets before and after the change of clocks at this wall time; both are the same if there is no change."""
    # PEP 495: at a change of clocks, fold=0 has the offset before it and fold=1 the one after it.
    there = min(max(wall, _FIRST), _LAST).replace(tzinfo=_rules(zone))
    before, after = there.utcoffset(), there.replace(fold=1).utcoffset()
    assert before is not None
    assert after is not None
    return before, after


def start_of_day(day: date, zone: str) -> datetime:
    """The first instant of a day. If clocks skip its midnight, it is the instant at which they are put forward."""
    midnight = datetime.combine(day, time())
    before, after = _offsets(midnight, zone)
    if before >= after:
        return midnight - before
    earlier, later = midnight - after, midnight - before
    # Midnight is in a gap. The change of clocks is between the two candidates; it is found by bisection.
    while later - earlier > timedelta(microseconds=1):
        middle = earlier + (later - earlier) / 2
        earlier, later = (earlier, middle) if offset_at(middle, zone) == after else (middle, later)
    return later


def parse_instant(text: str, zone: str) -> datetime:
    """The instant of a text that Spark casts to TIMESTAMP; ValueError or OverflowError if there is none.

    >>> str(parse_instant("2026-7-1", "Europe/Berlin")), str(parse_instant("2026-07-01 00:00:00 Asia/Kolkata", "UTC"))
    ('2026-06-30 22:00:00', '2026-06-30 18:30:00')
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError
    year, month, day, hour, minute, second = (int(found[name] or default) for name, default in _PARTS)
    wall = datetime(year, month, day, hour, minute, second, int((found["fraction"] or "")[:6].ljust(6, "0")))
    return from_wall(wall, _zone_in_text(found["zone"].strip()) if found["zone"] is not None else zone)


def names_zone(text: str) -> bool:
    """Whether the text of a timestamp names a zone.

    >>> names_zone("2026-07-01 00:00:00+02:00"), names_zone("2026-07-01 00:00:00")
    (True, False)
    """
    found = _TEXT.fullmatch(text)
    return found is not None and found["zone"] is not None


_PARTS: Final = (("year", 0), ("month", 1), ("day", 1), ("hour", 0), ("minute", 0), ("second", 0))


def _zone_in_text(text: str) -> str:
    try:
        return zone_name(text)
    except UnknownOption:
        raise ValueError from None
