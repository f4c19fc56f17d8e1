"""Engine auto chooses the engine for each transaction: by the memory that the rows take, and by the work to do.

Rows that fit stay in the process, where a small transaction takes milliseconds. A large transaction moves them to Spark, where
that is faster including the move. Later small transactions on Spark add up the time that they lose there; when the sum reaches
the cost of the move back, the rows move back. This is the ski-rental rule: it loses at most twice what perfect foresight would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeAlias

from rederive.analysis.cost import Estimate
from rederive.delta import Delta
from rederive.engines.machine_memory import available_memory
from rederive.engines.memory_budget import LARGE, Footprint
from rederive.engines.protocol import Action, Bulk, CodedExtent, Engine, Operation, Propagation, Query, Trace
from rederive.engines.resident.engine import ResidentEngine
from rederive.ir.terms import Row, Value
from rederive.limits import Limits
from rederive.maintain.program import MaintenanceProgram

_Program: TypeAlias = tuple[MaintenanceProgram, Sequence[str], Sequence[Query]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the engines are, roughly; only which of them is faster for a large transaction has to come out right."""

    resident: float = 500_000  # tuples a second
    spark: float = 250_000  # tuples a second, on each core
    jobs: float = 3.0  # seconds that a transaction takes on Spark, however small
    moved: float = 200_000  # rows a second, from one engine to the other


