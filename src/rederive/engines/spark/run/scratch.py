"""The folder in which the engine writes rows: stored relations, and rows that a lost executor must not lose."""

from __future__ import annotations

from itertools import count
from shutil import rmtree
from tempfile import mkdtemp
from uuid import uuid4
from weakref import finalize

from pyspark.sql import DataFrame, SparkSession

from rederive.engines.spark.plan.sources import Types
from rederive.engines.spark.session.types import column, schema
from rederive.engines.spark.tuning import Tuning


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
