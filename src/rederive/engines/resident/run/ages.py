"""When each row of a stored recursion was derived: a row has a derivation from rows that are all older than it.

A leaf that a fixpoint takes in is one moment. The rows under a key are stored with the moment they came at: one number where they
came together, else a list of leaves in the order of their moments. Rows that a transaction deletes and puts back are as young as
rows that it inserts. Rows that keep a derivation from younger rows alone move to a later moment, which may be that of others:
rows of one moment do not derive one another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeAlias

from pyroaring import BitMap

from rederive.engines.resident.storage.codes import Code
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Probe, Table, whole_rows

Moments: TypeAlias = int | list[tuple[int, Leaf]]
Arrival: TypeAlias = tuple["Ages", Key, Leaf]
NOTHING = BitMap()


@dataclass(slots=True)
class Timeline:
    """The moments of one component. `now`: the youngest. `limit`: proofs read rows that came before it.

    `deleted` and `arrived` are what the transaction deleted, before anything was put back, and what it put back or inserted, in
    order; `moved` are rows that have a later moment. `evaluated` are the leaves of an evaluation from scratch, if one ran.
    """

    now: int = 0
    limit: int = 0
    deleted: list[Arrival] = field(default_factory=list)
    moved: list[tuple[Ages, Key, Leaf, int]] = field(default_factory=list)
    arrived: list[Arrival] = field(default_factory=list)
    evaluated: list[Arrival] | None = None
    ages: list[Ages] = field(default_factory=list)

    def commit(self) -> None:
        """Give the rows of the committed tables their moments."""
        if self.evaluated is not None:
            for ages in self.ages:
                ages.moments.clear()
            self._append(self.evaluated)
        elif self.deleted or self.arrived or self.moved:
            changed: dict[tuple[int, Key], Arrival] = {}
            for ages, key, leaf in (*self.deleted, *self.arrived, *(part[:3] for part in self.moved)):
                changed.setdefault((id(ages), key), (ages, key, BitMap()))[2].__ior__(leaf)
            for ages, key, leaf in changed.values():
                ages.forget(key, leaf)
            for ages, key, leaf, moment in self.moved:
                ages.move(key, leaf, moment)
            self._append(self.arrived)
        self.rollback()

    def _append(self, arrivals: Sequence[Arrival]) -> None:
        """Give leaves moments after all others, in this order; the tables hold all of them already."""
        for ages, key, leaf in arrivals:
            self.now += 1
            ages.entry(key).append((self.now, leaf))
        for ages, key, _ in arrivals:
            ages.compact(key)

    def rollback(self) -> None:
        """Forget what the transaction did."""
        self.deleted.clear()
        self.moved.clear()
        self.arrived.clear()
        self.evaluated = None
        for ages in self.ages:
            ages.so_far.clear()


def _first(entry: list[tuple[int, Leaf]], moments: int, whole: Leaf) -> tuple[int, Leaf]:
    """The rows of so many first moments of a key, by the fewer unions or differences."""
    if 2 * moments < len(entry):
        return moments, BitMap.union(BitMap(), *(rows for _, rows in entry[:moments]))
    return moments, BitMap.difference(whole, *(rows for _, rows in entry[moments:]))


class Ages:
    """The moments of one view's rows."""

    __slots__ = ("moments", "so_far", "table", "timeline")

    def __init__(self, table: Table, timeline: Timeline) -> None:
        self.table = table
        self.timeline = timeline
        self.moments: dict[Key, Moments] = {}
        # In a transaction: how many moments of a key came before the last limit, and their rows.
        self.so_far: dict[Key, tuple[int, Leaf]] = {}
        timeline.ages.append(self)

    def record(self, key: Key, leaf: Leaf) -> None:
        """Note rows of a first evaluation, before the table takes them in."""
        self.timeline.now += 1
        entry = self.moments.get(key)
        if entry is None:
            self.moments[key] = self.timeline.now
        elif isinstance(entry, int):
            # So far the table's leaf was one moment; from here on it is more than that.
            self.moments[key] = [(entry, self.table.primary[key].copy()), (self.timeline.now, leaf.copy())]
        else:
            entry.append((self.timeline.now, leaf.copy()))

    def forget(self, key: Key, leaf: Leaf) -> None:
        """Take rows out of their moments; the table holds the committed rows already."""
        entry = self.moments.pop(key, None)
        if entry is None:
            return
        parts = [(entry, self.table.primary.get(key, NOTHING))] if isinstance(entry, int) else entry
        left = [(moment, rest) for moment, rows in parts if (rest := rows - leaf)]
        if left:
            self.moments[key] = left
            self.compact(key)

    def entry(self, key: Key) -> list[tuple[int, Leaf]]:
        """The moments of a key whose rows of this transaction are forgotten, as a list."""
        entry = self.moments.setdefault(key, [])
        assert isinstance(entry, list)
        return entry

    def move(self, key: Key, leaf: Leaf, moment: int) -> None:
        """Give rows that were forgotten a moment, which need not be the youngest."""
        entry = self.entry(key)
        i = bisect_left(entry, (moment,))
        if i < len(entry) and entry[i][0] == moment:
            entry[i] = (moment, entry[i][1] | leaf)
        else:
            entry.insert(i, (moment, leaf))
        self.compact(key)

    def compact(self, key: Key) -> None:
        """One moment is a number where it has all rows of the table's leaf."""
        entry = self.moments[key]
        if isinstance(entry, list) and len(entry) == 1 and len(entry[0][1]) == len(self.table.primary[key]):
            self.moments[key] = entry[0][0]

    def before(self, key: Key) -> Leaf | None:
        """The rows of a key that came before the timeline's limit; it does not go back in a transaction, but for all rows."""
        limit, entry = self.timeline.limit, self.moments.get(key)
        if entry is None:
            return None
        if isinstance(entry, int):
            return self.table.primary[key] if entry < limit else None
        if limit > self.timeline.now:
            return self.table.primary[key]
        i, rows = self.so_far.get(key) or _first(entry, bisect_left(entry, (limit,)), self.table.primary[key])
        while i < len(entry) and entry[i][0] < limit:
            rows |= entry[i][1]
            i += 1
        self.so_far[key] = (i, rows)
        return rows

    def younger(self, key: Key, leaf: Leaf, moment: int, until: int) -> Iterator[tuple[int, Leaf]]:
        """The rows of a leaf that came after a moment and not after another one, by the moments they came at."""
        entry = self.moments[key]
        if isinstance(entry, int):
            if moment < entry <= until:
                yield entry, leaf
            return
        for i in range(bisect_left(entry, (moment + 1,)), len(entry)):
            came, rows = entry[i]
            if came > until:
                return
            if part := rows & leaf:
                yield came, part


