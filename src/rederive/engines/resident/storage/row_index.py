"""Row numbers by the codes of some columns.

A unique column whose codes are close together has an array by code. Any other index is some sorted runs, each much larger than
the next, which take in what is added in bulk; a dictionary takes in single rows until there are some thousands. So one row costs
a dictionary entry, a batch costs a merge with small runs, and a run is copied only when the next one has become an eighth of it.

An index does not hear of rows that leave: the table knows which rows are alive, and has its indexes drop the others from time
to time, before their numbers are used again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_MASK: Final = 2**64 - 1
_MIX: Final = 0x9E3779B97F4A7C15  # odd, so that multiplying by it loses nothing
MOST_MATCHES: Final = 1 << 24  # of one look-up: arrays of so many row numbers take 256 MB
_MIXING: Final = np.uint64(_MIX)
_SHIFT: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)
_SMALL: Final = 1 << 14  # entries of a run that takes in any other: copying them takes 20 us
_RATIO: Final = 8  # of the sizes of a run and of the next one
_FEW: Final = 4  # rows of one key that are looked at one by one
_RECENT: Final = 4096  # single rows before they become sorted
_DIRECT: Final = 4  # an array by code pays where there are at most this many times more codes than entries and keys


class TooManyMatches(Exception):
    """A look-up matches more rows than arrays should hold."""


def pack(columns: Sequence[Array]) -> Array:
    """One number for the codes of each row: exact for one or two columns, a hash for more."""
    if len(columns) == 1:
        return columns[0]
    packed = columns[0].astype(np.uint64)
    if len(columns) == 2:
        packed <<= _SHIFT
        packed |= columns[1]
        return packed
    for column in columns[1:]:
        packed *= _MIXING  # arithmetic of arrays of 64 bits wraps around
        packed += column
    return packed


def pack_one(codes: Sequence[int]) -> int:
    """The number of `pack` for one row.

    >>> int(pack([np.array([n], np.uint32) for n in (7, 8, 9)])[0]) == pack_one((7, 8, 9))
    True
    """
    if len(codes) == 1:
        return codes[0]
    if len(codes) == 2:
        return codes[0] << 32 | codes[1]
    packed = 0
    for code in codes:
        packed = (packed * _MIX + code) & _MASK
    return packed


class Run:
    """Row numbers in the order of their keys.

    A key of one column and its row number are one entry of 64 bits. Other keys take 64 bits alone; they are nearly unique, and
    the rows of one key are few.
    """

    __slots__ = ("_memory", "entries", "numbers", "starts")

    def __init__(self, entries: Array, numbers: Array | None) -> None:
        self.entries = entries
        self._memory: memoryview[int] = memoryview(entries)  # type: ignore[arg-type]
        self.numbers = numbers  # None where the entries hold them
        self.starts: Array | None = None  # by code, where the entries of each key start; made for the first large look-up

    @classmethod
    def sort(cls, keys: Array, rows: Array) -> Run:
        """The run of keys in any order."""
        order = _order(keys)
        if keys.dtype == np.uint32:
            entries = _entries(keys, rows)
            return cls(entries if order is None else entries[order], None)
        rows = rows.astype(np.int32, copy=False)
        return cls(keys, rows) if order is None else cls(keys[order], rows[order])

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return sum(a.nbytes for a in (self.entries, self.numbers, self.starts) if a is not None)

    @property
    def distinct(self) -> int:
        """The number of keys."""
        keys = self.entries >> _SHIFT if self.numbers is None else self.entries
        return int(np.count_nonzero(keys[1:] != keys[:-1])) + 1 if len(keys) else 0

    def alive(self, alive: Array) -> Run:
        """The run without what is dead."""
        stays = alive[self._rows(slice(None))]
        return Run(self.entries[stays], self.numbers[stays] if self.numbers is not None else None)

    def merge(self, other: Run) -> Run:
        """Both runs as one."""
        at = self.entries.searchsorted(other.entries)
        numbers = None
        if self.numbers is not None and other.numbers is not None:
            numbers = np.insert(self.numbers, at, other.numbers)
        return Run(np.insert(self.entries, at, other.entries), numbers)

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
        return positions, self._rows(at)

    def _rows(self, at: Any) -> Array:
        rows: Array = self.numbers[at] if self.numbers is not None else (self.entries[at] & _LOW).astype(np.int64)
        return rows

    def find(self, key: int) -> list[int]:
        """The row numbers of one key."""
        # Python's search over the memory of an array takes a third of the time of numpy's for one key.
        entries, end = self._memory, len(self._memory)
        shift = 32 if self.numbers is None else 0
        low = high = bisect_left(entries, key << shift)
        # Most keys have one row: its neighbour is looked at sooner than the end is searched for.
        while high < end and entries[high] >> shift == key:
            high += 1
            if high - low > _FEW:
                high = bisect_left(entries, (key + 1) << shift, high)
                break
        if low == high:
            return []
        rows: list[int] = self._rows(slice(low, high)).tolist() if high - low > 1 else [self._row(low)]
        return rows

    def _row(self, at: int) -> int:
        row: int = self.numbers.item(at) if self.numbers is not None else self._memory[at] & 0xFFFFFFFF
        return row


def all_differ(keys: Array) -> bool:
    """Whether no number is in an array twice."""
    if (keys[1:] > keys[:-1]).all():
        return True
    ordered = np.sort(keys)
    return bool((ordered[1:] != ordered[:-1]).all())


def _order(keys: Array) -> Array | None:
    """The places of keys in ascending order; None where they are in it."""
    if (keys[1:] >= keys[:-1]).all():
        return None
    least = keys.min()
    # Numbers of 16 bits are sorted by their digits, which takes a quarter of the time.
    if keys.max() - least < 2**16:
        return np.argsort((keys - least).astype(np.uint16), kind="stable")
    return np.argsort(keys)


def _entries(keys: Array, rows: Any) -> Array:
    entries: Array = (keys.astype(np.uint64) << _SHIFT) | np.asarray(rows).astype(np.uint64)
    return entries


def _expand(low: Array, high: Array) -> tuple[Array, Array]:
    """All places from each `low` to its `high`, and the position of the pair that each belongs to."""
    times = high - low
    most = int(times.max()) if len(times) else 0
    if most <= 1:
        hit = times.nonzero()[0]
        return hit, low[hit]
    ends = np.cumsum(times)
    if ends[-1] > MOST_MATCHES:
        raise TooManyMatches
    return np.repeat(np.arange(len(times)), times), np.arange(int(ends[-1])) + np.repeat(low - (ends - times), times)


class RowIndex:
    """The row numbers of each key. `columns`: of the table, in ascending order. `is_unique`: no two rows alive share a key."""

    __slots__ = ("_distinct", "_recent", "_recent_rows", "_runs", "_slots", "columns")

    def __init__(self, columns: tuple[int, ...], keys: Array, rows: Array, *, is_unique: bool = False) -> None:
        self.columns = columns
        self._recent: dict[int, list[int]] = {}
        self._recent_rows = 0
        self._runs: list[Run] = []
        # By code, the number of its latest row, or -1, which is also in the last place. None where there are runs.
        has_slots = is_unique and len(columns) == 1 and all_differ(keys)
        self._slots: Array | None = np.full(1, -1, np.int32) if has_slots else None
        self._distinct: int | None = 0  # None where a run has changed since the keys were counted
        self.add_many(keys, rows)

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays, and about those of single rows."""
        slots = self._slots.nbytes if self._slots is not None else 0
        return sum(run.nbytes for run in self._runs) + slots + 200 * self._recent_rows

    @property
    def distinct(self) -> int:
        """About how many keys there are; counted when somebody asks."""
        if self._distinct is None:
            self._distinct = self._runs[0].distinct if self._runs else 0
        return self._distinct

    def find(self, key: int) -> list[int]:
        """The row numbers of one key, dead ones included; of more than two columns, some may be of other keys."""
        if self._slots is not None:
            return [row] if key < len(self._slots) and (row := self._slots.item(key)) >= 0 else []
        found = list(self._recent.get(key, ())) if self._recent else []
        for run in self._runs:
            found += run.find(key)
        return found

    def find_many(self, keys: Array) -> tuple[Array, Array]:
        """The positions in `keys` and the row numbers of all matches, with the same exceptions."""
        if self._slots is not None:
            rows = self._slots[np.minimum(keys, len(self._slots) - 1)]
            positions = (rows >= 0).nonzero()[0]
            return positions, rows if len(positions) == len(rows) else rows[positions]
        self._sort_recent()
        if len(self._runs) == 1:
            return self._runs[0].find_many(keys)
        found = [run.find_many(keys) for run in self._runs]
        return np.concatenate([positions for positions, _ in found]), np.concatenate([rows for _, rows in found])

    def add(self, key: int, row: int) -> None:
        """Take in one row."""
        if self._slots is not None and self._make_slots(key, 1):
            self._slots[key] = row
            return
        self._recent.setdefault(key, []).append(row)
        self._recent_rows += 1
        if self._recent_rows > _RECENT:
            self._sort_recent()

    def add_many(self, keys: Array, rows: Array) -> None:
        """Take in many rows."""
        if self._slots is not None and self._make_slots(int(keys.max()) if len(keys) else 0, len(keys)):
            self._slots[keys] = rows
            return
        self._add_run(Run.sort(keys, rows))

    def _add_run(self, run: Run) -> None:
        runs = self._runs
        runs.append(run)
        while len(runs) > 1 and len(runs[-2]) <= max(_SMALL, _RATIO * len(runs[-1])):
            runs[-2:] = [runs[-2].merge(runs[-1])]
        if len(runs) == 1:
            self._distinct = None

    def _make_slots(self, key: int, more: int) -> bool:
        """Make place for a key; False where codes are too far apart, and there are runs from now on."""
        assert self._slots is not None
        self._distinct = self.distinct + more
        if key < len(self._slots) - 1:
            return True
        if key <= _DIRECT * self.distinct + _SMALL:
            grown = np.full(key + key // 4 + 2, -1, np.int32)
            grown[: len(self._slots)] = self._slots
            self._slots = grown
            return True
        self.use_runs()
        return False

    def use_runs(self) -> None:
        """Have no array by code: codes are far apart, or no longer unique."""
        if self._slots is not None:
            keys = np.flatnonzero(self._slots >= 0).astype(np.uint32)
            rows, self._slots = self._slots[keys], None
            self._add_run(Run.sort(keys, rows))

    def drop_dead(self, alive: Array) -> None:
        """Forget the rows that are not alive."""
        if self._slots is not None:
            held = np.flatnonzero(self._slots >= 0)
            self._slots[held[~alive[self._slots[held]]]] = -1
            self._distinct = int(np.count_nonzero(self._slots >= 0))
            return
        self._sort_recent()
        runs, self._runs = self._runs, []
        for run in runs:
            self._add_run(run.alive(alive))

    def _sort_recent(self) -> None:
        if self._recent:
            numbers = [row for rows in self._recent.values() for row in rows]
            keys = [key for key, rows in self._recent.items() for _ in rows]
            self._recent, self._recent_rows = {}, 0
            self._add_run(Run.sort(np.array(keys, _key_type(self.columns)), np.array(numbers, np.int32)))


def _key_type(columns: tuple[int, ...]) -> type[Any]:
    return np.uint32 if len(columns) == 1 else np.uint64
