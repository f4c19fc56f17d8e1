"""Row numbers by the codes of some columns, in sorted arrays.

Two sorted runs, a large one and a small one, take in what is added in bulk; a dictionary takes in single rows until there are
some thousands. So one row costs a dictionary entry, a batch costs a merge with the small run, and the large run is copied only
when the small one has become an eighth of it. A row that leaves is marked in its run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_MASK: Final = 2**64 - 1
_MIX: Final = 0x9E3779B97F4A7C15  # odd, so that multiplying by it loses nothing
MOST_MATCHES: Final = 1 << 24  # of one look-up: arrays of so many row numbers take 256 MB
_SHIFT: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)
_SMALL: Final = 1 << 16  # entries of the small run, at least, before it joins the large one
_FEW: Final = 4  # rows of one key that are looked at one by one
_RECENT: Final = 4096  # single rows before they become sorted
_DIRECT: Final = 4  # a table by code pays where there are this many times fewer codes than keys to look up and entries


class TooManyMatches(Exception):
    """A look-up matches more rows than arrays should hold."""


def pack(columns: Sequence[Array]) -> Array:
    """One number for the codes of each row: exact for one or two columns, a hash for more."""
    if len(columns) == 1:
        return columns[0]
    first, *others = (column.astype(np.uint64) for column in columns)
    if len(columns) == 2:
        return (first << np.uint64(32)) | others[0]
    for column in others:
        first = first * np.uint64(_MIX) + column  # arithmetic of arrays of 64 bits wraps around
    return first


def pack_one(codes: Sequence[int]) -> int:
    """The number of `pack` for one row.

    >>> int(pack([np.array([n], np.uint32) for n in (7, 8, 9)])[0]) == pack_one((7, 8, 9))
    True
    """
    if len(codes) == 1:
        return codes[0]
    if len(codes) == 2:
        return codes[0] << 32 | codes[1]
    packed = codes[0]
    for code in codes[1:]:
        packed = (packed * _MIX + code) & _MASK
    return packed


class Run:
    """Row numbers in the order of their keys. What is `dead` has left; None where nothing has.

    A key of one column and its row number are one entry of 64 bits, so that an entry is found by both. Other keys take 64 bits
    alone; they are nearly unique, and the rows of one key are few.
    """

    __slots__ = ("dead", "entries", "numbers", "starts")

    def __init__(self, entries: Array, numbers: Array | None, dead: Array | None = None) -> None:
        self.entries = entries
        self.numbers = numbers  # None where the entries hold them
        self.dead = dead
        self.starts: Array | None = None  # by code, where the entries of each key start; made for the first large look-up

    @classmethod
    def sort(cls, keys: Array, rows: Array) -> Run:
        """The run of keys in any order."""
        if keys.dtype == np.uint32:
            return cls(np.sort(_entries(keys, rows)), None)
        order = np.argsort(keys)
        return cls(keys[order], rows[order].astype(np.int32, copy=False))

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return sum(a.nbytes for a in (self.entries, self.numbers, self.dead, self.starts) if a is not None)

    @property
    def distinct(self) -> int:
        """The number of keys."""
        keys = self.entries >> _SHIFT if self.numbers is None else self.entries
        return int(np.count_nonzero(keys[1:] != keys[:-1])) + 1 if len(keys) else 0

    def alive(self) -> Run:
        """The run without what is dead."""
        if self.dead is None:
            return self
        return Run(self.entries[~self.dead], self.numbers[~self.dead] if self.numbers is not None else None)

    def merge(self, other: Run) -> Run:
        """Both runs as one, without what is dead."""
        one, two = self.alive(), other.alive()
        at = one.entries.searchsorted(two.entries)
        numbers = np.insert(one.numbers, at, two.numbers) if one.numbers is not None and two.numbers is not None else None
        return Run(np.insert(one.entries, at, two.entries), numbers)

    def bounds(self, keys: Array) -> tuple[Array, Array]:
        """Where the entries of each key start and end."""
        if self.numbers is not None:
            return self.entries.searchsorted(keys), self.entries.searchsorted(keys, "right")
        if len(self.entries):
            codes = int(self.entries[-1] >> _SHIFT) + 2
            if self.starts is None and len(keys) > _RECENT and codes <= _DIRECT * (len(self) + len(keys)):
                self.starts = self.entries.searchsorted(_entries(np.arange(codes), 0)).astype(np.int32)
            if self.starts is not None:
                # Beyond the last key nothing starts: both bounds are the end.
                within = np.minimum(keys, np.uint32(codes - 1))
                return self.starts[within], self.starts[np.minimum(within + np.uint32(1), np.uint32(codes - 1))]
        return self.entries.searchsorted(_entries(keys, 0)), self.entries.searchsorted(_entries(keys, 2**32 - 1))

    def find_many(self, keys: Array) -> tuple[Array, Array]:
        """The positions in `keys` and the row numbers of all matches."""
        positions, at = _expand(*self.bounds(keys))
        if self.dead is not None and len(at):
            there = ~self.dead[at]
            positions, at = positions[there], at[there]
        return positions, self._rows(at)

    def _rows(self, at: Any) -> Array:
        rows: Array = self.numbers[at] if self.numbers is not None else (self.entries[at] & _LOW).astype(np.int64)
        return rows

    def find(self, key: int) -> list[int]:
        """The row numbers of one key."""
        low, high = self._bounds(key)
        if low == high:
            return []
        rows: list[int] = self._rows(slice(low, high)).tolist()
        return rows if self.dead is None else [row for row, dead in zip(rows, self.dead[low:high], strict=True) if not dead]

    def _bounds(self, key: int) -> tuple[int, int]:
        shift = 32 if self.numbers is None else 0
        # A number of another type would have numpy convert all entries first.
        low = high = int(self.entries.searchsorted(np.uint64(key << shift)))
        # Most keys have one row: its neighbour is looked at sooner than the end is searched for.
        while high < len(self.entries) and int(self.entries[high]) >> shift == key:
            high += 1
            if high - low > _FEW:
                high = int(self.entries.searchsorted(np.uint64(((key + 1) << shift) - 1), "right"))
                break
        return low, high

    def remove(self, key: int, row: int) -> bool:
        """Bury one row; whether it was there."""
        if self.numbers is None:
            at = int(self.entries.searchsorted(np.uint64(key << 32 | row)))
            places = range(at, at + 1) if at < len(self.entries) and int(self.entries[at]) == key << 32 | row else range(0)
        else:
            low, high = self._bounds(key)
            places = range(low, high)
        for at in places:
            # A number that was used again is in a later run.
            if (self.numbers is None or self.numbers[at] == row) and not (self.dead is not None and self.dead[at]):
                self.dead = np.zeros(len(self), np.bool_) if self.dead is None else self.dead
                self.dead[at] = True
                return True
        return False

    def remove_many(self, keys: Array, rows: Array) -> Array:
        """Bury many rows; which of them were there."""
        if self.numbers is None:
            wanted = _entries(keys, rows)
            at = self.entries.searchsorted(wanted)
            found = at < len(self.entries)
            found[found] = self.entries[at[found]] == wanted[found]
            at = at[found]
        else:
            positions, places = _expand(*self.bounds(keys))
            same = self.numbers[places] == rows[positions]
            at = places[same]
            found = np.zeros(len(keys), np.bool_)
            found[positions[same]] = True
        if len(at):
            self.dead = np.zeros(len(self), np.bool_) if self.dead is None else self.dead
            found[found] = ~self.dead[at]  # a number that was used again is in a later run
            self.dead[at] = True
        return found


def _entries(keys: Array, rows: Any) -> Array:
    entries: Array = (keys.astype(np.uint64) << _SHIFT) | np.asarray(rows).astype(np.uint64)
    return entries


def _expand(low: Array, high: Array) -> tuple[Array, Array]:
    """All places from each `low` to its `high`, and the position of the pair that each belongs to."""
    times = high - low
    most = int(times.max()) if len(times) else 0
    if most <= 1:
        hit = np.flatnonzero(times)
        return hit, low[hit]
    ends = np.cumsum(times)
    if ends[-1] > MOST_MATCHES:
        raise TooManyMatches
    return np.repeat(np.arange(len(times)), times), np.arange(int(ends[-1])) + np.repeat(low - (ends - times), times)


class RowIndex:
    """The row numbers of each key. `columns`: of the table, in ascending order. A row number is in it once."""

    __slots__ = ("_recent", "_recent_rows", "_runs", "columns", "distinct")

    def __init__(self, columns: tuple[int, ...], keys: Array, rows: Array) -> None:
        self.columns = columns
        self._runs = [Run.sort(keys, rows)]
        self._recent: dict[int, list[int]] = {}
        self._recent_rows = 0
        self.distinct = self._runs[0].distinct

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, and about those of single rows."""
        return sum(run.nbytes for run in self._runs) + 200 * self._recent_rows

    def find(self, key: int) -> list[int]:
        """The row numbers of one key; of more than two columns, some may be of other keys with the same hash."""
        found = list(self._recent.get(key, ())) if self._recent else []
        for run in self._runs:
            found += run.find(key)
        return found

    def find_many(self, keys: Array) -> tuple[Array, Array]:
        """The positions in `keys` and the row numbers of all matches, with the same exception."""
        self._sort_recent()
        if len(self._runs) == 1:
            return self._runs[0].find_many(keys)
        found = [run.find_many(keys) for run in self._runs]
        return np.concatenate([positions for positions, _ in found]), np.concatenate([rows for _, rows in found])

    def add(self, key: int, row: int) -> None:
        """Take in one row."""
        self._recent.setdefault(key, []).append(row)
        self._recent_rows += 1
        if self._recent_rows > _RECENT:
            self._sort_recent()

    def add_many(self, keys: Array, rows: Array) -> None:
        """Take in many rows."""
        self._runs.append(Run.sort(keys, rows))
        # At most two runs, the second one small: two small ones become one, and one that is not small joins the first.
        if len(self._runs) == 3:
            self._runs[1:] = [self._runs[1].merge(self._runs[2])]
        if len(self._runs[1]) > max(_SMALL, len(self._runs[0]) // 8) or len(self._runs[0]) < len(self._runs[1]):
            self._runs = [self._runs[0].merge(self._runs[1])]
            self.distinct = self._runs[0].distinct

    def remove(self, key: int, row: int) -> None:
        """Take out one row, which is there."""
        held = self._recent.get(key)
        if held is not None and row in held:
            held.remove(row)
            self._recent_rows -= 1
            if not held:
                del self._recent[key]
            return
        any(run.remove(key, row) for run in self._runs)

    def remove_many(self, keys: Array, rows: Array) -> None:
        """Take out many rows, all of which are there."""
        self._sort_recent()
        for run in self._runs:
            missing = ~run.remove_many(keys, rows)
            keys, rows = keys[missing], rows[missing]

    def _sort_recent(self) -> None:
        if self._recent:
            numbers = [row for rows in self._recent.values() for row in rows]
            keys = [key for key, rows in self._recent.items() for _ in rows]
            self._recent, self._recent_rows = {}, 0
            self.add_many(np.array(keys, _key_type(self.columns)), np.array(numbers, np.int32))


def _key_type(columns: tuple[int, ...]) -> type[Any]:
    return np.uint32 if len(columns) == 1 else np.uint64
