"""What every engine does. One protocol, one conformance suite, the same answers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from rederive.analysis.cost import Estimate
from rederive.delta import Delta, LazyRows, Rows
from rederive.ir.terms import Row, Value
from rederive.maintain.program import MaintenanceProgram

if TYPE_CHECKING:
    from rederive.limits import Limits


@dataclass(frozen=True, slots=True)
class CodedExtent:
    """The rows of a relation by column, as arrays of codes. `values`: of each column, the values by their codes; 0 is NULL."""

    columns: tuple[Any, ...]
    values: tuple[Sequence[Value], ...]


class DoesNotFit(Exception):
    """Views that do not fit the memory that they may take; the caller plans the program again without storing them."""

    def __init__(self, views: Sequence[str]) -> None:
        # Never reaches a user: strategy auto plans again with these views derived on demand.
        super().__init__(", ".join(views))
        self.views = tuple(views)


class Unrestorable(Exception):
    """A dump of another engine, or one whose rows are gone; the caller evaluates the views instead."""


class Action(Enum):
    """What an operation does with its rows."""

    INSERT = "insert"
    DELETE = "delete"
    UPSERT = "upsert"


class Bulk(LazyRows):
    """Rows that are in Spark until somebody iterates over them."""

    @property
    def is_in_driver(self) -> bool:
        """Whether this process has the rows."""
        raise NotImplementedError

    def digest(self) -> str:
        """A text that is the same for the same rows, and almost surely for no others."""
        raise NotImplementedError

    def number_copies(self) -> Bulk:
        """The rows with one more column, which numbers the copies of each row from 1."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Operation:
    """One request of a transaction, on typed rows of one base relation. An upsert replaces the row with the same key."""

    action: Action
    relation: str
    # Python rows are typed and validated before; of a data frame, the engine itself finds NULLs that must not be there.
    rows: tuple[Row, ...] | LazyRows


@dataclass(frozen=True, slots=True)
class Query:
    """The rows of a relation that have these values in these columns."""

    view: str
    bindings: tuple[tuple[int, Value], ...]


@dataclass(frozen=True, slots=True)
class Propagation:
    """The deltas of the monitored views that follow from a net effect, computed but not applied yet.

    `touched`: the tuples that were looked at. `derived`: the number of rows that were derived of each view that is not stored.
    `skipped`: the number of rules that path analysis left out. `bound`: the deltas of monitored queries. `estimated`: the tuples
    that strategy auto expected to touch. `recomputed`: the number of views that were evaluated from scratch. `entered`: the
    initial rows that base relations did not have, where a program was installed. `jobs`: the number of Spark jobs, with those of
    the net effect. `by_column`: the number of views that were joined by whole columns. `seconds`: how long the
    component of each relation took; empty where it is not measured.
    """

    views: Mapping[str, Delta]
    touched: int
    derived: Mapping[str, int]
    skipped: int
    bound: Mapping[Query, Delta] = field(default_factory=dict)
    estimated: int = 0
    recomputed: int = 0
    entered: Mapping[str, Rows] = field(default_factory=dict)
    jobs: int = 0
    by_column: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


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
    """Stores base relations and views, and computes what transactions change.

    `propagate` and `install` prepare a change; `commit` applies what they prepared, `rollback` discards it.
    """

    # Shared with whoever adds a trace: the list is never replaced by the engine itself.
    traces: list[Trace]

    @property
    def name(self) -> str:
        """The name of the engine that runs: `resident` or `spark`."""

    @property
    def reason(self) -> str:
        """Why this engine runs, as a sentence."""

    def budget(self, limits: Limits | None) -> AbstractContextManager[None]:
        """While this lasts, work that exceeds these limits is stopped with `LimitExceeded`, and changes nothing."""

    def pause_budget(self) -> AbstractContextManager[None]:
        """While this lasts, nothing counts towards the budget: a user's function runs."""

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

    def dump(self) -> bytes | None:
        """All that `restore` needs to continue from here without evaluating a view; None if this engine has no place for it.

        It begins with the engine's name and a line break.
        """

    def restore(
        self,
        maintenance: MaintenanceProgram,
        monitored: Sequence[str],
        data: bytes,
        bases: Callable[[], Mapping[str, Collection[Row]]] | None,
        *,
        bound: Sequence[Query] = (),
    ) -> None:
        """Prepare a program over the state that `dump` wrote under the same program; `commit` switches to it.

        `bases`: the rows of base relations, for an engine whose dump leaves them where they are; None if they are of a later
        version. Raises `Unrestorable`.
        """

    def net_effect(self, operations: Sequence[Operation]) -> Mapping[str, Delta]:
        """The deltas of base relations that are left after opposite and idle requests cancel."""

    def net_effect_of_bag(self, base: str, operations: Sequence[Operation]) -> Delta | None:
        """The net effect of operations on a bag, as the delta of its numbered copies, which `base` holds.

        None where the caller has to number the copies, because the engine would fetch the rows for that.
        """

    def propagate(self, net: Mapping[str, Delta]) -> Propagation:
        """Compute the deltas of the monitored views from a net effect. Nothing that a reader sees changes before `commit`."""

    def commit(self) -> None:
        """Apply what `propagate` or `install` prepared."""

    def rollback(self) -> None:
        """Discard what `propagate` or `install` prepared."""

    @property
    def reads_in_place(self) -> bool:
        """Whether it reads tables in place where they are; else it holds their rows like all others."""

    def rebase(self, rows: Mapping[str, Collection[Row]]) -> None:
        """Read base relations from tables in place at another commit, which has the rows that they have now.

        An engine that holds the rows itself has nothing to do.
        """

    def rows(self, relation: str, bindings: Mapping[int, Value], limit: int | None = None) -> list[Row]:
        """The rows of a base relation or view whose columns have the bound values, in no order; at most `limit` of them."""

    def answers(self, relations: Iterable[str]) -> Generator[list[Row], None, None]:
        """All rows of each relation, in turn; rows derived for one may serve the next. The caller closes the generator."""

    def rows_with_prefix(self, relation: str, prefixes: Collection[Row]) -> list[Row]:
        """The rows of a base relation whose first columns are one of the prefixes, in no order."""

    def copies(self, base: str, rows: Collection[Row]) -> Mapping[Row, int]:
        """How many numbered copies each of these rows has; rows without copies are left out."""

    def extent(self, relation: str) -> Collection[Row]:
        """All rows of a base relation or view, which may stay in Spark."""

    def coded_rows(self, relation: str) -> CodedExtent | None:
        """All rows of a stored relation as columns of codes; None where they are not stored so."""

    def memory_use(self) -> str:
        """How much memory of this process the rows take, and may take, as text; empty where they are in Spark."""

    def size(self, relation: str) -> int:
        """The number of rows of a base relation or view."""

    def estimates(self) -> Mapping[tuple[str, ...], Estimate]:
        """The estimated cost of each component for which strategy auto has a choice."""

    @property
    def touched(self) -> int:
        """The number of tuples that the last operation or query looked at."""
