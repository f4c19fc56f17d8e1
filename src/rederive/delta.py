"""Deltas: what enters a relation and what leaves it, as one signed multiset of rows.

A delta `d` gives each row an integer: `d(row) = n > 0` says that n copies of the row enter, `d(row) = -n` that n copies leave. It
is zero for all but finitely many rows. A relation `R` gives each row its multiplicity, which is never below zero; in a set it is
0 or 1. These laws hold, and `tests/test_delta.py` checks each of them on random deltas:

    union         (d + e)(row) = d(row) + e(row)       associative and commutative; the empty delta is neutral
    invert        (-d)(row) = -d(row)                  -(-d) = d and -(d + e) = -d + -e
    cancellation  d + -d = 0                           a row that enters and leaves did neither
    apply         (R + d)(row) = R(row) + d(row)       R + (d + e) = (R + d) + e, and (R + d) + -d = R
    between       R + between(R, S) = S                between(R, S) + between(S, T) = between(R, T)
    restrict      plus(d) + minus(d) = d               plus(plus(d)) = plus(d), minus(plus(d)) = 0, plus(-d) = -minus(d)
    override      (R := d) := e  is  R := override(d, e)   for sets; associative, idempotent, not commutative

`apply` is defined where no row leaves more often than it is there; elsewhere the multiplicity stops at zero. For sets, the union
of deltas that follow one another has only the values -1, 0 and 1, because a row that is there cannot enter. Where it is not known
whether it is there, a delta of sets is assigned instead of applied: `R := d` is `(R - minus(d)) | plus(d)`.

A delta is net where no row is on both of its sides. Every operation of this module returns a net delta, and every engine hands
out net deltas. There is one exception: where a definition gives a view columns of other types, all old rows leave and all new
ones enter, and a row of the old types is another row even if Python finds the two equal. Nobody adds such a delta to another.

A side is a collection of distinct rows. A side that is a mapping gives each row its multiplicity; in any other collection each
row is there once. Engines hand out sides that decode their rows when somebody iterates over them, and whose length is known.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import chain, islice, repeat
from typing import Any, TypeAlias, TypeVar

Row: TypeAlias = tuple[Any, ...]
"""A row of any layer: of values, or of what JSON makes of them."""
Rows: TypeAlias = Collection[Row]
"""One side of a delta: distinct rows. Where it is a mapping, it gives the multiplicity of each."""


Pattern: TypeAlias = tuple[tuple[int, Any], ...]
"""Values by position. A row fits a pattern that has its values at these positions."""


class Sign(Enum):
    """Whether rows enter (plus) or leave (minus)."""

    PLUS = "plus"
    MINUS = "minus"

    @property
    def opposite(self) -> Sign:
        """The other sign."""
        return Sign.MINUS if self is Sign.PLUS else Sign.PLUS


BOTH = frozenset(Sign)


class LazyRows(Collection[Row]):
    """Distinct rows that are decoded or fetched when somebody iterates over them; their number is known without that."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Row]: ...

    def net_counts(self, leaving: Rows) -> tuple[Rows, Rows] | None:
        """The net delta of a bag as counted rows, of which these enter and others leave; None where that is worked out here."""
        return None

    def first(self, number: int) -> list[Row]:
        """Some of the rows, in no order; not more than so many are decoded or fetched."""
        return list(islice(self, number))

    def __contains__(self, row: object) -> bool:
        # A search through all rows, which decodes them: whoever asks often makes a set first.
        return any(row == one for one in self)


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """What enters a relation and what leaves it.

    >>> first, second = Delta([("a",), ("b",)]), Delta([("c",)], [("a",)])
    >>> first.union(second)
    Delta(plus={('b',): 1, ('c',): 1}, minus={})
    >>> first.union(first.invert()) == Delta()
    True
    """

    plus: Rows = ()
    minus: Rows = ()

    @classmethod
    def of(cls, signed: Mapping[Row, int]) -> Delta:
        """The delta that gives each row this number.

        >>> Delta.of({("a",): 2, ("b",): -1, ("c",): 0})
        Delta(plus={('a',): 2}, minus={('b',): 1})
        """
        # Rows with the number zero are dropped here, so that every delta made by the algebra is net.
        entering = {row: count for row, count in signed.items() if count > 0}
        return cls(entering, {row: -count for row, count in signed.items() if count < 0})

    @classmethod
    def between(cls, old: Rows, new: Rows) -> Delta:
        """The delta that leads from one relation to another.

        >>> Delta.between(Counter({("a",): 1, ("b",): 2}), [("b",), ("c",)])
        Delta(plus={('c',): 1}, minus={('b',): 1, ('a',): 1})
        """
        # S - R as signed multisets: what both have cancels.
        return cls(new, old).net()

    # The algebra

    def signed(self) -> dict[Row, int]:
        """The number of each row, without the rows for which it is zero."""
        total = DeltaSum()
        total.add(self)
        return total.counts

    def net(self) -> Delta:
        """The same delta with no row on both sides."""
        return Delta.of(self.signed())

    def union(self, *others: Delta) -> Delta:
        """The net effect of several deltas, in any order."""
        total = DeltaSum()
        for delta in (self, *others):
            total.add(delta)
        return total.delta()

    def invert(self) -> Delta:
        """The delta that leads back. Nothing is decoded."""
        return Delta(self.minus, self.plus)

    def apply(self, rows: Counter[Row]) -> list[Row]:
        """Change a relation in place; return the rows that leave more often than they are there, which are gone then.

        >>> rows = Counter({("a",): 2})
        >>> Delta({("b",): 3}, {("a",): 1, ("c",): 1}).apply(rows), dict(rows)
        ([('c',)], {('a',): 1, ('b',): 3})
        """
        missing = []
        for row, count in self.signed().items():
            left = rows[row] + count
            if left > 0:
                rows[row] = left
            else:
                del rows[row]  # a Counter does not refuse to delete what it does not hold
            if left < 0:
                missing.append(row)
        return missing

    def assign(self, rows: frozenset[Row]) -> frozenset[Row]:
        """A set in which the rows of `plus` are there and those of `minus` are not, whether they were there before or not."""
        return (rows - frozenset(self.minus)) | frozenset(self.plus)

    def override(self, later: Delta) -> Delta:
        """One delta that assigns what this one followed by `later` assigns: `later` decides about each of its rows.

        >>> Delta([("a",), ("b",)]).override(Delta([("b",)], [("a",)]))
        Delta(plus=frozenset({('b',)}), minus=frozenset({('a',)}))
        """
        # Where `later` has a row on both sides, plus decides: assign takes away before it adds.
        plus, minus = frozenset(later.plus), frozenset(later.minus)
        return Delta((frozenset(self.plus) - minus) | plus, (frozenset(self.minus) - plus) | (minus - plus))

    def restrict(self, signs: Collection[Sign]) -> Delta:
        """The part of the delta with these signs. Nothing is decoded."""
        return Delta(self.plus if Sign.PLUS in signs else (), self.minus if Sign.MINUS in signs else ())

    def where(self, holds: Callable[[Row], bool]) -> Delta:
        """The part of the delta whose rows fulfil a condition, in their order."""
        return Delta(_chosen(self.plus, filter(holds, self.plus)), _chosen(self.minus, filter(holds, self.minus)))

    def first(self, most: int) -> Delta:
        """At most so many rows of each side; of a side that decodes its rows, no others are decoded.

        >>> Delta([("a",), ("b",)], [("c",)]).first(1)
        Delta(plus=[('a',)], minus=[('c',)])
        """
        return Delta(*(_chosen(side, islice(side, most)) for side in (self.plus, self.minus)))

    def fits_any(self, patterns: Collection[Pattern]) -> bool:
        """Whether some row fits a pattern; no row is decoded where the empty pattern, which every row fits, is one of them."""
        if () in patterns:
            return bool(self)
        rows = chain(self.plus, self.minus) if patterns else ()
        return any(all(row[i] == value for i, value in pattern) for row in rows for pattern in patterns)

    # Reading it

    def __bool__(self) -> bool:
        """Whether any row enters or leaves. Nothing is decoded."""
        return bool(len(self.plus) or len(self.minus))

    def __eq__(self, other: object) -> bool:
        """Whether both give each row the same number, however their sides hold the rows."""
        return self.signed() == other.signed() if isinstance(other, Delta) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equality looks at rows, which may be many

    def side(self, sign: Sign) -> Rows:
        """The rows of one sign."""
        return self.plus if sign is Sign.PLUS else self.minus

    def ordered(self) -> Delta:
        """The same delta with the rows of each side in order."""
        return Delta(in_order(self.plus), in_order(self.minus))

    @property
    def counts(self) -> tuple[list[int], list[int]] | None:
        """The multiplicities of both sides in the order of their rows; None where each is 1, as in the delta of a set."""
        if not isinstance(self.plus, Mapping) and not isinstance(self.minus, Mapping):
            return None
        counts = (list(multiplicities(self.plus).values()), list(multiplicities(self.minus).values()))
        # A bag whose rows are all there once is reported like a set.
        return counts if any(count != 1 for count in chain(*counts)) else None


