"""What a committed transaction did, for each monitored view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING

from rederive.boundary import guard
from rederive.delta import Delta, Rows, Sign, in_order
from rederive.engines.protocol import Query
from rederive.errors import Unsupported
from rederive.html_tables import html_change, html_table
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, SYMBOL, Row, Value
from rederive.records import Firing
from rederive.row_list import RowList, arrow_table, to_pandas, to_polars

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow as pa

_MOST_SHOWN = 20  # rows of a side in a notebook


class Change:
    """The delta of one view at one version; `plus` and `minus` are its rows, in order.

    Where only one sign was requested, the other side is empty.
    """

    def __init__(self, version: int, view: str, delta: Delta, entered: Relation, left: Relation | None = None) -> None:
        self.version = version
        self.view = view
        self.delta = delta
        # The columns of the rows. Those that left have other columns where the version defines the view differently.
        self._entered = entered
        self._left = left or entered

    @cached_property
    def plus(self) -> RowList:
        """The rows that entered the view."""
        return RowList(self._plus, self._entered.columns)

    @cached_property
    def minus(self) -> RowList:
        """The rows that left the view."""
        return RowList(self._minus, self._left.columns)

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
        return self._with(self.delta.restrict(signs))

    def where(self, bindings: Mapping[int, Value]) -> Change:
        """The part of the change whose rows have these values."""
        wanted = tuple(bindings.items())
        return self._with(self.delta.where(lambda row: all(row[i] == value for i, value in wanted)))

    @property
    def in_order(self) -> Change:
        """The same change, with its rows read and in order."""
        return self._with(self.ordered)

    def _with(self, delta: Delta) -> Change:
        return Change(self.version, self.view, delta, self._entered, self._left)

    @guard
    def to_arrow(self) -> pa.Table:
        """The change as an Arrow table: `_version`, `_change`, `_count` and the view's columns, as in a change table of the lake.

        >>> import rederive
        >>> db = rederive.open()
        >>> db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
        >>> db.load("n", [(1,), (2,)]).changes["odd"].to_arrow().to_pylist()
        [{'_version': 1, '_change': 'plus', '_count': 1, 'x': 1}]
        """
        if self._left.columns != self._entered.columns:
            raise Unsupported(
                f"one table for the change of '{self.view}', whose columns changed", hint="convert change.plus and change.minus"
            )
        numbers = self.counts or {}
        signed = [
            (self.version, sign.value, count, *row)
            for sign, side in ((Sign.MINUS, self.minus), (Sign.PLUS, self.plus))
            for row, count in zip(side, numbers.get(sign.value) or repeat(1), strict=False)
        ]
        head = (Column("_version", NUMBER), Column("_change", SYMBOL), Column("_count", NUMBER))
        return arrow_table(signed, (*head, *self._entered.columns))

    @guard
    def to_pandas(self) -> pandas.DataFrame:
        """The change as a pandas data frame, with the columns of `to_arrow`."""
        return to_pandas(self.to_arrow())

    @guard
    def to_polars(self) -> polars.DataFrame:
        """The change as a polars data frame, with the columns of `to_arrow`."""
        return to_polars(self.to_arrow())

    def _repr_html_(self) -> str:
        title = f"{self.view} at version {self.version}: +{len(self.plus):,} −{len(self.minus):,}"
        return html_change(self.plus.columns, self.plus, self.minus, _MOST_SHOWN, title)

    def __repr__(self) -> str:
        return f"Change(version={self.version}, view={self.view!r}, +{len(self.delta.plus)}, -{len(self.delta.minus)})"


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, and the names of its columns."""

    columns: tuple[str, ...]
    rows: list[Row]

    def _repr_html_(self) -> str:
        return html_table(self.columns, self.rows[:_MOST_SHOWN], more=len(self.rows) - _MOST_SHOWN)


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
    `net`: how many rows entered and left each base relation, but those of data frames in Spark. `timings`: the seconds that
    the component of each relation took, by its first relation, where that is measured. `settle_seconds`: the part of `seconds`
    in which the tables of a lake took the version, where that was not left for later.
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
    net: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    settle_seconds: float = 0.0

    def _repr_html_(self) -> str:
        if self.answer is not None:
            return self.answer._repr_html_()
        head = f"<p>version {self.version}, {self.engine} engine, {self.seconds * 1e3:,.1f} ms</p>"
        fired = [(one.rule, one.action, one.outcome, len(one.plus), len(one.minus)) for one in self.firings]
        rules = html_table(("rule", "action", "outcome", "plus", "minus"), fired, caption="rules that fired") if fired else ""
        return head + "".join(change._repr_html_() for change in self.changes.values()) + rules
