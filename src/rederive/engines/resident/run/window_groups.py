"""The functions of windows: the order of a partition is stored, and a change of it costs the change and the results that differ.

For a partition in order, with the results that are stored:

    1. rows that leave and enter are found by binary search, and spliced into the order;
    2. only the rows whose frames meet a changed place are looked at (`window_frames`);
    3. their results are computed from their frames, or from the result or the total before them (`window_results`);
    4. what differs from the stored result is reported.

Small partitions have no stored order: they are ordered from scratch, and compared with the stored view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key, partial
from typing import Any, Final

import numpy as np

from rederive.engines.resident.batch.vectors import Batch, Vector
from rederive.engines.resident.compile.rule_compiler import Source
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.partition import Partition
from rederive.engines.resident.run.refolded_groups import RefoldedGroups, change_rows
from rederive.engines.resident.run.window_frames import WindowFrames
from rederive.engines.resident.run.window_results import WindowResults
from rederive.engines.resident.storage.codes import NULL, CodedRow, Codes
from rederive.engines.resident.storage.row_index import Array
from rederive.engines.resident.storage.table import Readable, Table
from rederive.ir.rules import Aggregate, Relation
from rederive.ir.terms import Row, Type
from rederive.scalar.windows import window_of

_SMALL: Final = 64  # rows: ordering so few from scratch costs less than the arrays of a stored order (0.1 ms)
_MANY: Final = 4  # a change of more than one in so many rows orders the partition from scratch
_BY_ROW: Final = 64  # rows of a change that are reported one by one; more go by column


class WindowGroups(RefoldedGroups):
    """A function of a window: the rows of each partition, each with its result."""

    def __init__(self, aggregate: Aggregate, source: Relation, result: Type, codes: Codes) -> None:
        super().__init__(aggregate, source, result, codes)
        self.rest = [i for i in range(source.arity) if i not in aggregate.group]
        self.frames = WindowFrames(aggregate, source, codes)
        self.window_results = WindowResults(aggregate, self.frames, result, self.space)
        self.partitions: dict[CodedRow, Partition] = {}
        self._undo: list[Callable[[], object]] = []

    def _computation(self) -> Callable[[Sequence[Row]], Any]:
        return window_of(self.aggregate, self.source.types, self.result_type)

    @property
    def nbytes(self) -> int:
        """The bytes of the orders that are stored."""
        return sum(200 + partition.nbytes for partition in self.partitions.values())

    def commit(self) -> None:
        """Keep the new orders."""
        self._undo.clear()

    def rollback(self) -> None:
        """Return to the orders before the transaction."""
        while self._undo:
            self._undo.pop()()

    def change(
        self, gone: Table, came: Table, new: Source, view: Readable, view_gone: Table, view_came: Table, meter: Meter
    ) -> None:
        """From the source's change to the view's, partition by partition."""
        changes: dict[CodedRow, tuple[list[CodedRow], list[CodedRow]]] = {}
        for sign, table in enumerate((gone, came)):
            for row in self._rows(table, meter):
                changes.setdefault(tuple([row[i] for i in self.columns]), ([], []))[sign].append(row)
        for group, (leaving, entering) in changes.items():
            partition = self.partitions.get(group)
            if partition is not None and _MANY * (len(leaving) + len(entering)) < len(partition):
                self._splice(partition, leaving, entering, view_gone, view_came, meter)
            else:
                self._order(group, new, view, view_gone, view_came, meter)

    # From scratch

    def _order(self, group: CodedRow, new: Source, view: Readable, view_gone: Table, view_came: Table, meter: Meter) -> None:
        """Order a partition from scratch; a large one is stored in its order."""
        rows = self._group_rows(group, new, meter)
        before = self.partitions.pop(group, None)
        if before is not None:
            self._undo.append(lambda: self.partitions.__setitem__(group, before))
        old = self._stored_rows(group, view)
        if len(rows) < _SMALL:
            change_rows(old, self._view_rows_of(rows), view_gone, view_came)
            return
        partition = self._ordered(rows)
        self.partitions[group] = partition
        if before is None:
            self._undo.append(lambda: self.partitions.pop(group, None))
        if old:
            change_rows(old, set(map(tuple, self._view_columns(partition.rows).tolist())), view_gone, view_came)
        else:
            self._report_rows(partition.rows, view_came)

    def _view_rows_of(self, rows: list[CodedRow]) -> set[CodedRow]:
        by_values = dict(zip(self._decoded(rows), rows, strict=True))
        columns = (*self.columns, *self.rest)
        found = self._guard(self.compute, list(by_values))
        return {(*(by_values[row][i] for i in columns), self.encode(result)) for row, result in found}

    def _ordered(self, rows: Sequence[CodedRow]) -> Partition:
        """The rows in order, with their results."""
        columns = np.array(rows, np.uint32)
        keys = [self._sort_key(columns[:, order.column], n) for n, order in enumerate(self.frames.by)]
        # The last key of a lexical sort is its first.
        order = np.lexsort(keys[::-1])
        found: Array = np.zeros((len(rows), columns.shape[1] + 1), np.uint32)
        found[:, :-1] = columns[order]
        partition = Partition(found)
        found[:, -1] = self._window_results(partition, 0, len(rows))
        return partition

    def _sort_key(self, codes: Array, n: int) -> Array:
        """Numbers in the order of a column's values, with NULL first or last."""
        order, values = self.frames.by[n], self.frames.decoders[self.frames.by[n].column]
        distinct, inverse = np.unique(codes, return_inverse=True)
        held = distinct[distinct != NULL].tolist()
        ranked = sorted(held, key=values.__getitem__, reverse=order.descending)
        ranks: Array = np.empty(len(distinct), np.int64)
        ranks[np.searchsorted(distinct, np.array(ranked, np.uint32))] = np.arange(len(ranked))
        if len(held) < len(distinct):
            ranks[0] = -1 if order.nulls_first else len(ranked)
        found: Array = ranks[inverse]
        return found

    def _window_results(self, partition: Partition, low: int, high: int) -> Array:
        found: Array = self._guard(self.window_results.of, partition, low, high)
        return found

    # By change

    def _splice(
        self,
        partition: Partition,
        leaving: Sequence[CodedRow],
        entering: Sequence[CodedRow],
        view_gone: Table,
        view_came: Table,
        meter: Meter,
    ) -> None:
        places, added, changed = self._places(partition, leaving, entering)
        removed = partition.rows[places]
        partition.splice(places, added)
        new_places = [place for place, _ in added]
        put_back = [(place, tuple(row)) for place, row in zip(places, removed.tolist(), strict=True)]
        self._undo.append(lambda: partition.splice(new_places, put_back))
        is_new: Array = np.zeros(len(partition), np.bool_)
        is_new[new_places] = True
        gone, came = [removed], []
        for low, high in self._affected(partition, changed):
            meter.count(high - low)
            results = self._window_results(partition, low, high)
            part = partition.rows[low:high]
            old, entered = part[:, -1].copy(), is_new[low:high]
            differs = (old != results) | entered
            gone.append(part[differs & ~entered])
            partition.set_results(low, results)
            self._undo.append(partial(partition.set_results, low, old))
            came.append(part[differs])
        # All at once: what comes in part by row and in part by column is read by row.
        self._report_rows(np.concatenate(gone), view_gone)
        self._report_rows(np.concatenate(came or [removed[:0]]), view_came)

    def _places(
        self, partition: Partition, leaving: Sequence[CodedRow], entering: Sequence[CodedRow]
    ) -> tuple[list[int], list[tuple[int, CodedRow]], list[int]]:
        """The old places of rows that leave, the new ones of rows that enter, and all of them in the new order."""
        place = self.frames.place
        left = np.sort(np.array([place(partition, row) for row in leaving], np.int64))
        ordered = sorted(entering, key=cmp_to_key(self.frames.compare_rows))
        gaps = np.array([place(partition, row) for row in ordered], np.int64)
        # A row that enters comes after those before its gap that stay, and after those that enter before it.
        entered = gaps - np.searchsorted(left, gaps) + np.arange(len(gaps))
        moved = left - np.arange(len(left)) + np.searchsorted(gaps, left, side="right")
        added = [(at, (*row, NULL)) for at, row in zip(entered.tolist(), ordered, strict=True)]
        return left.tolist(), added, sorted({*entered.tolist(), *moved.tolist()})

    def _affected(self, partition: Partition, changed: Sequence[int]) -> list[tuple[int, int]]:
        """The rows to look at, as ranges that ascend and do not meet."""
        count, most = len(partition), self.aggregate.most
        # Beyond the first rows, none had a number, unless a row before it left.
        end = count if most is None else min(count, most + len(changed))
        found: list[tuple[int, int]] = []
        for place in changed:
            if found and found[-1][1] >= end:
                break
            low, high = self.frames.affected(partition, place)
            low, high = min(low, place), min(max(high, place + 1), end)
            if found and low <= found[-1][1]:
                found[-1] = (min(found[-1][0], low), max(found[-1][1], high))
            elif low < high:
                found.append((low, high))
        return found

    # Rows of the view

    def _view_columns(self, rows: Array) -> Array:
        """The rows that have a result, which are only the first ones where their number is given, as rows of the view."""
        if self.aggregate.most is not None:
            rows = rows[rows[:, -1] != NULL]
        found: Array = rows[:, [*self.columns, *self.rest, self.source.arity]]
        return found

    def _report_rows(self, rows: Array, table: Table) -> None:
        found = self._view_columns(rows)
        if len(found) < _BY_ROW:
            table.load(map(tuple, found.tolist()))
            return
        types = [*(self.source.columns[i].type for i in (*self.columns, *self.rest)), self.result_type]
        columns = (np.ascontiguousarray(column) for column in found.T)
        table.add_batch(Batch([Vector(self.space, t, c) for t, c in zip(types, columns, strict=True)], len(found)))
