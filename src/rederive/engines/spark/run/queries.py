"""Plans run as Spark jobs. A small answer comes to the driver; a large one stays in Spark, cut off from its lineage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock
from typing import Any, Final, assert_never
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from rederive.engines.spark.plan.expressions import count_rows, refs
from rederive.engines.spark.plan.nodes import GroupBy, Plan, Projection
from rederive.engines.spark.plan.printer import print_query
from rederive.engines.spark.plan.sources import Combined, Difference, Distributed, Frame, Local, Source, Types, frames, scan
from rederive.engines.spark.run.arrow_sets import Signed, can_compare, cast_columns, subtract
from rederive.engines.spark.run.frames import Frames, Scratch
from rederive.engines.spark.session.sessions import at_most, executed
from rederive.engines.spark.session.types import columns, from_arrow, from_spark, to_arrow
from rederive.engines.spark.tuning import Tuning
from rederive.ir.terms import Row

_DESCRIPTION: Final = "spark.job.description"
_GROUP: Final = "spark.jobGroup.id"
_LISTENER_MILLISECONDS: Final = 2_000  # Spark counts jobs by events, which arrive later


class Queries:
    """Runs plans. `touched` counts the rows that the plans of an operation found."""

    def __init__(self, session: SparkSession, registered: Frames, scratch: Scratch, tuning: Tuning) -> None:
        self.session = session
        self.frames = registered
        self.scratch = scratch
        self.tuning = tuning
        self.touched = 0
        self._lock = Lock()
        self._name, self._numbers = f"rederive-{uuid4().hex[:8]}", count(1)
        self.group = f"{self._name}-0"

    # What Spark's user interface shows

    def begin(self) -> None:
        """Begin to count jobs, and the rows that they touch."""
        self.touched = 0
        self.group = f"{self._name}-{next(self._numbers)}"

    def jobs_since_begin(self) -> int:
        """The number of jobs that ran within `describe` since the last `begin`."""
        context: Any = self.session.sparkContext
        with suppress(Py4JJavaError):  # the events of others are many: the count is then that of the events so far
            context._jsc.sc().listenerBus().waitUntilEmpty(_LISTENER_MILLISECONDS)
        return len(context.statusTracker().getJobIdsForGroup(self.group))

    @contextmanager
    def describe(self, what: str) -> Iterator[None]:
        """Jobs that run inside have this description in Spark's user interface, and are counted."""
        context = self.session.sparkContext
        wanted = {_DESCRIPTION: what, _GROUP: self.group}
        # Each is a call to the JVM: within another description the group is there already.
        before = {name: old for name in wanted if (old := context.getLocalProperty(name)) != wanted[name]}
        for name in before:
            context.setLocalProperty(name, wanted[name])
        try:
            yield
        finally:
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]

    def touch(self, rows: int) -> None:
        """Count rows that a step found."""
        # Views of one version run in several threads.
        with self._lock:
            self.touched += rows

    # Plans

    def data(self, plan: Plan) -> DataFrame:
        """The rows of a plan as a data frame, which is not evaluated yet."""
        return self.session.sql(print_query(plan))

    def collect(self, plan: Plan) -> list[Any]:
        """All rows of an answer that is known to be small."""
        return self.data(plan).collect()

    def materialize(self, plan: Plan, types: Types, *, is_large: bool = False) -> Frame:
        """The rows of a plan that gives each row once; `is_large`: many are expected."""
        return self.materialize_data(self.data(plan), types, is_large=is_large)

    def materialize_data(self, data: DataFrame, types: Types, *, is_large: bool = False) -> Frame:
        """Run a query once: its rows come to the driver where they are few, and stay in Spark without their lineage otherwise."""
        evaluated, tuning = self.cut_lineage(data, types), self.tuning
        if not is_large:
            # One job for few rows: no partition has more than the limit, so if all together have no more, none was cut. The
            # partitions of a checkpoint are computed whole, also for their first rows alone. Of many partitions, each sends less.
            most = max(tuning.driver_rows, min(tuning.arrow_rows, tuning.collected_rows))
            most = min(most, tuning.sent_rows // int(executed(evaluated).getNumPartitions() or 1))
            table = at_most(most + 1, evaluated).toArrow()
            if table.num_rows <= most:
                self.touch(table.num_rows)
                return self.frames.of_table(cast_columns(table, types), types)
        rows = self.count(evaluated)
        self.touch(rows)
        if rows <= tuning.driver_rows:
            return Local(types, frozenset(from_spark(evaluated.collect() if rows else (), types)))
        return self.frames.of_data(evaluated, types, rows)

    def cut_lineage(self, data: DataFrame, types: Types) -> DataFrame:
        """The same rows without their lineage: the query runs once, when they are first read."""
        # A local checkpoint is lost with its executor; files on a shared folder are not.
        if self.scratch.holds_intermediate_rows and types:
            return self.scratch.write(data, types)
        return data.localCheckpoint(eager=False)

    @staticmethod
    def count(data: DataFrame) -> int:
        """The number of rows, counted where they are: `DataFrame.count` would plan a query and a shuffle."""
        return int(executed(data).count())

    # Sources

    def scan(self, source: Source) -> Plan:
        """The plan that reads a source."""
        return scan(source, self.tuning)

    def select(self, source: Source) -> Plan:
        """The plan that reads the columns of a source, and no others that its data may have."""
        return Projection(self.scan(source), refs(source.types))

    def frame_of(self, source: Source) -> Frame:
        """The rows of a source, evaluated."""
        if isinstance(source, Local | Distributed):
            return source
        # A combination of rows in the driver is evaluated there, without a job.
        if (table := self.driver_table(source)) is not None:
            return self.frames.of_table(table, source.types)
        return self.materialize(self.select(source), source.types)

    def rows(self, source: Source) -> list[Row]:
        """All rows of a source, however many there are."""
        return list(source.rows) if isinstance(source, Local) else from_arrow(self.table(source), source.types)

    def first_rows(self, source: Source, limit: int) -> list[Row]:
        """At most so many rows of a source; Spark stops when it has them."""
        if isinstance(source, Local):
            return list(source.rows)[:limit]
        # The data of a frame outlives its name.
        data = source.data.select(*columns(source.types)) if isinstance(source, Distributed) else self.data(self.select(source))
        return from_arrow(data.limit(limit).toArrow(), source.types)

    def table(self, source: Source) -> pa.Table:
        """All rows of a source as an Arrow table, however many there are."""
        match source:
            case Local(types, rows):
                return to_arrow(rows, types)
            case Distributed():
                return source.table if source.table is not None else source.data.toArrow()  # the data outlives its name
            case _:
                return self.data(self.select(source)).toArrow()

    def size(self, source: Source) -> int:
        """The number of rows of a source."""
        if isinstance(source, Local | Distributed):
            return len(source)
        ((rows,),) = self.collect(GroupBy(self.scan(source), (), (count_rows(),)))
        return int(rows)

    # Arrow tables in the driver

    def driver_table(self, source: Source) -> pa.Table | None:
        """The rows as an Arrow table, where that takes no job: all are in the driver, and not too many."""
        match source:
            case Local():
                return to_arrow(source.rows, source.types) if len(source) <= self.tuning.arrow_rows else None
            case Distributed():
                return source.table
            case Combined(_, parts):
                found = self.driver_tables(parts)
                return pa.concat_tables(found) if found is not None else None
            case Difference(one, other):
                found = self.driver_tables([one, other]) if can_compare(one.types) else None
                return subtract(*found) if found is not None else None
            case _:
                assert_never(source)

    def driver_tables(self, sources: Sequence[Source]) -> list[pa.Table] | None:
        """The same of several sources; None where one of them is not in the driver."""
        found = []
        for source in sources:
            table = self.driver_table(source)
            if table is None:
                return None
            found.append(table)
        return found

    def signed_driver_tables(self, parts: Sequence[tuple[Source, int]]) -> list[Signed] | None:
        """The same with the multiplicity of each source's rows."""
        found = self.driver_tables([source for source, _ in parts])
        return [(table, sign) for table, (_, sign) in zip(found, parts, strict=True)] if found is not None else None

    def fetch(self, source: Source) -> pa.Table | None:
        """The same, where the frames in Spark are not too large. They are fetched once, and stay in the driver with the frame."""
        if not self.can_fetch(source):
            return None
        for frame in frames(source):
            if isinstance(frame, Distributed) and frame.table is None:
                # Remembered in the frame: every later reader finds the rows in the driver, also those of later transactions.
                frame.table = frame.read() if frame.read is not None else None
                if frame.table is None:
                    frame.table = cast_columns(frame.data.toArrow(), frame.types)
        return self.driver_table(source)

    def can_fetch(self, source: Source) -> bool:
        """Whether no frame of a source is too large for the driver, or a table in place that only Spark reads."""
        few = self.tuning.arrow_rows
        # What is in the driver already need not be fetched, however many rows it has.
        found = (f for f in frames(source) if isinstance(f, Distributed) and f.table is None)
        return all(len(f) <= few and (not f.is_in_place or f.read is not None) for f in found) and few >= 0
