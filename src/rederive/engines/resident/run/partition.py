"""The rows of one partition in the order of its window, each with the code of its result, as one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from rederive.engines.resident.storage.codes import NULL, Code, CodedRow
from rederive.engines.resident.storage.row_index import Array

BLOCK: Final = 256  # rows between two running totals that are remembered
_FEW: Final = 4  # rows that are moved one by one; more are merged into a new array

Entering = Sequence[tuple[int, CodedRow]]
"""Rows that enter, each with its place in the new order, by place."""


class Partition:
    """The columns are those of the rows that vary within a partition, and the code of the result, which comes last."""

    __slots__ = ("_room", "count", "marks")

    def __init__(self, rows: Array) -> None:
        self._room = rows
        self.count = len(rows)
        # marks[b]: the exact sum and the number of values of the rows before place b * BLOCK.
        self.marks: list[tuple[int, int]] = [(0, 0)]

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """The bytes of the rows and of the totals."""
        return self._room.nbytes + sum(100 + one.bit_length() // 8 for one, _ in self.marks)

    @property
    def rows(self) -> Array:
        """The rows in their order; a view of the array, which the next splice changes."""
        return self._room[: self.count]

    def column(self, place: int) -> Array:
        """One column, in the order of the rows."""
        return self._room[: self.count, place]

    def search(self, is_before: Callable[[Sequence[Code]], bool]) -> int:
        """The first place whose row is not before something; in the order, all rows that are come first."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if is_before(self._room[middle].tolist()):
                low = middle + 1
            else:
                high = middle
        return low

    def set_results(self, low: int, codes: Array) -> None:
        """Give the rows from a place on these results."""
        self._room[low : low + len(codes), -1] = codes

    def splice(self, leaving: Sequence[int], entering: Entering) -> None:
        """Take out the rows at places of the old order, and put in others at places of the new one; both ascend."""
        first = min([*leaving[:1], *(place for place, _ in entering[:1])])
        del self.marks[first // BLOCK + 1 :]
        if len(leaving) + len(entering) > _FEW:
            self._merge(leaving, entering)
            return
        for place in reversed(leaving):
            self._room[place : self.count - 1] = self._room[place + 1 : self.count]
            self.count -= 1
        for place, row in entering:
            if self.count == len(self._room):
                # A quarter more than needed: growing copies each row a few times at most, whatever the final size.
                self._room = np.resize(self._room, (self.count + self.count // 4 + 16, self._room.shape[1]))
            self._room[place + 1 : self.count + 1] = self._room[place : self.count]
            self._room[place] = row
            self.count += 1

    def _merge(self, leaving: Sequence[int], entering: Entering) -> None:
        stays = np.ones(self.count, np.bool_)
        stays[list(leaving)] = False
        count = self.count - len(leaving) + len(entering)
        merged: Array = np.empty((count, self._room.shape[1]), np.uint32)
        is_old = np.ones(count, np.bool_)
        if entering:
            places = [place for place, _ in entering]
            is_old[places] = False
            merged[places] = np.array([row for _, row in entering], np.uint32)
        merged[is_old] = self.rows[stays]
        self._room, self.count = merged, count


def peers(columns: Sequence[Array], count: int) -> tuple[Array, Array]:
    """For rows in order, the places of the rows that are equal to each one: the first, and the one after the last."""
    is_first = np.zeros(count, np.bool_)
    is_first[:1] = True
    for column in columns:
        is_first[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(is_first)
    number = np.cumsum(is_first) - 1
    return starts[number], np.append(starts[1:], count)[number]


def known_places(codes: Array) -> Array:
    """The places whose value is not NULL."""
    found: Array = np.flatnonzero(codes != NULL)
    return found
