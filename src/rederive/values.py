"""Conversion of text, JSON and Python objects to values of a column's type; ValueError says why a value does not fit.

A timestamp with an offset is converted to UTC; a timestamp without one is in UTC. A decimal has the scale of its column. A float
may be NaN or an infinity, which JSON has as the texts NaN, Infinity and -Infinity. In JSON, bytes are text in base64, a struct is
an object or the list of its fields, a map is an object or a list of pairs. In a text file, a nested value is JSON.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final

from rederive.ir.floats import canonical, single
from rederive.ir.nested import Array, Map, Struct, struct_class
from rederive.ir.printing import show_value
from rederive.ir.rules import Column
from rederive.ir.terms import Kind, Part, Type, Value

# At most 40 digits: Python takes quadratic time to read longer ones, and no type holds them.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[+-]?inf(inity)?|nan", re.ASCII | re.IGNORECASE)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIME: Final = r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
_TIMESTAMP: Final = re.compile(rf"{_DATE.pattern}({_TIME})?", re.ASCII)
_INTERVAL: Final = re.compile(
    r"(?:INTERVAL ')?([+-]?)([0-9]{1,9}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?(?:' DAY TO SECOND)?", re.ASCII
)
INTEGER_RANGES: Final = {Kind.NUMBER: (-(2**63), 2**63 - 1), Kind.UNSIGNED: (0, 2**64 - 1)}
_BOOLEANS: Final = {"true": True, "false": False}
MAX_PRECISION: Final = 38
_EXACT: Final = Context(prec=2 * MAX_PRECISION)


def from_text(text: str, type: Type) -> Value:
    """The value of a field in a facts or CSV file.

    >>> from rederive.ir.terms import NUMBER
    >>> from_text("-7", NUMBER)
    -7
    >>> from_text("seven", NUMBER)
    Traceback (most recent call last):
    ...
    ValueError: "seven" is not a number
    """
    match type.kind:
        case Kind.SYMBOL:
            return _symbol(text)
        case Kind.NUMBER | Kind.UNSIGNED:
            return _integer(_matched(_INTEGER, text, type), type)
        case Kind.FLOAT:
            return canonical(float(text if _NOT_FINITE.fullmatch(text) else _matched(_DECIMAL, text, type)))
        case Kind.BOOLEAN:
            if text not in _BOOLEANS:
                raise ValueError(f"{show_value(text)} is neither true nor false")
            return _BOOLEANS[text]
        case Kind.DATE:
            return _date(text, type)
        case Kind.TIMESTAMP:
            return _timestamp(text, type)
        case Kind.DECIMAL:
            return _decimal(Decimal(_matched(_DECIMAL, text, type)), type)
        case Kind.BINARY:
            return _bytes(text)
        case Kind.INTERVAL:
            return _interval(text)
        case Kind.ARRAY | Kind.STRUCT | Kind.MAP:
            return _nested(json.loads(text), type, from_json)


def from_json(value: object, type: Type) -> Value:
    """The value of a JSON value; decimals, dates and timestamps are strings.

    >>> from rederive.ir.terms import FLOAT, NUMBER
    >>> from_json(3, FLOAT)
    3.0
    >>> from_json(True, NUMBER)
    Traceback (most recent call last):
    ...
    ValueError: true is not a number
    """
    match type.kind, value:
        case _, None:
            raise ValueError(f"null is not a {type}")
        case Kind.SYMBOL, str():
            return _symbol(value)
        case Kind.BOOLEAN, bool():
            return value
        # In Python a bool is an int, and a datetime is a date; a value of one kind is not one of the other.
        case ((Kind.NUMBER | Kind.UNSIGNED | Kind.FLOAT | Kind.DECIMAL), bool()):
            raise _not_a(value, type)
        case ((Kind.NUMBER | Kind.UNSIGNED), int()):
            return _integer(value, type)
        case Kind.FLOAT, int() | float():
            return _float(value)
        case Kind.FLOAT, str() if _NOT_FINITE.fullmatch(value):
            return canonical(float(value))
        case Kind.DECIMAL, int():
            return _decimal(Decimal(value), type)
        case ((Kind.DECIMAL | Kind.DATE | Kind.TIMESTAMP | Kind.BINARY | Kind.INTERVAL), str()):
            return from_text(value, type)
        case ((Kind.ARRAY | Kind.STRUCT | Kind.MAP), _):
            return _nested(value, type, from_json)
        case _:
            raise _not_a(value, type)


def from_python(value: object, type: Type) -> Value:
    """The value of a Python object: the types of JSON, and Decimal, date, datetime, timedelta, bytes, tuples and mappings.

    >>> from_python(Decimal("1.5"), Type(Kind.DECIMAL, 10, 2))
    Decimal('1.50')
    """
    match type.kind, value:
        case Kind.DECIMAL, Decimal():
            return _decimal(value, type)
        case Kind.TIMESTAMP, datetime.datetime():
            return _utc(value)
        case Kind.DATE, datetime.date() if not isinstance(value, datetime.datetime):
            return value
        case Kind.BINARY, bytes() | bytearray():
            return bytes(value)
        case Kind.INTERVAL, datetime.timedelta():
            return value
        case ((Kind.ARRAY | Kind.STRUCT | Kind.MAP), _):
            return _nested(value, type, from_python)
        case _:
            return from_json(value, type)


def _nested(value: object, type: Type, convert: Callable[[Any, Type], Value]) -> Value:
    """An array, a struct or a map whose parts `convert` converts."""
    match type.kind, value:
        case Kind.STRUCT, Mapping():
            names = [part.name for part in type.parts]
            if unknown := [name for name in value if name not in names]:
                raise ValueError(f"{type} has no field '{unknown[0]}'")
            parts = [_part(value.get(part.name), part, convert) for part in type.parts]
            return struct_class(tuple(names))(parts)
        case _, str() | bytes():
            raise _not_a(value, type)
        case Kind.STRUCT, Sequence():
            if len(value) != len(type.parts):
                raise ValueError(f"{type} has {len(type.parts)} fields, not {len(value)}")
            parts = [_part(one, part, convert) for one, part in zip(value, type.parts, strict=True)]
            return struct_class(tuple(part.name for part in type.parts))(parts)
        case Kind.ARRAY, Sequence():
            return Array([_part(one, type.parts[0], convert) for one in value])
        case Kind.MAP, Mapping():
            # The keys of a JSON object are texts.
            read = from_text if convert is from_json else convert
            return _map([(_part(key, type.parts[0], read), _part(one, type.parts[1], convert)) for key, one in value.items()])
        case Kind.MAP, Sequence() if all(isinstance(entry, Sequence) and len(entry) == 2 for entry in value):
            return _map([tuple(_part(one, part, convert) for one, part in zip(e, type.parts, strict=True)) for e in value])
    raise _not_a(value, type)


def _map(entries: Sequence[tuple[Any, ...]]) -> Map:
    keys = [key for key, _ in entries]
    if None in keys:
        raise ValueError("null is not a key of a map")
    if len(set(keys)) < len(keys):
        raise ValueError(f"a map with two equal keys: {next(key for i, key in enumerate(keys) if key in keys[:i])!r}")
    return Map(entries)


def _part(value: object, part: Part, convert: Callable[[Any, Type], Value]) -> Value:
    if value is None:
        return None
    return _in_width(convert(value, part.type), part.bits)


def _in_width(value: Value, bits: int) -> Value:
    """An integer is refused beyond its width; a float is rounded to it."""
    if bits < 64 and isinstance(value, float):
        return single(value)
    if bits < 64 and isinstance(value, int) and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise ValueError(f"{value} is out of range for an integer of {bits} bits")
    return value


def column_value(value: object, column: Column, convert: Callable[[Any, Type], Value]) -> Value:
    """The value that `convert` gives for a column: NULL only if the column is nullable, and numbers only of its width.

    >>> from rederive.ir.terms import NUMBER
    >>> column_value(None, Column("n", NUMBER, nullable=True), from_json), column_value(7, Column("n", NUMBER), from_json)
    (None, 7)
    """
    # An empty field of a text file is NULL, as CSV has no other way to write it.
    if column.nullable and (value is None or (value == "" and convert is from_text)):
        return None
    return _in_width(convert(value, column.type), column.bits)


def to_json(value: Value) -> Any:
    """The value as JSON; decimals, dates, timestamps, intervals and bytes are strings, structs and maps are objects.

    >>> to_json(datetime.date(2024, 2, 29)), to_json(Decimal("0.000000001")), to_json(None), to_json(-math.inf)
    ('2024-02-29', '0.000000001', None, '-Infinity')
    """
    match value:
        case float() if not math.isfinite(value):
            return not_finite_text(value)
        case None | bool() | int() | float() | str():
            return value
        case Decimal():
            return format(value, "f")
        case datetime.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.timedelta():
            return interval_text(value)
        case Struct():
            return {name: to_json(part) for name, part in zip(value.names, value, strict=True)}
        case Map():
            return {_key_text(key): to_json(part) for key, part in value}
        case tuple():
            return [to_json(part) for part in value]


def not_finite_text(value: float) -> str:
    """NaN or an infinity as Java, Spark and our JSON write it."""
    return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def _key_text(key: Value) -> str:
    text = to_json(key)
    return text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)


def interval_text(value: datetime.timedelta) -> str:
    """An interval as Spark writes it.

    >>> interval_text(datetime.timedelta(days=-1, hours=-2))
    "INTERVAL '-1 02:00:00' DAY TO SECOND"
    """
    size = abs(value)
    minutes, seconds = divmod(size.seconds, 60)
    fraction = f".{size.microseconds:06}".rstrip("0") if size.microseconds else ""
    sign = "-" if value < datetime.timedelta() else ""
    clock = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}{fraction}"
    return f"INTERVAL '{sign}{size.days} {clock}' DAY TO SECOND"


def _interval(text: str) -> datetime.timedelta:
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"{show_value(text)} is not an interval such as 1 02:30:00")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    size = datetime.timedelta(int(days), int(seconds), int((fraction or "0").ljust(6, "0")), 0, int(minutes), int(hours))
    return -size if sign == "-" else size


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{show_value(text)} is not text in base64") from None


def _not_a(value: object, type: Type) -> ValueError:
    shown = show_value(value) if isinstance(value, bool | int | float | str) else repr(value)
    return ValueError(f"{shown if len(shown) <= 60 else shown[:57] + '...'} is not a {type}")


def _matched(pattern: re.Pattern[str], text: str, type: Type) -> str:
    if pattern.fullmatch(text) is None:
        raise _not_a(text, type)
    return text


def _symbol(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{text!a} is not valid Unicode") from None
    return text


def _integer(value: int | str, type: Type) -> int:
    least, most = INTEGER_RANGES[type.kind]
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{_abbreviated(number)} is out of range for {type}: {least} to {most}")
    return number


def _abbreviated(number: int) -> str:
    return str(number) if abs(number) < 10**40 else "a number of more than 40 digits"


def _float(value: float) -> float:
    try:
        return canonical(float(value))
    except OverflowError:
        raise ValueError("the value is beyond the range of float") from None


def _date(text: str, type: Type) -> datetime.date:
    try:
        return datetime.date.fromisoformat(_matched(_DATE, text, type))
    except ValueError:
        raise ValueError(f"{show_value(text)} is not a date such as 2024-02-29") from None


def _timestamp(text: str, type: Type) -> datetime.datetime:
    try:
        return _utc(datetime.datetime.fromisoformat(_matched(_TIMESTAMP, text, type)))
    except ValueError:
        raise ValueError(f"{show_value(text)} is not a timestamp such as 2024-02-29T12:30:00") from None


def _utc(value: datetime.datetime) -> datetime.datetime:
    try:
        return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)
    except OverflowError:
        raise ValueError(f"{value} is out of range for timestamp") from None


def _decimal(value: Decimal, type: Type) -> Decimal:
    try:
        scaled = value.quantize(Decimal(1).scaleb(-type.scale), context=_EXACT)
    except InvalidOperation:
        scaled = None
    if scaled is None or scaled != value or len(scaled.as_tuple().digits) > type.precision:
        raise ValueError(f"{value} does not fit {type} exactly")
    return scaled if scaled else scaled.copy_abs()  # A zero has no sign, so that equal decimals print alike.
