"""from_json, to_json, schema_of_json and what else reads or writes JSON, as Spark does with its default options."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
from decimal import Decimal
from typing import Any, Final

from rederive.ir.floats import canonical, single
from rederive.ir.nested import Map, Struct, nested_class
from rederive.ir.terms import SYMBOL, UTC, Kind, Part, Type
from rederive.scalar.failures import ScalarError, check_length
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.casts import to_text, wall_time
from rederive.scalar.sql.field_values import NO_VALUE, decimal_field, time_field
from rederive.scalar.sql.json_text import JsonKind, JsonValue, no_constant, read_json
from rederive.time_zones import offset_at
from rederive.values import from_text, interval_text

_DIGITS: Final = re.compile(r"[+-]?([0-9]+)", re.ASCII)
_NOT_FINITE: Final = ("NaN", "+INF", "+Infinity", "Infinity", "-INF", "-Infinity")


def _from_json(gives: Type, text: str, zone: str = UTC) -> Any:
    """from_json: what cannot be read is NULL; a struct of a text that is not JSON has no fields."""
    if not text.strip():
        return None
    nothing = (None,) * len(gives.parts) if gives.kind is Kind.STRUCT else None
    try:
        read = read_json(text, not_finite=True)
    except ValueError:
        return nothing
    if read.kind is JsonKind.OBJECT and gives.kind is Kind.ARRAY and gives.parts[0].type.kind is Kind.STRUCT:
        read = JsonValue(JsonKind.ARRAY, (read,))  # one object counts as an array of one
    found = _read(read, gives, 64, zone)
    return nothing if found is NO_VALUE or found is None else found


def _read(read: JsonValue, type: Type, bits: int, zone: str) -> Any:
    if read.kind is JsonKind.NULL:
        return None
    match type.kind, read.kind:
        case Kind.STRUCT, JsonKind.OBJECT:
            given = dict(read.value)
            parts = (_part(given[part.name], part, zone) if part.name in given else None for part in type.parts)
            return nested_class(type)(parts)
        case Kind.ARRAY, JsonKind.ARRAY:
            return _whole(type, [_read(one, type.parts[0].type, type.parts[0].bits, zone) for one in read.value])
        case Kind.MAP, JsonKind.OBJECT:
            given, value = dict(read.value), type.parts[1]
            if len(given) < len(read.value):  # Spark's map would have a key twice
                raise ScalarError("a key occurs twice in a JSON text that is read as a map")
            return _whole(type, [_read(one, value.type, value.bits, zone) for one in given.values()], tuple(given))
        case Kind.SYMBOL, JsonKind.STRING:
            return read.value
        case Kind.SYMBOL, _:
            return _compact(read)
        case Kind.BOOLEAN, JsonKind.BOOLEAN:
            return read.value
        case Kind.NUMBER, JsonKind.INTEGER:
            number = int(read.value) if len(read.value) < 40 else 2**100
            return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else NO_VALUE
        case Kind.FLOAT, JsonKind.INTEGER | JsonKind.FRACTION:
            return _float(read.value, bits)
        case Kind.DECIMAL, JsonKind.INTEGER | JsonKind.FRACTION | JsonKind.STRING:
            return decimal_field(read.value, type)
        case Kind.FLOAT, JsonKind.STRING if read.value in _NOT_FINITE:
            return _float(read.value, bits)
        case Kind.TIMESTAMP, JsonKind.INTEGER:
            return _from_seconds(read.value)
        case ((Kind.DATE | Kind.TIMESTAMP | Kind.BINARY | Kind.INTERVAL), JsonKind.STRING):
            return _from_string(read.value, type, zone)
    return NO_VALUE


def _whole(type: Type, parts: list[Any], keys: tuple[str, ...] | None = None) -> Any:
    """An array or a map; an element that does not fit leaves none, as in Spark. A field of a struct would be NULL."""
    if any(part is NO_VALUE for part in parts):
        return NO_VALUE
    return nested_class(type)(parts if keys is None else zip(keys, parts, strict=True))


def _part(read: JsonValue, part: Part, zone: str) -> Any:
    found = _read(read, part.type, part.bits, zone)
    return None if found is NO_VALUE else found


def _float(text: str, bits: int) -> float:
    return canonical(float(text)) if bits == 64 else single(float(text))


def _from_seconds(text: str) -> Any:
    """A timestamp that is written as an integer: the seconds since 1970."""
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        return NO_VALUE
    try:
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=int(text))
    except OverflowError:
        raise ScalarError(f"{text} seconds since 1970 are outside of the years 1 to 9999") from None


def _from_string(text: str, type: Type, zone: str) -> Any:
    if type.kind in (Kind.TIMESTAMP, Kind.DATE):
        if type.kind is Kind.DATE and (digits := _DIGITS.fullmatch(text)) is not None and len(digits[1]) != 4:
            return _from_days(text, len(digits[1]))
        return time_field(text, type, zone)
    try:
        return base64.b64decode(text, validate=True) if type.kind is Kind.BINARY else from_text(text, type)
    except (ValueError, binascii.Error):
        return NO_VALUE


def _from_days(text: str, digits: int) -> datetime.date:
    """A date that is written as the days since 1970; four to seven digits are a year."""
    if digits > 3:
        raise ScalarError(f"the date '{text}' in a JSON text is outside of the years 1 to 9999")
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=int(text))


def _to_json(value: Any, zone: str = UTC) -> str:
    text = _written(value, zone)
    check_length(len(text))
    return text


def _written(value: Any, zone: str) -> str:
    """A value as Jackson writes it; fields of a struct that are NULL are left out."""
    match value:
        case Struct():
            fields = zip(value.names, value, strict=True)
            return "{" + ",".join(f"{_quoted(name)}:{_written(one, zone)}" for name, one in fields if one is not None) + "}"
        case Map():
            return "{" + ",".join(f"{_quoted(to_text(SYMBOL, key, zone))}:{_written(one, zone)}" for key, one in value) + "}"
        case tuple():
            return "[" + ",".join(_written(one, zone) for one in value) + "]"
        case float():
            text = to_text(SYMBOL, value)
            return text if math.isfinite(value) else _quoted(text)
        case Decimal():
            return format(value, "f")
        case datetime.datetime():
            return _quoted(iso_text(value, zone))
        case datetime.date():
            return _quoted(value.isoformat())
        case datetime.timedelta():
            return _quoted(interval_text(value))
        case bytes():
            return _quoted(base64.b64encode(value).decode())
        case str():
            return _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def iso_text(instant: datetime.datetime, zone: str) -> str:
    """A timestamp with milliseconds and its offset: 2024-02-29T12:30:00.000+01:00."""
    wall = wall_time(instant, zone)
    seconds = int(offset_at(instant, zone).total_seconds()) if zone != UTC else 0
    sign, (minutes, rest) = "-" if seconds < 0 else "+", divmod(abs(seconds), 60)
    offset = f"{sign}{minutes // 60:02}:{minutes % 60:02}{f':{rest:02}' if rest else ''}" if seconds else "Z"
    return f"{wall.isoformat(timespec='milliseconds')}{offset}"


def schema_of_json(text: str) -> str:
    """The type of a JSON text, as schema_of_json writes it.

    >>> schema_of_json('{"b": [1.5, 2], "a": null}')
    'STRUCT<a: STRING, b: ARRAY<DOUBLE>>'
    """
    return _schema(read_json(text, not_finite=True)) or "STRING"


def _schema(read: JsonValue) -> str | None:
    match read.kind:
        case JsonKind.NULL:
            return None
        case JsonKind.OBJECT:
            fields = sorted((name, _schema(one) or "STRING") for name, one in dict(read.value).items())
            return f"STRUCT<{', '.join(f'{name}: {type}' for name, type in fields)}>"
        case JsonKind.ARRAY:
            return f"ARRAY<{_merged([_schema(one) for one in read.value])}>"
    return {JsonKind.BOOLEAN: "BOOLEAN", JsonKind.INTEGER: "BIGINT", JsonKind.FRACTION: "DOUBLE"}.get(read.kind, "STRING")


def _merged(types: list[str | None]) -> str:
    found = {one for one in types if one is not None}
    if len(found) <= 1:
        return next(iter(found), "STRING")
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if any("<" in one for one in found):
        raise ScalarError("a schema of different arrays or structs")
    return "STRING"


def _field(text: str, name: str) -> str | None:
    """A field of json_tuple."""
    try:
        read = read_json(text)
    except ValueError:
        return None
    given = dict(read.value) if read.kind is JsonKind.OBJECT else {}
    found = given.get(name)
    if found is None or found.kind is JsonKind.NULL:
        return None
    return found.value if found.kind is JsonKind.STRING else _compact(found)


def _compact(read: JsonValue) -> str:
    """A value without spaces, its numbers as Java prints them."""
    match read.kind:
        case JsonKind.OBJECT:
            return "{" + ",".join(f"{_quoted(name)}:{_compact(one)}" for name, one in read.value) + "}"
        case JsonKind.ARRAY:
            return "[" + ",".join(map(_compact, read.value)) + "]"
        case JsonKind.STRING:
            return _quoted(read.value)
        case JsonKind.FRACTION:
            return _written(_float(read.value, 64), UTC)
        case JsonKind.INTEGER:
            return read.value if read.value != "-0" else "0"
    return json.dumps(read.value)


def _json_length(text: str) -> int | None:
    read = _strict(text)
    return len(read) if isinstance(read, list) else None


def _json_keys(text: str) -> tuple[str, ...] | None:
    read = _strict(text)
    return tuple(read) if isinstance(read, dict) else None


def _strict(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=no_constant)
    except (ValueError, RecursionError):
        return None


JSON_VALUES: Final = (
    BuiltIn("from_json", "string, string literal -> struct, array or map", _from_json, maybe_null=True, zoned=True, typed=True),
    BuiltIn("to_json", "struct, array or map -> string", _to_json, zoned=True),
    BuiltIn("json_field", "string, string -> string", _field, maybe_null=True),
    BuiltIn("json_array_length", "string -> int", _json_length, maybe_null=True),
    BuiltIn("json_object_keys", "string -> array<string>", _json_keys, maybe_null=True),
)
