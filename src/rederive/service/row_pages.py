"""Pages of rows in order, at any recorded version, without sorting a large relation for each request.

The rows of a relation are sorted once, as columns of codes. Later and earlier versions are that order with a few rows more and a
few less, which the journal knows: rows(v) = rows(sorted) + d. The k-th row of the sum is found by binary search, so that a page
costs its own rows and the size of d, not that of the relation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, cmp_to_key, partial
from typing import Any, Final

import numpy as np

from rederive.bags import read_rows
from rederive.commit.state import DatabaseState
from rederive.delta import Delta, DeltaSum, copies, multiplicities, sort_rows
from rederive.engines.protocol import CodedExtent
from rederive.errors import Expired, Mismatch, NoStore, UnknownColumn, UnknownRelation
from rederive.ir.rules import Relation
from rederive.ir.terms import Row, Value

MOST_SORTED: Final = 50_000  # rows that are read and sorted for one page where they are not stored as codes: about 0.2 s
MOST_CHANGED: Final = 20_000  # rows by which a page may differ from the sorted rows before they are sorted from scratch
MOST_READ: Final = 20_000_000  # characters of the journal that are read for one page
MOST_FILTERS: Final = 16  # filters whose rows are known, for each sorted relation
MOST_ORDERS: Final = 6  # sorted relations in memory: 4 bytes for each value of each of them
MOST_LEFT: Final = 50  # rows that left, in one answer

Array = Any  # of numpy


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows a page has: `bound` columns have a value, columns in `contains` have a text in it."""

    bound: Mapping[int, Value] = field(default_factory=dict)
    contains: Mapping[int, str] = field(default_factory=dict)

    def accepts(self, row: Row) -> bool:
        """Whether a row passes."""
        return all(row[i] == value for i, value in self.bound.items()) and all(
            _contains(row[i], text) for i, text in self.contains.items()
        )

    def __bool__(self) -> bool:
        return bool(self.bound or self.contains)


