"""Where a rule that runs by column finds rows: stored tables, changes, and new states that are read through both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from rederive.engines.resident.storage.column_table import CodeColumns, ColumnTable
from rederive.engines.resident.storage.row_index import Array, RowIndex, pack
from rederive.engines.resident.storage.table import Overlay, Readable, Table


class ColumnSource(Protocol):
    """Rows that can be looked up by whole columns of keys."""

    def find(self, bound: tuple[int, ...], keys: Sequence[Array], wanted: Sequence[int]) -> tuple[Array, list[Array]]:
        """The positions in the keys of all matches, and the wanted columns of the rows that match."""

    def scan(self) -> CodeColumns:
        """All rows."""

    def rows(self) -> int:
        """About how many rows there are, in constant time."""

    def preparation(self) -> int:
        """The rows that have to be copied before the first look-up."""

    def fanout(self, bound: tuple[int, ...]) -> float:
        """About how many rows match a key of these columns."""


def column_source(readable: Readable | ColumnTable) -> ColumnSource | None:
    """The source of what a rule reads; None for views that are derived on demand."""
    match readable:
        case ColumnTable():
            return WideRows(readable)
        case Table():
            return CopiedRows(readable)
        case Overlay():
            old, gone = column_source(readable.old), CopiedRows(readable.gone)
            if not isinstance(old, WideRows | CopiedRows):
                return None
            return NewState(old, gone, [CopiedRows(came) for came in readable.came])
        case _:
            return None


class WideRows:
    """A relation that is stored by column."""

    def __init__(self, table: ColumnTable) -> None:
        self._table = table

    def find(self, bound: tuple[int, ...], keys: Sequence[Array], wanted: Sequence[int]) -> tuple[Array, list[Array]]:
        """Through an index of row numbers."""
        positions, rows = self._table.find_many(bound, keys)
        return positions, [self._table.columns[i][rows] for i in wanted]

    def find_rows(self, bound: tuple[int, ...], keys: Sequence[Array]) -> tuple[Array, Array]:
        """The positions in the keys of all matches, and the numbers of the rows that match."""
        return self._table.find_many(bound, keys)

    def numbered(self) -> tuple[Sequence[Array], Array]:
        """Columns by row number, and the numbers of all rows."""
        return self._table.columns, self._table.row_numbers()

    def scan(self) -> CodeColumns:
        """The columns themselves, where no row has left."""
        return self._table.scan()

    def rows(self) -> int:
        """The number of rows."""
        return len(self._table)

    def preparation(self) -> int:
        """Nothing is copied."""
        return 0

    def fanout(self, bound: tuple[int, ...]) -> float:
        """As of the table."""
        return self._table.fanout(bound)


class CopiedRows:
    """A table of bitmaps, copied into arrays when it is first read after a change."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._copies: dict[Any, Any] = {}  # the columns, and sorted runs by the columns they are sorted by
        table.caches.append(self._copies)

    def __bool__(self) -> bool:
        return bool(self._table)

    def scan(self) -> CodeColumns:
        """The rows of the table; those that came by column are taken as they are."""
        if "columns" not in self._copies:
            table = self._table
            parts = [batch.code_columns() for batch in table.batches]
            if table.primary or not parts:
                parts.append(table.scan())
            self._copies["columns"] = parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))
        columns: CodeColumns = self._copies["columns"]
        return columns

    def find(self, bound: tuple[int, ...], keys: Sequence[Array], wanted: Sequence[int]) -> tuple[Array, list[Array]]:
        """Through an index of the copy."""
        columns = self.scan()
        positions, rows = self.find_rows(bound, keys)
        return positions, [columns[i][rows] for i in wanted]

    def find_rows(self, bound: tuple[int, ...], keys: Sequence[Array]) -> tuple[Array, Array]:
        """The positions in the keys of all matches, and the places of the rows that match."""
        columns = self.scan()
        if bound not in self._copies:
            places = np.arange(len(columns[0]), dtype=np.int32)
            self._copies[bound] = RowIndex(bound, pack([columns[i] for i in bound]), places, is_unique=True)
        positions, rows = self._copies[bound].find_many(pack(keys))
        if len(bound) > 2:  # the key is a hash
            for i, key in zip(bound, keys, strict=True):
                same = columns[i][rows] == key[positions]
                if not same.all():
                    positions, rows = positions[same], rows[same]
        return positions, rows

    def numbered(self) -> tuple[Sequence[Array], Array]:
        """The columns by place, and all places."""
        columns = self.scan()
        return columns, np.arange(len(columns[0]))

    def remember(self, name: str, compute: Callable[[], Array]) -> Array:
        """What was computed of these rows, until they change."""
        if name not in self._copies:
            self._copies[name] = compute()
        found: Array = self._copies[name]
        return found

    def rows(self) -> int:
        """The number of keys: counting the rows would walk over them."""
        table = self._table
        return len(table.primary) + (sum(map(len, table.batches)) if table.batches else 0)

    def preparation(self) -> int:
        """All rows, unless they are copied already."""
        return len(self._table.primary) if "columns" not in self._copies else 0

    def fanout(self, bound: tuple[int, ...]) -> float:
        """As of the table."""
        return self._table.fanout(bound)


class NewState:
    """(old - gone) + came."""

    def __init__(self, old: WideRows | CopiedRows, gone: CopiedRows, came: Sequence[CopiedRows]) -> None:
        self._old = old
        self._gone = gone
        self._came = came

    def find(self, bound: tuple[int, ...], keys: Sequence[Array], wanted: Sequence[int]) -> tuple[Array, list[Array]]:
        """In the old state without what is gone, and in what came."""
        if not self._gone:
            found = [self._old.find(bound, keys, wanted)]
        else:
            positions, rows = self._old.find_rows(bound, keys)
            stays = ~self._left()[rows]
            if not stays.all():
                positions, rows = positions[stays], rows[stays]
            columns, _ = self._old.numbered() if wanted else ((), None)
            found = [(positions, [columns[i][rows] for i in wanted])]
        found += [came.find(bound, keys, wanted) for came in self._came if came]
        if len(found) == 1:
            return found[0]
        return np.concatenate([positions for positions, _ in found]), [
            np.concatenate(parts) for parts in zip(*(columns for _, columns in found), strict=True)
        ]

    def scan(self) -> CodeColumns:
        """All rows of the new state."""
        if self._gone:
            numbered, rows = self._old.numbered()
            stays = rows[~self._left()[rows]]
            columns = tuple(column[stays] for column in numbered)
        else:
            columns = self._old.scan()
        parts = [columns, *(came.scan() for came in self._came if came)]
        return parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))

    def _left(self) -> Array:
        """By row number of the old state, whether the row is gone."""

        def compute() -> Array:
            gone = self._gone.scan()
            _, rows = self._old.find_rows(tuple(range(len(gone))), gone)
            left = np.zeros(len(self._old.numbered()[0][0]), np.bool_)
            left[rows] = True
            return left

        return self._gone.remember("left", compute)

    def rows(self) -> int:
        """Those of the old state: a transaction changes few of them."""
        return self._old.rows()

    def preparation(self) -> int:
        """What the old state needs, and all of the change."""
        return self._old.preparation() + sum(part.preparation() for part in (self._gone, *self._came))

    def fanout(self, bound: tuple[int, ...]) -> float:
        """As of the old state."""
        return self._old.fanout(bound)
