"""Columns of values as arrays: codes, or numbers in exact units.

A unit is the smallest part of one that a type can hold: 1 of an integer, 10^-s of a decimal of scale s, a day of a date, a
microsecond of a timestamp. Whatever does not fit 64 bits raises `NotByColumn`, and the rows are evaluated one by one instead, so
that no answer depends on how it was computed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from itertools import count
from typing import Any, Final

import numpy as np

from rederive.engines.resident.storage.codes import NULL, Codec, CodedRow, Codes, TooManyValues
from rederive.engines.resident.storage.column_table import CodeColumns
from rederive.engines.resident.storage.row_index import Array
from rederive.ir.terms import Kind, Type, Value

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_WIDE: Final = Context(prec=100)
MOST: Final = 2**63 - 1
_SAMPLE: Final = 20  # values that tell whether most are new


class NotByColumn(Exception):
    """These rows have to be evaluated one by one. Never reaches a user."""


def units_of(type_: Type) -> Callable[[Any], int] | None:
    """The function that gives a value in units; None for types that are not numbers or times."""
    match type_.kind:
        case Kind.NUMBER | Kind.UNSIGNED | Kind.BOOLEAN:
            return int
        case Kind.DECIMAL:
            return lambda value: int(value.scaleb(type_.scale, _WIDE))
        case Kind.DATE:
            return lambda value: value.toordinal()
        case Kind.TIMESTAMP:
            return lambda value: (value - _EPOCH) // _MICROSECOND
        case _:
            return None


def value_of(type_: Type) -> Callable[[int], Value]:
    """The inverse of `units_of`."""
    match type_.kind:
        case Kind.DECIMAL:
            return lambda units: Decimal(units).scaleb(-type_.scale, _WIDE)
        case Kind.BOOLEAN:
            return bool
        case Kind.DATE:
            return datetime.date.fromordinal
        case Kind.TIMESTAMP:
            return lambda units: _EPOCH + units * _MICROSECOND
        case _:
            return lambda units: units


class UnitValues:
    """The values of one codec in units, by code. It follows the codec, whose codes only grow."""

    __slots__ = ("_codec", "_filled", "_type", "_units", "is_exact")

    def __init__(self, type_: Type, codec: Codec) -> None:
        self._type = type_
        self._codec = codec
        self._units: Array = np.zeros(1024, np.int64)
        self._filled = 1  # NULL has code 0, and 0 units that nobody reads
        self.is_exact = True

    def extend(self) -> Array:
        """The array, with all codes that there are now."""
        values = self._codec.values
        if self._filled < len(values):
            convert = units_of(self._type)
            assert convert is not None
            if len(values) > len(self._units):
                grown = np.zeros(len(values) + len(values) // 4, np.int64)
                grown[: self._filled] = self._units[: self._filled]
                self._units = grown
            new = values[self._filled :]
            try:
                self._units[self._filled : len(values)] = np.fromiter(map(convert, new), np.int64, len(new))
            except OverflowError:
                self.is_exact = False
            self._filled = len(values)
        if not self.is_exact:
            raise NotByColumn(f"a {self._type} beyond 64 bits")
        return self._units

    def take(self, start: int, units: Array) -> None:
        """Know the units of the codes from `start` on without asking the values, where nothing before them is missing."""
        if self._filled == start and self._filled + len(units) == len(self._codec.values):
            if len(self._codec.values) > len(self._units):
                grown = np.zeros(len(self._codec.values) + len(self._codec.values) // 4, np.int64)
                grown[: self._filled] = self._units[: self._filled]
                self._units = grown
            self._units[start : start + len(units)] = units
            self._filled = start + len(units)

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return self._units.nbytes


class Space:
    """The codes of an engine, and their values in units."""

    def __init__(self, codes: Codes) -> None:
        self.codes = codes

    def unit_values(self, type_: Type) -> UnitValues:
        """The units of a type's codes."""
        if type_ not in self.codes.units:
            self.codes.units[type_] = UnitValues(type_, self.codes.codec(type_))
        found: UnitValues = self.codes.units[type_]
        return found

    def encode(self, type_: Type, values: Sequence[Value]) -> Array:
        """The codes of values."""
        return np.fromiter(map(self.codes.codec(type_).encode, values), np.uint32, len(values))

    def encode_distinct(self, type_: Type, values: Sequence[Value]) -> Array:
        """The codes of distinct values."""
        codec = self.codes.codec(type_)
        known, start = codec.codes, len(codec.values)
        if start + len(values) >= known.ceiling:
            raise TooManyValues
        # Evenly spaced: what is known already is often at one end.
        sample = values[:: max(len(values) // _SAMPLE, 1)]
        # Other codecs change a value before they look it up.
        if type(codec) is not Codec or 4 * sum(value in known for value in sample) >= len(sample):
            return self.encode(type_, values)
        # Most are new: each gets an entry in the list of values, and only the first entry of a value is ever used.
        codec.values.extend(values)
        return np.fromiter(map(known.setdefault, values, count(start)), np.uint32, len(values))

    def encode_units(self, type_: Type, values: Sequence[Value], units: Array) -> Array:
        """The codes of distinct values that are this many units each."""
        start = len(self.codes.codec(type_).values)
        codes = self.encode_distinct(type_, values)
        if len(self.codes.codec(type_).values) == start + len(units):
            # Each has an entry of its own in the list of values: their units need no look at the values.
            self.unit_values(type_).take(start, units)
        return codes


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
            distinct, inverse = np.unique(self._units, return_inverse=True)
            codes = self.space.encode_units(self.type, list(map(value_of(self.type), distinct.tolist())), distinct)
            self._codes = codes[inverse]
            if self._nulls is not None:
                self._codes[self._nulls] = NULL
        return self._codes

    def units(self) -> Array:
        """The column in units; 0 where it is NULL."""
        if self._units is None:
            assert self._codes is not None
            if units_of(self.type) is None:
                raise NotByColumn(f"a {self.type} has no units")
            self._units = self.space.unit_values(self.type).extend()[self._codes]
            nulls = self._codes == NULL
            self._nulls = nulls if nulls.any() else None
        return self._units

    def nulls(self) -> Array | None:
        """Where the column is NULL; None where it nowhere is."""
        if self._units is None and self._codes is not None:
            nulls = self._codes == NULL
            return nulls if nulls.any() else None
        return self._nulls

    def values(self) -> list[Value]:
        """The column as Python values."""
        return list(map(self.space.codes.codec(self.type).values.__getitem__, self.codes().tolist()))

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
        return self if holds.all() else self.take(np.flatnonzero(holds))

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
    most = int(keys.max())
    # A table by key is faster than sorting, where it is not much longer than the column.
    if int(keys.min()) >= 0 and most < 4 * len(keys) + 1024:
        there = np.zeros(most + 1, np.bool_)
        there[keys] = True
        numbers = np.cumsum(there) - 1
        return numbers[keys], int(numbers[-1]) + 1
    distinct, inverse = np.unique(keys, return_inverse=True)
    return inverse, len(distinct)


def group_numbers(columns: Sequence[Array], count: int) -> tuple[Array, Array]:
    """A number for each row, equal where the columns are, and the first row of each number."""
    if not columns:
        return np.zeros(count, np.int64), np.zeros(min(count, 1), np.int64)
    numbers, distinct = number_distinct(columns[0])
    for column in columns[1:]:
        others, more = number_distinct(column)
        # Both are below the number of rows, so the product fits 64 bits.
        numbers, distinct = number_distinct(numbers * more + others)
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
    if not len(one) or not len(other):
        return one
    together = _concatenated((one, other))
    numbers, first = group_numbers([vector.identity() for vector in together.vectors], len(together))
    there = np.zeros(len(first), np.bool_)
    there[numbers[len(one) :]] = True
    return one.where(~there[numbers[: len(one)]])


def _concatenated(batches: Sequence[Batch]) -> Batch:
    (first, *others) = batches
    if not others:
        return first
    vectors = []
    for parts in zip(*(batch.vectors for batch in batches), strict=True):
        codes = np.concatenate([part.codes() for part in parts])
        vectors.append(Vector(parts[0].space, parts[0].type, codes))
    return Batch(vectors, sum(map(len, batches)))
