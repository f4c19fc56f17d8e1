"""Formats of dates and timestamps: the letters of java.time.format.DateTimeFormatter, as Spark reads them.

`format_problem` says what a format holds that is not supported, so that a statement is refused when it is compiled. Letters that
Spark itself refuses (`w`, `u`, `e`, `n`, ...) are refused, too.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from rederive.ir.terms import UTC
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.casts import wall_time
from rederive.time_zones import from_wall, offset_at

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_QUARTERS: Final = ("1st", "2nd", "3rd", "4th")
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^'a-zA-Z]", re.DOTALL)
# The letters, and the largest number of each. Formatting takes them all; `_PARSED` are those that parsing takes.
_MOST: Final = {
    "y": 6, "M": 4, "L": 4, "d": 2, "D": 3, "E": 4, "a": 1, "h": 2, "H": 2, "k": 2, "K": 2, "m": 2, "s": 2, "S": 9,
    "Q": 4, "q": 4, "F": 1, "X": 3, "x": 3, "Z": 3,
}  # fmt: skip
_PARSED: Final = frozenset("yMLdDahHkKmsSXxZ")
_CLOCK: Final = "hHkKms"


def _tokens(pattern: str) -> Iterator[tuple[str, int]]:
    """The letters with their numbers, and literal texts with 0."""
    place = 0
    for found in _TOKEN.finditer(pattern):
        if found.start() != place:
            raise ValueError("an unbalanced quote")
        place = found.end()
        if found[2]:
            yield found[2], len(found[0])
        else:
            # Two quotes are one quote, inside of quotes and outside.
            yield (found[1].replace("''", "'") or "'") if found[1] is not None else found[0], 0
    if place != len(pattern):
        raise ValueError("an unbalanced quote")


def format_problem(pattern: str, *, parses: bool) -> str | None:
    """What a format holds that is not supported; None if everything is.

    >>> format_problem("yyyy-MM-dd", parses=True), format_problem("ww", parses=False)
    (None, "the letter 'w'")
    """
    try:
        for letter, count in _tokens(pattern):
            if count == 0:
                if letter in "{}#" or (letter in "[]" and not parses):
                    return f"the character '{letter}'"
            elif letter not in _MOST or (parses and letter not in _PARSED):
                return f"the letter '{letter}'"
            elif count > _MOST[letter] or (letter == "D" and count == 2):
                return f"'{letter * count}'"
    except ValueError as error:
        return str(error)
    return None


def date_format(moment: datetime.datetime, pattern: str, zone: str = UTC) -> str:
    """date_format: the text of a timestamp, as the clocks of a zone show it."""
    wall = wall_time(moment, zone) if zone != UTC else moment
    return "".join(text if count == 0 else _shown(text, count, wall, moment, zone) for text, count in _tokens(pattern))


def _shown(letter: str, count: int, wall: datetime.datetime, moment: datetime.datetime, zone: str) -> str:
    if letter in _CLOCK or letter in "dDF":
        return f"{_numbers(letter, wall):0{count}d}"
    match letter:
        case "y":
            return f"{wall.year % 100:02d}" if count == 2 else f"{wall.year:0{count}d}"
        case "M" | "L":
            name = MONTHS[wall.month - 1]
            return f"{wall.month:0{count}d}" if count < 3 else name[:3] if count == 3 else name
        case "E":
            name = DAYS[wall.weekday()]
            return name[:3] if count < 4 else name
        case "a":
            return "AM" if wall.hour < 12 else "PM"
        case "S":
            return f"{wall.microsecond:06d}000"[:count]
        case "Q" | "q":
            quarter = (wall.month + 2) // 3
            texts = (f"{quarter}", f"{quarter:02d}", f"Q{quarter}", f"{_QUARTERS[quarter - 1]} quarter")
            return texts[count - 1]
        case _:
            return _offset_text(letter, count, offset_at(moment, zone) if zone != UTC else datetime.timedelta())


def _numbers(letter: str, wall: datetime.datetime) -> int:
    match letter:
        case "d":
            return wall.day
        case "D":
            return wall.timetuple().tm_yday
        case "F":
            return (wall.day - 1) // 7 + 1  # the week of the month, in weeks from its first day
        case "H":
            return wall.hour
        case "k":
            return wall.hour or 24
        case "h":
            return wall.hour % 12 or 12
        case "K":
            return wall.hour % 12
        case "m":
            return wall.minute
        case _:
            return wall.second


def _offset_text(letter: str, count: int, offset: datetime.timedelta) -> str:
    if letter == "X" and not offset:
        return "Z"
    minutes = abs(offset) // datetime.timedelta(minutes=1)
    hour, minute = f"{minutes // 60:02d}", f"{minutes % 60:02d}"
    sign = "-" if offset < datetime.timedelta() else "+"
    if letter == "Z" or count == 2:
        return f"{sign}{hour}{minute}"
    return f"{sign}{hour}:{minute}" if count == 3 else f"{sign}{hour}{minute if minutes % 60 else ''}"


# Parsing


def parse_timestamp(text: str, pattern: str, zone: str = UTC) -> datetime.datetime:
    """to_timestamp with a format: the whole text must match it. Parts that it lacks are those of 1970-01-01 00:00:00."""
    found = _parser(pattern).fullmatch(text)
    try:
        if found is None:
            raise ValueError
        parts = {name.rstrip("_0123456789"): value for name, value in found.groupdict().items() if value is not None}
        wall = datetime.datetime.combine(_day(parts), _time(parts))
        offset = next((parts[letter] for letter in "XxZ" if letter in parts), None)
        if offset is not None:
            return wall - _offset(offset)
        return from_wall(wall, zone) if zone != UTC else wall
    except (ValueError, OverflowError):
        raise ScalarError(f"{text!r} does not have the format {pattern!r}") from None


@lru_cache(maxsize=256)
def _parser(pattern: str) -> re.Pattern[str]:
    found = ""
    for number, (letter, count) in enumerate(_tokens(pattern)):
        if count == 0:
            found += {"[": "(?:", "]": ")?"}.get(letter) or re.escape(letter)
        else:
            found += f"(?P<{letter}_{number}>{_expected(letter, count)})"
    # Spark ignores the case of names and of literal texts.
    return re.compile(found, re.IGNORECASE | re.ASCII)


def _expected(letter: str, count: int) -> str:
    match letter:
        case "M" | "L" if count >= 3:
            return "|".join(name[:3] if count == 3 else name for name in MONTHS)
        case "y" if count >= 3:
            return f"\\d{{{count}}}" if count >= 4 else "\\d{3,4}"
        case "a":
            return "AM|PM"
        case "S":
            return f"\\d{{1,{count}}}"
        case "X" | "x":
            forms = ("[+-]\\d\\d(?:\\d\\d)?", "[+-]\\d{4}", "[+-]\\d\\d:\\d\\d")[count - 1]
            return f"Z|{forms}" if letter == "X" else forms
        case "Z":
            return "[+-]\\d{4}"
    return f"\\d{{{count}}}" if count > 1 else "\\d{1,9}"


def _day(parts: dict[str, str]) -> datetime.date:
    year = parts.get("y", "1970")
    value = 2000 + int(year) if len(year) == 2 else int(year)
    if "D" in parts:
        day = datetime.date(value, 1, 1) + datetime.timedelta(days=int(parts["D"]) - 1)
        if day.year != value:
            raise ValueError
        return day
    month = parts.get("M") or parts.get("L") or "1"
    number = int(month) if month.isdigit() else [name[:3].lower() for name in MONTHS].index(month[:3].lower()) + 1
    return datetime.date(value, number, int(parts.get("d", "1")))


def _time(parts: dict[str, str]) -> datetime.time:
    afternoon = 12 if parts.get("a", "").upper() == "PM" else 0
    if "H" in parts:
        hour = int(parts["H"])
        if "a" in parts and hour // 12 * 12 != afternoon:
            raise ValueError
    elif "k" in parts:
        hour = int(parts["k"])
        if not 1 <= hour <= 24:
            raise ValueError
        hour %= 24
    elif "h" in parts or "K" in parts:
        hour = int(parts["h"]) if "h" in parts else int(parts["K"])
        if not (1 <= hour <= 12 if "h" in parts else 0 <= hour <= 11):
            raise ValueError
        hour = hour % 12 + afternoon
    else:
        hour = afternoon
    microsecond = int(parts["S"].ljust(6, "0")[:6]) if "S" in parts else 0
    return datetime.time(hour, int(parts.get("m", "0")), int(parts.get("s", "0")), microsecond)


def _offset(text: str) -> datetime.timedelta:
    if text.upper() == "Z":
        return datetime.timedelta()
    digits = text[1:].replace(":", "").ljust(4, "0")
    size = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    if int(digits[2:]) > 59 or size > datetime.timedelta(hours=18):
        raise ValueError
    return -size if text[0] == "-" else size