def _contains(value: Value, text: str) -> bool:
    return value is not None and text.casefold() in str(value).casefold()


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows of a relation at a version. `total`: how many pass the filter. `is_complete`: whether `total` is all of them.

    `entered`: the version at which a row of the page entered, where that was recently. `left`: rows that left, and when.
    """

    version: int
    total: int
    is_complete: bool
    rows: Sequence[Row]
    entered: Mapping[Row, int] = field(default_factory=dict)
    left: Sequence[tuple[Row, int]] = ()


@dataclass(frozen=True, slots=True)
class RowOrder:
    """By one column, or by all from the first one if it is None; rows that are equal in it are in the order of all columns."""

    column: int | None = None
    is_descending: bool = False

    def compare(self, a: Row, b: Row) -> int:
        """Negative if the first row comes before the second, 0 if they are equal."""
        if self.column is not None and (one := _compare(a[self.column], b[self.column])):
            return -one if self.is_descending else one
        found = next((one for x, y in zip(a, b, strict=True) if (one := _compare(x, y))), 0)
        return -found if self.is_descending and self.column is None else found


def order_by(relation: Relation, text: str | None) -> RowOrder:
    """The order that a request names: a column, with - before it descending."""
    if text is None:
        return RowOrder()
    column, names = text.removeprefix("-"), [column.name for column in relation.columns]
    if column not in names:
        raise UnknownColumn(relation.name, column, names)
    return RowOrder(names.index(column), text.startswith("-"))


def _compare(a: Value, b: Value) -> int:
    # NULL comes first, as in Spark.
    if a is None or b is None:
        return (a is not None) - (b is not None)
    return (a > b) - (a < b)  # type: ignore[operator]


class SortedRows:
    """All rows of a relation at one version, in one order, as columns of codes.

    `changed_to`: the version up to which `delta` knows what changed since.
    """

    def __init__(self, version: int, extent: CodedExtent, order: RowOrder) -> None:
        self.version = self.changed_to = version
        self.order = order
        self._values = extent.values
        self._distinct = [_distinct(column) for column in extent.columns]
        ranks = [_ranks(codes, values) for codes, values in zip(self._distinct, extent.values, strict=True)]
        ranked = [rank[column] for rank, column in zip(ranks, extent.columns, strict=True)]
        self._packing = _Packing.of(ranks, order)
        if self._packing is not None:
            packed = self._packing.pack(ranked)
            places = np.argsort(packed, kind="stable")
            self._packed = packed[places]
        else:
            places = np.lexsort(_by_order(ranked, order)[::-1])
        self._columns = [column[places] for column in extent.columns]
        self._ranks = ranks
        self._selected: OrderedDict[RowFilter, Array] = OrderedDict()
        self._changed = DeltaSum()
        self._difference: tuple[int, ChangedRows] | None = None

    def __len__(self) -> int:
        return len(self._columns[0])

    def row(self, i: int) -> Row:
        """The row at a position."""
        return tuple([values[column[i]] for column, values in zip(self._columns, self._values, strict=True)])

    def positions(self, rows: Sequence[Row]) -> list[int]:
        """Where rows are, or would be inserted: by their ranks where all their values occur, else by comparing rows."""
        ranked = {i: ranks for i, row in enumerate(rows) if (ranks := self._rank_row(row)) is not None}
        found = [-1] * len(rows)
        if ranked and self._packing is not None:
            columns = list(np.array(list(ranked.values()), np.uint64).T)
            places: Array = np.searchsorted(self._packed, self._packing.pack(columns))
            for i, place in zip(ranked, places.tolist(), strict=True):
                found[i] = place
        return [self._search(row) if place < 0 else place for row, place in zip(rows, found, strict=True)]

    @cached_property
    def _codes(self) -> list[dict[Value, int]]:
        """The codes of the values that occur, by column."""
        return [
            {values[code]: code for code in codes.tolist()} for codes, values in zip(self._distinct, self._values, strict=True)
        ]

    def _rank_row(self, row: Row) -> tuple[int, ...] | None:
        codes = [code for known, value in zip(self._codes, row, strict=True) if (code := known.get(value)) is not None]
        if len(codes) < len(row):
            return None
        return tuple([int(rank[code]) for rank, code in zip(self._ranks, codes, strict=True)])

    def _search(self, row: Row) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.order.compare(self.row(middle), row) < 0:
                low = middle + 1
            else:
                high = middle
        return low

    def selected(self, wanted: RowFilter) -> Array | None:
        """The positions of the rows that pass a filter; None for all. Each value of a column is tested once."""
        if not wanted:
            return None
        key = RowFilter(_Items(wanted.bound), _Items(wanted.contains))
        if key not in self._selected:
            mask = np.ones(len(self), np.bool_)
            for i, value in wanted.bound.items():
                code = self._codes[i].get(value)
                mask &= self._columns[i] == code if code is not None else np.False_
            for i, text in wanted.contains.items():
                mask &= self._where(i, partial(_contains, text=text))
            self._selected[key] = np.flatnonzero(mask)
            if len(self._selected) > MOST_FILTERS:
                self._selected.popitem(last=False)
        return self._selected[key]

    def _where(self, i: int, holds: Callable[[Value], bool]) -> Array:
        codes = self._distinct[i]
        is_wanted = np.zeros(int(codes[-1]) + 1 if len(codes) else 1, np.bool_)
        is_wanted[[code for code in codes.tolist() if holds(self._values[i][code])]] = True
        return is_wanted[self._columns[i]]

    def at(self, state: DatabaseState, relation: Relation, version: int) -> ChangedRows | None:
        """The rows at another version, later or earlier; None where that is unknown, or differs in too many rows."""
        if self._difference is not None and self._difference[0] == version:
            return self._difference[1]
        try:
            if version < self.changed_to:
                total = DeltaSum()
                for _, delta in recorded_deltas(state, relation, min(self.version, version), max(self.version, version)):
                    total.add(delta)
                delta = total.delta() if version > self.version else total.delta().invert()
            else:
                for _, one in recorded_deltas(state, relation, self.changed_to, version):
                    self._changed.add(one)
                self.changed_to = version
                delta = self._changed.delta()
        except (Expired, Mismatch, NoStore, UnknownRelation):
            return None
        if len(delta.plus) + len(delta.minus) > MOST_CHANGED:
            return None
        self._difference = (version, ChangedRows(self, delta))
        return self._difference[1]


class _Items(dict[Any, Any]):
    """A dictionary that is a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def _distinct(column: Array) -> Array:
    if not len(column):
        return column
    there = np.zeros(int(column.max()) + 1, np.bool_)
    there[column] = True
    return np.flatnonzero(there)


def _ranks(codes: Array, values: Sequence[Value]) -> Array:
    """By code, the place of its value among the values that occur."""
    ordered = sorted(codes.tolist(), key=lambda code: (values[code] is not None, values[code]))
    rank = np.zeros(int(codes[-1]) + 1 if len(codes) else 1, np.uint64)
    rank[ordered] = np.arange(len(ordered), dtype=np.uint64)
    return rank


def _by_order(ranked: Sequence[Array], order: RowOrder) -> list[Array]:
    """The columns of ranks to sort by, the first one first."""
    if order.column is None:
        return list(ranked)
    first = ranked[order.column]
    return [first.max() - first if order.is_descending and len(first) else first, *ranked]


