"""to_number and to_char of numbers: formats of digits, separators and signs, as Spark reads them.

A format is `[MI | S] [$] digits with , or G between groups [. or D digits] [PR | MI | S]`. A digit is 0 or 9. A group that starts
with 0 has exactly its digits; one that starts with 9 has at most as many. The digits after the point are at most as many.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn

_FORMAT: Final = re.compile(r"(MI|S)?(\$)?([09]+(?:[,G][09]+)*)?(?:([.D])([09]*))?(MI|S|PR)?")
_MOST: Final = 38  # digits of a DECIMAL
_NOT_JAVA_SPACE: Final = "\x85\xa0\u2007\u202f"  # spaces for Python and not for Java


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A format: its signs, whether it has a dollar sign and a point, its groups from left to right, its digits after the point.

    `groups`: for each group its width, and whether a number has exactly so many digits there.
    """

    before: str
    dollar: bool
    groups: tuple[tuple[int, bool], ...]
    point: bool
    places: int
    after: str

    @property
    def precision(self) -> int:
        """The digits of the numbers that have the format."""
        return sum(width for width, _ in self.groups) + self.places


@lru_cache(maxsize=256)
def number_format(text: str) -> NumberFormat:
    """The format that a text describes; ValueError if it is none.

    >>> number_format("S099,999.90").groups, number_format("$99D9").places
    (((3, True), (3, False)), 1)
    """
    found = _FORMAT.fullmatch(text.upper())
    if found is None or not (found[3] or found[5]) or (found[1] is not None and found[1] == found[6]):
        raise ValueError(f"'{text}' is not a format of numbers")
    groups = tuple((len(group), group[0] == "0") for group in re.split("[,G]", found[3] or "") if group)
    read = NumberFormat(found[1] or "", bool(found[2]), groups, bool(found[4]), len(found[5] or ""), found[6] or "")
    if read.precision > _MOST:
        raise ValueError(f"'{text}' has more than {_MOST} digits")
    return read


# Reading


def _to_number(text: str, written: str) -> Decimal:
    format = number_format(written)
    reader = _NumberReader(text)
    opened = format.after == "PR" and reader.skip("<")
    negative = reader.sign(format.before)
    if format.dollar and not reader.skip("$") and not reader.at_end:
        raise _mismatch(text, written)
    whole = reader.digits(format.groups) if format.groups else ""
    fraction: str | None = ""
    if format.point:
        # Without a point in the text, what Spark finds for the digits after it counts as digits before it.
        is_fraction = reader.skip(".")
        found = reader.digits(((format.places, False),)) if format.places else ""
        whole, fraction = (whole, found) if is_fraction or whole is None or found is None else (whole + found, "")
    closed = format.after == "PR" and opened and reader.skip(">")
    negative ^= closed ^ (reader.sign(format.after) if format.after != "PR" else False)
    if whole is None or fraction is None or not reader.at_end or opened != closed or not whole + fraction:
        raise _mismatch(text, written)
    number = Decimal(f"{whole or '0'}.{fraction.ljust(format.places, '0')}")
    return -number if negative and number else number


def _mismatch(text: str, written: str) -> ScalarError:
    return ScalarError(f"'{text}' does not have the format '{written}'")


class _NumberReader:
    """Reads the parts of a text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    @property
    def at_end(self) -> bool:
        return self._place == len(self._text)

    def skip(self, character: str) -> bool:
        """Whether the next character is this one, which is then read."""
        found = self._text.startswith(character, self._place)
        self._place += found
        return found

    def sign(self, kind: str) -> bool:
        """Whether a sign of this kind is a minus; no sign is a plus."""
        if kind == "S" and self.skip("+"):
            return False
        return kind != "" and self.skip("-")

    def digits(self, groups: tuple[tuple[int, bool], ...]) -> str | None:
        """The digits of the groups, without separators and spaces; None if a group has too many or too few."""
        found = [""]
        while not self.at_end and (one := self._text[self._place]) and (one == "," or one.isdecimal() or _is_space(one)):
            self._place += 1
            if one == ",":
                found.append("")
            elif one.isdecimal():
                found[-1] += str(int(one))
        # The last groups of the text and of the format belong together: leading groups may be missing.
        missing = len(groups) - len(found)
        sizes = [0] * missing + [len(group) for group in found]
        fits = (size == width if exact else size <= width for size, (width, exact) in zip(sizes, groups, strict=missing >= 0))
        return "".join(found) if missing >= 0 and all(fits) else None


def _is_space(character: str) -> bool:
    return character.isspace() and character not in _NOT_JAVA_SPACE


# Writing


def _to_text(number: Decimal, written: str) -> str:
    format = number_format(written)
    whole, fraction = _digits(number, format)
    found: list[str] = ["<"] if format.after == "PR" and number < 0 else []
    _write_sign(found, format.before, number)
    found += "$" if format.dollar else ""
    place = 0
    for i, (width, exact) in enumerate(format.groups):
        if i:
            _write_digit(found, "," if found and found[-1].isdigit() else " ")
        for digit in whole[place : place + width]:
            _write_digit(found, "0" if digit == " " and exact else digit)
        place += width
    if format.point:
        if found and found[-1] == " ":
            found[-1] = "0"
        found += "." + fraction
    if format.after == "PR":
        _strip_point(found)
        if number < 0:
            _write_before_spaces(found, ">")
        else:
            found += "  "
    else:
        _write_sign(found, format.after, number)
    _strip_point(found)
    text = "".join(found)
    return "0" if text in ("", "+", "-") else text


def _digits(number: Decimal, format: NumberFormat) -> tuple[str, str]:
    """The digits before and after the point, as many as the format has; # where a number has too many."""
    before, _, after = f"{abs(number):f}".partition(".")
    before, after = before.lstrip("0"), after.rstrip("0")
    width = format.precision - format.places
    if len(before) > width or len(after) > format.places:
        return "#" * width, "#" * format.places
    return before.rjust(width), after.ljust(format.places, "0")


def _write_digit(found: list[str], one: str) -> None:
    """Write a digit, a separator or a space; a space comes before a sign."""
    place = len(found)
    while one == " " and place and found[place - 1] in "+-<":
        place -= 1
    found.insert(place, one)


def _write_sign(found: list[str], kind: str, number: Decimal) -> None:
    if kind == "S":
        _strip_point(found)
        _write_before_spaces(found, "-" if number < 0 else "+")
    elif kind == "MI" and number < 0:
        _strip_point(found)
        _write_before_spaces(found, "-")
    elif kind == "MI":
        found.append(" ")


def _write_before_spaces(found: list[str], one: str) -> None:
    place = len(found)
    while place and found[place - 1] == " ":
        place -= 1
    found.insert(place, one)


def _strip_point(found: list[str]) -> None:
    """Replace a point without digits after it by a space."""
    if "." in found and (place := found.index(".")) >= 0 and (place == len(found) - 1 or found[place + 1] == " "):
        found[place] = " "


NUMBER_FORMATS: Final = (
    BuiltIn("to_number", "string, string -> decimal", _to_number, fallible=True),
    BuiltIn("number text", "decimal, string -> string", _to_text),
)