class EarlierRows:
    """p^earlier: the rows of a view that came before the moment in question and are not deleted.

    They are read by their primary key. Where a rule does not know that, it finds rows of p by p's indexes first, and each is
    tested: such a reader is `lazy`.
    """

    def __init__(self, ages: Ages, gone: Table, *, lazy: bool = False) -> None:
        self.lazy: bool = lazy
        self._ages = ages
        self._table = ages.table
        self._gone = gone

    @property
    def arity(self) -> int:
        """The number of columns of the view."""
        return self._table.arity

    @property
    def primary_columns(self) -> tuple[int, ...]:
        """The columns of the primary index, which are those of the view."""
        return self._table.primary_columns

    def __bool__(self) -> bool:
        return bool(self._table)

    def fanout(self, bound: tuple[int, ...]) -> float:
        """Return the fan-out of the view by its primary columns; by others, no join looks rows up here."""
        return self._table.fanout(bound) if not self.lazy and bound == self.primary_columns else inf

    def items(self) -> Iterator[tuple[Key, Leaf]]:
        """Yield the earlier rows of every key."""
        probe = self.probe()
        for key, leaf in self._table.primary.items():
            if found := probe(key, leaf):
                yield key, found

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """As `Table.lookup`; by other columns than the primary ones, each row that p has is tested."""
        if bound != self.primary_columns:
            return self._filtered(bound)
        before, gone = self._ages.before, self._gone.primary

        def lookup(key: Key) -> Any:
            rows = before(key)
            if rows is not None and key in gone:
                rows = rows - gone[key]
            return rows or None

        return lookup

    def _filtered(self, bound: tuple[int, ...]) -> Lookup:
        found, test, table = self._table.lookup(bound), self.test(), self._table
        free = tuple(i for i in range(table.arity) if i not in bound)

        def lookup(key: Key) -> Any:
            rows = (row for row in whole_rows(bound, key, found(key) or (), table.arity) if test(*table.split(row)))
            if len(free) == 1:
                return BitMap([row[free[0]] for row in rows]) or None
            return {tuple([row[i] for i in free]) for row in rows} or None

        return lookup

    def test(self) -> Callable[[Key, Code], bool]:
        """Return a function from a primary key and a last column to whether that row is there."""
        before, gone = self._ages.before, self._gone.primary

        def test(key: Key, last: Code) -> bool:
            rows = before(key)
            return rows is not None and last in rows and not (key in gone and last in gone[key])

        return test

    def probe(self) -> Probe:
        """As `Table.probe`."""
        before, gone = self._ages.before, self._gone.primary

        def probe(key: Key, leaf: Leaf) -> Leaf | None:
            rows = before(key)
            if rows is None:
                return None
            found = leaf & rows
            if found and key in gone:
                found -= gone[key]
            return found or None

        return probe
