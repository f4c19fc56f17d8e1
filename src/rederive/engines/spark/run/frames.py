"""Rows become frames: registered with Spark under a name that plans can scan, or stored in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from shutil import rmtree
from tempfile import mkdtemp
from uuid import uuid4
from weakref import finalize

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rederive.engines.spark.plan.nodes import Plan
from rederive.engines.spark.plan.printer import print_query
from rederive.engines.spark.plan.sources import Distributed, Ends, Frame, Local, Types
from rederive.engines.spark.session.sessions import from_table
from rederive.engines.spark.session.types import column, from_arrow, schema, to_arrow
from rederive.engines.spark.tuning import Tuning
from rederive.ir.terms import Row


class Scratch:
    """Parquet files of one engine. `shared`: a folder that all executors of a cluster see; without it, a cluster has no files."""

    def __init__(self, session: SparkSession, tuning: Tuning, shared: str | None = None) -> None:
        self.session = session
        self.tuning = tuning
        self.is_local = (session.sparkContext.master or "").startswith("local")
        self._parts = session.sparkContext.defaultParallelism
        self._numbers = count(1)
        own = mkdtemp(prefix="rederive-")
        # Also when the interpreter ends without the engine being closed.
        finalize(self, rmtree, own, ignore_errors=True)
        self._folder = own if self.is_local else f"{shared}/{uuid4().hex}" if shared is not None else None

    @property
    def holds_intermediate_rows(self) -> bool:
        """Whether rows on their way go to files: on a cluster, so that a lost executor loses nothing (decision 39)."""
        return not self.is_local and self._folder is not None

    def path(self) -> str:
        """A new path that every executor sees."""
        return f"{self._folder}/{next(self._numbers)}.parquet"

    def handover_path(self, rows: int) -> str | None:
        """A path by which the driver hands so many rows to Spark, where that is faster than to send them."""
        return self.path() if self.is_local and rows >= self.tuning.file_rows else None

    def can_store(self, types: Types, rows: int) -> bool:
        """Whether so many rows are stored in files."""
        return bool(types) and rows >= self.tuning.file_rows and self._folder is not None

    def write(self, data: DataFrame, types: Types) -> DataFrame:
        """The same rows, read from files."""
        return self._write_at(self.path(), data, types)

    def write_ordered(self, data: DataFrame, types: Types, by: int) -> tuple[DataFrame, str | None]:
        """The same rows in files that are ordered by a column, and their folder where this process can read it.

        A scan with a range of that column skips the row groups of other ranges.
        """
        # Each file covers one range of the column, and its row groups are in order.
        ordered = data.repartitionByRange(4 * self._parts, column(by)).sortWithinPartitions(column(by))
        path = self.path()
        return self._write_at(path, ordered, types), path if self.is_local else None

    def _write_at(self, path: str, data: DataFrame, types: Types) -> DataFrame:
        data.write.option("parquet.block.size", self.tuning.file_block_bytes).parquet(path)
        return self.session.read.schema(schema(types)).parquet(path)


class Frames:
    """Makes frames, and drops the names of those that are not needed any more."""

    def __init__(self, session: SparkSession, scratch: Scratch, tuning: Tuning) -> None:
        self.session = session
        self.scratch = scratch
        self.tuning = tuning
        self._numbers = count(1)
        self._registered: set[str] = set()

    def of_data(self, data: DataFrame, types: Types, rows: int, ends: Ends | None = None) -> Distributed:
        """A data frame of so many rows."""
        return self._distributed(lambda: data, types, rows, ends)

    def lazily(self, make: Callable[[], DataFrame], types: Types, rows: int) -> Distributed:
        """A data frame of so many rows, made when a query reads it."""
        return self._distributed(make, types, rows, None)

    def of_rows(self, rows: Iterable[Row], types: Types) -> Frame:
        """Rows of the driver."""
        # A frame is a set, wherever it is.
        found = frozenset(rows)
        if len(found) <= self.tuning.driver_rows:
            return Local(types, found)
        table = to_arrow(found, types)
        if len(found) <= self.tuning.arrow_rows:
            return self.of_table(table, types)
        return self.of_data(self._hand_over(table, types), types, len(found))

    def of_table(self, table: pa.Table, types: Types, ends: Ends | None = None) -> Frame:
        """Distinct rows of an Arrow table in the driver."""
        if table.num_rows <= self.tuning.driver_rows:
            return Local(types, frozenset(from_arrow(table, types) if table.num_rows else ()))
        return self.distributed_table(table, types, ends)

    def distributed_table(self, table: pa.Table, types: Types, ends: Ends | None = None) -> Distributed:
        """The same, however few the rows are, and also where a row is there twice. Spark gets them when a query reads them."""
        return self._distributed(partial(self._hand_over, table, types), types, table.num_rows, ends, table)

    def of_query(self, plan: Plan, types: Types) -> Distributed:
        """The rows of a plan, evaluated by each query that reads them. Their number is not known, so they count as many."""
        # More than every bound by which readers choose, so nobody broadcasts or fetches it.
        rows = max(self.tuning.broadcast_rows, self.tuning.arrow_rows) + 1
        return self.of_data(self.session.sql(print_query(plan)), types, rows)

    def drop_all_but(self, names: Iterable[str]) -> None:
        """Drop all names but these. Data frames that were read by a dropped name stay readable."""
        for name in self._registered.difference(names):
            self.session.catalog.dropTempView(name)
        self._registered.intersection_update(names)

    def _distributed(
        self, make: Callable[[], DataFrame], types: Types, rows: int, ends: Ends | None, table: pa.Table | None = None
    ) -> Distributed:
        # Names are never used twice: a plan that still reads an old one cannot find other rows.
        name = f"rederive_{next(self._numbers)}"
        return Distributed(types, name, rows, partial(self._register, name, make), ends, table)

    def _register(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        data = make()
        data.createOrReplaceTempView(name)
        self._registered.add(name)
        return data

    def _hand_over(self, table: pa.Table, types: Types) -> DataFrame:
        return from_table(self.session, table, schema(types), self.scratch.handover_path(table.num_rows))
