"""Columns of values as arrays: codes, or numbers in exact units (see `storage.unit_codes`).

Whatever does not fit 64 bits raises `NotByColumn`, and the rows are evaluated one by one instead, so that no answer depends on
how it was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rederive.engines.resident.storage.codes import NULL, CodedRow, Codes
from rederive.engines.resident.storage.column_table import CodeColumns
from rederive.engines.resident.storage.row_index import Array
from rederive.engines.resident.storage.unit_codes import UnitCodec
from rederive.ir.terms import Type, Value

MOST: Final = 2**63 - 1


class NotByColumn(Exception):
    """These rows have to be evaluated one by one. Never reaches a user."""


class Space:
    """The codes of an engine, and their values in units."""

    def __init__(self, codes: Codes) -> None:
        self.codes = codes

    def encode(self, type_: Type, values: Sequence[Value]) -> Array:
        """The codes of values."""
        return self.codes.codec(type_).encode_many(values)

    def unit_codec(self, type_: Type) -> UnitCodec:
        """The codec of a type that has units."""
        codec = self.codes.codec(type_)
        if not isinstance(codec, UnitCodec):
            raise NotByColumn(f"a {type_} has no units")
        return codec


class Vector:
    """One column of one type. It has codes or units, and makes the other form when that is needed."""

    __slots__ = ("_codes", "_nulls", "_units", "space", "type")

    def __init__(
        self, space: Space, type_: Type, codes: Array | None = None, units: Array | None = None, nulls: Array | None = None
    ) -> None:
        self.space = space
        self.type = type_
        self._codes = codes
        self._units = units
        self._nulls = nulls  # where the value is NULL; None where it nowhere is

    def __len__(self) -> int:
        return len(self._codes if self._codes is not None else self._units)  # type: ignore[arg-type]

    def codes(self) -> Array:
        """The column as codes."""
        if self._codes is None:
            assert self._units is not None
            self._codes = self.space.unit_codec(self.type).from_units(self._units)
            if self._nulls is not None:
                self._codes[self._nulls] = NULL
        return self._codes

    def units(self) -> Array:
        """The column in units; 0 where it is NULL."""
        if self._units is None:
            assert self._codes is not None
            try:
                self._units = self.space.unit_codec(self.type).units(self._codes)
            except OverflowError as error:
                raise NotByColumn(str(error)) from None
            self._nulls = None if self._codes.all() else self._codes == NULL
        return self._units

    def nulls(self) -> Array | None:
        """Where the column is NULL; None where it nowhere is."""
        if self._units is None and self._codes is not None:
            return None if self._codes.all() else self._codes == NULL
        return self._nulls

    def values(self) -> list[Value]:
        """The column as Python values."""
        return self.space.codes.codec(self.type).decode_many(self.codes())

    def take(self, rows: Array) -> Vector:
        """The column at these positions."""
        codes = None if self._codes is None else self._codes[rows]
        # Units are made again from codes where there are both: fewer arrays are moved.
        units = None if self._units is None or codes is not None else self._units[rows]
        nulls = None if self._nulls is None or codes is not None else self._nulls[rows]
        return Vector(self.space, self.type, codes, units, nulls)

    def identity(self) -> Array:
        """Numbers that are equal where the values are, for comparisons within this column."""
        if self._codes is not None:
            return self._codes
        assert self._units is not None
        return self._units if self._nulls is None else self.codes()


class Grouping:
    """The rows of a batch by the values of some columns. `groups`: their codes, in the order of `numbers`."""

    __slots__ = ("groups", "numbers", "rows")

    def __init__(self, columns: Sequence[Vector], count: int) -> None:
        self.numbers, first = group_numbers([column.identity() for column in columns], count)
        self.groups: CodeColumns = tuple(column.take(first).codes() for column in columns)
        self.rows: Array = np.bincount(self.numbers, minlength=len(first))


class Batch:
    """Distinct rows of one relation as vectors."""

    def __init__(self, vectors: Sequence[Vector], count: int) -> None:
        self.vectors = tuple(vectors)
        self.count = count
        self._groupings: dict[tuple[int, ...], Grouping] = {}

    def __len__(self) -> int:
        return self.count

    def take(self, rows: Array) -> Batch:
        """The rows at these positions."""
        return Batch([vector.take(rows) for vector in self.vectors], len(rows))

    def where(self, holds: Array) -> Batch:
        """The rows for which a test holds."""
        return self if holds.all() else self.take(holds.nonzero()[0])

    def grouping(self, columns: tuple[int, ...]) -> Grouping:
        """The rows by these columns; aggregates over the same rows share it."""
        if columns not in self._groupings:
            self._groupings[columns] = Grouping([self.vectors[i] for i in columns], self.count)
        return self._groupings[columns]

    def code_columns(self) -> CodeColumns:
        """The columns of codes."""
        return tuple(vector.codes() for vector in self.vectors)

    def coded_rows(self) -> list[CodedRow]:
        """The rows, coded."""
        return list(zip(*(column.tolist() for column in self.code_columns()), strict=True))


def number_distinct(keys: Array) -> tuple[Array, int]:
    """A number from 0 on for each distinct key, and how many there are."""
    if not len(keys):
        return keys.astype(np.int64), 0
    least, most = int(keys.min()), int(keys.max())
    # A table by key is faster than sorting, where it is not much longer than the column.
    if most - least < 4 * len(keys) + 1024:
        offsets = keys - least if least else keys
        there = np.zeros(most - least + 1, np.bool_)
        there[offsets] = True
        numbers = np.cumsum(there) - 1
        return numbers[offsets], int(numbers[-1]) + 1
    distinct, inverse = np.unique(keys, return_inverse=True)
    return inverse, len(distinct)


def exact_keys(columns: Sequence[Array]) -> Array:
    """One number for each row, equal where the columns are. There must be rows."""
    first, *others = columns
    if not others:
        return first
    keys, bound = _from_zero(first)
    for column in others:
        added, span = _from_zero(column)
        if bound * span > MOST:
            # Both are now below the number of rows, so the product fits 64 bits.
            (keys, bound), (added, span) = number_distinct(keys), number_distinct(added)
        keys, bound = keys * span + added, bound * span
    return keys


def _from_zero(column: Array) -> tuple[Array, int]:
    """Numbers from 0 on that are equal where those of a column are, and a bound of them."""
    least, most = int(column.min()), int(column.max())
    if most - least >= MOST:
        return number_distinct(column)
    return column.astype(np.int64, copy=False) - least, most - least + 1


def group_numbers(columns: Sequence[Array], count: int) -> tuple[Array, Array]:
    """A number for each row, equal where the columns are, and the first row of each number."""
    if not columns or not count:
        return np.zeros(count, np.int64), np.zeros(min(count, 1), np.int64)
    numbers, distinct = number_distinct(exact_keys(columns))
    first = np.empty(distinct, np.int64)
    first[numbers[::-1]] = np.arange(count - 1, -1, -1)
    return numbers, first


def one_of_each(batches: Sequence[Batch], *, is_distinct: bool) -> Batch:
    """The union of batches as sets. `is_distinct`: nothing is there twice already."""
    if is_distinct:
        (only,) = batches
        return only
    together = _concatenated(batches)
    _, chosen = group_numbers([vector.identity() for vector in together.vectors], len(together))
    return together if len(chosen) == len(together) else together.take(chosen)


def without(one: Batch, other: Batch) -> Batch:
    """The rows of a batch that another does not have."""
    return differences(one, other)[0]


def differences(one: Batch, other: Batch) -> tuple[Batch, Batch]:
    """The rows of each of two batches that the other does not have."""
    if not len(one) or not len(other):
        return one, other
    keys = exact_keys([vector.identity() for vector in _concatenated((one, other)).vectors])
    first, second = keys[: len(one)], keys[len(one) :]
    return one.where(~_are_in(first, second)), other.where(~_are_in(second, first))


def _are_in(keys: Array, others: Array) -> Array:
    """Which of some numbers are among others, of which there is at least one."""
    ordered = np.sort(others)
    found: Array = ordered[np.minimum(ordered.searchsorted(keys), len(ordered) - 1)] == keys
    return found


def _concatenated(batches: Sequence[Batch]) -> Batch:
    (first, *others) = batches
    if not others:
        return first
    vectors = []
    for parts in zip(*(batch.vectors for batch in batches), strict=True):
        codes = np.concatenate([part.codes() for part in parts])
        vectors.append(Vector(parts[0].space, parts[0].type, codes))
    return Batch(vectors, sum(map(len, batches)))
