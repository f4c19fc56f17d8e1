"""Rows of codes behind indexes whose leaves are compressed bitmaps.

The primary index maps all columns but the last to the bitmap of the last. Another index maps its bound columns to what is left
of the row: a bitmap where that is one column, a set of tuples where it is more. A key of one column is that column's code, of
more a tuple, of none the empty tuple. A relation without columns is stored as one column that can only hold `PRESENT`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from pyroaring import BitMap

from rederive.delta import LazyRows
from rederive.engines.resident.storage.codes import Code, CodedRow, Codes
from rederive.ir.rules import Relation
from rederive.ir.terms import Row

if TYPE_CHECKING:
    from rederive.engines.resident.storage.column_table import ColumnTable

Key: TypeAlias = Code | tuple[Code, ...]
Leaf: TypeAlias = BitMap
Leaves: TypeAlias = Mapping[Key, Leaf]
Entry: TypeAlias = BitMap | set[tuple[Code, ...]]
Lookup: TypeAlias = Callable[[Any], Any]
Probe: TypeAlias = Callable[[Any, Leaf], Leaf | None]

# The code in the one column of a relation without columns. Not 0, which is NULL.
PRESENT: Code = 1


class Index:
    """A secondary index: `entries` by the bound columns, updated leaf by leaf."""

    __slots__ = ("add", "entries", "remove")

    def __init__(self, arity: int, bound: tuple[int, ...]) -> None:
        self.entries: dict[Key, Any] = {}
        scope: dict[str, Any] = {"entries": self.entries, "get": self.entries.get, "BitMap": BitMap}
        exec(_index_code(arity, bound), scope)
        self.add: Callable[[Key, Leaf], None] = scope["add"]
        self.remove: Callable[[Key, Leaf], None] = scope["remove"]


@lru_cache(maxsize=1024)
def _index_code(arity: int, bound: tuple[int, ...]) -> CodeType:
    # Text for this arity and these columns: no loop over positions runs for each row.
    columns = [f"c{i}" for i in range(arity)]
    free = [columns[i] for i in range(arity) if i not in bound]
    entry = free[0] if len(free) == 1 else _tuple(free)
    made = f"BitMap(({entry},))" if len(free) == 1 else f"{{{entry}}}"
    key = _tuple([columns[i] for i in bound])
    unpack = f"    {_tuple(columns[:-1])} = key\n" if arity > 1 else ""
    text = (
        f"def add(key, leaf):\n{unpack}"
        f"    for {columns[-1]} in leaf:\n"
        f"        entry = get({key})\n"
        f"        if entry is None: entries[{key}] = {made}\n"
        f"        else: entry.add({entry})\n"
        f"def remove(key, leaf):\n{unpack}"
        f"    for {columns[-1]} in leaf:\n"
        f"        entry = entries[{key}]\n"
        f"        entry.remove({entry})\n"
        f"        if not entry: del entries[{key}]\n"
    )
    return compile(text, "<index>", "exec")


def _tuple(names: list[str]) -> str:
    """The text of a key: the name alone, or a tuple."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


class Readable(Protocol):
    """What a rule's body can read: a stored table, an overlay over one, a view that is derived on demand.

    `lazy`: a lookup costs an evaluation, so look up with as many bindings as there are.
    """

    lazy: bool

    @property
    def arity(self) -> int:
        """The number of columns, at least 1: see the module's note on relations without columns."""

    @property
    def primary_columns(self) -> tuple[int, ...]:
        """The columns of the primary index: all but the last."""

    def __bool__(self) -> bool: ...

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """Return a function from a key of the bound columns to the rest of the matching rows, or None."""

    def probe(self) -> Probe:
        """Return a function from a primary key and a leaf to the part of the leaf that holds, or None."""

    def items(self) -> Iterable[tuple[Key, Leaf]]:
        """Return the entries of the primary index; their leaves belong to the source."""

    def fanout(self, bound: tuple[int, ...]) -> float:
        """Return about how many rows match a key of the bound columns, for the choice of a join order."""


class RowBatch(Protocol):
    """Distinct rows by column."""

    def __len__(self) -> int: ...

    def coded_rows(self) -> Iterable[CodedRow]:
        """The rows, coded."""

    def code_columns(self) -> tuple[Any, ...]:
        """The columns of codes, as arrays."""


