"""The results of neighbouring rows of a partition, by column where a function allows it.

Sums are exact: integers of 64 bits where they fit, and of any size where they do not, so no result depends on how it was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np

from rederive.engines.resident.batch.vectors import NotByColumn, Space, Vector
from rederive.engines.resident.run.partition import BLOCK, Partition, known_places
from rederive.engines.resident.run.window_frames import WindowFrames
from rederive.engines.resident.storage.codes import NULL, Code
from rederive.engines.resident.storage.row_index import Array
from rederive.engines.resident.storage.unit_codes import UnitCodec
from rederive.ir.rules import EXTREMES, TOTALS, Aggregate, Function
from rederive.ir.terms import Kind, Type
from rederive.scalar.totals import Total, count_units, total_result, unit_of
from rederive.scalar.windows import improves, tiles, window_function

_PICKS: Final = frozenset({Function.FIRST_VALUE, Function.LAST_VALUE, Function.NTH_VALUE})
_EXACT: Final = 2**53  # whole numbers up to this are floats


class WindowResults:
    """The results of one function of a window, as codes."""

    def __init__(self, aggregate: Aggregate, frames: WindowFrames, result: Type, space: Space) -> None:
        self.aggregate = aggregate
        self.frames = frames
        self.type = result
        self.space = space
        self.codec = space.codes.codec(result)
        self.value_type = frames.types[aggregate.value] if aggregate.value is not None else None
        self._units = count_units(self.value_type) if aggregate.function is not Function.COUNT else None
        self._by_rows = window_function(aggregate, frames.types, result)
        self._of_rows = self._choose()

    def of(self, partition: Partition, low: int, high: int) -> Array:
        """The codes of the results of the rows between two places; OverflowError if one does not fit its type."""
        return self._of_rows(partition, low, high)

    def _choose(self) -> Callable[[Partition, int, int], Array]:
        function, frame = self.aggregate.function, self.aggregate.frame
        if function is Function.ROW_NUMBER:
            return self._numbers
        if function is Function.NTILE:
            return lambda partition, low, high: self._encoded(tiles(len(partition), self.aggregate.parameters[0])[low:high])
        if function in (Function.PERCENT_RANK, Function.CUME_DIST):
            return self._shares
        # What is picked has the codes of its column.
        if function is Function.LAG and self.type == self.value_type:
            return self._shifted
        if function in _PICKS and self.type == self.value_type:
            return self._picked
        if function in TOTALS:
            return self._totals
        if function in EXTREMES and frame is not None and frame.start is None and self.type == self.value_type:
            return self._running_extremes
        return self._folded

    def _encoded(self, values: Sequence[Any]) -> Array:
        return self.codec.encode_many(values)

    def _folded(self, partition: Partition, low: int, high: int) -> Array:
        """By row: from the rows that the results depend on."""
        first, last = self.frames.span(partition, low)[0], self.frames.span(partition, high - 1)[1]
        return self._encoded(self._by_rows(self.frames.decoded(partition, first, last))[low - first : high - first])

    # Places

    def _numbers(self, partition: Partition, low: int, high: int) -> Array:
        """NULL where a row has no number because only the first rows have."""
        assert isinstance(self.codec, UnitCodec)
        found = self.codec.from_units(np.arange(low + 1, high + 1))
        if self.aggregate.most is not None:
            found[max(self.aggregate.most - low, 0) :] = NULL
        return found

    def _shares(self, partition: Partition, low: int, high: int) -> Array:
        starts, ends = self.frames.bounds(partition, low, high)
        if self.aggregate.function is Function.CUME_DIST:
            return self._encoded((ends / len(partition)).tolist())
        return self._encoded((starts / max(len(partition) - 1, 1)).tolist())

    def _shifted(self, partition: Partition, low: int, high: int) -> Array:
        steps, skips_null = self.aggregate.parameters
        assert isinstance(steps, int)
        values, places = self._values(partition), np.arange(low, high)
        others = self.aggregate.others
        found: Array = partition.rows[low:high, others[0]].copy() if others else np.full(len(places), NULL, np.uint32)
        if not skips_null or not steps:
            at = places - steps
            there = (at >= 0) & (at < len(partition))
            found[there] = values[at[there]]
            return found
        known = known_places(values)
        at = np.searchsorted(known, places) - steps
        if steps < 0:
            at += (values[places] != NULL).astype(np.int64) - 1
        there = (at >= 0) & (at < len(known))
        found[there] = values[known[at[there]]]
        return found

    def _picked(self, partition: Partition, low: int, high: int) -> Array:
        starts, ends = self.frames.bounds(partition, low, high)
        place, skips_null = self.aggregate.parameters
        assert isinstance(place, int)
        values = self._values(partition)
        if skips_null:
            known = known_places(values)
            starts, ends = (np.searchsorted(known, found) for found in (starts, np.maximum(starts, ends)))
            values = values[known]
        at = starts + place - 1 if place > 0 else ends - 1
        there = (starts <= at) & (at < ends)
        found: Array = np.full(len(at), NULL, np.uint32)
        found[there] = values[at[there]]
        return found

    def _values(self, partition: Partition) -> Array:
        assert self.aggregate.value is not None
        return partition.column(self.aggregate.value)

    # Totals

    def _totals(self, partition: Partition, low: int, high: int) -> Array:
        """Differences of running totals, from the last one that is remembered."""
        starts, ends = self.frames.bounds(partition, low, high)
        ends = np.maximum(starts, ends)
        frame = self.aggregate.frame
        assert frame is not None
        least = int(ends[0]) if frame.start is None else int(starts[0])
        first, sums, counts = self._running(partition, least, int(ends[-1]), is_marked=frame.start is None)
        if frame.start is None:
            total, values = sums[ends - first], counts[ends - first]
        else:
            total, values = sums[ends - first] - sums[starts - first], counts[ends - first] - counts[starts - first]
        return self._total_codes(total, values, ends - starts)

    def _running(self, partition: Partition, low: int, high: int, *, is_marked: bool) -> tuple[int, Array, Array]:
        """From a place at or before `low`, the sums and the numbers of values before each place up to `high`."""
        marks, block = partition.marks, 0
        first = low
        if is_marked:
            block = min(low // BLOCK, len(marks) - 1)
            first = block * BLOCK
        sums, counts = self._accumulated(partition, first, high, *(marks[block] if is_marked else (0, 0)))
        if is_marked:
            for place in range(len(marks) * BLOCK, high + 1, BLOCK):
                marks.append((int(sums[place - first]), int(counts[place - first])))
        return first, sums, counts

    def _accumulated(self, partition: Partition, low: int, high: int, before: int, values: int) -> tuple[Array, Array]:
        if self.value_type is None:
            return np.zeros(high - low + 1, np.int64), np.arange(values, values + high - low + 1)
        codes = self._values(partition)[low:high]
        counts = np.concatenate(([values], values + np.cumsum(codes != NULL)))
        units = self._value_units(codes)
        # No sum of numbers below this overflows 64 bits.
        if units.dtype == object or abs(before) + _magnitude(units) * len(units) >= 2**62:
            units = units.astype(object)
        return np.cumsum(np.concatenate((np.array([before], units.dtype), units))), counts

    def _value_units(self, codes: Array) -> Array:
        assert self.value_type is not None
        if self._units is None:
            return np.zeros(len(codes), np.int64)
        try:
            return Vector(self.space, self.value_type, np.ascontiguousarray(codes)).units()
        except NotByColumn:
            values = self.space.codes.codec(self.value_type).values
            return np.array([self._units(values[code]) if code else 0 for code in codes.tolist()], object)

    def _total_codes(self, sums: Array, values: Array, rows: Array) -> Array:
        function, codec = self.aggregate.function, self.codec
        if function is Function.COUNT:
            assert isinstance(codec, UnitCodec)
            return codec.from_units(values)
        if function is Function.SUM and sums.dtype != object and isinstance(codec, UnitCodec) and self._is_summed_in_units():
            if self.type.kind is Kind.DECIMAL and _magnitude(sums) >= 10**self.type.precision:
                raise OverflowError
            found = codec.from_units(sums)
            found[values == 0] = NULL
            return found
        unit = unit_of(self.value_type)
        is_float = function is Function.MEAN and self.type.kind is Kind.FLOAT and sums.dtype != object
        # A quotient of two floats is the float nearest to it, and these are exact.
        if is_float and _magnitude(sums) <= _EXACT and int(values.max(initial=0)) * unit <= _EXACT:
            quotients = sums / np.maximum(values * unit, 1)
            found = self._encoded(quotients.tolist())
            found[values == 0] = NULL
            return found
        totals = map(Total, rows.tolist(), sums.tolist(), values.tolist())
        return self._encoded([total_result(function, total, self.value_type, self.type) for total in totals])

    def _is_summed_in_units(self) -> bool:
        return self.value_type is not None and (self.type.kind, self.type.scale) == (self.value_type.kind, self.value_type.scale)

    # Extremes

    def _running_extremes(self, partition: Partition, low: int, high: int) -> Array:
        """From the result of the row before, whose frame is a part of those after it."""
        _, ends = self.frames.bounds(partition, low, high)
        first, best = 0, NULL
        if low:
            first = int(self.frames.bounds(partition, low - 1, low)[1][0])
            best = int(partition.rows[low - 1, -1])
        codes = np.concatenate((np.array([best], np.uint32), self._values(partition)[first : int(ends[-1])]))
        found: Array = self._accumulated_extremes(codes)[ends - first]
        return found

    def _accumulated_extremes(self, codes: Array) -> Array:
        """For each place, the best of the values up to it."""
        assert self.value_type is not None
        codec = self.space.codes.codec(self.value_type)
        try:
            units = codec.units(codes) if isinstance(codec, UnitCodec) else None
        except OverflowError:
            units = None
        if units is None or not len(units) or _magnitude(units) >= 2**62:
            return np.fromiter(self._best_by_row(codes.tolist()), np.uint32, len(codes))
        is_least = self.aggregate.function is Function.MIN
        units[codes == NULL] = 2**62 if is_least else -(2**62)
        best = (np.minimum if is_least else np.maximum).accumulate(units)
        changes = np.concatenate(([True], best[1:] != best[:-1]))
        found: Array = codes[np.flatnonzero(changes)[np.cumsum(changes) - 1]]
        return found

    def _best_by_row(self, codes: Iterable[Code]) -> Iterable[Code]:
        assert self.value_type is not None
        values, is_better = self.space.codes.codec(self.value_type).values, improves(self.aggregate.function)

        def better(best: Code, code: Code) -> Code:
            if not best or not code:
                return best or code
            return code if is_better(values[code], values[best]) else best

        return accumulate(codes, better)


def _magnitude(numbers: Array) -> int:
    """The largest absolute value; that of the least integer of 64 bits is beyond them."""
    return max(-int(numbers.min(initial=0)), int(numbers.max(initial=0)))
