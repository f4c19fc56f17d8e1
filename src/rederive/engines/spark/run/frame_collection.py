"""The data frames of a transaction in the driver, where they are surely not many: by one job each, all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from pyspark import inheritable_thread_target

from rederive.engines.spark.run import arrow_sets as tables
from rederive.engines.spark.run.data_frame_rows import DataFrameRows
from rederive.engines.spark.session.sessions import at_most, partitions

_FEW_PARTITIONS = 16


def collected(frames: Sequence[DataFrameRows]) -> list[pa.Table | None]:
    """The rows of each frame, None where they may be many."""
    asked = iter(_all_collected([rows for rows in frames if rows.table is None]))
    return [rows.table if rows.table is not None else next(asked) for rows in frames]


def _all_collected(frames: Sequence[DataFrameRows]) -> list[pa.Table | None]:
    if len(frames) < 2:
        return list(map(_collected, frames))
    with ThreadPoolExecutor(len(frames)) as pool:
        return [one.result() for one in [pool.submit(_from_here(rows)) for rows in frames]]


def _from_here(rows: DataFrameRows) -> Callable[[], pa.Table | None]:
    """To be run by another thread, whose jobs say in Spark's pages what this one's say."""
    inherited: Callable[[], pa.Table | None] = inheritable_thread_target(rows.as_given.sparkSession)(partial(_collected, rows))
    return inherited


def _collected(rows: DataFrameRows) -> pa.Table | None:
    """At most a few times as many rows as a table may have are sent for nothing. What moves rows is too dear to be run twice.

    A frame of fewer rows than a partition may send was sent whole.
    """
    most = tables.MOST // 2
    if not rows.types or most <= 0:
        return None
    data = at_most(most, rows.as_given)
    number = partitions(data)
    if number is None or number > _FEW_PARTITIONS:
        return None
    table = data.toArrow()
    return tables.typed(table, rows.types) if table.num_rows < most else None
