"""Totals of groups over Arrow tables in the driver: exact, and the same as what Spark sums."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rederive.engines.spark.run.arrow_sets import Signed, cast_columns, int64
from rederive.engines.spark.session.types import column
from rederive.ir.rules import Aggregate, Function
from rederive.ir.terms import Type

_HALF = 32  # bits: a sum of halves of numbers fits 64 bits, however many rows a table has
_ZERO = int64(0)
_DECIMAL = pa.decimal128(19, 0)
_SHIFT = pa.scalar(Decimal(1 << _HALF), pa.decimal128(10, 0))


def table_totals(alike: Sequence[Aggregate], parts: Sequence[Signed], types: tuple[Type, ...]) -> pa.Table:
    """For each group of some aggregates: the number of rows, and for each aggregate the number of values and their sum.

    Each row counts with the multiplicity of its part. The values are whole numbers.
    """
    group = [column(c) for c in alike[0].group]
    # Totals are linear: those of the signed parts add up to the change.
    rows = pa.concat_tables([_row_totals(alike, table, times) for table, times in parts])
    summed = [name for name in rows.column_names if name not in group]
    each = rows.group_by(group).aggregate([(name, "sum") for name in summed])
    found: list[Any] = [each[name] for name in (*group, "times_sum")]
    for i, aggregate in enumerate(alike):
        found += [each[f"known{i}_sum"], _join_halves(each, i) if aggregate.function is Function.SUM else _zeros(each.num_rows)]
    return cast_columns(pa.table(found, names=[column(i) for i in range(len(found))]), types)


def _row_totals(alike: Sequence[Aggregate], table: pa.Table, times: int) -> pa.Table:
    """The groups of rows, and what each row adds to their totals; numbers as two halves."""
    weight = int64(times)
    weights = pa.repeat(weight, table.num_rows)
    found: dict[str, Any] = {column(c): table.column(c) for c in alike[0].group}
    found["times"] = weights
    for i, aggregate in enumerate(alike):
        if aggregate.value is None:
            found[f"known{i}"] = weights
            continue
        value = table.column(aggregate.value)
        found[f"known{i}"] = pc.if_else(value.is_valid(), weight, _ZERO)
        if aggregate.function is Function.SUM:
            # value = high * 2^32 + low, with 0 <= low < 2^32; the shift is arithmetic, so this holds for negative values.
            found[f"high{i}"] = pc.multiply(pc.shift_right(value, int64(_HALF)), weight)
            found[f"low{i}"] = pc.multiply(pc.bit_wise_and(value, int64((1 << _HALF) - 1)), weight)
    return pa.table(found)


def _join_halves(each: pa.Table, number: int) -> Any:
    """The sum of numbers from the sums of their halves."""
    high, low = (pc.coalesce(each[f"{half}{number}_sum"], _ZERO).cast(_DECIMAL) for half in ("high", "low"))
    return pc.add(pc.multiply(high, _SHIFT), low)


def _zeros(rows: int) -> Any:
    return pa.repeat(pa.scalar(Decimal(0), pa.decimal128(38, 0)), rows)
