"""What a committed transaction did, for each monitored view."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rederive.delta import BOTH, Sign
from rederive.engines.protocol import Query, Rows, ViewDelta
from rederive.ir.terms import Row, Value
from rederive.records import Firing
from rederive.values import sort_key


class Change:
    """The exact change of one view at one version: `plus = new - old`, `minus = old - new`, rows in order.

    Where only one sign was asked for, the other is empty.
    """

    def __init__(self, version: int, view: str, delta: ViewDelta, signs: frozenset[Sign] = BOTH) -> None:
        self.version = version
        self.view = view
        self._delta = delta
        self._signs = signs

    @property
    def signs(self) -> frozenset[Sign]:
        """What was asked for."""
        return self._signs

    @property
    def delta(self) -> ViewDelta:
        """The rows where they are, whatever signs were asked for."""
        return self._delta

    @cached_property
    def plus(self) -> list[Row]:
        """The rows that entered the view."""
        return sorted(self._delta.plus.decoded(), key=sort_key) if Sign.PLUS in self._signs else []

    @cached_property
    def minus(self) -> list[Row]:
        """The rows that left the view."""
        return sorted(self._delta.minus.decoded(), key=sort_key) if Sign.MINUS in self._signs else []

    @property
    def counts(self) -> dict[str, list[int]] | None:
        """How many copies of each row entered and left, where the view is a bag and not all of these numbers are 1."""
        sides = {"plus": (self._delta.plus, self.plus), "minus": (self._delta.minus, self.minus)}
        counts = {sign: [_copies(source, row) for row in rows] for sign, (source, rows) in sides.items()}
        return counts if any(count != 1 for side in counts.values() for count in side) else None

    def __bool__(self) -> bool:
        """Whether any row of a wanted sign is in it."""
        sizes = {Sign.PLUS: len(self._delta.plus), Sign.MINUS: len(self._delta.minus)}
        return any(sizes[sign] for sign in self._signs)

    def only(self, signs: frozenset[Sign]) -> Change:
        """The part of the change that has these signs."""
        return Change(self.version, self.view, self._delta, self._signs & signs)

    def where(self, bindings: Mapping[int, Value]) -> Change:
        """The part of the change whose rows have these values."""
        plus, minus = ([row for row in rows if _matches(row, bindings)] for rows in (self.plus, self.minus))
        found, lost = (_counts(source) for source in (self._delta.plus, self._delta.minus))
        return Change(self.version, self.view, ViewDelta(Decoded(plus, found), Decoded(minus, lost)), self._signs)

    def __repr__(self) -> str:
        return f"Change(version={self.version}, view={self.view!r}, +{len(self._delta.plus)}, -{len(self._delta.minus)})"


def _matches(row: Row, bindings: Mapping[int, Value]) -> bool:
    return all(row[i] == value for i, value in bindings.items())


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows that are decoded already; of a bag, with the number of their copies."""

    rows: list[Row]
    counts: Mapping[Row, int] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def decoded(self) -> list[Row]:
        return self.rows

    def given(self) -> tuple[Row, ...]:
        return tuple(self.rows)


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies that one sign of a bag's change has; worked out when they are read."""

    change: BagChange
    sign: Sign

    @property
    def counts(self) -> Counter[Row]:
        return self.change.net[self.sign]

    def __len__(self) -> int:
        own, other = self.change.side(self.sign)
        return len(self.counts) if len(other) else len(own)

    def decoded(self) -> list[Row]:
        return list(self.counts)

    def given(self) -> tuple[Row, ...]:
        return tuple(self.counts)


@dataclass(eq=False)
class BagChange:
    """The change of a bag, from that of the relation that counts its rows in its last column."""

    counting: ViewDelta

    def side(self, sign: Sign) -> tuple[Rows, Rows]:
        """The counted rows of a sign, and those of the other."""
        plus, minus = self.counting.plus, self.counting.minus
        return (plus, minus) if sign is Sign.PLUS else (minus, plus)

    @cached_property
    def net(self) -> dict[Sign, Counter[Row]]:
        came, gone = copies_in(self.counting.plus), copies_in(self.counting.minus)
        return {Sign.PLUS: came - gone, Sign.MINUS: gone - came}


def counted_rows(rows: Rows) -> Rows | None:
    """One side of a bag's change, each row with the number of its copies behind it, where nobody has to work it out."""
    if not isinstance(rows, Copies):
        return None
    own, other = rows.change.side(rows.sign)
    return own if not len(other) else None


def _counts(rows: Rows) -> Mapping[Row, int] | None:
    return rows.counts if isinstance(rows, Decoded | Copies) else None


def _copies(rows: Rows, row: Row) -> int:
    counts = _counts(rows)
    return counts[row] if counts is not None else 1


def of_bag(delta: ViewDelta) -> ViewDelta:
    """The copies that enter and leave, from the change of the relation that counts them in its last column.

    >>> change = of_bag(ViewDelta(Decoded([("a", 1), ("b", 2)]), Decoded([("a", 3)])))
    >>> change.plus.decoded(), change.minus.decoded()
    ([('b',)], [('a',)])
    """
    change = BagChange(delta)
    return ViewDelta(Copies(change, Sign.PLUS), Copies(change, Sign.MINUS))


def copies_in(rows: Rows) -> Counter[Row]:
    """The rows that a counting relation counts in its last column."""
    found: Counter[Row] = Counter()
    for *row, count in rows.decoded():
        assert isinstance(count, int)
        found[tuple(row)] = count
    return found


def of_counts(came: Counter[Row], gone: Counter[Row]) -> ViewDelta:
    """What is left of copies that come and go."""
    entered, left = came - gone, gone - came
    return ViewDelta(Decoded(list(entered), entered), Decoded(list(left), left))


@dataclass(frozen=True, slots=True)
class Result:
    """A committed transaction: its version, the change of each monitored view that changed, and what it cost.

    `touched`: tuples looked at. `derived`: rows of views that are not kept that had to be derived, by view. `skipped`: rules that
    path analysis left out. `bound`: the changes of bound subscriptions that were computed for themselves.
    `estimated`: with strategy auto, the tuples that it expected to touch. `recomputed`: how many views it evaluated from scratch.
    `engine_reason`: why this engine ran. `repeated`: the idempotency key was known, and this is the result of its first use.
    `firings`: the active rules that fired, in their order.
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