_Name = TypeVar("_Name")


def nonempty(deltas: Mapping[_Name, Delta]) -> dict[_Name, Delta]:
    """The deltas that change anything. Nothing is decoded.

    >>> nonempty({"p": Delta([("a",)]), "q": Delta()})
    {'p': Delta(plus=[('a',)], minus=())}
    """
    return {name: delta for name, delta in deltas.items() if delta}


class DeltaSum:
    """The union of deltas, which grows in place: adding a delta costs its own size, not that of the sum.

    `is_clamped`: for sets whose deltas may repeat what is known already, as those of nervous precision do. The number of a row
    then stays between -1 and 1, and the order of the deltas matters.

    >>> total = DeltaSum()
    >>> total.add(Delta([("a",)]))
    >>> total.add(Delta([("b",)], [("a",)]))
    >>> total.delta()
    Delta(plus={('b',): 1}, minus={})
    """

    __slots__ = ("counts", "is_clamped")

    def __init__(self, *, is_clamped: bool = False) -> None:
        self.counts: dict[Row, int] = {}
        self.is_clamped = is_clamped

    def add(self, delta: Delta) -> None:
        """Add one more delta."""
        for row, count in multiplicities(delta.plus).items():
            self._move(row, count)
        for row, count in multiplicities(delta.minus).items():
            self._move(row, -count)

    def merge(self, later: DeltaSum) -> None:
        """Add the sum of deltas that came later."""
        for row, count in later.counts.items():
            self._move(row, count)

    def delta(self) -> Delta:
        """The sum so far."""
        return Delta.of(self.counts)

    def _move(self, row: Row, count: int) -> None:
        total = self.counts.get(row, 0) + count
        # A nervous plus may be there already, a nervous minus gone already: of repeated signs one counts.
        if self.is_clamped:
            total = max(-1, min(1, total))
        if total:
            self.counts[row] = total
        else:
            self.counts.pop(row, None)


