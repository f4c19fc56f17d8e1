"""The rows of Spark data frames, where an operation or a delta has rows, and how the engine takes them in.

They are collected into the driver where they are surely few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, lit, sum_distinct, xxhash64

from rederive.engines.protocol import Bulk
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Types
from rederive.engines.spark.run.arrow_sets import cast_columns
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.sessions import at_most, in_session, partitions, run_in_parallel
from rederive.engines.spark.session.types import columns, from_arrow
from rederive.engines.spark.tuning import Tuning
from rederive.errors import NullInKey
from rederive.ir.rules import Relation
from rederive.ir.terms import Row


def missing_value(relation: Relation, position: int) -> NullInKey:
    """The error of a row that has NULL in a column that must have a value."""
    what = "which belongs to its key" if position in relation.key else "which must not be NULL"
    return NullInKey(f"relation '{relation.name}': a row has no value in column '{relation.columns[position].name}', {what}")


class DataFrameRows(Bulk):
    """The rows of a data frame, whose columns are in the relation's order.

    `check` raises an error for rows with NULL where the relation must have a value. It is a query of its own; a query that finds
    such rows by itself reads the data as `unchecked`.
    """

    def __init__(self, data: DataFrame | Distributed, types: Types, check: Callable[[], None] | None = None) -> None:
        self._given = data
        self.types = types
        self._check = check
        self.owner: object = None
        self.is_in_place = False
        self._number: int | None = None
        self._is_distinct = False

    @classmethod
    def of(cls, frame: Distributed, owner: object) -> Self:
        """What a query of the owner's session found: distinct rows that stay as they are."""
        found = cls(frame, frame.types)
        found.owner, found._number = owner, len(frame)
        return found

    @classmethod
    def counted(cls, data: DataFrame | Distributed, types: Types, number: int | None) -> Self:
        """Checked rows of a known number; None if they are counted when somebody asks."""
        found = cls(data, types)
        found._number = number
        return found

    @classmethod
    def in_driver(cls, table: pa.Table, types: Types, make: Callable[[], DataFrame]) -> Self:
        """Distinct and checked rows in the driver; `make`: the same as a data frame, for readers in Spark."""
        found = cls.counted(Distributed(types, "", table.num_rows, make, table=table), types, table.num_rows)
        found._is_distinct = True
        return found

    @classmethod
    def in_local_files(
        cls, read: Callable[[], pa.Table | None], make: Callable[[], DataFrame], types: Types, number: int
    ) -> Self:
        """The same as `in_place` where this process can read the files, too; None from `read` leaves them to Spark."""
        found = cls.counted(Distributed(types, "", number, make, read=read), types, number)
        found.is_in_place = True
        return found

    @classmethod
    def in_place(cls, data: DataFrame, types: Types, number: int | None) -> Self:
        """Distinct and checked rows of a table that stay readable where they are, so that an engine need not copy them."""
        found = cls.counted(data, types, number)
        found.is_in_place = True
        return found

    @property
    def evaluated(self) -> Distributed | None:
        """The frame that a query found, where these are its rows."""
        return self._given if isinstance(self._given, Distributed) else None

    @property
    def table(self) -> pa.Table | None:
        """The rows in the driver, where they are there."""
        return self.evaluated.table if self.evaluated is not None else None

    @property
    def as_given(self) -> DataFrame:
        """The rows, not checked yet, under the names that their columns have."""
        return self._given.data if isinstance(self._given, Distributed) else self._given

    @cached_property
    def unchecked(self) -> DataFrame:
        """The rows, not checked yet, in columns named by position."""
        data = self.as_given
        return data.toDF(*columns(self.types)) if self.types else data.select(lit(True).alias("c0"))

    @property
    def data(self) -> DataFrame:
        """The rows, checked for NULL once."""
        if self._check is not None:
            self._check()
            # Once: the check is a query over all rows.
            self._check = None
        return self.unchecked

    def __len__(self) -> int:
        if self._number is None:
            self._number = self.data.count()
        return self._number

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[Row]:
        table = self.table
        if table is None and self.evaluated is not None and self.evaluated.read is not None:
            table = self.evaluated.read()
        return from_arrow(table if table is not None else self.data.toArrow(), self.types)

    def digest(self) -> str:
        """A text that is the same for the same rows, and almost surely for no others."""
        # Independent of the order of rows and of their partitions; as decimals, because a sum of 64-bit hashes overflows.
        hashes = self.data.select(xxhash64(*map(col, columns(self.types))).cast("decimal(38,0)").alias("h"))
        (found,) = hashes.agg(count("h"), sum_distinct("h")).collect()
        return f"{found[0]}:{found[1]}"


def take_rows(rows: Iterable[Row], types: Types, jobs: Jobs) -> Frame:
    """Rows, or a data frame of any session, as a frame of distinct rows."""
    if not isinstance(rows, DataFrameRows):
        return jobs.frames.of_rows(rows, types)
    if rows.table is not None and rows._is_distinct:
        return jobs.frames.of_table(rows.table, types)
    # Found by this engine: distinct, checked and of a known number.
    if rows.evaluated is not None and rows.owner is jobs:
        ends = rows.evaluated.ends
        if rows.table is not None:
            return jobs.frames.of_table(rows.table, types, ends)
        return jobs.frames.of_data(rows.data, types, len(rows), ends)
    if rows.is_in_place:
        return frame_in_place(rows, types, jobs)
    return jobs.queries.materialize_data(_in_own_session(rows.data, types, jobs).distinct(), types)


def frame_in_place(rows: DataFrameRows, types: Types, jobs: Jobs) -> Distributed:
    """The rows of a table that stays where it is; each query reads what it needs of it."""
    # Not made yet: where this process reads the files, Spark need not look at the table at all.
    found = jobs.frames.lazily(lambda: _in_own_session(rows.data, types, jobs), types, len(rows))
    found.is_in_place = True
    found.read = rows.evaluated.read if rows.evaluated is not None else None
    return found


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
    if not given:
        return []
    return run_in_parallel(given[0].as_given.sparkSession, [partial(collect_one, rows, tuning) for rows in given], len(given))


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


def as_rows(frame: Frame, jobs: Jobs) -> tuple[Row, ...] | Bulk:
    """The rows of a frame for others: Python rows where they are in the driver, else rows that stay in Spark."""
    return tuple(frame.rows) if isinstance(frame, Local) else DataFrameRows.of(frame, jobs)
