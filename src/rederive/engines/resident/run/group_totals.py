"""The totals of the groups of one aggregate, in arrays by group number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from rederive.engines.resident.storage.codes import Code, CodedRow
from rederive.engines.resident.storage.column_table import CodeColumns, ColumnTable
from rederive.engines.resident.storage.row_index import Array
from rederive.engines.resident.storage.table import PRESENT
from rederive.scalar.totals import EMPTY, Total

_LARGEST: Final = 2**62  # sums beyond are whole numbers of Python, so that no sum of two of 64 bits overflows


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """What changed groups have: old and new totals, and where they were. A group without rows is not there.

    `groups`: the codes of the group's columns; `numbers`: of the groups that are stored, -1 of the others.
    `results`: the codes of the new results; `before`: of the old ones.
    """

    groups: CodeColumns
    numbers: Array
    rows: Array
    sums: Array
    values: Array
    before: Array
    results: Array


SavedTotals: TypeAlias = tuple[bytes | list[int], ...]
"""Arrays as bytes; sums beyond 64 bits as numbers."""


class GroupTotals:
    """Rows, sum, values and the code of the result of each group."""

    def __init__(self, width: int) -> None:
        # An aggregate without groups has one, of one column that only holds `PRESENT`.
        self._width = width
        self.table = ColumnTable("groups", max(width, 1))
        self._find = self.table.finder(tuple(range(max(width, 1))))
        self.rows, self.values, self.sums = (np.zeros(0, np.int64) for _ in range(3))
        self.results: Array = np.zeros(0, np.uint32)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        held = 0 if self.sums.dtype != object else 64 * len(self.sums)
        return self.table.nbytes + held + sum(a.nbytes for a in (self.rows, self.values, self.sums, self.results))

    # Between processes

    def save(self) -> SavedTotals:
        """All totals, for `restore`."""
        columns, numbers = self.table.scan(), self.table.row_numbers()
        taken = [column[numbers].tobytes() for column in (self.rows, self.values, self.results)]
        sums = self.sums[numbers]
        return (*(column.tobytes() for column in columns), *taken, sums.tolist() if sums.dtype == object else sums.tobytes())

    def restore(self, saved: SavedTotals) -> None:
        """Take in saved totals; there must be none yet."""
        *columns, rows, values, results, sums = saved
        groups = tuple(np.frombuffer(column, np.uint32) for column in columns)  # type: ignore[arg-type]
        taken = [np.frombuffer(column, np.int64) for column in (rows, values)]  # type: ignore[arg-type]
        added = np.array(sums, object) if isinstance(sums, list) else np.frombuffer(sums, np.int64)
        codes = np.frombuffer(results, np.uint32)  # type: ignore[arg-type]
        if len(groups[0]):
            new = np.full(len(groups[0]), -1, np.int64)
            self.apply(GroupChanges(groups, new, taken[0], added, taken[1], codes, codes))

    # Group by group

    def number(self, group: CodedRow) -> int | None:
        """The number of a group that has rows."""
        found = self._find(group or (PRESENT,))
        return found[0] if found else None

    def get(self, group: CodedRow) -> Total:
        """The total of a group, empty where it has no rows."""
        number = self.number(group)
        return EMPTY if number is None else Total(self.rows.item(number), self.sums.item(number), self.values.item(number))

    def result(self, group: CodedRow) -> Code | None:
        """The code of a group's result."""
        number = self.number(group)
        return None if number is None else self.results.item(number)

    def put(self, group: CodedRow, total: Total, result: Code) -> None:
        """Store the total of a group; one without rows leaves."""
        number = self.number(group)
        if not total.rows:
            if number is not None:
                self.table.remove_row(number)
            return
        if number is None:
            number = self.table.add_row(group or (PRESENT,))
            self._make_room()
        if abs(total.sum) >= _LARGEST:
            self._use_objects()
        self.rows[number], self.sums[number], self.values[number], self.results[number] = (
            total.rows,
            total.sum,
            total.values,
            result,
        )

    # By column

    def columns(self, groups: Sequence[Array], count: int) -> CodeColumns:
        """The columns by which groups are found."""
        return tuple(groups) if groups else (np.full(count, PRESENT, np.uint32),)

    def numbers(self, groups: CodeColumns) -> Array:
        """The numbers of distinct groups, -1 for those that have no rows."""
        numbers = np.full(len(groups[0]), -1, np.int64)
        if len(self.table):
            positions, found = self.table.find_many(tuple(range(len(groups))), groups)
            numbers[positions] = found
        return numbers

    def taken(self, column: Array, numbers: Array) -> Array:
        """A column of totals at these numbers; zero for groups that are not there."""
        found = np.zeros(len(numbers), column.dtype)
        there = numbers >= 0
        found[there] = column[numbers[there]]
        return found

    def apply(self, changes: GroupChanges) -> None:
        """Store the totals of many groups."""
        known, alive = changes.numbers >= 0, changes.rows > 0
        leaving, entering = known & ~alive, ~known & alive
        numbers = changes.numbers.copy()
        if leaving.any():
            self.table.remove_columns(tuple(column[leaving] for column in changes.groups))
        if entering.any():
            numbers[entering] = self.table.add_columns(tuple(column[entering] for column in changes.groups))
            self._make_room()
        if changes.sums.dtype == object:
            self._use_objects()
        at = numbers[alive]
        for column, new in (
            (self.rows, changes.rows),
            (self.sums, changes.sums),
            (self.values, changes.values),
            (self.results, changes.results),
        ):
            column[at] = new[alive]

    def add_sums(self, numbers: Array, more: Array) -> Array:
        """The sums of these groups with something added; as whole numbers of Python where 64 bits may not hold them."""
        before = self.taken(self.sums, numbers)
        if before.dtype == object or more.dtype == object or _most(before) + _most(more) >= _LARGEST:
            added: Array = before.astype(object) + more.astype(object)
            return added
        return before + more

    def _use_objects(self) -> None:
        if self.sums.dtype != object:
            self.sums = self.sums.astype(object)

    def _make_room(self) -> None:
        room = self.table.room
        if room > len(self.rows):
            for name in ("rows", "sums", "values", "results"):
                column: Any = getattr(self, name)
                grown = np.zeros(room, column.dtype)
                grown[: len(column)] = column
                setattr(self, name, grown)


def _most(numbers: Array) -> int:
    return max(abs(int(numbers.min())), abs(int(numbers.max()))) if len(numbers) else 0