class AutoEngine:
    """Implements `engines.protocol.Engine`. Starts with the resident engine, and moves to the engine of `spark` and back."""

    def __init__(
        self,
        limits: Limits,
        spark: Callable[[], Engine],
        cores: Callable[[], int] = lambda: 1,
        pace: Pace | None = None,
        available: Callable[[], float] = available_memory,
    ) -> None:
        self.limits = limits
        self.pace = pace or Pace()
        self.traces: list[Trace] = []
        self._spark = spark
        self._cores = cores
        self._current: Engine = ResidentEngine(limits)
        self._current.traces = self.traces
        self._installed: _Program | None = None
        self._prepared: _Program | None = None  # between `install` and its `commit` or `rollback`
        self._rows = 0
        self._footprint = Footprint(limits.memory, available)
        self._lost = 0.0  # seconds that small transactions took longer on Spark than in the process
        self._cause = ""

    @property
    def name(self) -> str:
        """The name of the engine that runs: `resident` or `spark`."""
        return self._current.name

    @property
    def reason(self) -> str:
        """Why this engine runs."""
        memory = self._footprint.describe(self._rows)
        return f"{memory}{self._cause}" if self._footprint.has_room(self._rows) else memory

    def memory_use(self) -> str:
        """How much memory of this process the rows take, and may take, as text; empty where they are in Spark."""
        return self.reason

    def budget(self, limits: Limits | None) -> AbstractContextManager[None]:
        """While this lasts, work that exceeds these limits is stopped with `LimitExceeded`, and changes nothing."""
        return self._current.budget(limits)

    def pause_budget(self) -> AbstractContextManager[None]:
        """While this lasts, nothing counts towards the budget: a user's function runs."""
        return self._current.pause_budget()

    def install(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        initial: Mapping[str, Iterable[Row]] | None = None,
        *,
        bound: Sequence[Query] = (),
        announce: bool = False,
    ) -> Propagation:
        """Prepare another program: base relations keep their rows and gain the initial ones, changed views are evaluated."""
        rows = {name: counted(given) for name, given in (initial or {}).items()}
        self._make_room(sum(map(len, rows.values())))
        found = self._current.install(maintenance, monitored, rows, bound=bound, announce=announce)
        self._prepared = (maintenance, monitored, bound)
        return found

    def dump(self) -> bytes | None:
        """All that `restore` needs to continue without evaluating a view."""
        return self._current.dump()

    def restore(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        data: bytes,
        bases: Callable[[], Mapping[str, Collection[Row]]] | None,
        *,
        bound: Sequence[Query] = (),
    ) -> None:
        """Prepare a program over the state that `dump` wrote, on the engine that it was dumped from."""
        if data.partition(b"\n")[0].decode() != self._current.name:
            self._move(self._spark() if self._is_resident else ResidentEngine(self.limits), "; it ran there before")
        self._current.restore(maintenance, monitored, data, bases, bound=bound)
        self._prepared = (maintenance, monitored, bound)

    def net_effect(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
        """The deltas of base relations that are left after opposite and idle requests cancel."""
        if operations:
            self._choose(operations)
        return self._current.net_effect(operations)

    def net_effect_of_bag(self, base: str, operations: Sequence[Operation]) -> Delta | None:
        """The net effect of operations on a bag, as the delta of its numbered copies; None where the caller numbers them."""
        # Estimates of work are by base relations.
        self._choose([replace(operation, relation=base) for operation in operations])
        return self._current.net_effect_of_bag(base, operations)

    def propagate(self, net: Mapping[str, Delta]) -> Propagation:
        """Compute the deltas of the monitored views from a net effect. Nothing that a reader sees changes before `commit`."""
        more = sum(len(delta.plus) - len(delta.minus) for delta in net.values())
        # Rows that enter are known exactly now; the rows of views are part of the measured bytes per base row.
        self._make_room(more)
        self._rows += more
        try:
            return self._current.propagate(net)
        except BaseException:
            self._rows -= more
            raise

    def commit(self) -> None:
        """Apply what `propagate` or `install` prepared."""
        if self._prepared is not None:
            self._current.commit()
            self._installed, self._prepared = self._prepared, None
            self._count()
            self._measure()
            return
        touched = self._current.touched
        self._current.commit()
        if self._footprint.is_old(touched):
            self._measure()

    def rollback(self) -> None:
        """Discard what `propagate` or `install` prepared."""
        self._prepared = None
        self._current.rollback()
        self._count()

    @property
    def reads_in_place(self) -> bool:
        """Whether it reads tables in place where they are: on Spark."""
        return self._current.reads_in_place

    def rebase(self, rows: Mapping[str, Collection[Row]]) -> None:
        """Read base relations from tables in place at another commit, which has the rows that they have now."""
        self._current.rebase(rows)

    def rows(self, relation: str, bindings: Mapping[int, Value], limit: int | None = None) -> list[Row]:
        """The rows of a base relation or view whose columns have the bound values, in no order; at most `limit` of them."""
        return self._current.rows(relation, bindings, limit)

    def answers(self, relations: Iterable[str]) -> Generator[list[Row], None, None]:
        """All rows of each relation, in turn; rows derived for one may serve the next. The caller closes the generator."""
        return self._current.answers(relations)

    def rows_with_prefix(self, relation: str, prefixes: Collection[Row]) -> list[Row]:
        """The rows of a base relation whose first columns are one of the prefixes, in no order."""
        return self._current.rows_with_prefix(relation, prefixes)

    def copies(self, base: str, rows: Collection[Row]) -> Mapping[Row, int]:
        """How many numbered copies each of these rows has."""
        return self._current.copies(base, rows)

    def extent(self, relation: str) -> Collection[Row]:
        """All rows of a base relation or view, which may stay in Spark."""
        return self._current.extent(relation)

    def coded_rows(self, relation: str) -> CodedExtent | None:
        """All rows of a stored relation as columns of codes; None where they are not stored so."""
        return self._current.coded_rows(relation)

    def size(self, relation: str) -> int:
        """The number of rows of a base relation or view."""
        return self._current.size(relation)

    def estimates(self) -> Mapping[tuple[str, ...], Estimate]:
        """The estimated cost of each component for which strategy auto has a choice."""
        return self._current.estimates()

    @property
    def touched(self) -> int:
        """The number of tuples that the last operation or query looked at."""
        return self._current.touched

    def _count(self) -> None:
        bases = self._installed[0].program.bases if self._installed is not None else ()
        self._rows = sum(map(self._current.size, bases))

    # The choice

    @property
    def _is_resident(self) -> bool:
        return self.name == ResidentEngine.name

    def _measure(self) -> None:
        if isinstance(self._current, ResidentEngine):
            self._footprint.record(self._rows, self._current.memory())

    def _make_room(self, more: int) -> None:
        """Move the rows to Spark if so many more do not fit."""
        if more >= LARGE:
            self._measure()
        if self._is_resident and not self._footprint.has_room(self._rows + more):
            self._move(self._spark(), "")

    def _choose(self, operations: Sequence[Operation]) -> None:
        """Move the rows to the engine on which these operations, or the recent ones, take less time.

        By work, before the net effect is computed; later only a lack of room moves the rows (`propagate`). Requests that are in
        Spark come to this process with the net effect, so there must be room for them now.
        """
        if self._is_resident:
            self._leave_if_large(operations)
            self._make_room(sum(len(one.rows) for one in operations if isinstance(one.rows, Bulk) and not one.rows.is_in_driver))
        elif self._footprint.has_room(2 * self._rows):  # well below the limit, so that rows do not move back and forth
            self._return_if_small(operations)

    def _leave_if_large(self, operations: Sequence[Operation]) -> None:
        if sum(len(operation.rows) for operation in operations) < LARGE:
            return
        tuples = self._work(operations)
        resident = tuples / self.pace.resident
        # The move counts: a transaction must be worth it by itself.
        spark = self.pace.jobs + self._rows / self.pace.moved + tuples / (self.pace.spark * self._cores())
        if spark < resident:
            times = f"about {resident:,.0f} s in this process and {spark:,.0f} s on Spark"
            self._move(self._spark(), f"; a transaction of {tuples:,.0f} tuples takes {times}")

    def _return_if_small(self, operations: Sequence[Operation]) -> None:
        if any(isinstance(operation.rows, Bulk) for operation in operations):
            return
        rows = sum(len(operation.rows) for operation in operations)
        # Ski rental: rent is the time lost on Spark, and buying is the move back.
        self._lost += max(self.pace.jobs - rows / self.pace.resident, 0.0)
        if self._lost > self._rows / self.pace.moved:
            self._move(ResidentEngine(self.limits), "; small transactions take less time in this process")

    def _work(self, operations: Sequence[Operation]) -> float:
        """The estimated number of tuples that operations touch: their own, and those of the views that read them."""
        changed: dict[str, tuple[int, int]] = {}
        for name, action, rows in ((o.relation, o.action, len(o.rows)) for o in operations):
            gone, came = changed.get(name, (0, 0))
            changed[name] = (gone + rows, came) if action is Action.DELETE else (gone, came + rows)
        own = sum(gone + came for gone, came in changed.values())
        return own + sum(self._view_work(estimate, changed) for estimate in self._current.estimates().values())

    @staticmethod
    def _view_work(estimate: Estimate, changed: Mapping[str, tuple[int, int]]) -> float:
        read = ((estimate.per_row[name], rows) for name, rows in changed.items() if name in estimate.per_row)
        return min(sum(leaves * gone + enters * came for (leaves, enters), (gone, came) in read), estimate.whole)

    def _move(self, engine: Engine, cause: str) -> None:
        engine.traces = self.traces
        if self._installed is not None:
            maintenance, monitored, bound = self._installed
            rows = {name: self._current.rows(name, {}) for name in maintenance.program.bases}
            # The other engine evaluates the views from the base rows; no stored view is transferred.
            engine.install(maintenance, monitored, rows, bound=bound)
            engine.commit()
        self._current, self._lost, self._cause = engine, 0.0, cause
        self._footprint.is_resident = self._is_resident
        self._measure()


def counted(rows: Iterable[Row]) -> Collection[Row]:
    """The same rows as a collection, whose length is known."""
    return rows if isinstance(rows, Collection) else list(rows)
