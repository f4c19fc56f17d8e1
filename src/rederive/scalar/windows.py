"""What the functions of windows compute for the rows of one partition, for both engines, as Spark does.

The rows are ordered by the window's order and, among equals, by all their columns, so that the results are determined. A frame is
a range of places in this order; both ends of the frames move forward with the rows.
"""

from __future__ import annotations

import datetime
import operator
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from rederive.ir.floats import canonical
from rederive.ir.rules import TOTALS, Aggregate, Frame, Function, Order
from rederive.ir.terms import Kind, Row, Type, Value
from rederive.scalar.folds import fold_of, sort_rows
from rederive.scalar.sql.built_ins import BUILT_INS
from rederive.scalar.totals import Total, count_units, total_result

Frames = Sequence[tuple[int, int]]
Results = Sequence[Value]
RANKING: Final = Frame(None, 0, by_value=True)  # of a window with an order: up to the rows that are equal to this one


def window_of(aggregate: Aggregate, types: Sequence[Type], gives: Type) -> Callable[[Sequence[Row]], list[tuple[Row, Value]]]:
    """The rows of a partition in order, each with its result; OverflowError if one does not fit its type."""
    by = (*aggregate.order, *map(Order, range(len(types))))
    compute = window_function(aggregate, types, gives)

    def results(rows: Sequence[Row]) -> list[tuple[Row, Value]]:
        ordered = sort_rows(rows, by)[: aggregate.most]
        return list(zip(ordered, compute(ordered), strict=True))

    return results


def window_function(aggregate: Aggregate, types: Sequence[Type], gives: Type) -> Callable[[Sequence[Row]], Results]:
    """The results of rows that are in order; OverflowError if one does not fit its type."""
    match aggregate.function:
        case Function.ROW_NUMBER:
            return lambda rows: range(1, len(rows) + 1)
        case Function.LAG:
            return lambda rows: _shifted(rows, aggregate)
        case Function.NTILE:
            return lambda rows: tiles(len(rows), aggregate.parameters[0])
        case Function.PERCENT_RANK:
            return lambda rows: [start / max(len(rows) - 1, 1) for start, _ in _peers(rows, aggregate.order)]
        case Function.CUME_DIST:
            return lambda rows: [end / len(rows) for _, end in _peers(rows, aggregate.order)]
        case Function.FIRST_VALUE | Function.LAST_VALUE | Function.NTH_VALUE:
            return lambda rows: _picked(rows, frames(rows, aggregate, types), aggregate)
        case function if function in TOTALS:
            return lambda rows: _totals(rows, frames(rows, aggregate, types), aggregate, types, gives)
        case Function.MIN | Function.MAX:
            return lambda rows: _extremes(rows, frames(rows, aggregate, types), aggregate)
    fold = fold_of(aggregate, types, gives)
    return lambda rows: [fold(rows[i:j]) if i < j else None for i, j in frames(rows, aggregate, types)]


# Frames


def _peers(rows: Sequence[Row], order: Sequence[Order]) -> list[tuple[int, int]]:
    """For each row, the places of the rows that are equal in the order."""
    columns = [o.column for o in order]
    keys = [tuple([row[i] for i in columns]) for row in rows]
    found: list[tuple[int, int]] = []
    while len(found) < len(rows):
        start = end = len(found)
        while end < len(rows) and keys[end] == keys[start]:
            end += 1
        found += [(start, end)] * (end - start)
    return found


def frames(rows: Sequence[Row], aggregate: Aggregate, types: Sequence[Type]) -> Frames:
    """For each row, the first place of its frame, and the place after its last one."""
    frame, count = aggregate.frame, len(rows)
    assert frame is not None
    if not frame.by_value:
        starts = [0 if frame.start is None else min(max(i + int(frame.start), 0), count) for i in range(count)]
        ends = [count if frame.end is None else min(max(i + int(frame.end) + 1, 0), count) for i in range(count)]
        return list(zip(starts, ends, strict=True))
    peers = _peers(rows, aggregate.order)
    starts = [start for start, _ in peers] if frame.start == 0 else [0] * count
    ends = [end for _, end in peers] if frame.end == 0 else [count] * count
    if frame.start:
        starts = _bounds(rows, peers, aggregate, types, frame.start, after=False)
    if frame.end:
        ends = _bounds(rows, peers, aggregate, types, frame.end, after=True)
    return list(zip(starts, ends, strict=True))


def _bounds(
    rows: Sequence[Row], peers: Frames, aggregate: Aggregate, types: Sequence[Type], distance: Any, *, after: bool
) -> list[int]:
    """For each row, the first place whose value is at least, or with `after` beyond, the row's value plus a distance.

    The frame of a row whose value is NULL is the rows whose value is NULL.
    """
    (order,) = aggregate.order
    assert aggregate.frame is not None
    move = distance_mover(types[order.column], -distance if order.descending else distance, months=aggregate.frame.months)
    values: list[Any] = [row[order.column] for row in rows]
    known = [i for i, value in enumerate(values) if value is not None]
    first, last = (known[0], known[-1] + 1) if known else (0, 0)
    found, place = [], first
    for i, value in enumerate(values):
        if value is None:
            found.append(peers[i][1 if after else 0])
            continue
        bound = move(value)
        while place < last and is_before(values[place], bound, order, after=after):
            place += 1
        found.append(place)
    return found


