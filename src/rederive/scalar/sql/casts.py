"""Casts of SQL, as Spark does them in ANSI mode: a value that does not fit fails."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from functools import partial
from typing import Any, Final, NoReturn

from rederive.ir.floats import nearest_single, single
from rederive.ir.nested import Map, Struct
from rederive.ir.printing import show_value
from rederive.ir.terms import SYMBOL, UTC, Kind, Type, Value
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn, Implementation
from rederive.scalar.sql.numbers import fit_decimal, fit_float
from rederive.time_zones import parse_instant, start_of_day, to_wall
from rederive.values import from_text, interval_text, not_finite_text

WIDTHS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}  # bits
_EPOCH: Final = datetime.datetime(1970, 1, 1)
# As Java reads a double, in ASCII: a letter for its type may follow.
_DOUBLE: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?)[dDfF]?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[+-]?inf(inity)?|nan", re.ASCII | re.IGNORECASE)
_DATE: Final = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)


def cast(name: str, gives: Type) -> Implementation:
    """The function that casts to a type; `name` is the scalar function of the cast."""
    return partial(_to_integer, name) if name in WIDTHS else partial(_CASTS[name], gives)


def _to_integer(name: str, value: Any) -> int:
    """CAST to an integer type. Fractions are cut off; a timestamp gives its seconds since 1970."""
    bits = WIDTHS[name]
    try:
        number = _parsed_integer(value.strip()) if isinstance(value, str) else _seconds(value)
    except (ValueError, ArithmeticError):
        raise ScalarError(f"{show_value(value)} cannot be cast to {name.upper()}") from None
    if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        return number
    raise ScalarError(f"overflow: {show_value(value)} does not fit {name.upper()}")


def _parsed_integer(text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) is None:
        raise ValueError
    return int(text)


def _seconds(value: Any) -> int:
    if isinstance(value, datetime.datetime):
        # Rounded down, also before 1970, as in Spark.
        return (value - _EPOCH) // datetime.timedelta(seconds=1)
    # As in Java, 2^63 as a float is the greatest integer of 64 bits.
    return int(value) if value != 2.0**63 or not isinstance(value, float) else 2**63 - 1


def _to_double(gives: Type, value: Any) -> float:
    return fit_float(_parsed_number(value) if isinstance(value, str) else value)


def _to_single(gives: Type, value: Any) -> float:
    """CAST to FLOAT, which rounds once: a text, a decimal and an integer are exact."""
    exact = _parsed_number(value) if isinstance(value, str) else value
    return nearest_single(exact) if isinstance(exact, int | Decimal) else single(exact)


def _parsed_number(text: str) -> Decimal | float:
    stripped = text.strip()
    if (found := _DOUBLE.fullmatch(stripped)) is not None:
        return Decimal(found[1])
    if _NOT_FINITE.fullmatch(stripped) is not None:
        return float(stripped)
    raise ScalarError(f"{show_value(text)} cannot be cast to DOUBLE")


def _shortest(value: float) -> float:
    """The double that prints as a FLOAT does: with as few digits as tell it from other numbers of 32 bits."""
    if not math.isfinite(value):
        return value
    return next(found for digits in range(1, 10) if single(found := float(f"{value:.{digits}g}")) == value)


def _to_decimal(gives: Type, value: Any) -> Decimal | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None  # as in Spark, also in ANSI mode
    try:
        if isinstance(value, str):
            return fit_decimal(gives, Decimal(str(from_text(value.strip(), Type(Kind.DECIMAL, 38, 18)))))
        # A float counts as the shortest decimal that reads back as it, not as its binary value.
        return fit_decimal(gives, Decimal(repr(value)) if isinstance(value, float) else Decimal(value))
    except (ArithmeticError, ValueError):
        raise ScalarError(f"{show_value(value)} cannot be cast to {gives}") from None


def _to_boolean(gives: Type, value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    text = value.strip().lower()
    # The words that Spark accepts.
    if text in ("t", "true", "y", "yes", "1"):
        return True
    if text in ("f", "false", "n", "no", "0"):
        return False
    raise ScalarError(f"{show_value(value)} cannot be cast to BOOLEAN")


def to_date(gives: Type, value: Any, zone: str = UTC) -> datetime.date:
    """CAST(value AS DATE). A text has a year, and may have a month, a day, and a time, which is ignored."""
    if isinstance(value, datetime.datetime):
        return wall_time(value, zone).date()
    found = _DATE.fullmatch(value.strip())
    try:
        return datetime.date(*(int(part or 1) for part in found.groups())) if found is not None else _not_a_date(value)
    except ValueError:
        return _not_a_date(value)


def _not_a_date(value: str) -> NoReturn:
    raise ScalarError(f"{show_value(value)} cannot be cast to DATE")


def to_timestamp(gives: Type, value: Any, zone: str = UTC) -> datetime.datetime:
    """CAST to TIMESTAMP of a text or a date in a zone."""
    try:
        return parse_instant(value.strip(), zone) if isinstance(value, str) else start_of_day(value, zone)
    except (ValueError, OverflowError):
        raise ScalarError(f"{show_value(value)} cannot be cast to TIMESTAMP") from None


def _from_text(type_: Type, text: str) -> Value:
    try:
        return from_text(text.strip(), type_)
    except ValueError:
        raise ScalarError(f"{show_value(text)} cannot be cast to {type_.kind.value.upper()}") from None


def to_text(gives: Type, value: Any, zone: str = UTC) -> str:
    """CAST(value AS STRING), as Spark writes values."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case Decimal():
            # Never with an exponent, as in Spark.
            return format(value, "f")
        case datetime.datetime():
            text = wall_time(value, zone).isoformat(sep=" ")
            return text.rstrip("0") if "." in text else text
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise ScalarError("the bytes are not UTF-8, and cannot be cast to STRING") from None
        case datetime.timedelta():
            return interval_text(value)
        case tuple():
            return _nested_text(value, zone)
        case _:
            return str(value)


def _nested_text(value: tuple[Any, ...], zone: str) -> str:
    """[1, null], {a -> 1} for a map, {1, x} for a struct."""

    def text(part: Any) -> str:
        return "null" if part is None else to_text(SYMBOL, part, zone)

    match value:
        case Map():
            return "{" + ", ".join(f"{text(key)} -> {text(part)}" for key, part in value) + "}"
        case Struct():
            return "{" + ", ".join(map(text, value)) + "}"
    return "[" + ", ".join(map(text, value)) + "]"


def _to_binary(gives: Type, value: Any) -> bytes:
    return str(value).encode()


def _float_text(value: float) -> str:
    """A double as Java writes it: plain between 10^-3 and 10^7, else with an exponent."""
    if not math.isfinite(value):
        return not_finite_text(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    head, tail = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{head}.{tail}E{exponent + len(digits) - 1}"


def wall_time(instant: datetime.datetime, zone: str) -> datetime.datetime:
    """What the clocks of a zone show at an instant."""
    try:
        return to_wall(instant, zone)
    except OverflowError:
        raise ScalarError(f"overflow: {instant} in {zone}") from None


_CASTS: Final[dict[str, Implementation]] = {
    "double": _to_double,
    "float": _to_single,
    "decimal": _to_decimal,
    "boolean": _to_boolean,
    "date": to_date,
    "timestamp": to_timestamp,
    "string": to_text,
    "binary": _to_binary,
    "interval": lambda gives, value: _from_text(gives, value),
}


CASTS: Final = frozenset({*WIDTHS, *_CASTS})
FLOATS: Final = (BuiltIn("shortest", "float -> double", _shortest),)
