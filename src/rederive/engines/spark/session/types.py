"""Our column types and values in Spark's terms: exact both ways.

An unsigned number is a decimal(20,0), which holds 64 bits; a timestamp is one without a time zone, as ours are UTC by agreement.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from decimal import Decimal

import pyarrow as pa

from rederive import arrow_types
from rederive.arrow_types import from_arrow_columns, to_arrow_column
from rederive.ir.terms import BOOLEAN, Kind, Row, Type, Value

CODE = Type(Kind.NUMBER, 32)  # the code of a symbol that is only compared: two codes make one key of 64 bits
_NAMES = {
    Kind.SYMBOL: "STRING",
    Kind.NUMBER: "BIGINT",
    Kind.UNSIGNED: "DECIMAL(20,0)",
    Kind.FLOAT: "DOUBLE",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP_NTZ",
}


def sql_type(type: Type) -> str:
    """
    >>> from rederive.ir.terms import UNSIGNED
    >>> sql_type(UNSIGNED), sql_type(Type(Kind.DECIMAL, 10, 2))
    ('DECIMAL(20,0)', 'DECIMAL(10,2)')
    """
    if type == CODE:
        return "INT"
    return _NAMES.get(type.kind) or f"DECIMAL({type.precision},{type.scale})"


def arrow_type(type: Type) -> pa.DataType:
    """The Arrow type of a column of the engine: that of the one type map, or 32 bits for a code."""
    return pa.int32() if type == CODE else arrow_types.arrow_type(type)


def column(position: int) -> str:
    """The name of a column within the engine: by position, so that no name of a program clashes with another."""
    return f"c{position}"


def columns(types: Sequence[Type]) -> list[str]:
    """The columns of a relation; one without columns has a stand-in, which is true in its only row."""
    return [column(i) for i in range(max(len(types), 1))]


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
        case _:
            return f"CAST('{value}' AS {sql_type(type)})"


def to_arrow(rows: Iterable[Row], types: Sequence[Type]) -> pa.Table:
    """Rows as an Arrow table with the engine's column names."""
    if not types:
        return pa.table({"c0": pa.array([True for _ in rows], pa.bool_())})
    listed = list(rows)
    arrays = [to_arrow_column((row[i] for row in listed), type, arrow_type(type)) for i, type in enumerate(types)]
    return pa.table(arrays, names=columns(types))


def from_arrow(table: pa.Table, types: Sequence[Type]) -> list[Row]:
    """The rows of a table with the engine's columns."""
    if not types:
        return [()] * table.num_rows
    return from_arrow_columns(table.columns, types)


def schema(types: Sequence[Type]) -> str:
    """The columns with their types, as Spark writes a schema.

    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> schema((SYMBOL, NUMBER))
    'c0 STRING, c1 BIGINT'
    """
    return ", ".join(f"{c} {sql_type(t)}" for c, t in zip(columns(types), types or (BOOLEAN,), strict=True))


def from_spark(rows: Iterable[Sequence[Value]], types: Sequence[Type]) -> list[Row]:
    """What Spark collects, as rows of values."""
    if not types:
        return [() for _ in rows]
    # Without unsigned columns a Row of Spark is the tuple already.
    unsigned = [i for i, type in enumerate(types) if type.kind is Kind.UNSIGNED]
    if not unsigned:
        return [tuple(row) for row in rows]
    return [tuple(_to_unsigned(v) if i in unsigned else v for i, v in enumerate(row)) for row in rows]


def _to_unsigned(value: Value) -> Value:
    return int(value) if isinstance(value, Decimal) else value
