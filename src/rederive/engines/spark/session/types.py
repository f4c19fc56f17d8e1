"""Our column types and values in Spark's terms: exact both ways.

An unsigned number is a decimal(20,0), which holds 64 bits; a timestamp is one without a time zone, as ours are UTC by agreement.
A map is the array of its entries, because Spark cannot compare maps and the engine joins whole rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa

from rederive import arrow_types
from rederive.arrow_types import from_arrow_columns, to_arrow_column
from rederive.ir.nested import nested_reader
from rederive.ir.terms import BOOLEAN, Kind, Part, Row, Type, Value
from rederive.values import interval_text

CODE = Type(Kind.NUMBER, 32)  # the code of a symbol that is only compared: two codes make one key of 64 bits
_NAMES = {
    Kind.SYMBOL: "STRING",
    Kind.NUMBER: "BIGINT",
    Kind.UNSIGNED: "DECIMAL(20,0)",
    Kind.FLOAT: "DOUBLE",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP_NTZ",
    Kind.BINARY: "BINARY",
    Kind.INTERVAL: "INTERVAL DAY TO SECOND",
}
_WIDTHS = {8: "TINYINT", 16: "SMALLINT", 32: "INT"}


def sql_type(type: Type) -> str:
    """
    >>> from rederive.ir.terms import UNSIGNED
    >>> sql_type(UNSIGNED), sql_type(Type(Kind.DECIMAL, 10, 2))
    ('DECIMAL(20,0)', 'DECIMAL(10,2)')
    """
    if type == CODE:
        return "INT"
    match type.kind:
        case Kind.ARRAY:
            return f"ARRAY<{_part_type(type.parts[0])}>"
        case Kind.STRUCT:
            return f"STRUCT<{_fields(type)}>"
        case Kind.MAP:
            return f"ARRAY<STRUCT<{_fields(type)}>>"
    return _NAMES.get(type.kind) or f"DECIMAL({type.precision},{type.scale})"


def _fields(type: Type) -> str:
    return ", ".join(f"`{part.name.replace('`', '``')}`: {_part_type(part)}" for part in type.parts)


def _part_type(part: Part) -> str:
    if part.type.kind is Kind.FLOAT and part.bits == 32:
        return "FLOAT"
    return _WIDTHS.get(part.bits, "BIGINT") if part.type.kind is Kind.NUMBER else sql_type(part.type)


@lru_cache(maxsize=4096)
def arrow_type(type: Type) -> pa.DataType:
    """The Arrow type of a column of the engine: that of the one type map, or 32 bits for a code."""
    return pa.int32() if type == CODE else arrow_types.arrow_type(without_maps(type))


@lru_cache(maxsize=4096)
def without_maps(type: Type) -> Type:
    """The type with the array of its entries for each map."""
    if not type.contains(Kind.MAP):
        return type
    parts = tuple(Part(part.name, without_maps(part.type), part.bits) for part in type.parts)
    if type.kind is not Kind.MAP:
        return Type(type.kind, parts=parts)
    return Type(Kind.ARRAY, parts=(Part("element", Type(Kind.STRUCT, parts=parts)),))


@cache
def column(position: int) -> str:
    """The name of a column within the engine: by position, so that no name of a program clashes with another."""
    return f"c{position}"


@lru_cache(maxsize=4096)
def columns(types: tuple[Type, ...]) -> tuple[str, ...]:
    """The columns of a relation; one without columns has a stand-in, which is true in its only row."""
    return tuple(column(i) for i in range(max(len(types), 1)))


def literal(value: Value, type: Type) -> str:
    """A value in Spark SQL. A dollar is escaped: `${...}` would be substituted.

    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> print(literal("it's $5", SYMBOL), literal(-3, NUMBER))
    'it\\'s \\u00245' CAST('-3' AS BIGINT)
    """
    match value:
        case None:
            return f"CAST(NULL AS {sql_type(type)})"
        case bool():
            return "TRUE" if value else "FALSE"
        # Order matters: backslashes first, or those of the other escapes would be doubled.
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024").replace("\0", "\\0")
            return f"'{escaped}'"
        # A negative number would be an operator applied to a literal, and -2^63 has no such literal: it is cast from text.
        case int() if type.kind is Kind.NUMBER and value >= 0:
            return f"{value}" if type == CODE else f"{value}L"
        # Before date, of which it is a subclass.
        case datetime.datetime():
            return f"TIMESTAMP_NTZ'{value.isoformat(' ')}'"
        case datetime.date():
            return f"DATE'{value.isoformat()}'"
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime.timedelta():
            return interval_text(value)
        case tuple():
            return f"CAST({_nested_literal(value, without_maps(type))} AS {sql_type(type)})"
        case _:
            return f"CAST('{value}' AS {sql_type(type)})"


def _nested_literal(value: tuple[Value, ...], type: Type) -> str:
    types = [part.type for part in type.parts] * (len(value) if type.kind is Kind.ARRAY else 1)
    parts = [literal(one, part) for one, part in zip(value, types, strict=True)]
    if type.kind is Kind.ARRAY:
        return f"array({', '.join(parts)})"
    return (
        f"named_struct({', '.join(f'{literal(part.name, _TEXT)}, {text}' for part, text in zip(type.parts, parts, strict=True))})"
    )


_TEXT = Type(Kind.SYMBOL)


def to_arrow(rows: Iterable[Row], types: tuple[Type, ...]) -> pa.Table:
    """Rows as an Arrow table with the engine's column names."""
    if not types:
        return pa.table({"c0": pa.array([True for _ in rows], pa.bool_())})
    listed = list(rows)
    plain = [without_maps(type) for type in types]
    arrays = [to_arrow_column((row[i] for row in listed), type, arrow_type(type)) for i, type in enumerate(plain)]
    return pa.table(arrays, names=list(columns(types)))


def from_arrow(table: pa.Table, types: tuple[Type, ...]) -> list[Row]:
    """The rows of a table with the engine's columns."""
    if not types:
        return [()] * table.num_rows
    return from_arrow_columns(table.columns, types)


def schema(types: tuple[Type, ...]) -> str:
    """The columns with their types, as Spark writes a schema.

    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> schema((SYMBOL, NUMBER))
    'c0 STRING, c1 BIGINT'
    """
    return ", ".join(f"{c} {sql_type(t)}" for c, t in zip(columns(types), types or (BOOLEAN,), strict=True))


def from_spark(rows: Iterable[Sequence[Value]], types: tuple[Type, ...]) -> list[Row]:
    """What Spark collects, as rows of values."""
    if not types:
        return [() for _ in rows]
    # Without columns of these types a Row of Spark is the tuple already.
    readers = {i: value_reader(type) for i, type in enumerate(types) if is_read(type)}
    if not readers:
        return [tuple(row) for row in rows]
    return [tuple(readers[i](v) if i in readers else v for i, v in enumerate(row)) for row in rows]


def is_read(type: Type) -> bool:
    """Whether Spark gives Python other values of a type than we have: it has several NaN, and bytes are a bytearray."""
    return bool(type.parts) or type.kind in (Kind.UNSIGNED, Kind.BINARY, Kind.FLOAT)


def value_reader(type: Type) -> Callable[[Any], Value]:
    """A function from what Spark gives Python to a value."""
    if type.kind is Kind.BINARY:
        return lambda value: None if value is None else bytes(value)
    return nested_reader(type)