# Sides


def first(rows: Rows, number: int) -> list[Row]:
    """Some rows of a side, in no order; not more than so many are decoded or fetched."""
    return rows.first(number) if isinstance(rows, LazyRows) else list(islice(rows, number))


def multiplicities(rows: Rows) -> Mapping[Row, int]:
    """How many copies of each row a side has."""
    return rows if isinstance(rows, Mapping) else dict.fromkeys(rows, 1)


def copies(rows: Rows) -> Iterator[Row]:
    """Each row of a side as often as its multiplicity says.

    >>> list(copies({("a",): 2, ("b",): 1})), list(copies([("a",)]))
    ([('a',), ('a',), ('b',)], [('a',)])
    """
    if not isinstance(rows, Mapping):
        return iter(rows)
    return chain.from_iterable(repeat(row, count) for row, count in rows.items())


def counted(rows: Iterable[Row], counts: Iterable[int] | None) -> Rows:
    """A side from its rows and their multiplicities in the same order; without these, each row is there once."""
    return dict(zip(rows, counts, strict=True)) if counts is not None else list(rows)


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows by their values, column by column, NULL first: the order in which rows are shown everywhere.

    >>> sort_rows([("b", 1), (None, 2), ("a", 9), ("a", None)])
    [(None, 2), ('a', None), ('a', 9), ('b', 1)]
    """
    listed = list(rows)
    try:
        # Python's own order is this order wherever it is defined: it compares None with nothing but None.
        return sorted(listed)
    except TypeError:
        return sorted(listed, key=lambda row: [(value is not None, value) for value in row])


def in_order(rows: Rows) -> Rows:
    """The same side with its rows in order."""
    return _chosen(rows, sort_rows(rows))


def _chosen(side: Rows, rows: Iterable[Row]) -> Rows:
    """Some rows of a side, in this order."""
    return {row: side[row] for row in rows} if isinstance(side, Mapping) else list(rows)


# Bags as sets. An engine knows sets alone, so two relations stand for a bag, each with one more column behind its columns:
# numbered copies, (row, 1) ... (row, n) for a row that is there n times, and counted rows, (row, n) alone.


def from_numbered(delta: Delta) -> Delta:
    """The delta of a bag from that of its numbered copies.

    >>> from_numbered(Delta([("a", 2), ("a", 3)], [("b", 1)]))
    Delta(plus=Counter({('a',): 2}), minus=Counter({('b',): 1}))
    """
    # The numbers of a row's copies are dense, so the number of copies that enter or leave is all that matters.
    return Delta(Counter(row[:-1] for row in delta.plus), Counter(row[:-1] for row in delta.minus))


def from_counted(delta: Delta) -> Delta:
    """The delta of a bag from that of its counted rows. Nothing is decoded before somebody reads it.

    >>> change = from_counted(Delta([("a", 1), ("b", 2)], [("a", 3)]))
    >>> dict(change.plus), dict(change.minus)
    ({('b',): 2}, {('a',): 2})
    """
    counting = _Counting(delta)
    return Delta(CountedSide(counting, Sign.PLUS), CountedSide(counting, Sign.MINUS))


def sum_of_counts(rows: Rows) -> Counter[Row]:
    """The bag whose counted rows these are."""
    return Counter({row[:-1]: row[-1] for row in rows})


class _Counting:
    """The delta of counted rows, and what it says about the bag, which both sides of the bag's delta share."""

    def __init__(self, delta: Delta) -> None:
        self.delta = delta

    @cached_property
    def net_sides(self) -> tuple[Rows, Rows] | None:
        """The counted rows that enter and those that leave, without decoding any; None where some of them may cancel."""
        plus, minus = self.delta.plus, self.delta.minus
        # With one side empty nothing cancels: (row, n) enters means n copies enter.
        if not len(plus) or not len(minus):
            return plus, minus
        return plus.net_counts(minus) if isinstance(plus, LazyRows) else None

    @cached_property
    def bag(self) -> Delta:
        # (row, m) leaves and (row, n) enters: n - m copies enter
        plus, minus = self.net_sides or (self.delta.plus, self.delta.minus)
        return Delta(sum_of_counts(plus), sum_of_counts(minus)).net()


class CountedSide(Mapping[Row, int]):
    """One side of the delta of a bag, computed from the delta of its counted rows when somebody reads it."""

    __slots__ = ("_counting", "_sign")

    def __init__(self, counting: _Counting, sign: Sign) -> None:
        self._counting = counting
        self._sign = sign

    @property
    def counted_rows(self) -> Rows | None:
        """The side as counted rows, which may be far away; None where some of them cancel."""
        sides = self._counting.net_sides
        return (sides[0] if self._sign is Sign.PLUS else sides[1]) if sides is not None else None

    def _rows(self) -> Mapping[Row, int]:
        return multiplicities(self._counting.bag.side(self._sign))

    def __len__(self) -> int:
        # counts alone tell the number of rows unless rows are on both sides, so that nothing has to be decoded
        direct = self.counted_rows
        return len(direct) if direct is not None else len(self._rows())

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows())

    def __getitem__(self, row: Row) -> int:
        return self._rows()[row]

    def __repr__(self) -> str:
        return repr(dict(self))