class Table:
    """The rows of one relation, or of one of its variants."""

    __slots__ = ("_indexes", "arity", "batches", "caches", "key", "name", "primary", "primary_columns")
    lazy = False

    def __init__(self, name: str, arity: int, key: tuple[int, ...] = ()) -> None:
        self.name = name
        self.arity = max(arity, 1)
        self.key = key  # columns that no two rows share; none where only whole rows are distinct
        self.primary: dict[Key, Leaf] = {}
        self.primary_columns = tuple(range(self.arity - 1))
        self._indexes: dict[tuple[int, ...], Index] = {}
        # What overlays remember of this table, cleared whenever it changes.
        self.caches: list[dict[Key, Any]] = []
        # Rows of a transaction that came by column; who reads rows calls `unpack` first.
        self.batches: list[RowBatch] = []

    def __bool__(self) -> bool:
        return bool(self.primary or self.batches)

    def __len__(self) -> int:
        return sum(map(len, self.primary.values())) + sum(map(len, self.batches))

    def add_batch(self, batch: RowBatch) -> None:
        """Take in rows by column, none of which is there yet."""
        self.batches.append(batch)
        for cache in self.caches:
            if cache:
                cache.clear()

    def unpack(self) -> None:
        """Take the rows that came by column into the indexes."""
        while self.batches:
            self.load(self.batches.pop().coded_rows())

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """A function from a key of the bound columns to the rest of the matching rows, or None without a match."""
        # The dictionary is never replaced, so that a compiled rule can hold this bound method for good.
        return self.entries(bound).get

    def probe(self) -> Probe:
        """A function from a primary key and a leaf to the part of the leaf that is there, or None."""
        get = self.primary.get

        def probe(key: Key, leaf: Leaf) -> Leaf | None:
            have = get(key)
            return None if have is None else have & leaf or None

        return probe

    def items(self) -> Iterable[tuple[Key, Leaf]]:
        """Return a live view of the primary index, which must not change while it is iterated."""
        return self.primary.items()

    def entries(self, bound: tuple[int, ...]) -> dict[Key, Any]:
        """The index on these columns, built when it is first used."""
        if bound == self.primary_columns:
            return self.primary
        if bound not in self._indexes:
            index = Index(self.arity, bound)
            for key, leaf in self.primary.items():
                index.add(key, leaf)
            self._indexes[bound] = index
        return self._indexes[bound].entries

    def indexes(self) -> Iterator[dict[Key, Any]]:
        """The entries of all indexes but the primary one."""
        return (index.entries for index in self._indexes.values())

    def add(self, key: Key, leaf: Leaf) -> None:
        """Take in rows that are not there yet; the table owns the leaf from now on."""
        # Precondition: no row of the leaf is in the table, so nothing is tested.
        have = self.primary.get(key)
        if have is None:
            self.primary[key] = leaf
        else:
            have |= leaf
        for index in self._indexes.values():
            index.add(key, leaf)
        for cache in self.caches:
            if cache:
                cache.clear()

    def remove(self, key: Key, leaf: Leaf) -> None:
        """Take out rows that are there."""
        # Indexes first: where `leaf` is the stored bitmap itself, `have -= leaf` empties it.
        for index in self._indexes.values():
            index.remove(key, leaf)
        have = self.primary[key]
        have -= leaf
        if not have:
            del self.primary[key]
        for cache in self.caches:
            if cache:
                cache.clear()

    def fanout(self, bound: tuple[int, ...]) -> float:
        """About how many rows match a key of these columns."""
        # A key is found once at most, whatever the sizes are now.
        if self.key and set(self.key).issubset(bound):
            return 1.0
        rows = max(len(self), 1)
        if bound == self.primary_columns or bound in self._indexes:
            return rows / max(len(self.entries(bound)), 1)
        # Without an index the distribution is unknown: assume that each column is equally selective.
        return float(rows ** (1 - len(bound) / self.arity))

    def add_all(self, other: Table) -> None:
        """Add the rows of another table, none of which is here; the other keeps its leaves."""
        other.unpack()
        for key, leaf in other.primary.items():
            self.add(key, leaf.copy())

    def remove_all(self, other: Table) -> None:
        """Remove the rows of another table, all of which are here."""
        other.unpack()
        for key, leaf in other.primary.items():
            self.remove(key, leaf)

    def apply(self, gone: Table, came: Table) -> None:
        """Take out rows that are here, then take in others."""
        if gone:
            self.remove_all(gone)
        if came:
            self.add_all(came)

    def load(self, rows: Iterable[CodedRow]) -> dict[Key, list[Code]]:
        """Take in many rows at once; those already there are skipped. Returns what was added."""
        gathered: defaultdict[Key, list[Code]] = defaultdict(list)
        for key, last in rows if self.arity == 2 else map(self.split, rows):
            gathered[key].append(last)
        for key, lasts in gathered.items():
            leaf = BitMap(lasts)
            # Only what is new may be added; duplicates within `rows` are gone, because a bitmap is a set.
            if key in self.primary:
                leaf -= self.primary[key]
                gathered[key] = list(leaf)
            if leaf:
                self.add(key, leaf)
        return gathered

    def load_columns(self, columns: Sequence[Any]) -> dict[Key, list[Code]]:
        """The same for rows by column."""
        return self.load(zip(*(column.tolist() for column in columns), strict=True))

    def unload(self, added: Mapping[Key, list[Code]]) -> None:
        """Take out again what `load` added."""
        for key, lasts in added.items():
            if lasts:
                self.remove(key, BitMap(lasts))

    def clear(self) -> None:
        """Remove all rows; the indexes stay defined, as compiled rules hold their dictionaries."""
        if self.primary or self.batches:
            self.batches.clear()
            self.primary.clear()
            for entries in (*(index.entries for index in self._indexes.values()), *self.caches):
                entries.clear()

    def split(self, row: CodedRow) -> tuple[Key, Code]:
        """A row as primary key and last column."""
        match len(row):
            case 0:
                return (), PRESENT
            case 1:
                return (), row[0]
            case 2:
                return row[0], row[1]
            case _:
                return row[:-1], row[-1]

    def __contains__(self, row: CodedRow) -> bool:
        key, last = self.split(row)
        leaf = self.primary.get(key)
        return leaf is not None and last in leaf

    def matching(self, codes: Mapping[int, Code]) -> Iterator[CodedRow]:
        """The rows whose columns have these codes: by an index on some of them where there is one, else by a search."""
        usable = [bound for bound in (self.primary_columns, *self._indexes) if bound and all(i in codes for i in bound)]
        if usable:
            bound = max(usable, key=len)
            key = codes[bound[0]] if len(bound) == 1 else tuple(codes[i] for i in bound)
            rows = whole_rows(bound, key, self.entries(bound).get(key, ()), self.arity)
        else:
            rows = rows_of(self.primary, self.arity)
        return (row for row in rows if all(row[i] == code for i, code in codes.items()))

    def scan(self) -> tuple[Any, ...]:
        """All rows as columns of codes, leaf by leaf: no row becomes a tuple."""
        keys, leaves = list(self.primary), [np.frombuffer(leaf.to_array(), np.uint32) for leaf in self.primary.values()]
        lengths = [len(leaf) for leaf in leaves]
        last = np.concatenate(leaves) if leaves else np.empty(0, np.uint32)
        shape = (len(keys), self.arity - 1)
        before = np.array(keys, np.uint32).reshape(shape) if self.arity > 1 else np.empty(shape, np.uint32)
        return (*(np.repeat(before[:, i], lengths) for i in range(self.arity - 1)), last)

    def snapshot(self) -> dict[Key, Leaf]:
        """The rows as they are now; later changes of the table do not show in it."""
        return {key: leaf.copy() for key, leaf in self.primary.items()}


