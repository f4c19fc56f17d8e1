"""from_csv, to_csv and schema_of_csv, as in Spark. Options are arguments: the separator, what NULL is, and the mode."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any, Final

from rederive.ir.floats import canonical, nearest_single, single
from rederive.ir.nested import Struct
from rederive.ir.terms import SYMBOL, UTC, Kind, Part, Type
from rederive.scalar.failures import ScalarError, check_length
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.casts import to_text
from rederive.scalar.sql.csv_text import BLANK, read_record, written_field
from rederive.scalar.sql.field_values import NO_VALUE, decimal_field, time_field
from rederive.scalar.sql.json_values import iso_text

# Java's numbers. A digit may be one of any script, but for floats.
_WHOLE: Final = re.compile(r"[+-]?\d+")
_FLOAT: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"([+-]?)(NaN|Infinity)", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX]")
_BOOLEAN: Final = re.compile("(true)|false", re.IGNORECASE)
_ISO_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _from_csv(gives: Type, text: str, separator: str, null: str, mode: str, zone: str = UTC) -> tuple[Any, ...]:
    """from_csv: what cannot be read is NULL, or fails in the mode FAILFAST."""
    fields = read_record(text, separator) if text else [None] * len(gives.parts)
    found = [_field(field, part, null, zone) for field, part in zip(fields, gives.parts, strict=False)]
    if mode == "FAILFAST" and (not text or len(fields) != len(gives.parts) or any(value is NO_VALUE for value in found)):
        raise ScalarError(f"not a record of CSV with these columns: {text!r}")
    given = [None if value is NO_VALUE else value for value in found]
    return (*given, *[None] * (len(gives.parts) - len(given)))


def _field(field: str | None, part: Part, null: str, zone: str) -> Any:
    if field is None or field == null:
        return None
    match part.type.kind:
        case Kind.SYMBOL:
            return field
        case Kind.BINARY:
            return field.encode()
        case Kind.NUMBER:
            return _whole(field, part.bits)
        case Kind.FLOAT:
            return _float(field, part.bits)
        case Kind.BOOLEAN:
            boolean = _BOOLEAN.fullmatch(field)
            return NO_VALUE if boolean is None else boolean[1] is not None
        case Kind.DECIMAL:
            return decimal_field(field, part.type)
    return time_field(field, part.type, zone)


def _whole(text: str, bits: int) -> Any:
    if _WHOLE.fullmatch(text) is None or max(text) > "\uffff":
        return NO_VALUE
    number = int(text) if len(text.lstrip("+-0")) < 40 else 2**100
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else NO_VALUE


def _float(text: str, bits: int) -> Any:
    stripped = text.strip(BLANK)
    if text in ("Inf", "-Inf"):
        return float(text)
    if (found := _FLOAT.fullmatch(stripped)) is not None:
        double = float(found[1])
        return nearest_single(Decimal(found[1])) if bits == 32 and double and abs(double) < 1e300 else _in_width(double, bits)
    if (word := _NOT_FINITE.fullmatch(stripped)) is not None:
        return canonical(float(word[0].removeprefix("-") if word[2] == "NaN" else word[0]))
    if _HEXADECIMAL.match(stripped) is not None:
        raise ScalarError(f"a hexadecimal number in a CSV text: {text!r}")
    return NO_VALUE


def _in_width(value: float, bits: int) -> float:
    return canonical(value) if bits == 64 else single(value)


def schema_of_csv(text: str, separator: str, null: str) -> str:
    """The type of the record in a CSV text, as schema_of_csv writes it.

    >>> schema_of_csv("1,2.5,x", ",", "")
    'STRUCT<_c0: INT, _c1: DOUBLE, _c2: STRING>'
    """
    if not text:
        raise ScalarError("an empty text has no columns")
    types = [_inferred(field) if field and field != null else "STRING" for field in read_record(text, separator)]
    return f"STRUCT<{', '.join(f'_c{i}: {type}' for i, type in enumerate(types))}>"


def _inferred(field: str) -> str:
    whole = [name for name, bits in (("INT", 32), ("BIGINT", 64)) if _whole(field, bits) is not NO_VALUE]
    if whole:
        return whole[0]
    # An integer of more digits is a DECIMAL, also as 1.5e1, and every other number a DOUBLE.
    if (exact := decimal_field(field, Type(Kind.DECIMAL, 38, 0), commas=False)) is not NO_VALUE and Decimal(field).as_tuple()[
        2
    ] == 0:
        return f"DECIMAL({len(exact.as_tuple().digits)},0)"
    if _float(field, 64) is not NO_VALUE:
        return "DOUBLE"
    moment = time_field(field, Type(Kind.TIMESTAMP), UTC)
    if moment is not NO_VALUE:
        if "GMT" in field:
            raise ScalarError(f"the schema of the time {field!r}")
        return "DATE" if _ISO_DAY.fullmatch(field) is not None else "TIMESTAMP"
    return "BOOLEAN" if _BOOLEAN.fullmatch(field) is not None else "STRING"


def _to_csv(value: Struct, separator: str, null: str, zone: str = UTC) -> str | None:
    """to_csv; NULL for a text without a character, as Spark writes no empty line."""
    texts = (None if one is None else _written(one, zone) for one in value)
    text = separator.join(written_field(one, separator, null, is_first=i == 0) for i, one in enumerate(texts))
    check_length(len(text))
    return text or None


def _written(value: Any, zone: str) -> str:
    match value:
        case datetime.datetime():
            return iso_text(value, zone)
        case Decimal():
            return str(value)
    return to_text(SYMBOL, value, zone)


CSV_VALUES: Final = (
    BuiltIn(
        "from_csv", "string, string literal, [map of literals] -> struct", _from_csv, fallible=True, zoned=True, typed=True
    ),
    BuiltIn("to_csv", "struct, [map of literals] -> string", _to_csv, maybe_null=True, zoned=True),
)  # fmt: skip
