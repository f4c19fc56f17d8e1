"""format_string: the conversions of java.util.Formatter that Spark's values have: %s %d %x %X %o %f %e %b %% %n."""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, Final

from rederive.ir.terms import SYMBOL
from rederive.scalar.failures import ScalarError, check_length
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.casts import to_text

_PART: Final = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])", re.ASCII)
_TAKES: Final = {"s": "sdfb", "S": "sdfb", "b": "sdfgb", "d": "d", "x": "d", "X": "d", "o": "d", "f": "fg", "e": "fg"}
_WIDE: Final = Context(prec=1000, rounding=ROUND_HALF_UP)


@lru_cache(maxsize=256)
def _parts(pattern: str) -> tuple[tuple[str, re.Match[str] | None, int], ...]:
    """The literal texts and the conversions of a format, each with the index of its argument."""
    found: list[tuple[str, re.Match[str] | None, int]] = []
    place = taken = 0
    for match in _PART.finditer(pattern):
        literal = pattern[place : match.start()]
        if "%" in literal:
            raise ScalarError(f"not a format: {pattern!r}")
        index = -1
        if match[5] not in "%n":
            index = int(match[1]) - 1 if match[1] else taken
            taken += not match[1]
        found += [(literal, None, -1), ("", match, index)]
        place = match.end()
    if "%" in pattern[place:]:
        raise ScalarError(f"not a format: {pattern!r}")
    return (*found, (pattern[place:], None, -1))


def check_format(pattern: str, kinds: str) -> None:
    """Refuse a format that Java refuses for arguments of these kinds (d, f, g for FLOAT, s or b), or that is not supported."""
    for _, match, index in _parts(pattern):
        if match is None or match[5] in "%n":
            continue
        if not 0 <= index < len(kinds):
            raise ScalarError(f"'{match[0]}' has no argument")
        if kinds[index] not in _TAKES.get(match[5], "") or "#" in match[2] or "(" in match[2]:
            raise ScalarError(f"'{match[0]}' does not take this argument")
        if ("-" in match[2] or "0" in match[2]) and not match[3]:
            raise ScalarError(f"'{match[0]}' has no width")


def _format_string(pattern: str | None, *values: Any) -> str | None:
    if pattern is None:
        return None
    text = "".join(literal if match is None else _shown(match, values, index) for literal, match, index in _parts(pattern))
    check_length(len(text))
    return text


def _shown(match: re.Match[str], values: tuple[Any, ...], index: int) -> str:
    _, flags, width, precision, conversion = match.groups()
    if conversion in "%n":
        return "%" if conversion == "%" else "\n"
    if width is not None:
        check_length(int(width))
    value = values[index]
    if value is None:
        body, is_number = ("false" if conversion == "b" else "null"), False
        # As in Java: a precision cuts the word for a number that is NULL, too.
        body = body[: int(precision)] if precision is not None else body
    else:
        body, is_number = _converted(value, conversion, precision, flags), conversion in "dxXofe"
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if is_number and not body.startswith("-") and body != "NaN":
        body = ("+" if "+" in flags else " " if " " in flags else "") + body
    size = int(width or 0)
    if "0" in flags and is_number and is_finite:
        sign = body[:1] if body[:1] in "+- " else ""
        body = sign + body[len(sign) :].rjust(size - len(sign), "0")
    body = body.ljust(size) if "-" in flags else body.rjust(size)
    return body.upper() if conversion == "S" else body


def _converted(value: Any, conversion: str, precision: str | None, flags: str) -> str:
    match conversion:
        case "f" | "e" if not math.isfinite(value):
            return to_text(SYMBOL, value)
        case "d":
            return f"{value:,d}" if "," in flags else str(value)
        case "x" | "X" | "o":
            # A negative integer is shown in two's complement, whose width the value does not tell.
            if value < 0:
                raise ScalarError(f"'%{conversion}' of a negative number")
            return f"{value:{conversion}}"
        case "f":
            places = int(precision) if precision is not None else 6
            rounded = _WIDE.quantize(Decimal(repr(value)), Decimal(1).scaleb(-places))
            return f"{rounded:,f}" if "," in flags else f"{rounded:f}"
        case "e":
            places = int(precision) if precision is not None else 6
            return _scientific(value, places)
        case "b":
            return str(value).lower() if isinstance(value, bool) else "true"
        case _:
            text = to_text(SYMBOL, value)
            return text[: int(precision)] if precision is not None else text


def _scientific(value: float, places: int) -> str:
    if value == 0:
        return f"{0:.{places}e}"
    exact = Decimal(repr(value))
    exponent = exact.adjusted()
    digits = _WIDE.quantize(exact.scaleb(-exponent, _WIDE), Decimal(1).scaleb(-places))
    if abs(digits) >= 10:
        digits, exponent = _WIDE.quantize(digits / 10, Decimal(1).scaleb(-places)), exponent + 1
    return f"{digits}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


FORMATS: Final = (BuiltIn("format_string", "string, any ... -> string", _format_string, strict=False, fallible=True),)
