"""Counts and exact sums of the groups of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rederive.engines.resident.batch.vectors import Batch, Vector, group_numbers, number_distinct
from rederive.engines.resident.storage.column_table import CodeColumns
from rederive.engines.resident.storage.row_index import Array
from rederive.ir.terms import Kind
from rederive.scalar.totals import NOT_FINITE

_FLOAT_DIGITS = 53  # binary digits of a float's mantissa
_LEAST = 1074  # floats are whole multiples of 2 ** -1074
_HALF = 32  # bits
_LARGEST = 2**62  # sums from which on numbers of Python are used


class GroupSums(NamedTuple):
    """What the rows of each group add up to. `sums`: in units, or zeros; `values`: the rows whose value is not NULL."""

    groups: CodeColumns
    rows: Array
    sums: Array
    values: Array


def group_sums(batch: Batch, columns: tuple[int, ...], value: int | None, times: int, *, summed: bool) -> GroupSums:
    """The sum of each group, `times` over; without `summed` its rows and values are counted alone."""
    grouping = batch.grouping(columns)
    rows = times * grouping.rows
    if value is None:
        return GroupSums(grouping.groups, rows, np.zeros(len(rows), np.int64), rows)
    vector, numbers = batch.vectors[value], grouping.numbers
    nulls = vector.nulls()
    values = rows
    if nulls is not None:
        known = np.flatnonzero(~nulls)
        vector, numbers = vector.take(known), numbers[known]
        values = times * np.bincount(numbers, minlength=len(rows))
    sums = times * _as_array(_sums(vector, numbers, len(rows))) if summed else np.zeros(len(rows), np.int64)
    return GroupSums(grouping.groups, rows, sums, values)


def merge_sums(parts: Sequence[GroupSums]) -> GroupSums:
    """The sums of the same groups added up: each group is in the result once."""
    if len(parts) == 1:
        return parts[0]
    groups = tuple(map(np.concatenate, zip(*(part.groups for part in parts), strict=True)))
    numbers, first = group_numbers(groups, sum(len(part.rows) for part in parts))
    added = []
    for columns in ([part.rows for part in parts], [part.sums for part in parts], [part.values for part in parts]):
        column = np.concatenate(columns)
        # Each part is below 2^62, so two of them fit 64 bits.
        kind = column.dtype if len(parts) == 2 else object
        total = np.zeros(len(first), kind)
        np.add.at(total, numbers, column)
        added.append(_as_array(total.tolist()))
    return GroupSums(tuple(column[first] for column in groups), *added)


def _as_array(numbers: list[int]) -> Array:
    """Numbers of 64 bits where they fit, else of Python."""
    if all(-_LARGEST < number < _LARGEST for number in (min(numbers, default=0), max(numbers, default=0))):
        return np.array(numbers, np.int64)
    found: Array = np.array(numbers, object)
    return found


def _sums(vector: Vector, numbers: Array, groups: int) -> list[int]:
    if vector.type.kind is Kind.FLOAT:
        return _float_sums(np.array(vector.values(), np.float64), numbers, groups)
    return exact_sums(vector.units(), numbers, groups)


def exact_sums(units: Array, numbers: Array, groups: int) -> list[int]:
    """The sum of the units with each number, as integers without bound.

    >>> exact_sums(np.array([2**62, 2**62, 2**62, 1]), np.array([0, 0, 0, 1]), 2) == [3 * 2**62, 1]
    True
    """
    if not len(units):
        return [0] * groups
    most = max(abs(int(units.min())), abs(int(units.max()))) * len(units)
    # Sums of floats are exact as long as no partial sum can need more digits than a float has.
    if most < 2**_FLOAT_DIGITS:
        sums: list[int] = np.bincount(numbers, weights=units, minlength=groups).astype(np.int64).tolist()
        return sums
    if most < 2**63:
        total = np.zeros(groups, np.int64)
        np.add.at(total, numbers, units)
        return total.tolist()
    high, low = exact_sums(units >> _HALF, numbers, groups), exact_sums(units & (2**_HALF - 1), numbers, groups)
    return [(one << _HALF) + two for one, two in zip(high, low, strict=True)]


def _float_sums(floats: Array, numbers: Array, groups: int) -> list[int]:
    """In parts of 2 ** -1074: the mantissas are summed for each group and exponent, and shifted at the end."""
    if not (finite := np.isfinite(floats)).all():
        sums = _float_sums(floats[finite], numbers[finite], groups)
        chosen = (np.isnan(floats), floats == np.inf, floats == -np.inf)
        for which, units in zip(chosen, NOT_FINITE, strict=True):
            counts = np.bincount(numbers[which], minlength=groups).tolist()
            sums = [one + count * units for one, count in zip(sums, counts, strict=True)]
        return sums
    if not len(floats):
        return [0] * groups
    fractions, exponents = np.frexp(floats)
    mantissas = np.ldexp(fractions, _FLOAT_DIGITS).astype(np.int64)
    scales, distinct = number_distinct(exponents.astype(np.int64) - int(exponents.min()))
    parts = exact_sums(mantissas, numbers * distinct + scales, groups * distinct)
    shifts = np.zeros(distinct, np.int64)
    shifts[scales] = exponents.astype(np.int64) - _FLOAT_DIGITS + _LEAST
    sums = [0] * groups
    for at, part in enumerate(parts):
        if part:
            shift = int(shifts[at % distinct])
            # Below the least normal float the mantissa ends in as many zeros as are cut off.
            sums[at // distinct] += part << shift if shift >= 0 else part >> -shift
    return sums
