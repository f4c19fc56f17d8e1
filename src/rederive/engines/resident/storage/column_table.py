"""Wide base relations: one array of codes for each column, by row number.

A row that leaves is marked as dead; when many are, their numbers become free, and are used again. The rows are found through
indexes of row numbers; the first one, on the key of the relation or on all columns without one, tells whether a row is there. A
look-up whose columns include the key goes through that index, whatever else it binds.

To compiled rules it looks like a `Table`: look-ups give bitmaps and sets of tuples, made for each look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from pyroaring import BitMap

from rederive.delta import LazyRows
from rederive.engines.resident.storage.codes import Code, CodedRow, Codes
from rederive.engines.resident.storage.row_index import Array, RowIndex, all_differ, pack, pack_one
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Probe, Table, rows_of
from rederive.ir.rules import Relation
from rederive.ir.terms import Row

CodeColumns = tuple[Array, ...]
"""Equally long arrays of codes, one for each column."""

Finder: TypeAlias = Callable[[CodedRow], list[int]]
"""From the codes of some columns to row numbers, in a list that belongs to the table."""

_ROOM: Final = 1024  # rows that a new table has room for
_MANY: Final = 64  # rows from which on arrays are cheaper than single entries
_FEW: Final = 16  # rows up to which they are read one by one
_ASKED: Final = 4096  # keys that a finder remembers, at most


def is_wide(relation: Relation) -> bool:
    """Whether a base relation is stored by column: it measures something besides what identifies its rows."""
    return relation.arity >= 4 or (relation.arity == 3 and 0 < len(relation.key) < 3)


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumns(LazyRows):
    """Distinct rows as columns of codes; decoded when they are read."""

    relation: Relation
    columns: CodeColumns
    codes: Codes

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Row]:
        return iter(self.codes.decode_columns(self.relation.types, self.columns))


class ColumnTable:
    """The rows of a wide base relation."""

    __slots__ = (
        "_alive",
        "_asked",
        "_dead",
        "_finders",
        "_free",
        "_indexes",
        "_key",
        "_measured",
        "_rows",
        "_size",
        "arity",
        "caches",
        "columns",
        "name",
        "primary_columns",
    )
    lazy = False

    def __init__(self, name: str, arity: int, key: Sequence[int] = ()) -> None:
        self.name = name
        self.arity = arity
        self.primary_columns = tuple(range(arity - 1))
        self.columns = [np.zeros(_ROOM, np.uint32) for _ in range(arity)]
        self.caches: list[dict[Key, Any]] = []
        self._size = 0  # row numbers that have been used
        self._rows = 0
        self._alive: Array = np.zeros(_ROOM, np.bool_)
        self._dead = 0  # row numbers that indexes may still know
        self._free: list[int] = []  # row numbers that no index knows
        self._indexes: dict[tuple[int, ...], RowIndex] = {}
        self._finders: dict[tuple[int, ...], Finder] = {}
        self._asked: list[dict[CodedRow, list[int]]] = []  # what the finders remember, until the table changes
        self._key: tuple[int, ...] = ()
        self._measured: tuple[int, ...] = ()  # the columns beyond the key, if no index reads any of them
        self.use_key(key)

    def __bool__(self) -> bool:
        return self._rows > 0

    def __len__(self) -> int:
        return self._rows

    # Indexes

    def use_key(self, key: Sequence[int]) -> None:
        """Find rows through the index on these columns; on all of them where there is no key."""
        before, self._key = self._key, tuple(sorted(key)) or tuple(range(self.arity))
        if before != self._key:
            # What was unique need not be so any more, and what was not may be.
            self._indexes.pop(before, None)
            self._indexes.pop(self._key, None)
            self._finders.clear()
            self._asked.clear()
        self.index(self._key)
        self._find_measured()

    def index(self, columns: tuple[int, ...]) -> RowIndex:
        """The index on these columns, built when it is first used."""
        found = self._indexes.get(columns)
        if found is None:
            rows = self.row_numbers()
            keys = pack([self.columns[i][rows] for i in columns])
            found = self._indexes[columns] = RowIndex(columns, keys, rows, is_unique=columns == self._key)
            self._find_measured()
        return found

    def _find_measured(self) -> None:
        is_indexed = any(not set(columns) <= set(self._key) for columns in self._indexes)
        self._measured = () if is_indexed else tuple(i for i in range(self.arity) if i not in self._key)

    def _index_for(self, bound: tuple[int, ...]) -> RowIndex:
        """The index that serves a look-up by these columns."""
        return self.index(self._key if set(self._key) <= set(bound) else bound)

    def row_numbers(self) -> Array:
        """The numbers of all rows, in the order of `scan`."""
        if self._rows == self._size:
            return np.arange(self._size, dtype=np.int32)
        return np.flatnonzero(self._alive[: self._size]).astype(np.int32)

    def find_many(self, bound: tuple[int, ...], keys: Sequence[Array]) -> tuple[Array, Array]:
        """The positions in the keys' columns and the row numbers of all rows that match them."""
        index = self._index_for(bound)
        by_column = dict(zip(bound, keys, strict=True))
        positions, rows = index.find_many(pack([by_column[i] for i in index.columns]))
        if self._dead and not (there := self._alive[rows]).all():
            positions, rows = positions[there], rows[there]
        # What the index does not compare exactly, or not at all, is compared here.
        for i in bound if len(index.columns) > 2 else [i for i in bound if i not in index.columns]:
            if not (same := self.columns[i][rows] == by_column[i][positions]).all():
                positions, rows = positions[same], rows[same]
        return positions, rows

    def finder(self, bound: tuple[int, ...]) -> Finder:
        """A function from the codes of the bound columns to row numbers; it remembers what it found until the table changes."""
        if bound not in self._finders:
            self._finders[bound] = self._new_finder(bound)
        return self._finders[bound]

    def _new_finder(self, bound: tuple[int, ...]) -> Finder:
        index = self._index_for(bound)
        parts = [bound.index(i) for i in index.columns]
        is_key = parts == list(range(len(bound)))
        compared = [(n, i) for n, i in enumerate(bound) if len(index.columns) > 2 or i not in index.columns]
        columns, find = self.columns, index.find
        # The rules of a transaction and its commit look for the same few keys several times.
        asked: dict[CodedRow, list[int]] = {}
        self._asked.append(asked)

        def rows(codes: CodedRow) -> list[int]:
            found = asked.get(codes)
            if found is None:
                if len(asked) >= _ASKED:
                    asked.clear()
                found = find(pack_one(codes if is_key else [codes[n] for n in parts]))
                if self._dead and found:
                    found = [row for row in found if self._alive.item(row)]
                if found:
                    for n, i in compared:
                        # Most often there is one row, and it is the right one.
                        if len(found) > 1 or columns[i].item(found[0]) != codes[n]:
                            found = [row for row in found if columns[i].item(row) == codes[n]]
                            if not found:
                                break
                asked[codes] = found
            return found

        return rows

    # What rules read

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """A function from a key of the bound columns to the rest of the matching rows, or None without a match."""
        if not bound:
            return lambda key: self._entry(self.row_numbers(), range(self.arity))
        find, free = self.finder(bound), [i for i in range(self.arity) if i not in bound]
        single = len(bound) == 1

        def lookup(key: Any) -> Any:
            rows = find((key,) if single else key)
            return self._entry(rows, free) if rows else None

        return lookup

    def _entry(self, rows: Any, free: Sequence[int]) -> BitMap | set[CodedRow] | None:
        if not len(rows):
            return None
        columns = [self.columns[i] for i in free]
        if len(rows) == 1 == len(free):
            return BitMap((columns[0].item(rows[0]),))
        few = isinstance(rows, list) and len(rows) <= _FEW
        taken = [[column.item(row) for row in rows] if few else column[rows].tolist() for column in columns]
        return BitMap(taken[0]) if len(free) == 1 else set(zip(*taken, strict=True))

    def probe(self) -> Probe:
        """A function from a primary key and a leaf to the part of the leaf that is there, or None."""
        find, single = self.finder(tuple(range(self.arity))), self.arity == 2

        def probe(key: Any, leaf: Leaf) -> Leaf | None:
            first = (key,) if single else key
            return BitMap([last for last in leaf if find((*first, last))]) or None

        return probe

    def items(self) -> Iterator[tuple[Key, Leaf]]:
        """Yield all rows as entries of a primary index, each with a leaf of its own."""
        found: dict[Key, list[Code]] = {}
        *first, last = (column.tolist() for column in self.scan())
        keys: Iterable[Key] = first[0] if len(first) == 1 else zip(*first, strict=True)
        for key, code in zip(keys, last, strict=True):
            found.setdefault(key, []).append(code)
        return ((key, BitMap(codes)) for key, codes in found.items())

    def fanout(self, bound: tuple[int, ...]) -> float:
        """About how many rows match a key of these columns."""
        rows = max(self._rows, 1)
        if set(self._key) <= set(bound):
            return 1.0
        if bound in self._indexes:
            return rows / max(self._indexes[bound].distinct, 1)
        return float(rows ** (1 - len(bound) / self.arity))

    def scan(self) -> CodeColumns:
        """All rows."""
        if self._rows == self._size:
            return tuple(column[: self._size] for column in self.columns)
        rows = self.row_numbers()
        return tuple(column[rows] for column in self.columns)

    def __contains__(self, row: CodedRow) -> bool:
        return bool(self.finder(tuple(range(self.arity)))(row))

    def matching(self, codes: Mapping[int, Code]) -> Iterator[CodedRow]:
        """The rows whose columns have these codes: by an index on some of them where there is one, else by a search."""
        usable = [bound for bound in self._indexes if all(i in codes for i in bound)]
        if usable:
            bound = max(usable, key=len)
            rows: Any = np.array(self.finder(bound)(tuple([codes[i] for i in bound])), np.int64)
        else:
            rows = self.row_numbers()
        for i, code in codes.items():
            rows = rows[self.columns[i][rows] == code]
        return zip(*(column[rows].tolist() for column in self.columns), strict=True)

    # What changes it

    def add_columns(self, added: CodeColumns) -> Array:
        """Take in rows that are not there yet; returns their numbers."""
        rows: Array
        if len(added[0]) < _MANY:
            rows = np.array([self._add(row) for row in zip(*(column.tolist() for column in added), strict=True)], np.int64)
        else:
            rows = self._take_numbers(len(added[0]))
            for column, codes in zip(self.columns, added, strict=True):
                column[rows] = codes
            for index in self._indexes.values():
                index.add_many(pack([added[i] for i in index.columns]), rows)
        self._clear_caches()
        return rows

    def remove_columns(self, removed: CodeColumns) -> None:
        """Take out rows that are there."""
        if len(removed[0]) < _MANY:
            self._remove_rows(zip(*(column.tolist() for column in removed), strict=True))
        else:
            self._bury(self.find_many(tuple(range(self.arity)), removed)[1])
        self._clear_caches()

    def _remove_rows(self, rows: Iterable[CodedRow]) -> None:
        find = self.finder(tuple(range(self.arity)))
        for row in rows:
            self._remove(find(row)[0])

    def add_row(self, row: CodedRow) -> int:
        """Take in one row that is not there yet; returns its number."""
        number = self._add(row)
        self._clear_caches()
        return number

    def remove_row(self, number: int) -> None:
        """Take out the row of this number."""
        self._remove(number)
        self._clear_caches()

    @property
    def room(self) -> int:
        """More than the largest row number."""
        return len(self.columns[0])

    def _add(self, row: CodedRow) -> int:
        if self._free:
            number = self._free.pop()
        else:
            self._make_room(1)
            number = self._size
            self._size += 1
        for column, code in zip(self.columns, row, strict=True):
            column[number] = code
        for columns, index in self._indexes.items():
            index.add(pack_one([row[i] for i in columns]), number)
        self._alive[number] = True
        self._rows += 1
        return number

    def _remove(self, number: int) -> None:
        self._alive[number] = False
        self._rows -= 1
        self._dead += 1
        self._free_numbers()

    def _bury(self, rows: Array) -> None:
        self._alive[rows] = False
        self._rows -= len(rows)
        self._dead += len(rows)
        self._free_numbers()

    def _free_numbers(self) -> None:
        """Have the indexes forget what is dead, once that is a quarter of all."""
        if self._dead > max(_ROOM, self._size // 4):
            for index in self._indexes.values():
                index.drop_dead(self._alive)
            self._free = np.flatnonzero(~self._alive[: self._size]).tolist()
            self._dead = 0

    def _take_numbers(self, count: int) -> Array:
        used = self._free[:count]
        del self._free[:count]
        self._make_room(count - len(used))
        new = np.arange(self._size, self._size + count - len(used), dtype=np.int32)
        self._size += len(new)
        self._rows += count
        rows = np.concatenate([np.array(used, np.int32), new]) if used else new
        self._alive[rows] = True
        return rows

    def _make_room(self, more: int) -> None:
        need = self._size + more
        if need > len(self.columns[0]):
            # A quarter more than needed: growing copies each code a few times at most, whatever the final size.
            room = need + need // 4 if self._size else need
            for i, column in enumerate(self.columns):
                self.columns[i] = _grown(column, room, self._size)
            self._alive = _grown(self._alive, room, self._size)

    def _clear_caches(self) -> None:
        for caches in (self.caches, self._asked):
            for cache in caches:
                if cache:
                    cache.clear()

    def add_all(self, other: Table) -> None:
        """Add the rows of another table, none of which is here."""
        if _has_few(other):
            for row in rows_of(other.primary, self.arity):
                self._add(row)
            self._clear_caches()
            return
        for columns in table_columns(other):
            self.add_columns(columns)

    def remove_all(self, other: Table) -> None:
        """Remove the rows of another table, all of which are here."""
        if _has_few(other):
            self._remove_rows(rows_of(other.primary, self.arity))
            self._clear_caches()
            return
        for columns in table_columns(other):
            self.remove_columns(columns)

    def apply(self, gone: Table, came: Table) -> None:
        """Take out rows that are there, then take in others."""
        if gone and came and self._measured:
            if _has_few(gone) and _has_few(came):
                self._replace_rows(rows_of(gone.primary, self.arity), rows_of(came.primary, self.arity))
            else:
                self._replace(_all_columns(gone), _all_columns(came))
            return
        if gone:
            self.remove_all(gone)
        if came:
            self.add_all(came)

    def _replace_rows(self, gone: Iterable[CodedRow], came: Iterable[CodedRow]) -> None:
        """The same row by row, where a row whose key leaves and enters stays in its place, and no index changes."""
        find, key = self.finder(self._key), self._key
        leaving = {codes: find(codes)[0] for codes in [tuple([row[i] for i in key]) for row in gone]}
        for row in came:
            number = leaving.pop(tuple([row[i] for i in key]), None)
            if number is None:
                self._add(row)
            else:
                for i in self._measured:
                    self.columns[i][number] = row[i]
        for number in leaving.values():
            self._remove(number)
        self._clear_caches()

    def _replace(self, gone: CodeColumns, came: CodeColumns) -> None:
        """The same by column."""
        positions, rows = self.find_many(self._key, [came[i] for i in self._key])
        _, leaving = self.find_many(self._key, [gone[i] for i in self._key])
        for i in self._measured:
            self.columns[i][rows] = came[i][positions]
        if len(rows) < len(leaving):
            self._alive[rows] = False
            leaving = leaving[self._alive[leaving]]
            self._alive[rows] = True
            self._bury(leaving)
        if len(positions) < len(came[0]):
            new = np.ones(len(came[0]), np.bool_)
            new[positions] = False
            self.add_columns(tuple(column[new] for column in came))
        self._clear_caches()

    def load(self, rows: Iterable[CodedRow]) -> CodeColumns:
        """Take in many rows at once; those already there are skipped. Returns what was added."""
        return self.load_columns(as_columns(rows, self.arity))

    def load_columns(self, columns: CodeColumns) -> CodeColumns:
        """Take in many rows at once; those already there are skipped. Returns what was added."""
        new = self.without_stored(distinct(columns, self._key))
        if len(new[0]):
            keys = [new[i] for i in self._key]
            # Two rows may share a key here, until the keys are checked and the rows refused.
            if len(self.find_many(self._key, keys)[0]) or not all_differ(pack(keys)):
                self._indexes[self._key].use_runs()
            self.add_columns(new)
        return new

    def unload(self, added: CodeColumns) -> None:
        """Take out again what `load` added."""
        if len(added[0]):
            self.remove_columns(added)

    def holds(self, columns: CodeColumns) -> Array:
        """Which of these rows are there."""
        there = np.zeros(len(columns[0]), np.bool_)
        if self._rows:
            there[self.find_many(tuple(range(self.arity)), columns)[0]] = True
        return there

    def without_stored(self, columns: CodeColumns) -> CodeColumns:
        """The rows that are not there."""
        there = self.holds(columns)
        return tuple(column[~there] for column in columns) if there.any() else columns

    @property
    def nbytes(self) -> int:
        """The bytes of columns and indexes."""
        return (
            sum(column.nbytes for column in self.columns)
            + sum(index.nbytes for index in self._indexes.values())
            + self._alive.nbytes
            + 40 * len(self._free)
        )

    def duplicate(self, key: Sequence[int]) -> tuple[CodedRow, CodedRow] | None:
        """Two rows that share a key, if there are any."""
        columns = self.scan()
        chosen = [columns[i] for i in key]
        if all_differ(pack(chosen)):
            return None
        order = np.lexsort(chosen[::-1])
        same = np.ones(max(len(order) - 1, 0), np.bool_)
        for column in chosen:
            same &= column[order[1:]] == column[order[:-1]]
        found = np.flatnonzero(same)
        if not len(found):
            return None
        one, two = (tuple(int(column[order[found[0] + i]]) for column in columns) for i in (0, 1))
        return one, two


def as_columns(rows: Iterable[CodedRow], arity: int) -> CodeColumns:
    """Coded rows as columns."""
    found = np.array(list(rows), np.uint32)
    return tuple(np.ascontiguousarray(found[:, i]) for i in range(arity)) if len(found) else _no_rows(arity)


def _no_rows(arity: int) -> CodeColumns:
    return tuple(np.empty(0, np.uint32) for _ in range(arity))


def distinct(columns: CodeColumns, key: tuple[int, ...]) -> CodeColumns:
    """The same rows, each once. `key`: the columns that probably differ everywhere."""
    count = len(columns[0])
    # A hash of the key that is different everywhere proves it; else the rows themselves are compared.
    if count < 2 or all_differ(pack([columns[i] for i in key])):
        return columns
    order = np.lexsort(columns[::-1])
    new = np.ones(count, np.bool_)
    new[1:] = False
    for column in columns:
        new[1:] |= column[order[1:]] != column[order[:-1]]
    chosen = np.sort(order[new])
    return tuple(column[chosen] for column in columns)


def _grown(column: Array, room: int, size: int) -> Array:
    grown = np.zeros(room, column.dtype)
    grown[:size] = column[:size]
    return grown


def _has_few(table: Table) -> bool:
    return not table.batches and len(table.primary) < _MANY


def table_columns(table: Table) -> Iterator[CodeColumns]:
    """The rows of a table as columns, in parts."""
    for batch in table.batches:
        yield batch.code_columns()
    if table.primary:
        yield as_columns(rows_of(table.primary, table.arity), table.arity)


def _all_columns(table: Table) -> CodeColumns:
    parts = list(table_columns(table))
    return parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))