def rows_of(primary: dict[Key, Leaf], arity: int) -> Iterator[CodedRow]:
    """The rows of a primary index, for a relation of this many columns."""
    match arity:
        case 0:
            yield from (() for _ in primary)
        case 1:
            yield from ((last,) for leaf in primary.values() for last in leaf)
        case 2:
            yield from ((key, last) for key, leaf in primary.items() for last in leaf)  # type: ignore[misc]
        case _:
            yield from ((*key, last) for key, leaf in primary.items() for last in leaf)  # type: ignore[misc]


def whole_rows(bound: tuple[int, ...], key: Key, entry: Iterable[Any], arity: int) -> Iterator[CodedRow]:
    """The rows behind what a lookup found for a key.

    >>> list(whole_rows((1,), 7, {(1, 2)}, 3))
    [(1, 7, 2)]
    """
    given = key if isinstance(key, tuple) else (key,)
    free = tuple(i for i in range(arity) if i not in bound)
    order = [(*bound, *free).index(i) for i in range(arity)]
    for rest in entry:
        codes = (*given, *(rest if isinstance(rest, tuple) else (rest,)))
        yield tuple([codes[i] for i in order])


class Overlay:
    """`(old - gone) + came`, read without being stored: the new state while a transaction is worked out."""

    __slots__ = ("came", "gone", "lazy", "old")

    def __init__(self, old: Readable, gone: Table, came: tuple[Table, ...]) -> None:
        self.old = old
        self.gone = gone
        self.came = came
        self.lazy: bool = old.lazy

    @property
    def primary_columns(self) -> tuple[int, ...]:
        """The columns of the primary index, which the old state and the changes share."""
        return self.gone.primary_columns

    @property
    def arity(self) -> int:
        """The number of columns, which the old state and the changes share."""
        return self.gone.arity

    def fanout(self, bound: tuple[int, ...]) -> float:
        """Return the fan-out of the old state: a transaction changes few rows of it."""
        return self.old.fanout(bound)

    def __bool__(self) -> bool:
        return any(True for _ in self.items())

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """As `Table.lookup`. Bitmaps and sets share the operators that this needs."""
        old, gone = self.old.lookup(bound), self.gone.entries(bound)
        first, second = self._came(bound)
        remaining: dict[Key, Any] = {}  # old - gone, by key; dropped when gone changes
        self.gone.caches.append(remaining)

        # new = (old - gone) + came, at this key alone. The cached difference is the only copy; old and came are handed
        # out as they are, so callers must not change an entry.
        def lookup(key: Key) -> Any:
            if key in gone:
                entry = remaining.get(key)
                if entry is None:
                    entry = old(key)
                    entry = remaining[key] = None if entry is None else entry - gone[key]
            else:
                entry = old(key)
            if key in first:
                entry = first[key] if not entry else entry | first[key]
            if key in second:
                entry = second[key] if not entry else entry | second[key]
            return entry or None

        return lookup

    def probe(self) -> Probe:
        """As `Table.probe`."""
        old, gone = self.old.probe(), self.gone.primary
        first, second = self._came(self.primary_columns)

        def probe(key: Key, leaf: Leaf) -> Leaf | None:
            # For an old state that is derived on demand, this derives the rows of the leaf and no others.
            entry = old(key, leaf)
            if entry and key in gone:
                entry = entry - gone[key]
            for came in (first, second):
                if key in came:
                    entry = came[key] & leaf if not entry else entry | (came[key] & leaf)
            return entry or None

        return probe

    def _came(self, bound: tuple[int, ...]) -> tuple[dict[Key, Any], dict[Key, Any]]:
        # Rederived and inserted rows, or inserted rows alone: no strategy has more than two.
        first, *others = (table.entries(bound) for table in self.came)
        return first, others[0] if others else {}

    def items(self) -> Iterator[tuple[Key, Leaf]]:
        """Yield the entries of the new state; those that no change touches are the old ones, not copied."""
        lookup = self.lookup(self.primary_columns)
        changed = {key for table in (self.gone, *self.came) for key in table.primary}
        for key, leaf in self.old.items():
            if key not in changed:
                yield key, leaf
        for key in changed:
            if leaf := lookup(key):
                yield key, leaf


@dataclass(frozen=True, slots=True)
class CodedRows(LazyRows):
    """Rows of a view at one version; decoded when they are read."""

    relation: Relation
    leaves: Leaves
    codes: Codes

    def __len__(self) -> int:
        return sum(map(len, self.leaves.values()))

    def __iter__(self) -> Iterator[Row]:
        return iter(self.codes.decode_rows(self.relation.types, rows_of(dict(self.leaves), self.relation.arity)))


StoredTable: TypeAlias = "Table | ColumnTable"
"""Where the rows of a relation are stored: by leaf, or wide ones by column."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A relation's rows, and what a transaction takes out of and puts into them."""

    old: StoredTable
    gone: Table
    came: Table

    def drop(self) -> None:
        """Forget the change."""
        self.gone.clear()
        self.came.clear()

    def apply(self) -> None:
        """The new state becomes the old one."""
        # The two are disjoint: every strategy leaves the exact delta in them.
        self.old.apply(self.gone, self.came)
