"""Rows that a user or another engine hands in, as frames of this engine: collected into the driver where they are surely few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame

from rederive.engines.protocol import Bulk
from rederive.engines.spark.plan.sources import Distributed, Frame, Types
from rederive.engines.spark.run.arrow_sets import cast_columns
from rederive.engines.spark.run.data_frame_rows import DataFrameRows
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.sessions import at_most, in_session, partitions
from rederive.engines.spark.session.types import columns
from rederive.engines.spark.tuning import Tuning
from rederive.ir.terms import Row


def take_rows(rows: Iterable[Row], types: Types, jobs: Jobs) -> Frame:
    """Rows, or a data frame of any session, as a frame of distinct rows."""
    if not isinstance(rows, DataFrameRows):
        return jobs.frames.of_rows(rows, types)
    # Found by this engine: distinct, checked and of a known number.
    if rows.evaluated is not None and rows.owner is jobs:
        ends = rows.evaluated.ends
        if rows.table is not None:
            return jobs.frames.of_table(rows.table, types, ends)
        return jobs.frames.of_data(rows.data, types, len(rows), ends)
    return jobs.queries.materialize_data(_in_own_session(rows.data, types, jobs).distinct(), types)


def take_unchecked(given: Iterable[Bulk], types: Types, jobs: Jobs) -> list[Distributed]:
    """Data frames as they are: NULLs are not checked, and a row may be there twice. Each is evaluated once."""
    found = [rows for rows in given if isinstance(rows, DataFrameRows)]
    tables = collect_small(found, jobs.tuning)
    return [_take_one(rows, table, types, jobs) for rows, table in zip(found, tables, strict=True)]


def _take_one(rows: DataFrameRows, table: pa.Table | None, types: Types, jobs: Jobs) -> Distributed:
    if table is not None:
        return jobs.frames.distributed_table(table, types)
    data = jobs.queries.cut_lineage(_in_own_session(rows.unchecked, types, jobs), types)
    found = jobs.frames.of_data(data, types, jobs.queries.count(data))
    if len(found) <= jobs.tuning.arrow_rows:
        found.table = cast_columns(data.toArrow(), types)
    return found


def _in_own_session(data: DataFrame, types: Types, jobs: Jobs) -> DataFrame:
    found = in_session(jobs.session, data)
    return found.toDF(*columns(types)) if types else found.selectExpr("TRUE AS c0")


def collect_small(given: Sequence[DataFrameRows], tuning: Tuning) -> list[pa.Table | None]:
    """The rows of each data frame, by one job each, all at once; None where a frame may have many rows."""
    found = iter(_collect_all([rows for rows in given if rows.table is None], tuning))
    return [rows.table if rows.table is not None else next(found) for rows in given]


def _collect_all(given: Sequence[DataFrameRows], tuning: Tuning) -> list[pa.Table | None]:
    if len(given) < 2:
        return [collect_one(rows, tuning) for rows in given]
    # Spark runs the jobs of several threads at once.
    with ThreadPoolExecutor(len(given)) as pool:
        return [one.result() for one in [pool.submit(_in_other_thread(rows, tuning)) for rows in given]]


def _in_other_thread(rows: DataFrameRows, tuning: Tuning) -> Callable[[], pa.Table | None]:
    """A job for another thread, with this thread's description."""
    session = rows.as_given.sparkSession
    inherited: Callable[[], pa.Table | None] = inheritable_thread_target(session)(partial(collect_one, rows, tuning))
    return inherited


def collect_one(rows: DataFrameRows, tuning: Tuning) -> pa.Table | None:
    """The rows of a data frame, where they are few; else None, after a job that sends a limited number for nothing.

    A frame whose plan moves rows is not tried: it would be evaluated twice. A frame of fewer rows than the limit of one partition
    was sent whole.
    """
    most = tuning.arrow_rows // 2
    if not rows.types or most <= 0:
        return None
    data = at_most(most, rows.as_given)
    number = partitions(data)
    if number is None or number > tuning.collected_partitions:
        return None
    # A partition that reached the limit may have been cut: fewer rows in all than one limit mean that none was.
    table = data.toArrow()
    return cast_columns(table, rows.types) if table.num_rows < most else None
