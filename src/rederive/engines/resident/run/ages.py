"""When each row of a stored recursion was derived: a row has a derivation from rows that are all older than it.

A leaf that a fixpoint takes in is one moment. The rows under a key are stored with the moment they came at: one number where they
came together, else a list of leaves in the order of their moments. Rows that a transaction deletes and puts back are as young as
rows that it inserts. Rows that keep a derivation from younger rows alone move to a later moment, which may be that of others:
rows of one moment do not derive one another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from typing import Any, TypeAlias

from pyroaring import BitMap

from rederive.engines.resident.storage.codes import Code
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Probe, Table, whole_rows

Moments: TypeAlias = int | list[tuple[int, Leaf]]
Arrival: TypeAlias = tuple["Ages", Key, Leaf]
NOTHING = BitMap()
FEW_ARRIVALS = 1024  # a shorter list is not worth making again
DUE = 64.0


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
                ages.arrivals.clear()
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
            ages.arrivals.add(self.now, key)
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
            ages.tidy()


def _first(entry: list[tuple[int, Leaf]], moments: int, whole: Leaf) -> tuple[int, Leaf]:
    """The rows of so many first moments of a key, by the fewer unions or differences."""
    if 2 * moments < len(entry):
        return moments, BitMap.union(BitMap(), *(rows for _, rows in entry[:moments]))
    return moments, BitMap.difference(whole, *(rows for _, rows in entry[moments:]))


class Arrivals:
    """Under which keys of a view rows came, in the order of their moments; some of these rows may have left since."""

    __slots__ = ("keys", "moments", "most")

    def __init__(self) -> None:
        self.moments: list[int] = []
        self.keys: list[Key] = []
        self.most = FEW_ARRIVALS

    def add(self, moment: int, key: Key) -> None:
        """Note an arrival, which need not be the last one."""
        if self.moments and moment < self.moments[-1]:
            i = bisect_left(self.moments, moment)
            self.moments.insert(i, moment)
            self.keys.insert(i, key)
        else:
            self.moments.append(moment)
            self.keys.append(key)

    def clear(self) -> None:
        """Forget all of them."""
        self.replace([])

    def replace(self, arrivals: Sequence[tuple[int, Key]]) -> None:
        """These are all."""
        self.moments, self.keys = [moment for moment, _ in arrivals], [key for _, key in arrivals]
        self.most = max(FEW_ARRIVALS, 2 * len(arrivals))

    def is_long(self) -> bool:
        """Whether as many were added as there were."""
        return len(self.moments) > self.most

    def between(self, moment: int, until: int) -> list[Key]:
        """The keys of rows that came after a moment and not after another one."""
        return self.keys[bisect_right(self.moments, moment) : bisect_right(self.moments, until)]


class DueKeys:
    """p^due: the primary keys, one column, of rows that may have to be looked at, as a relation that rules read."""

    lazy = False
    arity = 1
    primary_columns: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.keys: Leaf = NOTHING

    def __bool__(self) -> bool:
        return bool(self.keys)

    def fanout(self, bound: tuple[int, ...]) -> float:
        """Return a guess: a window of moments has some dozen keys."""
        return 1.0 if bound else DUE

    def items(self) -> Iterator[tuple[Key, Leaf]]:
        """Yield all keys as one leaf."""
        yield (), self.keys

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """As `Table.lookup`, for all keys at once."""
        assert not bound
        return lambda _: self.keys or None

    def probe(self) -> Probe:
        """As `Table.probe`."""
        return lambda _, leaf: leaf & self.keys or None


class Ages:
    """The moments of one view's rows."""

    __slots__ = ("arrivals", "moments", "so_far", "table", "timeline")

    def __init__(self, table: Table, timeline: Timeline) -> None:
        self.table = table
        self.timeline = timeline
        self.moments: dict[Key, Moments] = {}
        # In a transaction: up to which limit nothing more of a key came, its rows by then, and how many moments these are.
        self.so_far: dict[Key, tuple[int, Leaf, int]] = {}
        self.arrivals = Arrivals()
        timeline.ages.append(self)

    def record(self, key: Key, leaf: Leaf) -> None:
        """Note rows of a first evaluation, before the table takes them in."""
        self.timeline.now += 1
        self.arrivals.add(self.timeline.now, key)
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
            self.arrivals.add(moment, key)
        self.compact(key)

    def compact(self, key: Key) -> None:
        """One moment is a number where it has all rows of the table's leaf."""
        entry = self.moments[key]
        if isinstance(entry, list) and len(entry) == 1 and len(entry[0][1]) == len(self.table.primary[key]):
            self.moments[key] = entry[0][0]

    def restore(self, moments: Mapping[Key, Moments]) -> None:
        """Continue with stored moments."""
        self.moments.update(moments)
        self._list_arrivals()

    def tidy(self) -> None:
        """List the arrivals from scratch where most of them are of rows that have left or moved since."""
        if self.arrivals.is_long():
            self._list_arrivals()

    def _list_arrivals(self) -> None:
        parts = ((key, [entry] if isinstance(entry, int) else [at for at, _ in entry]) for key, entry in self.moments.items())
        self.arrivals.replace(sorted(((at, key) for key, ats in parts for at in ats), key=itemgetter(0)))

    def before(self, key: Key) -> Leaf | None:
        """The rows of a key that came before the timeline's limit; it does not go back in a transaction, but for all rows."""
        limit = self.timeline.limit
        if limit > self.timeline.now:
            return self.table.primary.get(key)
        known = self.so_far.get(key)
        if known is not None and limit <= known[0]:
            return known[1]
        entry = self.moments.get(key)
        if entry is None:
            return None
        if isinstance(entry, int):
            return self.table.primary[key] if entry < limit else None
        if known is None:
            i, rows = _first(entry, bisect_left(entry, (limit,)), self.table.primary[key])
        else:
            _, rows, i = known
        while i < len(entry) and entry[i][0] < limit:
            rows |= entry[i][1]
            i += 1
        self.so_far[key] = (entry[i][0] if i < len(entry) else self.timeline.now, rows, i)
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
        return next(self.items(), None) is not None

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
