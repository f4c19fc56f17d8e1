"""The one map from column types to Arrow, and rows as Arrow tables. Both directions are exact: no value is lost.

The Spark engine, the lake and HTTP use this map. Spark's own types follow from Arrow's (`lake.types.spark_type`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from rederive.ir.nested import nested_reader
from rederive.ir.terms import Kind, Part, Row, Type, Value

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
    Kind.BINARY: pa.binary(),
    Kind.INTERVAL: pa.duration("us"),
}
_WIDTHS: Final[dict[tuple[Kind, int], pa.DataType]] = {
    (Kind.NUMBER, 8): pa.int8(),
    (Kind.NUMBER, 16): pa.int16(),
    (Kind.NUMBER, 32): pa.int32(),
    (Kind.FLOAT, 32): pa.float32(),
}


def arrow_type(type: Type) -> pa.DataType:
    """The Arrow type that holds every value of a type.

    >>> arrow_type(Type(Kind.DECIMAL, 10, 2)), arrow_type(Type(Kind.UNSIGNED))
    (Decimal128Type(decimal128(10, 2)), Decimal128Type(decimal128(20, 0)))
    """
    match type.kind:
        case Kind.DECIMAL:
            return pa.decimal128(type.precision, type.scale)
        case Kind.ARRAY:
            return pa.list_(pa.field("element", _part_type(type.parts[0])))
        case Kind.STRUCT:
            return pa.struct([pa.field(part.name, _part_type(part)) for part in type.parts])
        case Kind.MAP:
            return pa.map_(*map(_part_type, type.parts))
    return _ARROW[type.kind]


def _part_type(part: Part) -> pa.DataType:
    """Inside of nested types a number has its own width: nothing casts it when a table is written."""
    return _WIDTHS.get((part.type.kind, part.bits)) or arrow_type(part.type)


def to_arrow_column(values: Iterable[Value], type: Type, arrow: pa.DataType | None = None) -> pa.Array[Any]:
    """The values of one column. `arrow`: another Arrow type than that of the map."""
    if type.kind is Kind.UNSIGNED:
        values = [None if value is None else Decimal(int(value)) for value in values]  # type: ignore[arg-type]
    into = arrow or arrow_type(type)
    return pa.array([_with_names(value, into) for value in values] if type.parts else values, into)


def _with_names(value: Any, into: pa.DataType) -> Any:
    """The value with a dictionary for each struct, which Arrow's conversion from Python needs."""
    if value is None:
        return None
    if pa.types.is_struct(into):
        return {field.name: _with_names(one, field.type) for one, field in zip(value, into, strict=True)}
    if pa.types.is_list(into):
        return [_with_names(one, into.value_type) for one in value]
    if pa.types.is_map(into):
        return [(_with_names(key, into.key_type), _with_names(one, into.item_type)) for key, one in value]
    return value


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
    # Arrow has several NaN.
    is_read = type.parts or type.kind is Kind.UNSIGNED or (type.kind is Kind.FLOAT and pc.any(pc.is_nan(column)).as_py())
    return list(map(nested_reader(type), values)) if is_read else values
