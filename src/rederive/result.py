"""What a committed transaction did, for each monitored view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rederive.delta import Delta, Rows, Sign, in_order
from rederive.engines.protocol import Query
from rederive.ir.terms import Row, Value
from rederive.records import Firing


class Change:
    """The delta of one view at one version; `plus` and `minus` are its rows, in order.

    Where only one sign was requested, the other side is empty.
    """

    def __init__(self, version: int, view: str, delta: Delta) -> None:
        self.version = version
        self.view = view
        self.delta = delta

    @cached_property
    def plus(self) -> list[Row]:
        """The rows that entered the view."""
        return list(self._plus)

    @cached_property
    def minus(self) -> list[Row]:
        """The rows that left the view."""
        return list(self._minus)

    @property
    def ordered(self) -> Delta:
        """The delta with its rows in order."""
        return Delta(self._plus, self._minus)

    # Rows are put in order when somebody reads them: most changes of large versions are never read one by one.
    @cached_property
    def _plus(self) -> Rows:
        return in_order(self.delta.plus)

    @cached_property
    def _minus(self) -> Rows:
        return in_order(self.delta.minus)

    @property
    def counts(self) -> dict[str, list[int]] | None:
        """How many copies of each row entered and left, where the view is a bag and not all of these numbers are 1."""
        counts = self.ordered.counts
        return {"plus": counts[0], "minus": counts[1]} if counts is not None else None

    def __bool__(self) -> bool:
        """Whether any row entered or left."""
        return bool(self.delta)

    def only(self, signs: frozenset[Sign]) -> Change:
        """The part of the change that has these signs."""
        return Change(self.version, self.view, self.delta.restrict(signs))

    def where(self, bindings: Mapping[int, Value]) -> Change:
        """The part of the change whose rows have these values."""
        wanted = tuple(bindings.items())
        return Change(self.version, self.view, self.delta.where(lambda row: all(row[i] == value for i, value in wanted)))

    def __repr__(self) -> str:
        return f"Change(version={self.version}, view={self.view!r}, +{len(self.delta.plus)}, -{len(self.delta.minus)})"


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, and the names of its columns."""

    columns: tuple[str, ...]
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Result:
    """A committed transaction: its version, the change of each monitored view that changed, and what it cost.

    `touched`: tuples looked at. `derived`: rows of views that are not kept that had to be derived, by view. `skipped`: rules that
    path analysis left out. `bound`: the changes of bound subscriptions that were computed for themselves.
    `estimated`: with strategy auto, the tuples that it expected to touch. `recomputed`: how many views it evaluated from scratch.
    `by_column`: how many it joined by whole columns, because the change was large.
    `engine_reason`: why this engine ran. `repeated`: the idempotency key was known, and this is the result of its first use.
    `firings`: the active rules that fired, in their order. `answer`: of a query, SHOW, DESCRIBE or EXPLAIN in a text of
    statements, its rows; such a result changes nothing. `jobs`: the number of Spark jobs until the version was computed.
    """

    version: int
    changes: Mapping[str, Change]
    engine: str
    strategy: str
    seconds: float
    touched: int
    derived: Mapping[str, int]
    skipped: int
    bound: Mapping[Query, Change]
    estimated: int
    recomputed: int
    repeated: bool = False
    engine_reason: str = ""
    firings: tuple[Firing, ...] = ()
    answer: Answer | None = None
    jobs: int = 0
    by_column: int = 0
