"""Sets of rows as Arrow tables in the driver: for deltas too large for Python rows, and too small for a Spark job (decision 44).

A table has the columns that Spark has of the same rows. NULL is identical to NULL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from rederive.engines.spark.session.types import arrow_type, columns
from rederive.ir.terms import BOOLEAN, Kind, Type, Value

_SIGN = "sign"
_FEW = 8  # times as many rows: from there on, a hash join of the few takes less time than grouping all
Signed: TypeAlias = tuple[pa.Table, int]  # rows with their sign
ArrowColumn: TypeAlias = "pa.ChunkedArray[Any]"


def can_compare(types: Iterable[Type]) -> bool:
    """Whether Arrow compares values of these types as the engines do; floats and nested values it does not."""
    return all(type.kind is not Kind.FLOAT and not type.parts for type in types)


def cast_columns(table: pa.Table, types: tuple[Type, ...]) -> pa.Table:
    """The same rows in columns named by position, in the types of the relation."""
    fields = zip(columns(types), types or (BOOLEAN,), strict=True)
    return table.rename_columns(list(columns(types))).cast(pa.schema([(name, arrow_type(type)) for name, type in fields]))


def int64(number: int) -> pa.Int64Scalar:
    """A number as an Arrow scalar of 64 bits."""
    return pa.scalar(number, pa.int64())


def add_columns(table: pa.Table, more: Mapping[str, int]) -> pa.Table:
    """The rows with more columns, each with one value in all rows."""
    for name, value in more.items():
        table = table.append_column(name, pa.repeat(int64(value), table.num_rows))
    return table


def distinct(table: pa.Table) -> pa.Table:
    """Each row once."""
    return table.group_by(table.column_names).aggregate([])


def select_matching(table: pa.Table, names: Sequence[str], keys: pa.Table) -> pa.Table | None:
    """The rows whose values in some columns are among a few keys; None where a key has NULL, which Arrow does not find."""
    if not names or any(column.null_count for column in keys.columns):
        return None
    # Arrow builds its hash table of the right side, and streams the left one.
    return table.join(keys.rename_columns(list(names)), list(names), join_type="left semi").select(table.column_names)


def subtract(table: pa.Table, other: pa.Table) -> pa.Table:
    """The rows of a table that another does not have."""
    names = table.column_names
    # Few rows next to many: f - k = f - (k & f), and k & f is found without grouping the many.
    if _FEW * table.num_rows < other.num_rows and (common := select_matching(other, names, table)) is not None:
        other = common
    # Not an anti-join: Arrow's join never finds NULL equal to NULL, its grouping does.
    each = _concat_signed([(table, 0), (other, 1)]).group_by(names).aggregate([(_SIGN, "max")])
    return each.filter(pc.field(f"{_SIGN}_max") == 0).select(names)


def net_tables(parts: Sequence[Signed]) -> tuple[pa.Table, pa.Table]:
    """The rows whose signs sum to less than zero, and those whose signs sum to more."""
    names = parts[0][0].column_names
    # The union of deltas: signs add up, and rows whose sum is zero are on neither side.
    each = _concat_signed(parts).group_by(names).aggregate([(_SIGN, "sum")])
    total = pc.field(f"{_SIGN}_sum")
    return each.filter(total < 0).select(names), each.filter(total > 0).select(names)


def _concat_signed(parts: Sequence[Signed]) -> pa.Table:
    return pa.concat_tables([add_columns(table, {_SIGN: sign}) for table, sign in parts])


def range_of(values: ArrowColumn, type: Type) -> tuple[Value, Value]:
    """The least and the greatest value."""
    both = pc.min_max(values)
    low, high = both["min"].as_py(), both["max"].as_py()
    # A decimal of Arrow, a number in rows.
    return (int(low), int(high)) if type.kind is Kind.UNSIGNED and low is not None else (low, high)
