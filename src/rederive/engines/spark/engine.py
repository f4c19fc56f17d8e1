"""The Spark engine: relations and views as data frames, transactions of any size as Spark jobs."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

from rederive.analysis.affected import affected_relations
from rederive.analysis.cost import Estimate
from rederive.analysis.relevance import Patterns, relevant
from rederive.delta import Delta, LazyRows, Rows
from rederive.engines.protocol import Bulk, Operation, Propagation, Query, Trace
from rederive.engines.spark.net.by_query import net_bulk
from rederive.engines.spark.net.by_rows import beginning, difference, net_rows
from rederive.engines.spark.plan.sources import Frame, Local, Source
from rederive.engines.spark.run.data_frame_rows import DataFrameRows
from rederive.engines.spark.run.installed import Installed
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Growing
from rederive.engines.spark.run.storage import Kept
from rederive.ir.rules import Program, Variant
from rederive.ir.terms import Row, Value
from rederive.limits import Limits
from rederive.maintain.program import MaintenanceProgram


@dataclass(frozen=True, slots=True)
class FrameRows(LazyRows):
    """Rows of a change, wherever they are; they stay readable after the transaction."""

    frames: tuple[Frame, ...]
    jobs: Jobs

    def __len__(self) -> int:
        return sum(map(len, self.frames))

    def __iter__(self) -> Iterator[Row]:
        return (row for frame in self.frames for row in self.jobs.rows(frame))

    def parts(self) -> list[Rows]:
        """The rows where they are: in the driver, or in Spark."""
        return [bulk(frame, self.jobs) for frame in self.frames]


class SparkEngine:
    """See `engines.base.Engine`. Runs in a session of its own on the context of the one given.

    Without `decompose`, recursion is run in rounds also where it falls apart by a column. `scratch`: a folder that all workers of
    a cluster see, for rows on their way; without it, a transaction fails where a worker is lost.
    """

    name = "spark"
    reason = "requested"

    def __init__(
        self, spark: SparkSession, limits: Limits | None = None, *, decompose: bool = True, scratch: str | None = None
    ) -> None:
        self.jobs = Jobs(spark, decompose=decompose, scratch=scratch)
        self.limits = limits or Limits()
        self.traces: list[Trace] = []
        nothing = MaintenanceProgram(Program({}, ()), (), ())
        self.installed = Installed(nothing, (), (), Kept(self.jobs), self.jobs, self.limits)
        self._prepared: Installed | None = None  # between `install` and its `commit` or `rollback`

    @property
    def program(self) -> Program:
        return self.installed.program

    def budget(self, limits: Limits | None) -> AbstractContextManager[None]:
        """Spark's own settings bound its jobs."""
        return nullcontext()

    def pause_budget(self) -> AbstractContextManager[None]:
        return nullcontext()

    def install(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        initial: Mapping[str, Iterable[Row]] | None = None,
        *,
        bound: Sequence[Query] = (),
        announce: bool = False,
    ) -> Propagation:
        """Build the new program next to the current one, which stays in use until `commit`."""
        self.jobs.admit(maintenance.program)
        self.jobs.touched = 0
        old = self.installed
        given = {n: self.jobs.given(rows, maintenance.program.relations[n].types) for n, rows in (initial or {}).items()}
        affected = affected_relations(old.program, maintenance.program, given)
        new = old.successor(maintenance, monitored, bound, affected)
        try:
            entered = {name: FrameRows((came,), self.jobs) for name, came in new.build(given).items() if not came.empty}
            changes = self._announced(old, new, affected) if announce else {}
            parts = self._announced_parts(old, new, affected) if announce else {}
            found = Propagation(_nonempty(changes), self.jobs.touched, {}, 0, _nonempty(parts), entered=entered)
        except BaseException:
            old.forget()
            new.forget()
            raise
        self._prepared = new
        return found

    def _announced(self, old: Installed, new: Installed, affected: Iterable[str]) -> dict[str, Delta]:
        touched = set(affected)
        told = [n for n in new.monitored if n in touched] + [n for n in old.monitored if n not in new.program.views]
        return {name: self._compared(old.extent(name), new.extent(name)) for name in told}

    def _announced_parts(self, old: Installed, new: Installed, affected: Iterable[str]) -> dict[Query, Delta]:
        touched = set(affected)
        parts = [view.question for view in new.bound if view.question.view in touched]
        return {part: self._compared(old.matching(part), new.matching(part)) for part in parts}

    def _compared(self, before: Source | None, after: Source | None) -> Delta:
        """Both sides of a change, from two whole answers; None where a program does not have the relation."""
        if before is None or after is None or before.types != after.types:  # rows of other types are other rows
            return self._delta(*([self.jobs.frame_of(side)] if side is not None else [] for side in (before, after)))
        return self._delta([difference(before, after, self.jobs)], [difference(after, before, self.jobs)])

    def _delta(self, gone: Iterable[Frame], came: Iterable[Frame]) -> Delta:
        return Delta(FrameRows(tuple(came), self.jobs), FrameRows(tuple(gone), self.jobs))

    def load(self, initial: Mapping[str, Iterable[Row]]) -> int:
        present = self.installed
        bound = [view.question for view in present.bound]
        touched = self.install(present.maintenance, present.monitored, initial, bound=bound).touched
        self.commit()
        return touched

    def net(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
        around = (self.program.relations, self.installed.kept, self.jobs)
        if not any(isinstance(operation.rows, Bulk) for operation in operations):
            return net_rows(operations, *around)
        return {
            name: Delta(bulk(came, self.jobs), bulk(gone, self.jobs))
            for name, (gone, came) in net_bulk(operations, *around).items()
        }

    def propagate(self, net: Mapping[str, Delta]) -> Propagation:
        self.jobs.touched = 0
        present, patterns = self.installed, self.installed.patterns
        try:
            for name, delta in net.items():
                types = self.program.relations[name].types
                present.relations.found(name, Variant.DEL).put([self.jobs.given(delta.minus, types)])
                present.relations.found(name, Variant.INS).put([self.jobs.given(delta.plus, types)])
            if any(_matters(patterns, name, delta) for name, delta in net.items()):
                present.run()
            skipped = sum(section.skipped_paths for section in present.maintenance.sections)
            parts = {q: self._compared(*present.both_states(q)) for q in present.questions(net)}
            return Propagation(self._changes(), self.jobs.touched, present.derived_sizes(), skipped, _nonempty(parts))
        except BaseException:
            self.rollback()
            raise

    def _changes(self) -> dict[str, Delta]:
        found = {name: [self._change(name, v).known for v in (Variant.DEL, Variant.INS)] for name in self.installed.monitored}
        return _nonempty({name: self._delta(gone, came) for name, (gone, came) in found.items()})

    def _change(self, name: str, variant: Variant) -> Growing:
        return self.installed.relations.found(name, variant)

    def commit(self) -> None:
        if self._prepared is not None:
            self.installed.forget()
            self.installed, self._prepared = self._prepared, None
        else:
            self.installed.settle()
        self._end()

    def rollback(self) -> None:
        if self._prepared is not None:
            self._prepared.forget()
            self._prepared = None
        self._end()

    def _end(self) -> None:
        self.installed.forget()
        self.jobs.forget(self.installed.kept.names)

    def rows(self, relation: str, bindings: Mapping[int, Value]) -> list[Row]:
        self.jobs.touched = 0
        try:
            return self.jobs.rows(self.installed.matching(Query(relation, tuple(sorted(bindings.items())))))
        finally:
            self._end()

    def answers(self, relations: Iterable[str]) -> Generator[list[Row], None, None]:
        for relation in relations:
            yield self.rows(relation, {})

    def beginning(self, relation: str, prefixes: Collection[Row]) -> list[Row]:
        rows = frozenset(prefixes)
        types, width = self.program.relations[relation].types, len(next(iter(rows), ()))
        return beginning(self.installed.kept.source(relation), self.jobs.frame(rows, types[:width]), self.jobs)

    def extent(self, relation: str) -> Collection[Row]:
        found = self.installed.extent(relation)
        return bulk(self.jobs.frame_of(found), self.jobs) if found is not None else ()

    def memory_use(self) -> str:
        return ""

    def size(self, relation: str) -> int:
        if relation in self.installed.kept:
            return self.installed.kept.size(relation)
        try:
            found = self.installed.extent(relation)
            return self.jobs.size(found) if found is not None else 0
        finally:
            self._end()

    def estimates(self) -> Mapping[tuple[str, ...], Estimate]:
        return {}

    @property
    def touched(self) -> int:
        return self.jobs.touched


def bulk(frame: Frame, jobs: Jobs) -> tuple[Row, ...] | Bulk:
    """The rows of a frame as others take them: as such where they are in the driver."""
    return tuple(frame.rows) if isinstance(frame, Local) else DataFrameRows.of(frame, jobs)


def _matters(patterns: Patterns, name: str, delta: Delta) -> bool:
    """Whether a change can matter to any view; rows that are many are not looked at for that."""
    if isinstance(delta.plus, Bulk) or isinstance(delta.minus, Bulk):
        return True
    return relevant(patterns, name, (*delta.plus, *delta.minus))


_Name = TypeVar("_Name")


def _nonempty(changes: Mapping[_Name, Delta]) -> dict[_Name, Delta]:
    return {name: delta for name, delta in changes.items() if delta}
