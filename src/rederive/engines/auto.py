"""The choice of the engine for each transaction: by the memory that the rows take, by where they are, and by the work to do.

What fits stays in the process, where a small transaction takes milliseconds. A large one goes to Spark where that is faster,
the way there included. Small ones that follow on Spark add up what they lose there; when that is as much as the way back costs,
the rows go back. So no more than twice the time is lost that a choice with foresight would have saved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from rederive.analysis.cost import Estimate
from rederive.delta import Delta
from rederive.engines.machine_memory import available_memory
from rederive.engines.memory_budget import LARGE, Footprint
from rederive.engines.protocol import Action, Bulk, Engine, Operation, Propagation, Query, Trace
from rederive.engines.resident.engine import ResidentEngine
from rederive.ir.terms import Row, Value
from rederive.limits import Limits
from rederive.maintain.program import MaintenanceProgram

_Program: TypeAlias = tuple[MaintenanceProgram, Sequence[str], Sequence[Query]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the engines are, about: which of them is faster must come out right where it matters."""

    resident: float = 500_000  # tuples a second
    spark: float = 250_000  # tuples a second, on each core
    jobs: float = 3.0  # seconds that a transaction takes on Spark, however small
    moved: float = 200_000  # rows a second, from one engine to the other


class AutoEngine:
    """See `engines.base.Engine`. Starts in memory, and moves to what `spark` makes and back."""

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
        self._lost = 0.0  # seconds on Spark that would not have been spent in the process
        self._because = ""

    @property
    def name(self) -> str:
        return self._current.name

    @property
    def reason(self) -> str:
        """Why this engine runs."""
        memory = self._footprint.described(self._rows)
        return f"{memory}{self._because}" if self._footprint.has_room(self._rows) else memory

    def memory_use(self) -> str:
        return self.reason

    def budget(self, limits: Limits | None) -> AbstractContextManager[None]:
        return self._current.budget(limits)

    def pause_budget(self) -> AbstractContextManager[None]:
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
        rows = {name: counted(given) for name, given in (initial or {}).items()}
        self._make_room(sum(map(len, rows.values())))
        found = self._current.install(maintenance, monitored, rows, bound=bound, announce=announce)
        self._prepared = (maintenance, monitored, bound)
        return found

    def load(self, initial: Mapping[str, Iterable[Row]]) -> int:
        rows = {name: counted(given) for name, given in initial.items()}
        self._make_room(sum(map(len, rows.values())))
        touched = self._current.load(rows)
        self._count()
        self._measure()
        return touched

    def net(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
        self._choose(operations)
        return self._current.net(operations)

    def propagate(self, net: Mapping[str, Delta]) -> Propagation:
        more = sum(len(delta.plus) - len(delta.minus) for delta in net.values())
        self._make_room(more)
        self._rows += more
        try:
            return self._current.propagate(net)
        except BaseException:
            self._rows -= more
            raise

    def commit(self) -> None:
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
        self._prepared = None
        self._current.rollback()
        self._count()

    def rows(self, relation: str, bindings: Mapping[int, Value]) -> list[Row]:
        return self._current.rows(relation, bindings)

    def answers(self, relations: Iterable[str]) -> Generator[list[Row], None, None]:
        return self._current.answers(relations)

    def beginning(self, relation: str, prefixes: Collection[Row]) -> list[Row]:
        return self._current.beginning(relation, prefixes)

    def extent(self, relation: str) -> Collection[Row]:
        return self._current.extent(relation)

    def size(self, relation: str) -> int:
        return self._current.size(relation)

    def estimates(self) -> Mapping[tuple[str, ...], Estimate]:
        return self._current.estimates()

    @property
    def touched(self) -> int:
        return self._current.touched

    def _count(self) -> None:
        bases = self._installed[0].program.bases if self._installed is not None else ()
        self._rows = sum(map(self._current.size, bases))

    # The choice

    @property
    def _resident(self) -> bool:
        return self.name == ResidentEngine.name

    def _measure(self) -> None:
        if isinstance(self._current, ResidentEngine):
            self._footprint.measured(self._rows, self._current.memory())

    def _make_room(self, more: int) -> None:
        """Move everything to Spark if so many more rows do not fit."""
        if more >= LARGE:
            self._measure()
        if self._resident and not self._footprint.has_room(self._rows + more):
            self._move(self._spark(), "")

    def _choose(self, operations: Sequence[Operation]) -> None:
        """Move everything to where these operations, or those of late, take less time."""
        if self._resident:
            self._leave_if_large(operations)
        elif self._footprint.has_room(2 * self._rows):  # well below the limit: it does not go to and fro there
            self._return_if_small(operations)

    def _leave_if_large(self, operations: Sequence[Operation]) -> None:
        if sum(len(operation.rows) for operation in operations) < LARGE:
            return
        tuples = self._work(operations)
        here = tuples / self.pace.resident
        there = self.pace.jobs + self._rows / self.pace.moved + tuples / (self.pace.spark * self._cores())
        if there < here:
            took = f"{here:,.0f} s there, and take {there:,.0f} s here"
            self._move(self._spark(), f", but a transaction of {tuples:,.0f} tuples would have taken about {took}")

    def _return_if_small(self, operations: Sequence[Operation]) -> None:
        if any(isinstance(operation.rows, Bulk) for operation in operations):
            return
        rows = sum(len(operation.rows) for operation in operations)
        self._lost += max(self.pace.jobs - rows / self.pace.resident, 0.0)
        if self._lost > self._rows / self.pace.moved:
            self._move(ResidentEngine(self.limits), ", where small transactions take less time")

    def _work(self, operations: Sequence[Operation]) -> float:
        """Tuples that operations will touch, about: their own, and those of the views that read them."""
        changed: dict[str, tuple[int, int]] = {}
        for name, action, rows in ((o.relation, o.action, len(o.rows)) for o in operations):
            gone, came = changed.get(name, (0, 0))
            changed[name] = (gone + rows, came) if action is Action.DELETE else (gone, came + rows)
        views = (min(estimate.incremental(changed), estimate.whole) for estimate in self._current.estimates().values())
        return sum(gone + came for gone, came in changed.values()) + sum(views)

    def _move(self, engine: Engine, because: str) -> None:
        engine.traces = self.traces
        if self._installed is not None:
            maintenance, monitored, bound = self._installed
            rows = {name: self._current.rows(name, {}) for name in maintenance.program.bases}
            engine.install(maintenance, monitored, rows, bound=bound)
            engine.commit()
        self._current, self._lost, self._because = engine, 0.0, because
        self._footprint.is_here = self._resident
        self._measure()


def counted(rows: Iterable[Row]) -> Collection[Row]:
    """Rows whose number is known."""
    return rows if isinstance(rows, Collection) else list(rows)
