"""Counts and exact sums of the groups of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rederive.engines.resident.batch.vectors import Batch, Vector, number_distinct
from rederive.engines.resident.storage.codes import CodedRow
from rederive.engines.resident.storage.row_index import Array
from rederive.ir.terms import Kind

_FLOAT_DIGITS = 53  # binary digits of a float's mantissa
_LEAST = 1074  # floats are whole multiples of 2 ** -1074
_HALF = 32  # bits


class GroupSum(NamedTuple):
    """What the rows of one group add up to. `sum`: in units; `values`: the rows whose value is not NULL."""

    group: CodedRow
    rows: int
    sum: int
    values: int


def group_sums(batch: Batch, columns: tuple[int, ...], value: int | None, *, summed: bool) -> Iterator[GroupSum]:
    """The sum of each group; without `summed` its rows and values are counted alone."""
    grouping = batch.grouping(columns)
    groups, rows = grouping.groups, grouping.rows
    if value is None:
        return (GroupSum(group, n, 0, n) for group, n in zip(groups, rows, strict=True))
    vector, numbers = batch.vectors[value], grouping.numbers
    nulls = vector.nulls()
    values = rows
    if nulls is not None:
        known = np.flatnonzero(~nulls)
        vector, numbers = vector.take(known), numbers[known]
        values = np.bincount(numbers, minlength=len(groups)).tolist()
    sums = _sums(vector, numbers, len(groups)) if summed else [0] * len(groups)
    return map(GroupSum, groups, rows, sums, values)


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
