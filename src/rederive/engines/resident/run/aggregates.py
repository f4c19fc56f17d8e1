"""Counts, sums and means, which move by the changed rows: group by group, or all groups of a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from operator import add
from typing import TypeAlias

import numpy as np
from pyroaring import BitMap

from rederive.engines.resident.batch.group_sums import GroupSums, group_sums, merge_sums
from rederive.engines.resident.batch.vectors import Batch, NotByColumn, Space, Vector
from rederive.engines.resident.compile.rule_compiler import Source
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.group_totals import GroupChanges, GroupTotals
from rederive.engines.resident.run.threshold import Threshold
from rederive.engines.resident.storage.codes import NULL, Code, CodedRow, Codes
from rederive.engines.resident.storage.row_index import Array
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Readable, Table, rows_of
from rederive.engines.resident.storage.unit_codes import UnitCodec
from rederive.errors import EvaluationError
from rederive.ir.rules import TOTALS, Aggregate, Function, Relation
from rederive.ir.terms import Kind, Type
from rederive.scalar.totals import EMPTY, Total, count_units, total_result
from rederive.values import INTEGER_RANGES

Outcome: TypeAlias = tuple[CodedRow, Code | None, Code | None]
"""A group, and the codes of its old and new result; None where it has no rows."""


class Groups:
    """One aggregate over one source. The state of the groups changes when a transaction commits.

    Other aggregates derive from it: they read the rows of a group where its change does not follow from the changed rows.
    """

    def __init__(self, aggregate: Aggregate, source: Relation, result: Type, codes: Codes) -> None:
        self.aggregate = aggregate
        self.function = aggregate.function
        self.columns = aggregate.group
        self.value_type = source.columns[aggregate.value].type if aggregate.value is not None else None
        self.values = codes.codec(self.value_type).values if self.value_type else []
        self.result_type = result
        codec = codes.codec(result)
        self.encode, self.results = codec.encode, codec.values
        # Only read where a sum in units is its result.
        self.code_of_units = codec.code_of_units if isinstance(codec, UnitCodec) else codec.encode
        self.units = _units_by_code(codes, self.value_type)
        self.bounds = _sum_bounds(self.function, self.value_type, result)
        self.source = source
        self.space = Space(codes)
        # What a transaction changes: group by group, or all groups at once.
        self.changes: dict[CodedRow, Total] = {}
        self.codes_after: dict[CodedRow, Code | None] = {}
        self.changed_columns: GroupChanges | None = None
        self.lookups: dict[tuple[int, tuple[int, ...]], tuple[Readable, Lookup]] = {}

    @cached_property
    def totals(self) -> GroupTotals:
        """The state of the groups between transactions."""
        return GroupTotals(len(self.columns))

    def lookup(self, source: Readable, bound: tuple[int, ...]) -> Lookup:
        """Return the lookup of a source, made once for each: an overlay remembers every lookup that it gave away."""
        if (id(source), bound) not in self.lookups:
            self.lookups[id(source), bound] = (source, source.lookup(bound))
        return self.lookups[id(source), bound][1]

    def prepare(self, new: Readable) -> None:
        """Build the index that changes of a group need, so that no transaction waits for it."""
        # Totals outlive a program; the lookups of the program before do not.
        self.lookups.clear()

    @property
    def has_totals(self) -> bool:
        """Whether the totals of the groups are stored, which counts, sums and means move by."""
        return self.function in TOTALS and not self.aggregate.is_window

    def change(
        self, gone: Table, came: Table, new: Source, view: Readable, view_gone: Table, view_came: Table, meter: Meter
    ) -> None:
        """From the source's change to the view's: the old result of each affected group leaves, the new one enters."""
        if not self._change_by_column(gone, came, view_gone, view_came, meter):
            self._add_changes(gone, came, meter)
            self._report(self._outcomes(), view_gone, view_came)

    def _report(self, outcomes: Iterable[Outcome], view_gone: Table, view_came: Table) -> None:
        for group, before, after in outcomes:
            self.codes_after[group] = after
            # (E) plus :- ins, !del.  minus :- del, !ins.  A group whose result stays the same appears in neither.
            if before != after:
                key = key_of(group)
                if before is not None:
                    view_gone.add(key, BitMap((before,)))
                if after is not None:
                    view_came.add(key, BitMap((after,)))

    def fold(self, rows: Iterable[CodedRow]) -> Iterable[tuple[Key, Leaf]]:
        """The results of whole groups, given all their rows, as entries of the view; no state is stored."""
        totals: dict[CodedRow, Total] = {}
        self._add_rows(rows, 1, totals, lambda group: EMPTY)
        for group, total in totals.items():
            yield key_of(group), BitMap((self._code(total),))

    def commit(self) -> None:
        """Make the changed totals current; a group without rows has none."""
        if self.changed_columns is not None:
            self.totals.apply(self.changed_columns)
        for group, total in self.changes.items():
            self.totals.put(group, total, self.codes_after[group] or NULL)
        self.rollback()

    def rollback(self) -> None:
        """Forget the changed totals."""
        self.changes.clear()
        self.codes_after.clear()
        self.changed_columns = None

    def _rows(self, table: Table, meter: Meter) -> Iterable[CodedRow]:
        for row in rows_of(table.primary, self.source.arity):
            meter.touched += 1
            yield row

    # Counts, sums and means

    def _add_changes(self, gone: Table, came: Table, meter: Meter) -> None:
        # The order does not matter: totals are integers, and addition of integers is exact and commutative.
        for table, times in ((gone, -1), (came, 1)):
            table.unpack()
            if table.primary:
                self._add_rows(self._rows(table, meter), times, self.changes, self.totals.get)

    def _add_sums(self, parts: Sequence[GroupSums]) -> None:
        """Sums of few groups, added group by group: arrays of so few numbers cost more than the numbers."""
        for part in parts:
            groups = zip(*(column.tolist() for column in part.groups), strict=True) if part.groups else [()] * len(part.rows)
            for group, *more in zip(groups, part.rows.tolist(), part.sums.tolist(), part.values.tolist(), strict=True):
                total = self.changes.get(group) or self.totals.get(group)
                self.changes[group] = Total(*map(add, total, more))

    def _outcomes(self) -> Iterable[Outcome]:
        # `changes` holds the new total of each affected group, not the difference; groups without rows have no result.
        for group, total in self.changes.items():
            yield group, self.totals.result(group), self._code(total) if total.rows else None

    def _add_rows(
        self, rows: Iterable[CodedRow], times: int, into: dict[CodedRow, Total], stored: Callable[[CodedRow], Total]
    ) -> None:
        columns = self.columns
        value_column, units = self.aggregate.value, self.units
        counts = self.function is Function.COUNT
        for row in rows:
            group = tuple([row[i] for i in columns])
            # The stored total is the starting point for a group's first change. A Total is never falsy: it has three fields.
            total = into.get(group) or stored(group)
            if value_column is None:
                into[group] = total.plus(times, 0)
            elif row[value_column] == NULL:
                into[group] = total.plus_null(times)
            else:
                into[group] = total.plus(times, 0 if counts else units(row[value_column]))

    def _change_by_column(self, gone: Table, came: Table, view_gone: Table, view_came: Table, meter: Meter) -> bool:
        """The same for rows that came by column; False where they have to be added one by one."""
        if gone.primary or came.primary or not (gone.batches or came.batches):
            return False
        try:
            sums = [self._sums(batch, times, meter) for table, times in ((gone, -1), (came, 1)) for batch in table.batches]
        except NotByColumn:
            return False
        if sum(len(part.rows) for part in sums) < Threshold.groups:
            self._add_sums(sums)
            self._report(self._outcomes(), view_gone, view_came)
            return True
        changes = self._changed(merge_sums(sums))
        self.changed_columns = changes
        before, after = (changes.numbers >= 0, changes.before), (changes.rows > 0, changes.results)
        self._add_rows_of_view(changes.groups, before, after, view_gone, view_came)
        return True

    def _sums(self, batch: object, times: int, meter: Meter) -> GroupSums:
        assert isinstance(batch, Batch)
        meter.count(len(batch))
        return group_sums(batch, self.columns, self.aggregate.value, times, summed=self.function is not Function.COUNT)

    def _changed(self, sums: GroupSums) -> GroupChanges:
        totals = self.totals
        groups = totals.columns(sums.groups, len(sums.rows))
        numbers = totals.numbers(groups)
        rows, values = totals.taken(totals.rows, numbers) + sums.rows, totals.taken(totals.values, numbers) + sums.values
        added = totals.add_sums(numbers, sums.sums)
        before = totals.taken(totals.results, numbers)
        return GroupChanges(groups, numbers, rows, added, values, before, self._results(rows, added, values))

    def _results(self, rows: Array, sums: Array, values: Array) -> Array:
        """The codes of the results of these totals; for groups without rows, anything."""
        found = np.zeros(len(rows), np.uint32)
        alive = np.flatnonzero(rows > 0)
        rows, sums, values = rows[alive], sums[alive], values[alive]
        if self.function is Function.COUNT:
            found[alive] = Vector(self.space, self.result_type, units=values).codes()
        elif sums.dtype != object and len(sums) and self._is_result(int(sums.min()), int(sums.max())):
            nulls = values == 0
            found[alive] = Vector(self.space, self.result_type, units=sums, nulls=nulls if nulls.any() else None).codes()
        else:
            totals = map(Total, rows.tolist(), sums.tolist(), values.tolist())
            found[alive] = np.fromiter(map(self._code, totals), np.uint32, len(rows))
        return found

    def _is_result(self, least: int, most: int) -> bool:
        """Whether sums in units, from the least to the most, are results that fit."""
        return self.bounds is not None and self.bounds[0] <= least and most <= self.bounds[1]

    def _add_rows_of_view(
        self,
        groups: Sequence[Array],
        before: tuple[Array, Array],
        after: tuple[Array, Array],
        view_gone: Table,
        view_came: Table,
    ) -> None:
        """(E) for many groups: which were there and are there, with which codes."""
        differs = (before[0] != after[0]) | (before[1] != after[1])
        for table, (there, codes) in ((view_gone, before), (view_came, after)):
            if (chosen := np.flatnonzero(there & differs)).size:
                table.add_batch(self._view_rows(groups, codes, chosen))

    def _view_rows(self, columns: Sequence[Array], results: Array, chosen: Array) -> Batch:
        types = [self.source.columns[i].type for i in self.columns]
        # An aggregate without groups is found by one column that the view does not have.
        groups = [Vector(self.space, type_, column[chosen]) for type_, column in zip(types, columns, strict=False)]
        return Batch([*groups, Vector(self.space, self.result_type, results[chosen])], len(chosen))

    def _code(self, total: Total) -> Code:
        """The code of the result of a group that has rows."""
        if total.values and self._is_result(total.sum, total.sum):
            return self.code_of_units(total.sum)
        try:
            return self.encode(total_result(self.function, total, self.value_type, self.result_type))
        except OverflowError:
            raise self._too_large() from None

    def _too_large(self) -> EvaluationError:
        view = self.aggregate.relation.partition(".")[0]
        return EvaluationError(f"the {self.function.value} in '{view}' does not fit {self.result_type}").of(
            (self.aggregate.source,)
        )


def _units_by_code(codes: Codes, type_: Type | None) -> Callable[[Code], int]:
    """The units of the value of a code that is not NULL."""
    codec, convert = codes.codec(type_) if type_ is not None else None, count_units(type_)
    if isinstance(codec, UnitCodec):
        return codec.units_of_code
    values = codec.values if codec is not None else []
    return lambda code: convert(values[code])


def _sum_bounds(function: Function, value: Type | None, result: Type) -> tuple[int, int] | None:
    """The least and the largest sum in units that is its result; None where units are not results."""
    if function is not Function.SUM or value is None or value.kind is not result.kind or value.scale != result.scale:
        return None
    most = 10**result.precision - 1
    return (-most, most) if result.kind is Kind.DECIMAL else INTEGER_RANGES.get(result.kind)


def key_of(group: CodedRow) -> Key:
    """A group as a key of the view's primary index, whose last column is the result."""
    return group[0] if len(group) == 1 else group