def is_before(value: Any, bound: Any, order: Order, *, after: bool) -> bool:
    """Whether a value comes before the bound of a frame in the order; with `after`, or is at it."""
    if value == bound:
        return after
    return bool(value > bound if order.descending else value < bound)


def distance_mover(type: Type, distance: Any, *, months: bool) -> Callable[[Any], Any]:
    """The function that moves a value to order by to the bound of its frame."""
    if months:
        return lambda value: BUILT_INS["add_months"].compute(value, distance)
    match type.kind:
        case Kind.DATE:
            return lambda value: value + datetime.timedelta(days=distance)
        case Kind.TIMESTAMP:
            return lambda value: value + datetime.timedelta(microseconds=distance)
        case _:
            return lambda value: canonical(value + distance) if isinstance(value, float) else value + distance


# Functions


def _shifted(rows: Sequence[Row], aggregate: Aggregate) -> Results:
    """lag: the value of the row so many places before; lead is a lag of a negative number. The second argument is the default."""
    steps, skips_null = aggregate.parameters
    assert isinstance(steps, int)
    assert aggregate.value is not None
    values = [row[aggregate.value] for row in rows]
    defaults = [row[aggregate.others[0]] for row in rows] if aggregate.others else [None] * len(rows)
    if not skips_null:
        places = (i - steps for i in range(len(rows)))
        return [values[p] if 0 <= p < len(rows) else defaults[i] for i, p in enumerate(places)]
    known = [i for i, value in enumerate(values) if value is not None]
    found = []
    before = 0  # how many of the known values are before the row
    for i, value in enumerate(values):
        at = before - steps if steps > 0 else before + (value is not None) - steps - 1
        found.append((values[known[at]] if 0 <= at < len(known) else defaults[i]) if steps else value)
        before += value is not None
    return found


def tiles(count: int, number: Any) -> Results:
    """ntile: the first `count % number` tiles have one row more than the others."""
    size, more = divmod(count, number)
    longer = more * (size + 1)
    return [1 + (i // (size + 1) if i < longer else more + (i - longer) // size) for i in range(count)]


def _picked(rows: Sequence[Row], frames: Frames, aggregate: Aggregate) -> Results:
    """first_value, last_value and nth_value: the value at a place of the frame, counting all rows or those with a value."""
    assert aggregate.value is not None
    place, skips_null = aggregate.parameters
    assert isinstance(place, int)
    values = [row[aggregate.value] for row in rows]
    if not skips_null:
        at = ((i + place - 1 if place > 0 else j - 1, i, j) for i, j in frames)
        return [values[p] if i <= p < j else None for p, i, j in at]
    known = [i for i, value in enumerate(values) if value is not None]
    until = [0, *accumulate(int(value is not None) for value in values)]
    found: list[Value] = []
    for i, j in frames:
        first, last = until[i], until[max(i, j)]
        p = first + place - 1 if place > 0 else last - 1
        found.append(values[known[p]] if first <= p < last else None)
    return found


def _totals(rows: Sequence[Row], frames: Frames, aggregate: Aggregate, types: Sequence[Type], gives: Type) -> Results:
    """count, sum and mean by differences of prefix sums, which are exact."""
    function, column = aggregate.function, aggregate.value
    value = types[column] if column is not None else None
    units = count_units(value) if function is not Function.COUNT else lambda _: 0
    given = [row[column] for row in rows] if column is not None else [0] * len(rows)
    counts = [0, *accumulate(int(one is not None) for one in given)]
    sums = [0, *accumulate(0 if one is None else units(one) for one in given)]
    totals = (Total(j - i, sums[j] - sums[i], counts[j] - counts[i]) if i < j else Total() for i, j in frames)
    return [total_result(function, total, value, gives) for total in totals]


def _extremes(rows: Sequence[Row], frames: Frames, aggregate: Aggregate) -> Results:
    """min and max: the candidates of a frame are a queue, in which each value is better than those after it."""
    assert aggregate.value is not None
    values: list[Any] = [row[aggregate.value] for row in rows]
    return list(_slide(values, frames, improves(aggregate.function)))


def improves(function: Function) -> Callable[[Any, Any], bool]:
    """Whether a value is at least as good as the best one before it, for min or max."""
    return operator.le if function is Function.MIN else operator.ge


def _slide(values: Sequence[Any], frames: Frames, is_better: Callable[[Any, Any], bool]) -> Iterator[Value]:
    queue: deque[int] = deque()
    entered = 0
    for i, j in frames:
        for place in range(entered, j):
            if values[place] is not None:
                while queue and is_better(values[place], values[queue[-1]]):
                    queue.pop()
                queue.append(place)
        entered = max(entered, j)
        while queue and queue[0] < i:
            queue.popleft()
        yield values[queue[0]] if queue and i < j else None
