"""Rows that came as an Arrow table or a record batch: typed by column, and Python rows only for who iterates over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from rederive.arrow_types import arrow_type, from_arrow_columns, to_arrow_column
from rederive.delta import LazyRows
from rederive.errors import DataError, IllTypedRow
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import Kind, Row, Type, Value
from rederive.rows import wrong_names
from rederive.values import column_value, from_python


@dataclass(frozen=True, slots=True, eq=False)
class ArrowRows(LazyRows):
    """Typed rows of a relation, by column. A row may be in it more than once."""

    types: tuple[Type, ...]
    columns: tuple[pa.ChunkedArray[Any], ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Row]:
        return iter(from_arrow_columns(self.columns, self.types))


def exported_table(rows: object) -> pa.Table:
    """The table that an object exports by Arrow's C interface: tables of Arrow and polars, results of other engines.

    >>> exported_table(pa.record_batch({"x": [1, 2]})).num_rows
    2
    """
    return pa.Table.from_batches([pa.record_batch(rows)]) if hasattr(rows, "__arrow_c_array__") else pa.table(rows)


def typed_columns(relation: Relation, table: pa.Table) -> ArrowRows:
    """The columns of a table by name, checked against those of the relation.

    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> stock = Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER)))
    >>> list(typed_columns(stock, pa.table({"n": [3, 4], "item": ["bolt", "nut"]})))
    [('bolt', 3), ('nut', 4)]
    """
    names = table.column_names
    if sorted(names) != sorted(column.name for column in relation.columns):
        raise wrong_names(names, relation)
    return ArrowRows(relation.types, tuple(_typed(table.column(column.name), column, relation) for column in relation.columns))


def _typed(values: pa.ChunkedArray[Any], column: Column, relation: Relation) -> pa.ChunkedArray[Any]:
    where = f"relation '{relation.name}', column '{column.name}'"
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if column.type.parts:
        return _typed_nested(values, column, where)
    if not _can_become(values.type, column.type):
        raise IllTypedRow(f"{where}: a column of Arrow's {values.type} is not a {column.type}")
    if values.null_count and not column.nullable:
        raise IllTypedRow(f"{where}: null is not a {column.type}")
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        values = values.cast(pa.timestamp(values.type.unit, "UTC")).cast(pa.timestamp(values.type.unit))
    try:
        # A safe cast fails where a value would change: a fraction that is cut off, a number out of range.
        values = values.cast(arrow_type(column.type))
        if column.type.kind is Kind.FLOAT and column.bits < 64:
            values = values.cast(pa.float32(), safe=False).cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise IllTypedRow(f"{where}: {error}") from None
    _check_range(values, column, where)
    return values


_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)


def _typed_nested(values: pa.ChunkedArray[Any], column: Column, where: str) -> pa.ChunkedArray[Any]:
    """Nested values are typed one by one: their parts have ranges and widths of their own."""
    try:
        typed = [column_value(value, column, from_python) for value in values.to_pylist()]
    except ValueError as error:
        raise IllTypedRow(f"{where}: {error}") from None
    return pa.chunked_array([to_arrow_column(typed, column.type)])


def _can_become(given: pa.DataType, wanted: Type) -> bool:
    """As for Python values: an integer is a float and a decimal too, and nothing else changes its kind."""
    is_integer = pa.types.is_integer(given) or pa.types.is_null(given)
    match wanted.kind:
        case Kind.SYMBOL:
            return any(is_text(given) for is_text in _TEXTS)
        case Kind.NUMBER:
            return is_integer
        case Kind.UNSIGNED:
            return is_integer or (pa.types.is_decimal(given) and given.scale == 0)
        case Kind.FLOAT:
            return is_integer or pa.types.is_floating(given)
        case Kind.BOOLEAN:
            return pa.types.is_boolean(given) or pa.types.is_null(given)
        case Kind.DATE:
            return pa.types.is_date32(given) or pa.types.is_null(given)
        case Kind.TIMESTAMP:
            return pa.types.is_timestamp(given) or pa.types.is_null(given)
        case Kind.DECIMAL:
            return is_integer or pa.types.is_decimal(given)
        case Kind.BINARY:
            return pa.types.is_binary(given) or pa.types.is_large_binary(given) or pa.types.is_null(given)
        case Kind.INTERVAL:
            return pa.types.is_duration(given) or pa.types.is_null(given)
        case Kind.ARRAY | Kind.STRUCT | Kind.MAP:
            return False  # typed value by value


def _check_range(values: pa.ChunkedArray[Any], column: Column, where: str) -> None:
    """What Arrow's types allow and ours do not."""
    if not len(values) or values.null_count == len(values):
        return
    if column.type.kind is Kind.UNSIGNED or (column.type.kind is Kind.NUMBER and column.bits < 64):
        is_unsigned, half = column.type.kind is Kind.UNSIGNED, 2 ** (column.bits - 1)
        least, most = (0, 2**64 - 1) if is_unsigned else (-half, half - 1)
        for value in (pc.min(values).as_py(), pc.max(values).as_py()):
            if not least <= value <= most:
                kind = "unsigned: 0 to 2^64 - 1" if is_unsigned else f"an integer of {column.bits} bits"
                raise IllTypedRow(f"{where}: {value} is out of range for {kind}")


def pandas_table(frame: object) -> pa.Table:
    """A pandas data frame as an Arrow table. What pandas has as missing, NaN and NaT among it, is NULL."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    # Nanoseconds would become objects of pandas; a timestamp has microseconds.
    fields = [
        field.with_type(pa.timestamp("us", field.type.tz)) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def pandas_rows(frame: object, relation: Relation) -> ArrowRows | list[dict[str, Value]]:
    """The rows of a pandas data frame: by column, or where a column has another type, one by one."""
    table = pandas_table(frame)
    try:
        return typed_columns(relation, table)
    except DataError:
        return cast("list[dict[str, Value]]", table.to_pylist())
