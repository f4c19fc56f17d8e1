"""The one map from column types to Arrow, and rows as Arrow tables. Both directions are exact: no value is lost.

The Spark engine, the lake and HTTP use this map. Spark's own types follow from Arrow's (`lake.types.spark_type`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from rederive.ir.terms import Kind, Row, Type, Value

# Arrow and Parquet have unsigned integers and Spark has not: 20 decimal digits hold every number of 64 bits.
# Timestamps have no time zone: ours are UTC by definition, and no session's time zone may shift them. Their unit is microseconds.
_ARROW: Final[dict[Kind, pa.DataType]] = {
    Kind.SYMBOL: pa.string(),
    Kind.NUMBER: pa.int64(),
    Kind.UNSIGNED: pa.decimal128(20, 0),
    Kind.FLOAT: pa.float64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us"),
}


def arrow_type(type: Type) -> pa.DataType:
    """The Arrow type that holds every value of a type.

    >>> arrow_type(Type(Kind.DECIMAL, 10, 2)), arrow_type(Type(Kind.UNSIGNED))
    (Decimal128Type(decimal128(10, 2)), Decimal128Type(decimal128(20, 0)))
    """
    return pa.decimal128(type.precision, type.scale) if type.kind is Kind.DECIMAL else _ARROW[type.kind]


def to_arrow_column(values: Iterable[Value], type: Type, arrow: pa.DataType | None = None) -> pa.Array[Any]:
    """The values of one column. `arrow`: another Arrow type than that of the map."""
    if type.kind is Kind.UNSIGNED:
        values = [None if value is None else Decimal(int(value)) for value in values]  # type: ignore[arg-type]
    return pa.array(values, arrow or arrow_type(type))


def to_arrow_columns(rows: Iterable[Row], types: Sequence[Type]) -> list[pa.Array[Any]]:
    """The columns of rows that have at least one column.

    >>> [column.to_pylist() for column in to_arrow_columns([(7, "a"), (None, "b")], (Type(Kind.UNSIGNED), Type(Kind.SYMBOL)))]
    [[Decimal('7'), None], ['a', 'b']]
    """
    columns: Sequence[Sequence[Value]] = list(zip(*rows, strict=True)) or [()] * len(types)
    return [to_arrow_column(column, type) for column, type in zip(columns, types, strict=True)]


def from_arrow_columns(columns: Iterable[pa.ChunkedArray[Any]], types: Sequence[Type]) -> list[Row]:
    """The rows whose columns these are; the inverse of `to_arrow_columns`."""
    return list(zip(*(from_arrow_column(column, type) for column, type in zip(columns, types, strict=False)), strict=True))


def from_arrow_column(column: pa.ChunkedArray[Any] | pa.Array[Any], type: Type) -> list[Value]:
    """The values of one column."""
    values: list[Any] = column.to_pylist()
    if type.kind is Kind.UNSIGNED:
        return [None if value is None else int(value) for value in values]
    return values
