"""Rows of codes behind indexes whose leaves are compressed bitmaps.

The primary index maps all columns but the last to the bitmap of the last. Another index maps its bound columns to what is left
of the row: a bitmap where that is one column, a set of tuples where it is more. A key of one column is that column's code, of
more a tuple, of none the empty tuple. A relation without columns is stored as one column that can only hold `PRESENT`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from pyroaring import BitMap

from rederive.engines.resident.codes import Code, CodedRow

Key: TypeAlias = Code | tuple[Code, ...]
Leaf: TypeAlias = BitMap
Entry: TypeAlias = BitMap | set[tuple[Code, ...]]
Lookup: TypeAlias = Callable[[Any], Any]

PRESENT: Code = 1


class Index:
    """A secondary index: `entries` by the bound columns, kept up to date leaf by leaf."""

    __slots__ = ("add", "entries", "remove")

    def __init__(self, arity: int, bound: tuple[int, ...]) -> None:
        self.entries: dict[Key, Any] = {}
        scope: dict[str, Any] = {"entries": self.entries, "get": self.entries.get, "BitMap": BitMap}
        exec(_index_source(arity, bound), scope)
        self.add: Callable[[Key, Leaf], None] = scope["add"]
        self.remove: Callable[[Key, Leaf], None] = scope["remove"]


def _index_source(arity: int, bound: tuple[int, ...]) -> str:
    columns = [f"c{i}" for i in range(arity)]
    free = [columns[i] for i in range(arity) if i not in bound]
    entry = free[0] if len(free) == 1 else _tuple(free)
    made = f"BitMap(({entry},))" if len(free) == 1 else f"{{{entry}}}"
    key = _tuple([columns[i] for i in bound])
    unpack = f"    {_tuple(columns[:-1])} = key\n" if arity > 1 else ""
    return (
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


def _tuple(names: list[str]) -> str:
    """The text of a key: the name alone, or a tuple."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


class Table:
    """The rows of one relation, or of one of its variants."""

    __slots__ = ("_indexes", "arity", "caches", "name", "primary", "primary_columns")

    def __init__(self, name: str, arity: int) -> None:
        self.name = name
        self.arity = max(arity, 1)
        self.primary: dict[Key, Leaf] = {}
        self.primary_columns = tuple(range(self.arity - 1))
        self._indexes: dict[tuple[int, ...], Index] = {}
        self.caches: list[dict[Key, Any]] = []

    def __bool__(self) -> bool:
        return bool(self.primary)

    def __len__(self) -> int:
        return sum(map(len, self.primary.values()))

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """A function from a key of the bound columns to the rest of the matching rows, or None where there is no match."""
        return self.entries(bound).get

    def entries(self, bound: tuple[int, ...]) -> dict[Key, Any]:
        """The index on these columns, built when it is first asked for."""
        if bound == self.primary_columns:
            return self.primary
        if bound not in self._indexes:
            index = Index(self.arity, bound)
            for key, leaf in self.primary.items():
                index.add(key, leaf)
            self._indexes[bound] = index
        return self._indexes[bound].entries

    def add(self, key: Key, leaf: Leaf) -> None:
        """Take in rows that are not there yet; the table owns the leaf from now on."""
        have = self.primary.get(key)
        if have is None:
            self.primary[key] = leaf
        else:
            have |= leaf
        for index in self._indexes.values():
            index.add(key, leaf)
        for cache in self.caches:
            cache.clear()

    def remove(self, key: Key, leaf: Leaf) -> None:
        """Take out rows that are there."""
        for index in self._indexes.values():
            index.remove(key, leaf)
        have = self.primary[key]
        have -= leaf
        if not have:
            del self.primary[key]
        for cache in self.caches:
            cache.clear()

    def fanout(self, bound: tuple[int, ...]) -> float:
        """About how many rows match a key of these columns."""
        rows = max(len(self), 1)
        if bound == self.primary_columns or bound in self._indexes:
            return rows / max(len(self.entries(bound)), 1)
        return float(rows ** (1 - len(bound) / self.arity))

    def add_all(self, other: Table) -> None:
        for key, leaf in other.primary.items():
            self.add(key, leaf.copy())

    def remove_all(self, other: Table) -> None:
        for key, leaf in other.primary.items():
            self.remove(key, leaf)

    def load(self, rows: Iterable[CodedRow]) -> dict[Key, list[Code]]:
        """Take in many rows at once; those already there are skipped. Returns what was added."""
        gathered: defaultdict[Key, list[Code]] = defaultdict(list)
        for key, last in rows if self.arity == 2 else map(self.split, rows):
            gathered[key].append(last)
        for key, lasts in gathered.items():
            leaf = BitMap(lasts)
            if key in self.primary:
                leaf -= self.primary[key]
                gathered[key] = list(leaf)
            if leaf:
                self.add(key, leaf)
        return gathered

    def unload(self, added: Mapping[Key, list[Code]]) -> None:
        """Take out again what `load` added."""
        for key, lasts in added.items():
            if lasts:
                self.remove(key, BitMap(lasts))

    def clear(self) -> None:
        if self.primary:
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


def matching(primary: dict[Key, Leaf], arity: int, wanted: Mapping[int, Code]) -> Iterator[CodedRow]:
    """The rows of a primary index whose columns have the wanted codes; one lookup where all but the last are given."""
    key_columns = range(max(arity - 1, 0))
    if arity > 1 and all(i in wanted for i in key_columns):
        key = wanted[0] if arity == 2 else tuple(wanted[i] for i in key_columns)
        primary = {key: primary[key]} if key in primary else {}
    return (row for row in rows_of(primary, arity) if all(row[i] == code for i, code in wanted.items()))


class Overlay:
    """`(old - gone) + came`, read without being stored: the new state while a transaction is worked out."""

    __slots__ = ("came", "gone", "old")

    def __init__(self, old: Table, gone: Table, came: tuple[Table, ...]) -> None:
        self.old = old
        self.gone = gone
        self.came = came

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """As `Table.lookup`. Bitmaps and sets share the operators that this needs."""
        old, gone = self.old.entries(bound).get, self.gone.entries(bound)
        first, *others = (table.entries(bound) for table in self.came)
        second: dict[Key, Any] = others[0] if others else {}
        kept: dict[Key, Any] = {}  # old - gone, by key; dropped when gone changes
        self.gone.caches.append(kept)

        def lookup(key: Key) -> Any:
            if key in gone:
                entry = kept.get(key)
                if entry is None:
                    entry = old(key)
                    entry = kept[key] = None if entry is None else entry - gone[key]
            else:
                entry = old(key)
            if key in first:
                entry = first[key] if not entry else entry | first[key]
            if key in second:
                entry = second[key] if not entry else entry | second[key]
            return entry or None

        return lookup

    @property
    def primary_columns(self) -> tuple[int, ...]:
        return self.old.primary_columns

    @property
    def arity(self) -> int:
        return self.old.arity

    def __bool__(self) -> bool:
        return any(True for _ in self.items())

    def items(self) -> Iterator[tuple[Key, Leaf]]:
        lookup = self.lookup(self.primary_columns)
        changed = {key for table in (self.gone, *self.came) for key in table.primary}
        for key, leaf in self.old.primary.items():
            if key not in changed:
                yield key, leaf
        for key in changed:
            if leaf := lookup(key):
                yield key, leaf