@dataclass(frozen=True, slots=True)
class _Packing:
    """How the ranks of a row become one number by which rows are sorted; `sizes`: how many values each column has."""

    sizes: tuple[int, ...]
    order: RowOrder

    @classmethod
    def of(cls, ranks: Sequence[Array], order: RowOrder) -> _Packing | None:
        """None where the numbers would have more than 64 bits."""
        sizes = tuple(int(rank.max()) + 1 for rank in ranks)
        total = sizes[order.column] if order.column is not None else 1
        for size in sizes:
            total *= size
        return cls(sizes, order) if total < 2**64 else None

    def pack(self, ranked: Sequence[Array]) -> Array:
        """The numbers of rows, whose ranks are given by column."""
        column = self.order.column
        packed = np.zeros(len(ranked[0]), np.uint64)
        if column is not None:
            first = ranked[column]
            packed += np.uint64(self.sizes[column] - 1) - first if self.order.is_descending else first
        for rank, size in zip(ranked, self.sizes, strict=True):
            packed *= np.uint64(size)
            packed += rank
        return packed


class ChangedRows:
    """Sorted rows with a delta: read as if the sum were sorted."""

    def __init__(self, base: SortedRows, delta: Delta) -> None:
        self.base = base
        came = sorted(copies(delta.plus), key=cmp_to_key(base.order.compare))
        self._came = list(zip(base.positions(came), came, strict=True))
        leaving = multiplicities(delta.minus)
        # The copies of a row of a bag are next to one another.
        gone = zip(base.positions(list(leaving)), leaving.values(), strict=True)
        self._gone = sorted(first + i for first, count in gone for i in range(count))

    def page(self, wanted: RowFilter, offset: int, limit: int) -> tuple[int, list[Row]]:
        """How many rows pass the filter, and some of them."""
        selected = self.base.selected(wanted)
        came = [(i, row) for i, row in self._came if wanted.accepts(row)]
        gone, size = self._gone, len(self.base)
        if selected is not None:
            # From here on positions are those among the selected rows.
            size = len(selected)
            came = [(int(np.searchsorted(selected, i)), row) for i, row in came]
            places = [(int(np.searchsorted(selected, i)), i) for i in gone]
            gone = [place for place, i in places if place < size and selected[place] == i]
        return size - len(gone) + len(came), list(self._rows(selected, size, came, gone, offset, limit))

    def _rows(
        self, selected: Array | None, size: int, came: list[tuple[int, Row]], gone: list[int], offset: int, limit: int
    ) -> Iterator[Row]:
        starts = [i for i, _ in came]

        def before(i: int) -> int:
            """How many rows of the sum come before position i of the sorted rows, and before what was inserted there."""
            return i - bisect_left(gone, i) + bisect_left(starts, i)

        low, high = 0, size
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if before(middle) <= offset else (low, middle - 1)
        skipped, i, at = offset - before(low), low, bisect_left(starts, low)
        while limit > 0 and (i < size or at < len(came)):
            if at < len(came) and starts[at] <= i:
                row, at = came[at][1], at + 1
            else:
                place, i = i, i + 1
                if bisect_right(gone, place) > bisect_left(gone, place):
                    continue
                row = self.base.row(place if selected is None else int(selected[place]))
            if skipped > 0:
                skipped -= 1
                continue
            limit -= 1
            yield row


class RowPages:
    """The sorted relations of one service, and the pages of them. All of it runs in the writer's thread but the sorting."""

    def __init__(self) -> None:
        self._sorted: OrderedDict[tuple[Relation, RowOrder], SortedRows] = OrderedDict()

    def extent_to_sort(self, state: DatabaseState, relation: Relation, order: RowOrder) -> tuple[int, CodedExtent] | None:
        """The rows to sort for pages in this order; None where they are sorted already, or not stored as codes."""
        known = self._sorted.get((relation, order))
        if known is not None and known.at(state, relation, state.version) is not None:
            return None
        program = state.program
        numbered, counting = program.numbered_copies(relation.name), program.counting_relation(relation.name)
        extent = state.engine.coded_rows(numbered or counting) if state.parked is None else None
        if extent is None:
            return None
        arity = relation.arity
        if numbered is None and counting != relation.name:
            counts = np.array([extent.values[-1][code] for code in extent.columns[-1].tolist()], np.int64)
            extent = CodedExtent(tuple(np.repeat(column, counts) for column in extent.columns), extent.values)
        return state.version, CodedExtent(extent.columns[:arity], extent.values[:arity])

    def keep(self, relation: Relation, sorted_rows: SortedRows) -> None:
        """Keep sorted rows for later pages; of too many, the one that was used longest ago goes."""
        key = (relation, sorted_rows.order)
        self._sorted[key] = sorted_rows
        self._sorted.move_to_end(key)
        while len(self._sorted) > MOST_ORDERS:
            self._sorted.popitem(last=False)

    def page(
        self,
        state: DatabaseState,
        relation: Relation,
        order: RowOrder,
        wanted: RowFilter,
        offset: int,
        limit: int,
        *,
        version: int | None = None,
        since: int | None = None,
    ) -> RowPage:
        """A page at a version, by default the present one; with what changed after `since`."""
        at = state.version if version is None else version
        known = self._sorted.get((relation, order))
        difference = known.at(state, relation, at) if known is not None else None
        if difference is not None:
            self._sorted.move_to_end((relation, order))
            total, rows = difference.page(wanted, offset, limit)
            is_complete = True
        else:
            total, is_complete, rows = _read_page(state, relation, order, wanted, offset, limit, at)
        entered, left = _recent(state, relation, since, at, wanted) if since is not None and since < at else ({}, [])
        return RowPage(at, total, is_complete, rows, {row: entered[row] for row in rows if row in entered}, left)


