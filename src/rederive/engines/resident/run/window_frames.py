"""Where the frames of a partition's rows are, found in its order: which results a change can change, and from which rows.

A result depends on the *span* of its row alone: the places from the row to the ends of its frame. Both ends of the spans ascend
with the rows, so the rows whose span meets a changed place are neighbours, and a binary search finds the first and the last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from rederive.engines.resident.run.partition import Partition, known_places, peers
from rederive.engines.resident.storage.codes import CodedRow, Codes
from rederive.engines.resident.storage.row_index import Array
from rederive.ir.rules import Aggregate, Frame, Function, Order, Relation
from rederive.ir.terms import Row, Type, Value
from rederive.scalar.windows import distance_mover, frames, is_before

WHOLE: Final = frozenset({Function.NTILE, Function.PERCENT_RANK, Function.CUME_DIST})
"""Functions whose results depend on the number of rows."""
_SINGLE: Final = 64  # frames that are searched one by one; more are found in one pass over their rows


class WindowFrames:
    """The order and the frames of one function of a window."""

    def __init__(self, aggregate: Aggregate, source: Relation, codes: Codes) -> None:
        self.aggregate = aggregate
        self.types: Sequence[Type] = source.types
        self.decoders: list[Any] = [codes.codec(type_).values for type_ in source.types]
        # Ties are broken by all columns, so that the results are a function of the rows: recomputation finds the same.
        varying = [i for i in range(source.arity) if i not in aggregate.group]
        self.by = (*(o for o in aggregate.order if o.column in varying), *map(Order, varying))
        self.frame = _frame(aggregate)
        self._peers_by = [o for o in aggregate.order if o.column in varying]
        self._start = self._distance(self.frame.start, after=False)
        self._end = self._distance(self.frame.end, after=True)

    def compare(self, one: Sequence[int], two: Sequence[int], by: Sequence[Order]) -> int:
        """Less than 0 where the first row is before the second in an order, 0 where they are equal in it."""
        for order in by:
            a, b = one[order.column], two[order.column]
            # Equal codes are equal values; only what differs is decoded.
            if a != b:
                values = self.decoders[order.column]
                return _compared(values[a], values[b], order)
        return 0

    def compare_rows(self, one: CodedRow, two: CodedRow) -> int:
        """Compare two rows in the order of the partition, in which no two rows are equal."""
        return self.compare(one, two, self.by)

    def place(self, partition: Partition, row: CodedRow) -> int:
        """The place of a row, or the one that it would have."""
        return partition.search(lambda other: self.compare(other, row, self.by) < 0)

    def decoded(self, partition: Partition, low: int, high: int) -> list[Row]:
        """The values of the rows between two places."""
        columns = partition.rows[low:high, :-1].T.tolist()
        return list(zip(*(map(values.__getitem__, c) for values, c in zip(self.decoders, columns, strict=True)), strict=True))

    # One row

    def span(self, partition: Partition, i: int) -> tuple[int, int]:
        """The first place of a row and its frame, and the place after the last one."""
        return self._span_start(partition, i), self._span_end(partition, i)

    def _span_start(self, partition: Partition, i: int) -> int:
        return min(i, self._bound(partition, i, after=False))

    def _span_end(self, partition: Partition, i: int) -> int:
        return max(i + 1, self._bound(partition, i, after=True))

    def _bound(self, partition: Partition, i: int, *, after: bool) -> int:
        """The first place of a row's frame, or the one after its last."""
        bound, count = self.frame.end if after else self.frame.start, len(partition)
        if bound is None:
            return count if after else 0
        if not self.frame.by_value:
            return min(max(i + int(bound) + after, 0), count)
        row = partition.rows[i].tolist()
        distance = self._end if after else self._start
        if distance is None or not row[self.aggregate.order[0].column]:
            # Without a distance, and around NULL, the frame ends with the rows that are equal in the order.
            return self._bound_of_peers(partition, i, after=after)
        return partition.search(distance(row))

    def _bound_of_peers(self, partition: Partition, i: int, *, after: bool) -> int:
        row = partition.rows[i].tolist()
        return partition.search(lambda other: self.compare(other, row, self._peers_by) < after)

    def _distance(self, distance: Any, *, after: bool) -> Callable[[Sequence[int]], Callable[[Sequence[int]], bool]] | None:
        """For a row, the test whether another one is before the end of its frame; None where no distance is given."""
        if not self.frame.by_value or not distance:
            return None
        (order,) = self.aggregate.order
        move = distance_mover(self.types[order.column], -distance if order.descending else distance, months=self.frame.months)
        values = self.decoders[order.column]

        def test(row: Sequence[int]) -> Callable[[Sequence[int]], bool]:
            bound = move(values[row[order.column]])

            def before(other: Sequence[int]) -> bool:
                value = values[other[order.column]]
                return order.nulls_first if value is None else is_before(value, bound, order, after=after)

            return before

        return test

    # Rows that are neighbours

    def affected(self, partition: Partition, place: int) -> tuple[int, int]:
        """The rows whose results may differ after rows entered or left at a place."""
        count, function = len(partition), self.aggregate.function
        if function in WHOLE:
            return 0, count
        if function is Function.ROW_NUMBER:
            return place, count
        if function is Function.LAG and self.aggregate.parameters[1]:
            return self._near_known(partition, place)
        return self._first_affected(partition, place), self._after_affected(partition, place)

    def _first_affected(self, partition: Partition, place: int) -> int:
        """The first row whose span ends at the place or after it."""
        end = self.frame.end
        if end is None or not place:
            return 0
        if self.frame.by_value and not end:
            return self._bound_of_peers(partition, place - 1, after=False)
        return bisect_left(range(len(partition)), place, key=lambda i: self._span_end(partition, i))

    def _after_affected(self, partition: Partition, place: int) -> int:
        """The first row whose span starts after the place."""
        start, count = self.frame.start, len(partition)
        if start is None or place >= count:
            return count
        if self.frame.by_value and not start:
            return self._bound_of_peers(partition, place, after=True)
        return bisect_right(range(count), place, key=lambda i: self._span_start(partition, i))

    def _near_known(self, partition: Partition, place: int) -> tuple[int, int]:
        """For a lag that skips NULL: the rows from which no more known values than its steps lie before the place."""
        steps, column = self.aggregate.parameters[0], self.aggregate.value
        assert isinstance(steps, int)
        assert column is not None
        known = known_places(partition.column(column))
        at = int(np.searchsorted(known, place))
        last = at + max(steps, 0)
        first = at - 1 - max(-steps, 0)
        return int(known[first]) if first >= 0 else 0, int(known[last]) + 1 if last < len(known) else len(partition)

    def bounds(self, partition: Partition, low: int, high: int) -> tuple[Array, Array]:
        """The frames of the rows between two places: their first places, and the places after their last."""
        count, frame = len(partition), self.frame
        if self._start is not None or self._end is not None:
            return self._searched(partition, low, high)
        places = np.arange(low, high)
        if frame.by_value:
            first = self._bound_of_peers(partition, low, after=False)
            last = self._bound_of_peers(partition, high - 1, after=True)
            part = partition.rows[first:last]
            starts, ends = peers([part[:, o.column] for o in self._peers_by], last - first)
            starts, ends = (first + found[low - first : high - first] for found in (starts, ends))
        else:
            starts = np.clip(places + int(frame.start or 0), 0, count)
            ends = np.clip(places + int(frame.end or 0) + 1, 0, count)
        return (
            np.zeros(len(places), np.int64) if frame.start is None else starts,
            np.full(len(places), count, np.int64) if frame.end is None else ends,
        )

    def _searched(self, partition: Partition, low: int, high: int) -> tuple[Array, Array]:
        if high - low <= _SINGLE:
            starts, ends = ([self._bound(partition, i, after=after) for i in range(low, high)] for after in (False, True))
            return np.array(starts), np.array(ends)
        first, last = self.span(partition, low)[0], self.span(partition, high - 1)[1]
        found = frames(self.decoded(partition, first, last), self.aggregate, self.types)[low - first : high - first]
        both = np.array(found, np.int64) + first
        return both[:, 0], both[:, 1]


def _frame(aggregate: Aggregate) -> Frame:
    """The frame whose rows a result depends on, besides its own row."""
    if aggregate.function is Function.LAG:
        steps = aggregate.parameters[0]
        assert isinstance(steps, int)
        return Frame(-steps, -steps)
    return aggregate.frame or Frame(0, 0, by_value=True)


def _compared(a: Value, b: Value, order: Order) -> int:
    if a is None or b is None:
        return -1 if (a is None) == order.nulls_first else 1
    less = a < b  # type: ignore[operator]
    return -1 if less != order.descending else 1
