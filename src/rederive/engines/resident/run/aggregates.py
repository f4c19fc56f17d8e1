"""Aggregates, group by group: counts and sums move by the changed rows, extremes look again only when theirs leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pyroaring import BitMap

from rederive.engines.resident.batch.group_sums import group_sums
from rederive.engines.resident.batch.vectors import Batch, NotByColumn
from rederive.engines.resident.compile.rule_compiler import Source
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.storage.codes import NULL, CodedRow, Codes
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Readable, RowBatch, Table, rows_of
from rederive.errors import EvaluationError
from rederive.ir.rules import EXTREMES, Aggregate, Function, Relation
from rederive.ir.terms import Type, Value
from rederive.scalar.totals import EMPTY, Total, count_units, total_result


class GroupResult(NamedTuple):
    """The result of a group that has rows; it may be NULL."""

    value: Value


class Groups:
    """One aggregate over one source. The state of the groups changes when a transaction commits."""

    def __init__(self, aggregate: Aggregate, source: Relation, result: Type, codes: Codes) -> None:
        self.aggregate = aggregate
        self.function = aggregate.function
        self.columns = aggregate.group
        self.value_type = source.columns[aggregate.value].type if aggregate.value is not None else None
        self.values = codes.codec(self.value_type).values if self.value_type else []
        self.result_type = result
        self.encode = codes.codec(result).encode
        self.results = codes.codec(result).values
        self.source = source
        self.totals: dict[CodedRow, Total] = {}
        self.changes: dict[CodedRow, Total] = {}
        self.lookups: dict[tuple[int, tuple[int, ...]], tuple[Readable, Lookup]] = {}

    def lookup(self, source: Readable, bound: tuple[int, ...]) -> Lookup:
        """Return the lookup of a source, made once for each: an overlay remembers every lookup that it gave away."""
        if (id(source), bound) not in self.lookups:
            self.lookups[id(source), bound] = (source, source.lookup(bound))
        return self.lookups[id(source), bound][1]

    def prepare(self, new: Readable) -> None:
        """Build the index that changes of a group need, so that no transaction waits for it."""
        # Totals outlive a program; the lookups of the program before do not.
        self.lookups.clear()
        if self.extreme:
            self.lookup(new, tuple(sorted(self.columns)))

    @property
    def extreme(self) -> bool:
        """Whether the function is MIN or MAX, which no total can maintain under deletion."""
        return self.function in EXTREMES

    def change(
        self, gone: Table, came: Table, new: Source, view: Table, view_gone: Table, view_came: Table, meter: Meter
    ) -> None:
        """From the source's change to the view's: the old result of each affected group leaves, the new one enters."""
        results = self._extremes(gone, came, new, view, meter) if self.extreme else self._totals(gone, came, meter)
        for group, result in results:
            key = _key(group)
            old = view.primary.get(key)
            leaf = BitMap((self.encode(result.value),)) if result is not None else None
            # (E) plus :- ins, !del.  minus :- del, !ins.  A group whose result stays the same appears in neither.
            if old != leaf:
                if old is not None:
                    view_gone.add(key, old.copy())
                if leaf is not None:
                    view_came.add(key, leaf)

    def fold(self, rows: Iterable[CodedRow]) -> Iterable[tuple[Key, Leaf]]:
        """The results of whole groups, given all their rows, as entries of the view; no state is stored."""
        if self.extreme:
            found = self._by_group(rows)
            results: Iterable[tuple[CodedRow, Value]] = ((group, self._best(values).value) for group, values in found.items())
        else:
            totals: dict[CodedRow, Total] = {}
            self._add_rows(rows, 1, totals)
            results = ((group, self._result(total)) for group, total in totals.items())
        for group, result in results:
            yield _key(group), BitMap((self.encode(result),))

    def commit(self) -> None:
        """Make the changed totals current; a group without rows has none."""
        for group, total in self.changes.items():
            if total.rows:
                self.totals[group] = total
            else:
                self.totals.pop(group, None)
        self.changes.clear()

    def rollback(self) -> None:
        """Forget the changed totals."""
        self.changes.clear()

    def _rows(self, table: Table, meter: Meter) -> Iterable[CodedRow]:
        for row in rows_of(table.primary, self.source.arity):
            meter.touched += 1
            yield row

    # Counts, sums and means

    def _totals(self, gone: Table, came: Table, meter: Meter) -> Iterable[tuple[CodedRow, GroupResult | None]]:
        # The order does not matter: totals are integers, and addition of integers is exact and commutative.
        for table, times in ((gone, -1), (came, 1)):
            for batch in table.batches:
                self._add_batch(batch, times, meter)
            self._add_rows(self._rows(table, meter), times, self.changes)
        # `changes` holds the new total of each affected group, not the difference; groups without rows have no result.
        for group, total in self.changes.items():
            yield group, GroupResult(self._result(total)) if total.rows else None

    def _add_rows(self, rows: Iterable[CodedRow], times: int, into: dict[CodedRow, Total]) -> None:
        totals, columns = self.totals, self.columns
        value_column, values, units = self.aggregate.value, self.values, count_units(self.value_type)
        counts = self.function is Function.COUNT
        for row in rows:
            group = tuple([row[i] for i in columns])
            # The stored total is the starting point for a group's first change. A Total is never falsy: it has three fields.
            total = into.get(group) or totals.get(group, EMPTY)
            if value_column is None:
                into[group] = total.plus(times, 0)
            elif row[value_column] == NULL:
                into[group] = total.plus_null(times)
            else:
                into[group] = total.plus(times, 0 if counts else units(values[row[value_column]]))

    def _add_batch(self, batch: RowBatch, times: int, meter: Meter) -> None:
        """The same for rows by column; one by one where their sum does not fit arrays."""
        meter.count(len(batch))
        assert isinstance(batch, Batch)
        try:
            sums = list(group_sums(batch, self.columns, self.aggregate.value, summed=self.function is not Function.COUNT))
        except NotByColumn:
            self._add_rows(batch.coded_rows(), times, self.changes)
            return
        for group, rows, units, values in sums:
            total = self.changes.get(group) or self.totals.get(group, EMPTY)
            self.changes[group] = Total(total.rows + times * rows, total.sum + times * units, total.values + times * values)

    def _result(self, total: Total) -> Value:
        try:
            return total_result(self.function, total, self.value_type, self.result_type)
        except OverflowError:
            raise self._too_large() from None

    def _too_large(self) -> EvaluationError:
        return EvaluationError(f"the {self.function.value} over '{self.aggregate.source}' does not fit {self.result_type}").of(
            (self.aggregate.source,)
        )

    # Minima and maxima

    def _extremes(
        self, gone: Table, came: Table, new: Source, view: Table, meter: Meter
    ) -> Iterable[tuple[CodedRow, GroupResult | None]]:
        left = self._by_group(self._rows(gone, meter))
        entered = self._by_group(self._rows(came, meter))
        # Index columns are in ascending order, whatever the order of the group's columns is.
        lookup = self.lookup(new, tuple(sorted(self.columns)))
        for group in left.keys() | entered.keys():
            old = view.primary.get(_key(group))
            held = self.results[old[0]] if old is not None else None
            # If the extreme did not leave, the new one is among the old one and what entered: the group is not read.
            if old is None or held not in left.get(group, ()):
                candidates = entered.get(group, []) + ([held] if old is not None else [])
            else:
                # The extreme left: another row may hold the same value, so the group is read in the new state.
                candidates = self._group_values(lookup, group, meter)
            yield group, self._best(candidates) if candidates else None

    def _by_group(self, rows: Iterable[CodedRow]) -> dict[CodedRow, list[Value]]:
        found: dict[CodedRow, list[Value]] = {}
        column = self.aggregate.value
        assert column is not None
        for row in rows:
            found.setdefault(tuple([row[i] for i in self.columns]), []).append(self.values[row[column]])
        return found

    def _group_values(self, lookup: Callable[[Any], Any], group: CodedRow, meter: Meter) -> list[Value]:
        """The values of all rows that the group has now."""
        column = self.aggregate.value
        assert column is not None
        if column in self.columns:
            return [self.values[group[self.columns.index(column)]]]
        bound = sorted(self.columns)
        entry = lookup(_key(tuple(group[self.columns.index(i)] for i in bound)))
        if entry is None:
            return []
        meter.touched += len(entry)
        # An index entry holds the free columns: a bitmap where there is one, tuples where there are more.
        free = [i for i in range(self.source.arity) if i not in bound]
        if len(free) == 1:
            return [self.values[code] for code in entry]
        position = free.index(column)
        return [self.values[rest[position]] for rest in entry]

    def _best(self, values: Iterable[Value]) -> GroupResult:
        """NULLs do not compete; among nothing else, NULL is the outcome."""
        known = (value for value in values if value is not None)
        return GroupResult((min if self.function is Function.MIN else max)(known, default=None))


def _key(group: CodedRow) -> Key:
    """A group as a key of the view's primary index, whose last column is the result."""
    return group[0] if len(group) == 1 else group
