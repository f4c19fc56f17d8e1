"""The choice of the engine: resident while everything fits the memory it may take, Spark from then on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence

from rederive.analysis.cost import Estimate
from rederive.engines.base import Confirm, Delta, Engine, Operation, Propagation, Question, Trace
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.resident.fixpoint import Limits
from rederive.ir.terms import Row, Value
from rederive.maintain.program import MaintenanceProgram

BYTES_PER_ROW = 100  # of a base relation in memory, about: its values, their codes, its indexes


class AutoEngine:
    """See `engines.base.Engine`. Starts in memory; moves to what `spark` makes when the base relations outgrow the budget."""

    def __init__(self, limits: Limits, spark: Callable[[], Engine]) -> None:
        self.limits = limits
        self.traces: list[Trace] = []
        self._spark = spark
        self._current: Engine = ResidentEngine(limits)
        self._current.traces = self.traces
        self._installed: tuple[MaintenanceProgram, Sequence[str], Sequence[Question]] | None = None
        self._rows = 0

    @property
    def name(self) -> str:
        return self._current.name

    @property
    def why(self) -> str:
        """Why this engine runs."""
        need, most = self._rows * BYTES_PER_ROW, self.limits.memory
        fits = "fit" if self.name == ResidentEngine.name else "do not fit"
        return f"{self._rows:,} base rows, about {_size(need)}, {fits} the {_size(most)} of memory that they may take"

    def install(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        initial: Mapping[str, Iterable[Row]] | None = None,
        *,
        bound: Sequence[Question] = (),
        announce: bool = False,
        confirm: Confirm | None = None,
    ) -> Propagation:
        rows = {name: counted(given) for name, given in (initial or {}).items()}
        self._make_room(sum(map(len, rows.values())))
        found = self._current.install(maintenance, monitored, rows, bound=bound, announce=announce, confirm=confirm)
        self._installed = (maintenance, monitored, bound)
        self._count()
        return found

    def load(self, initial: Mapping[str, Iterable[Row]]) -> int:
        rows = {name: counted(given) for name, given in initial.items()}
        self._make_room(sum(map(len, rows.values())))
        touched = self._current.load(rows)
        self._count()
        return touched

    def net(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
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
        self._current.commit()

    def rollback(self) -> None:
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

    def _make_room(self, more: int) -> None:
        """Move everything to Spark if so many more rows do not fit."""
        if self.name != ResidentEngine.name or (self._rows + more) * BYTES_PER_ROW <= self.limits.memory:
            return
        spark = self._spark()
        spark.traces = self.traces
        if self._installed is not None:
            maintenance, monitored, bound = self._installed
            rows = {name: self._current.rows(name, {}) for name in maintenance.program.bases}
            spark.install(maintenance, monitored, rows, bound=bound)
        self._current = spark


def counted(rows: Iterable[Row]) -> Collection[Row]:
    """Rows whose number is known."""
    return rows if isinstance(rows, Collection) else list(rows)


def _size(number: int) -> str:
    """
    >>> _size(5 * 2**20)
    '5.0 MiB'
    """
    return f"{number / 2**20:,.1f} MiB" if number < 2**30 else f"{number / 2**30:,.1f} GiB"
