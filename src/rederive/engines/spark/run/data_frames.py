"""The rows of Spark data frames, where an operation or a delta has rows, and how the engine takes them in.

They are collected into the driver where they are surely few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Self

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import col, count, lit, row_number, sum_distinct, xxhash64

from rederive.engines.protocol import Bulk
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, Types
from rederive.engines.spark.run.arrow_sets import cast_columns
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.sessions import at_most, executed, in_session, run_in_parallel
from rederive.engines.spark.session.types import column, columns, from_arrow
from rederive.engines.spark.tuning import Tuning
from rederive.errors import NullInKey
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER, Row


def missing_value(relation: Relation, position: int) -> NullInKey:
    """The error of a row that has NULL in a column that must have a value."""
    what = "which belongs to its key" if position in relation.key else "which must not be NULL"
    return NullInKey(f"relation '{relation.name}': a row has no value in column '{relation.columns[position].name}', {what}")


class DataFrameRows(Bulk):
    """The rows of a data frame: its first columns, in the relation's order.

    `check` raises an error for rows that the relation cannot have, of the frame with all its columns or of a table of it. For a
    frame it is a query of its own; a query that finds such rows by itself reads the data as `unchecked`.
    """

    def __init__(
        self, data: DataFrame | Distributed, types: Types, check: Callable[[DataFrame | pa.Table], None] | None = None
    ) -> None:
        self._given = data
        self.types = types
        self._check = check
        self.owner: object = None
        self.is_in_place = False
        self.is_held = False
        self._number: int | None = None
        self._is_distinct = False
        self._table: pa.Table | None = None
        self._tried = 0  # rows: the frame has as many or more

    @classmethod
    def held(cls, data: DataFrame, types: Types, check: Callable[[DataFrame | pa.Table], None] | None = None) -> Self:
        """The same of a frame that is evaluated once, however often its rows are read: by the job that first reads them.

        A micro-batch of a stream may be expensive to read, and a frame of a random function has other rows each time.
        """
        found = cls(hold(data), types, check)
        found.is_held = True
        return found

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
        return self.evaluated.table if self.evaluated is not None else self._table

    @property
    def is_in_driver(self) -> bool:
        """Whether this process has the rows: few of them come with the job that evaluates a held frame."""
        return self.table is not None or (self.is_held and self.collect(Tuning()) is not None)

    @property
    def as_given(self) -> DataFrame:
        """The rows, not checked yet, under the names that their columns have."""
        return self._given.data if isinstance(self._given, Distributed) else self._given

    @cached_property
    def unchecked(self) -> DataFrame:
        """The rows, not checked yet, in columns named by position."""
        data, names = self.as_given, columns(self.types)
        if not self.types:
            return data.select(lit(True).alias("c0"))
        own = data.columns[: len(names)]
        return (data if len(own) == len(data.columns) else data.select(*own)).toDF(*names)

    @property
    def data(self) -> DataFrame:
        """The rows, checked."""
        self.check()
        return self.unchecked

    def check(self) -> None:
        """Raise an error for rows that the relation cannot have; once."""
        # The job that evaluates a held frame brings few rows along, which are checked and counted in the driver.
        if self._check is None or (self.is_held and self.collect(Tuning()) is not None):
            return
        self._check(self.as_given)
        self._check = None

    def collect(self, tuning: Tuning) -> pa.Table | None:
        """The rows, checked, where they are few; else None, after a job that sends a limited number for nothing.

        A frame of fewer rows than the limit of one partition was sent whole.
        """
        most = tuning.arrow_rows // 2
        if self.table is None and self.types and most > self._tried:
            partitions = int(executed(self.as_given).getNumPartitions())
            if partitions > tuning.collected_partitions:
                return None
            most = min(most, tuning.sent_rows // max(partitions, 1))
            data = at_most(most, self.as_given)
            # A partition that reached the limit may have been cut: fewer rows in all than one limit mean that none was.
            table = data.toArrow()
            if table.num_rows < most:
                self._take(table)
            else:
                self._tried = most
        return self.table

    def _take(self, table: pa.Table) -> None:
        if self._check is not None:
            self._check(table)
            self._check = None
        self._table = cast_columns(table.select(table.column_names[: len(self.types)]), self.types)
        self._number = table.num_rows

    def __len__(self) -> int:
        if self._number is None and not (self.is_held and self.collect(Tuning()) is not None):
            self._number = self.data.count()
        return self._number or 0

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[Row]:
        self.check()
        table = self.table
        if table is None and self.evaluated is not None and self.evaluated.read is not None:
            table = self.evaluated.read()
        return from_arrow(table if table is not None else self.unchecked.toArrow(), self.types)

    def digest(self) -> str:
        """A text that is the same for the same rows, and almost surely for no others."""
        # Independent of the order of rows and of their partitions; as decimals, because a sum of 64-bit hashes overflows.
        hashes = self.data.select(xxhash64(*map(col, columns(self.types))).cast("decimal(38,0)").alias("h"))
        (found,) = hashes.agg(count("h"), sum_distinct("h")).collect()
        return f"{found[0]}:{found[1]}"

    def number_copies(self) -> DataFrameRows:
        """The rows with one more column, which numbers the copies of each row from 1."""
        alike = Window.partitionBy(*columns(self.types)).orderBy(lit(0))  # copies are equal: any order serves
        data = self.data.withColumn(column(len(self.types)), row_number().over(alike).cast("long"))
        found = DataFrameRows.counted(data, (*self.types, NUMBER), self._number)
        found._is_distinct = True
        return found


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
    data = _in_own_session(rows.data, types, jobs)
    return jobs.queries.materialize_data(data if rows._is_distinct else data.distinct(), types)


def frame_in_place(rows: DataFrameRows, types: Types, jobs: Jobs) -> Distributed:
    """The rows of a table that stays where it is; each query reads what it needs of it."""
    # Not made yet: where this process reads the files, Spark need not look at the table at all.
    found = jobs.frames.lazily(lambda: _in_own_session(rows.data, types, jobs), types, len(rows))
    found.is_in_place = True
    found.read = rows.evaluated.read if rows.evaluated is not None else None
    return found


def hold(data: DataFrame) -> DataFrame:
    """The same rows without their lineage: the frame is evaluated when they are first read, and never again.

    They are stored until nobody refers to them; on a cluster twice, as an executor may be lost.
    """
    is_local = (data.sparkSession.sparkContext.master or "").startswith("local")
    return data.localCheckpoint(False, None if is_local else StorageLevel.MEMORY_AND_DISK_2)


def take_unchecked(given: Iterable[Bulk], types: Types, jobs: Jobs) -> list[Distributed]:
    """Data frames as they are: many rows are not checked for NULL, and a row may be there twice. Each is evaluated once."""
    found = [rows for rows in given if isinstance(rows, DataFrameRows)]
    # One job for each, all at once.
    steps = [partial(rows.collect, jobs.tuning) for rows in found]
    tables = run_in_parallel(jobs.session, steps, len(steps))
    return [_take_one(rows, table, types, jobs) for rows, table in zip(found, tables, strict=True)]


def _take_one(rows: DataFrameRows, table: pa.Table | None, types: Types, jobs: Jobs) -> Distributed:
    if table is not None:
        return jobs.frames.distributed_table(table, types)
    data = _in_own_session(rows.unchecked, types, jobs)
    # A held frame is cut off from its lineage already; on a cluster many rows go to files, which outlast an executor.
    if not rows.is_held or jobs.scratch.holds_intermediate_rows:
        data = jobs.queries.cut_lineage(data, types)
    found = jobs.frames.of_data(data, types, jobs.queries.count(data))
    if len(found) <= jobs.tuning.arrow_rows:
        found.table = cast_columns(data.toArrow(), types)
    return found


def _in_own_session(data: DataFrame, types: Types, jobs: Jobs) -> DataFrame:
    found = in_session(jobs.session, data)
    return found.toDF(*columns(types)) if types else found.selectExpr("TRUE AS c0")


def as_rows(frame: Frame, jobs: Jobs) -> tuple[Row, ...] | Bulk:
    """The rows of a frame for others: Python rows where they are in the driver, else rows that stay in Spark."""
    return tuple(frame.rows) if isinstance(frame, Local) else DataFrameRows.of(frame, jobs)
