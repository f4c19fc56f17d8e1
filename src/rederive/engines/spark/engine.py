"""The Spark engine: relations and views as data frames, transactions of any size as Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import SparkSession

from rederive.analysis.affected import affected_relations
from rederive.analysis.cost import Estimate
from rederive.analysis.relevance import Patterns
from rederive.delta import Delta, LazyRows, Rows, nonempty
from rederive.engines.protocol import Bulk, CodedExtent, Operation, Propagation, Query, Trace, Unrestorable
from rederive.engines.spark.net.net_effect import net_effect, rows_with_prefix
from rederive.engines.spark.net.of_bag import add_counts, copies, net_effect_of_bag
from rederive.engines.spark.plan.sources import Frame, Local, Source
from rederive.engines.spark.run.data_frames import DataFrameRows, as_rows, frame_in_place, take_rows
from rederive.engines.spark.run.installed import Installed
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import FoundRows
from rederive.engines.spark.run.saved_state import SavedFrames, from_bytes, to_bytes
from rederive.engines.spark.run.storage import Storage
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Program, Variant
from rederive.ir.terms import Row, Value
from rederive.limits import Limits
from rederive.maintain.program import MaintenanceProgram


@dataclass(frozen=True, slots=True)
class FrameRows(LazyRows):
    """One side of a delta, wherever its rows are; they stay readable after the transaction."""

    frames: tuple[Frame, ...]
    jobs: Jobs

    def __len__(self) -> int:
        return sum(map(len, self.frames))

    def __iter__(self) -> Iterator[Row]:
        return (row for frame in self.frames for row in self.jobs.queries.rows(frame))

    def parts(self) -> list[Rows]:
        """The rows where they are: in the driver, or in Spark."""
        return [as_rows(frame, self.jobs) for frame in self.frames]

    def first(self, number: int) -> list[Row]:
        """Some of the rows, in no order; not more than so many are fetched."""
        found: list[Row] = []
        for frame in self.frames:
            found += self.jobs.queries.first_rows(frame, number - len(found)) if len(found) < number else []
        return found

    def net_counts(self, leaving: Rows) -> tuple[Rows, Rows] | None:
        """The net delta of a bag as counted rows, added up in Spark; None where this process has all of them."""
        if not isinstance(leaving, FrameRows) or all(isinstance(one, Local) for one in (*self.frames, *leaving.frames)):
            return None
        signed = [(one, sign) for frames, sign in ((self.frames, 1), (leaving.frames, -1)) for one in frames if not one.empty]
        if not signed:
            return None
        with self.jobs.queries.describe("copies that enter and leave a bag"):
            minus, plus = add_counts(signed, self.jobs)
        return FrameRows((plus,), self.jobs), FrameRows((minus,), self.jobs)


_OWN = b"spark\n"  # what this engine dumps begins with it


class SparkEngine:
    """Implements `engines.protocol.Engine`, in a session of its own on the context of the given one.

    Without `decompose`, a recursion runs in rounds also where it decomposes by a column. `scratch`: a folder that all executors
    of a cluster see, for intermediate rows; without it, a transaction fails where an executor is lost. `saved`: a folder for the
    state that a later process continues from.
    """

    default_tuning: ClassVar[Tuning] = Tuning()
    name = "spark"
    reason = "requested"

    def __init__(
        self,
        spark: SparkSession,
        limits: Limits | None = None,
        *,
        decompose: bool = True,
        scratch: str | None = None,
        tuning: Tuning | None = None,
        saved: str | None = None,
    ) -> None:
        self.jobs = Jobs(spark, tuning or self.default_tuning, decompose=decompose, scratch=scratch)
        self.saved = SavedFrames(self.jobs, saved) if saved is not None else None
        self.limits = limits or Limits()
        self.traces: list[Trace] = []
        nothing = MaintenanceProgram(Program({}, ()), (), ())
        self.installed = Installed(nothing, (), (), Storage(self.jobs), self.jobs, self.limits)
        self._prepared: Installed | None = None  # between `install` and its `commit` or `rollback`

    @property
    def program(self) -> Program:
        """The current program."""
        return self.installed.program

    def budget(self, limits: Limits | None) -> AbstractContextManager[None]:
        """Spark's own settings bound its jobs."""
        return nullcontext()

    def pause_budget(self) -> AbstractContextManager[None]:
        """While this lasts, nothing counts towards the budget: a user's function runs."""
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
        self.jobs.queries.begin()
        with self.jobs.queries.describe("installing a program"):
            return self._install(maintenance, monitored, initial, bound, announce=announce)

    def _install(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        initial: Mapping[str, Iterable[Row]] | None,
        bound: Sequence[Query],
        *,
        announce: bool,
    ) -> Propagation:
        old = self.installed
        given = {n: take_rows(rows, maintenance.program.relations[n].types, self.jobs) for n, rows in (initial or {}).items()}
        # Before the new program is built: what it does not change is taken over, with auxiliary state.
        affected = affected_relations(old.program, maintenance.program, given)
        new = old.successor(maintenance, monitored, bound, affected)
        try:
            entered = {name: FrameRows((plus,), self.jobs) for name, plus in new.build(given).items() if not plus.empty}
            deltas = self._deltas_between(old, new, affected) if announce else {}
            parts = self._query_deltas(old, new, affected) if announce else {}
            touched, jobs = self.jobs.queries.touched, self.jobs.queries.jobs_since_begin()
            found = Propagation(nonempty(deltas), touched, {}, 0, nonempty(parts), entered=entered, jobs=jobs)
        except BaseException:
            old.clear()
            new.clear()
            raise
        self._prepared = new
        return found

    def dump(self) -> bytes | None:
        """Write the stored views and auxiliary state to the folder of saved frames; what `restore` needs to read them."""
        if self.saved is None:
            return None
        present = self.installed
        names = [name for name in present.storage.relations if name not in present.program.bases]
        self.jobs.queries.begin()
        with self.jobs.queries.describe("saving the state"):
            return _OWN + to_bytes(self.saved.save(present.storage, names))

    def restore(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        data: bytes,
        bases: Callable[[], Mapping[str, Collection[Row]]] | None,
        *,
        bound: Sequence[Query] = (),
    ) -> None:
        """Build the program over the saved frames, and the base relations where they are."""
        if self.saved is None or bases is None or not data.startswith(_OWN):
            raise Unrestorable
        self.jobs.admit(maintenance.program)
        self.jobs.queries.begin()
        with self.jobs.queries.describe("restoring the state"):
            storage = Storage(self.jobs, self.saved.restore(from_bytes(data[len(_OWN) :])))
            new = Installed(maintenance, monitored, bound, storage, self.jobs, self.limits)
            given = {n: take_rows(rows, new.program.relations[n].types, self.jobs) for n, rows in bases().items()}
            new.build(given)
        self._prepared = new

    def _deltas_between(self, old: Installed, new: Installed, affected: Iterable[str]) -> dict[str, Delta]:
        touched = set(affected)
        names = [n for n in new.monitored if n in touched] + [n for n in old.monitored if n not in new.program.views]
        return {name: self._difference(old.extent(name), new.extent(name)) for name in names}

    def _query_deltas(self, old: Installed, new: Installed, affected: Iterable[str]) -> dict[Query, Delta]:
        touched = set(affected)
        queries = [view.query for view in new.bound if view.query.view in touched]
        return {query: self._difference(old.answer(query), new.answer(query)) for query in queries}

    def _difference(self, before: Source | None, after: Source | None) -> Delta:
        """The delta between two states; None where a program does not have the relation."""
        if before is None or after is None or before.types != after.types:  # rows of other types are other rows
            return self._delta(*([self.jobs.queries.frame_of(side)] if side is not None else [] for side in (before, after)))
        # minus = old - new, plus = new - old.
        return self._delta([self.jobs.sets.difference(before, after)], [self.jobs.sets.difference(after, before)])

    def _delta(self, minus: Iterable[Frame], plus: Iterable[Frame]) -> Delta:
        return Delta(FrameRows(tuple(plus), self.jobs), FrameRows(tuple(minus), self.jobs))

    def net_effect(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
        """The deltas of base relations that are left after opposite and idle requests cancel."""
        context = (self.program.relations, self.installed.storage, self.jobs)
        self.jobs.queries.begin()
        names = ", ".join(dict.fromkeys(operation.relation for operation in operations))
        with self.jobs.queries.describe(f"{names}: net effect"):
            return {name: Delta(plus, minus) for name, (minus, plus) in net_effect(operations, *context).items()}

    def net_effect_of_bag(self, base: str, operations: Sequence[Operation]) -> Delta | None:
        """The net effect of operations on a bag, as the delta of its numbered copies; None where all requests are few rows."""
        with self.jobs.queries.describe(f"{base}: net effect"):
            relation, stored = self.program.relations[base], self.installed.storage.relations[base]
            found = net_effect_of_bag(operations, relation, stored, self.jobs)
        return Delta(as_rows(found[1], self.jobs), as_rows(found[0], self.jobs)) if found is not None else None

    def propagate(self, net: Mapping[str, Delta]) -> Propagation:
        """Compute the deltas of the monitored views from a net effect. Nothing that a reader sees changes before `commit`."""
        self.jobs.queries.touched = 0
        try:
            with self.jobs.queries.describe("propagation"):
                return self._propagate(net)
        except BaseException:
            self.rollback()
            raise

    def _propagate(self, net: Mapping[str, Delta]) -> Propagation:
        present, patterns = self.installed, self.installed.patterns
        for name, delta in net.items():
            types = self.program.relations[name].types
            present.relations.found(name, Variant.DEL).replace([take_rows(delta.minus, types, self.jobs)])
            present.relations.found(name, Variant.INS).replace([take_rows(delta.plus, types, self.jobs)])
        # Nothing that is stored or monitored reads these rows: the deltas of base relations are all there is.
        if any(_is_relevant(patterns, name, delta) for name, delta in net.items()):
            present.run()
        skipped = sum(section.skipped_paths for section in present.maintenance.sections)
        parts = {q: self._difference(*present.answers_in_both_states(q)) for q in present.affected_queries(net)}
        touched, jobs = self.jobs.queries.touched, self.jobs.queries.jobs_since_begin()
        sizes, recomputed = present.derived_sizes(), len(present.sections.recomputed)
        return Propagation(self._view_deltas(), touched, sizes, skipped, nonempty(parts), recomputed=recomputed, jobs=jobs)

    def _view_deltas(self) -> dict[str, Delta]:
        found = {name: [self._found(name, v).known for v in (Variant.DEL, Variant.INS)] for name in self.installed.monitored}
        return nonempty({name: self._delta(minus, plus) for name, (minus, plus) in found.items()})

    def _found(self, name: str, variant: Variant) -> FoundRows:
        return self.installed.relations.found(name, variant)

    def commit(self) -> None:
        """Apply what `propagate` or `install` prepared."""
        if self._prepared is not None:
            self.installed.clear()
            self.installed, self._prepared = self._prepared, None
            self.jobs.compiled.clear()
        else:
            with self.jobs.queries.describe("applying deltas"):
                self.installed.apply()
        self._end()

    def rollback(self) -> None:
        """Discard what `propagate` or `install` prepared."""
        if self._prepared is not None:
            self._prepared.clear()
            self._prepared = None
        self._end()

    def _end(self) -> None:
        self.installed.clear()
        self.jobs.frames.drop_all_but(self.installed.storage.names)

    @property
    def reads_in_place(self) -> bool:
        """This engine reads tables in place where they are."""
        return True

    def rebase(self, rows: Mapping[str, Collection[Row]]) -> None:
        """Read base relations from tables in place at another commit, which has the rows that they have now."""
        for name, given in rows.items():
            # A relation that was copied to files of the engine stays there.
            if isinstance(given, DataFrameRows) and given.is_in_place and self.installed.storage.is_in_place(name):
                relation = self.program.relations[name]
                self.installed.write_in_place(relation, frame_in_place(given, relation.types, self.jobs))
        self._end()

    def rows(self, relation: str, bindings: Mapping[int, Value], limit: int | None = None) -> list[Row]:
        """The rows of a base relation or view whose columns have the bound values, in no order; at most `limit` of them."""
        self.jobs.queries.begin()
        try:
            with self.jobs.queries.describe(f"{relation}: query"):
                found = self.installed.answer(Query(relation, tuple(sorted(bindings.items()))))
                return self.jobs.queries.rows(found) if limit is None else self.jobs.queries.first_rows(found, limit)
        # Names of temporary views are dropped after each query, or the catalog grows without end.
        finally:
            self._end()

    def answers(self, relations: Iterable[str]) -> Generator[list[Row], None, None]:
        """All rows of each relation, in turn; rows derived for one may serve the next. The caller closes the generator."""
        for relation in relations:
            yield self.rows(relation, {})

    def rows_with_prefix(self, relation: str, prefixes: Collection[Row]) -> list[Row]:
        """The rows of a base relation whose first columns are one of the prefixes, in no order."""
        rows = frozenset(prefixes)
        types, width = self.program.relations[relation].types, len(next(iter(rows), ()))
        prefix_rows = self.jobs.frames.of_rows(rows, types[:width])
        return rows_with_prefix(self.installed.storage.source(relation), prefix_rows, self.jobs)

    def copies(self, base: str, rows: Collection[Row]) -> Mapping[Row, int]:
        """How many numbered copies each of these rows has: counted where they are."""
        given = self.jobs.frames.of_rows(rows, self.program.relations[base].types[:-1])
        return copies(self.installed.storage.source(base), given, self.jobs)

    def extent(self, relation: str) -> Collection[Row]:
        """All rows of a base relation or view, which may stay in Spark."""
        found = self.installed.extent(relation)
        return as_rows(self.jobs.queries.frame_of(found), self.jobs) if found is not None else ()

    def coded_rows(self, relation: str) -> CodedExtent | None:
        """None: values are not coded here."""
        return None

    def memory_use(self) -> str:
        """How much memory of this process the rows take, and may take, as text; empty where they are in Spark."""
        return ""

    def size(self, relation: str) -> int:
        """The number of rows of a base relation or view."""
        if relation in self.installed.storage:
            return self.installed.storage.size(relation)
        try:
            found = self.installed.extent(relation)
            return self.jobs.queries.size(found) if found is not None else 0
        finally:
            self._end()

    def estimates(self) -> Mapping[tuple[str, ...], Estimate]:
        """The estimated cost of each component for which strategy auto has a choice."""
        return {}

    @property
    def touched(self) -> int:
        """The number of tuples that the last operation or query looked at."""
        return self.jobs.queries.touched


def _is_relevant(patterns: Patterns, name: str, delta: Delta) -> bool:
    """Whether a delta can matter to any view; a large one is not examined for that."""
    if isinstance(delta.plus, Bulk) or isinstance(delta.minus, Bulk):
        return True
    return delta.fits_any(patterns.get(name, ()))
