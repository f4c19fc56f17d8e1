"""What every engine does. One protocol, one conformance suite, the same answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from rederive.analysis.cost import Estimate
from rederive.delta import Delta, LazyRows, Rows
from rederive.ir.terms import Row, Value
from rederive.maintain.program import MaintenanceProgram

if TYPE_CHECKING:
    from rederive.limits import Limits


class DoesNotFit(Exception):
    """Views that cannot be kept in the memory there is; the caller plans again without keeping them."""

    def __init__(self, views: Sequence[str]) -> None:
        super().__init__(", ".join(views))
        self.views = tuple(views)


class Action(Enum):
    INSERT = "insert"
    DELETE = "delete"
    UPSERT = "upsert"


class Bulk(LazyRows):
    """Rows that are in Spark until somebody iterates over them."""

    def digest(self) -> str:
        """The same for the same rows, and in all likelihood for no others."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of a transaction, on typed rows of one base relation. An upsert replaces the row with the same key."""

    action: Action
    relation: str
    rows: tuple[Row, ...] | Bulk


@dataclass(frozen=True, slots=True)
class Query:
    """The rows of a view that have these values in these columns."""

    view: str
    bindings: tuple[tuple[int, Value], ...]


@dataclass(frozen=True, slots=True)
class Propagation:
    """What a net change does to the monitored views, worked out but not applied yet.

    `derived`: how many rows of a view that is not kept had to be derived. `skipped`: rules that path analysis left out.
    `estimated`: the tuples that strategy auto expected to touch. `recomputed`: how many views it evaluated from scratch.
    `entered`: the initial rows that base relations did not have, where a program was installed with some.
    """

    views: Mapping[str, Delta]
    touched: int
    derived: Mapping[str, int]
    skipped: int
    bound: Mapping[Query, Delta] = field(default_factory=dict)
    estimated: int = 0
    recomputed: int = 0
    entered: Mapping[str, Rows] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FilterStep:
    """One step of propagation and filtration: a rule run for a set of updates, as in HD94's Figure 3.

    `sign`: whether the rows found enter the view (plus) or leave it (minus).
    """

    rule: str
    updated: str
    updates: tuple[Row, ...]
    view: str
    sign: str
    approximation: tuple[Row, ...]
    disqualified: tuple[Row, ...]
    actual: tuple[Row, ...]


Trace = Callable[[FilterStep], None]


class Engine(Protocol):
    """Keeps base relations and views, and computes what transactions do to them.

    `propagate` and `install` prepare a change; `commit` applies what they prepared, `rollback` discards it.
    """

    traces: list[Trace]

    @property
    def name(self) -> str: ...

    @property
    def reason(self) -> str:
        """Why this engine runs."""

    def budget(self, limits: Limits | None) -> AbstractContextManager[None]:
        """While this lasts, work that exceeds these limits is stopped with `LimitExceeded`, and changes nothing."""

    def pause_budget(self) -> AbstractContextManager[None]:
        """While this lasts, nothing counts towards the budget: functions of the user's run."""

    def install(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        initial: Mapping[str, Iterable[Row]] | None = None,
        *,
        bound: Sequence[Query] = (),
        announce: bool = False,
    ) -> Propagation:
        """Prepare another program: base relations keep their rows and gain the initial ones, changed views are evaluated.

        Like `propagate` this is the first of two phases: `commit` switches to the program, `rollback` discards it, and a failure
        leaves everything as it was. `bound`: queries whose changes are reported though their views are not maintained as a
        whole. With `announce`, the delta of every monitored view is computed.
        """

    def load(self, initial: Mapping[str, Iterable[Row]]) -> int:
        """Install the present program again, with more initial rows; the number of tuples touched."""

    def net(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
        """What is left of a transaction after opposite and idle changes cancel."""

    def propagate(self, net: Mapping[str, Delta]) -> Propagation: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def rows(self, relation: str, bindings: Mapping[int, Value]) -> list[Row]:
        """The rows of a base relation or view whose columns have the bound values, in no order."""

    def answers(self, relations: Iterable[str]) -> Generator[list[Row], None, None]:
        """All rows of several relations, one after the other; what is derived for one may serve the next. To be closed."""

    def beginning(self, relation: str, prefixes: Collection[Row]) -> list[Row]:
        """The rows of a base relation that begin with one of these, in no order."""

    def extent(self, relation: str) -> Collection[Row]:
        """All rows of a base relation or view, wherever they are."""

    def memory_use(self) -> str:
        """What the rows take of this process's memory, and of what they may take, as text; empty where they are elsewhere."""

    def size(self, relation: str) -> int: ...

    def estimates(self) -> Mapping[tuple[str, ...], Estimate]:
        """What strategy auto expects of each component that it has a choice for."""

    @property
    def touched(self) -> int:
        """The tuples that the last question looked at."""