def _read_page(
    state: DatabaseState, relation: Relation, order: RowOrder, wanted: RowFilter, offset: int, limit: int, at: int
) -> tuple[int, bool, list[Row]]:
    """A page of rows that are not stored as codes: some are read and sorted. An earlier version is read whole, or refused."""
    name = relation.name
    if at != state.version:
        if state.engine.size(state.program.counting_relation(name)) > MOST_SORTED:
            raise Expired(f"'{name}' is too large to be shown at version {at}")
        rows = Counter(read_rows(state.program, name, {}, state.engine))
        for _, delta in reversed(recorded_deltas(state, relation, at, state.version)):
            delta.invert().apply(rows)
        found = [row for row in rows.elements() if wanted.accepts(row)]
        is_complete = True
    else:
        with state.budget():
            found = read_rows(state.program, name, wanted.bound, state.engine, MOST_SORTED + 1)
        is_complete = len(found) <= MOST_SORTED
        found = [row for row in found[:MOST_SORTED] if wanted.accepts(row)]
    total = len(found)
    if not is_complete and not wanted:
        total = state.engine.size(state.program.numbered_copies(name) or name)
    ordered = sort_rows(found) if order == RowOrder() else sorted(found, key=cmp_to_key(order.compare))
    return total, is_complete, ordered[offset : offset + limit]


def recorded_deltas(state: DatabaseState, relation: Relation, after: int, until: int) -> list[tuple[int, Delta]]:
    """What the versions after one and up to another did to a relation, as the journal has it; raises `Expired` otherwise.

    Raises `Mismatch` for a view that is not monitored.
    """
    journal = state.durable("reading past changes").journal
    kind, name = _recorded_as(state, relation)
    if relation.location is not None:
        raise Expired(f"the changes of '{relation.name}' are recorded in its own table", hint="read the commits of the table")
    if journal.delta_bytes(kind, name, after, until) > MOST_READ:
        raise Expired(f"'{relation.name}' changed too much between versions {after} and {until} to be shown")
    found = []
    for version, recorded in journal.deltas(kind, name, after, until):
        types = [column.type for column in recorded.relation.columns]
        if types[: relation.arity] != list(relation.types):
            raise Expired(f"'{relation.name}' had other columns at version {version}")
        delta = recorded.delta
        if len(types) > relation.arity:  # numbered copies of the rows of a bag
            delta = Delta(_counted(delta.plus), _counted(delta.minus))
        found.append((version, delta))
    return found


def _counted(numbered: Any) -> dict[Row, int]:
    found: dict[Row, int] = {}
    for row in numbered:
        found[row[:-1]] = found.get(row[:-1], 0) + 1
    return found


def _recorded_as(state: DatabaseState, relation: Relation) -> tuple[str, str]:
    """The kind and the name under which the journal records what happens to a relation."""
    numbered = state.program.numbered_copies(relation.name)
    is_base = numbered is not None or not state.program.is_view(relation.name)
    return ("base", numbered or relation.name) if is_base else ("view", relation.name)


def _recent(
    state: DatabaseState, relation: Relation, since: int, at: int, wanted: RowFilter
) -> tuple[dict[Row, int], list[tuple[Row, int]]]:
    """The rows that entered after a version and are still there, and the first of those that left, each with its version."""
    entered: dict[Row, int] = {}
    left: dict[Row, int] = {}
    try:
        for version, delta in recorded_deltas(state, relation, since, at):
            for row in filter(wanted.accepts, delta.minus):
                if entered.pop(row, None) is None:
                    left[row] = version
            for row in filter(wanted.accepts, delta.plus):
                if left.pop(row, None) is None:
                    entered[row] = version
    except (Expired, Mismatch, NoStore, UnknownRelation):
        return {}, []
    newest = sorted(left.items(), key=lambda item: -item[1])
    return entered, newest[:MOST_LEFT]
