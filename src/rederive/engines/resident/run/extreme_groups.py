"""Minima and maxima: a group is read again only when the row that held its extreme leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from pyroaring import BitMap

from rederive.engines.resident.batch.extremes import best_of_groups
from rederive.engines.resident.batch.sources import ColumnSource, column_source
from rederive.engines.resident.batch.vectors import Vector, group_numbers
from rederive.engines.resident.compile.rule_compiler import Source
from rederive.engines.resident.run.aggregates import Groups, Outcome, key_of
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.storage.codes import NULL, Code, CodedRow, Codes
from rederive.engines.resident.storage.column_table import ColumnTable
from rederive.engines.resident.storage.row_index import Array
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Readable, Table
from rederive.engines.resident.storage.unit_codes import units_of
from rederive.ir.rules import Aggregate, Function, Relation
from rederive.ir.terms import Kind, Type, Value


class ExtremeGroups(Groups):
    """MIN or MAX, which no total can maintain under deletion. The stored view holds the extremes."""

    def __init__(self, aggregate: Aggregate, source: Relation, result: Type, codes: Codes) -> None:
        super().__init__(aggregate, source, result, codes)
        self.sources: dict[int, tuple[Readable, ColumnSource | None]] = {}

    def prepare(self, new: Readable) -> None:
        """Build the index by which the rows of a group are read."""
        super().prepare(new)
        self.sources.clear()
        self.lookup(new, tuple(sorted(self.columns)))

    def change(
        self, gone: Table, came: Table, new: Source, view: Readable, view_gone: Table, view_came: Table, meter: Meter
    ) -> None:
        """From the source's change to the view's."""
        if self._extremes_by_column(gone, came, new, view, view_gone, view_came, meter):
            return
        for table in (gone, came):
            table.unpack()
        held = self.lookup(view, tuple(range(len(self.columns))))
        self._report(self._extremes(gone, came, new, held, meter), view_gone, view_came)

    def fold(self, rows: Iterable[CodedRow]) -> Iterable[tuple[Key, Leaf]]:
        """The extremes of whole groups, as entries of the view."""
        for group, values in self._by_group(rows).items():
            yield key_of(group), BitMap((self._best(values),))

    def _extremes(self, gone: Table, came: Table, new: Source, stored: Lookup, meter: Meter) -> Iterable[Outcome]:
        left = self._by_group(self._rows(gone, meter))
        entered = self._by_group(self._rows(came, meter))
        # Index columns are in ascending order, whatever the order of the group's columns is.
        lookup = self.lookup(new, tuple(sorted(self.columns)))
        for group in left.keys() | entered.keys():
            old = stored(key_of(group))
            before = old[0] if old is not None else None
            held = self.results[before] if before is not None else None
            # If the extreme did not leave, the new one is among the old one and what entered: the group is not read.
            if old is None or held not in left.get(group, ()):
                candidates = entered.get(group, []) + ([held] if old is not None else [])
            else:
                # The extreme left: another row may hold the same value, so the group is read in the new state.
                candidates = self._group_values(lookup, group, meter)
            yield group, before, self._best(candidates) if candidates else None

    def _extremes_by_column(
        self, gone: Table, came: Table, new: Source, view: Readable, view_gone: Table, view_came: Table, meter: Meter
    ) -> bool:
        """The same for rows that came by column; False where they have to be looked at one by one."""
        value, batches = self.aggregate.value, [*gone.batches, *came.batches]
        if gone.primary or came.primary or not batches or not _has_ranks(self.value_type):
            return False
        if id(new) not in self.sources:
            self.sources[id(new)] = (new, column_source(new))
        source = self.sources[id(new)][1]
        if source is None:
            return False
        assert value is not None
        assert self.value_type is not None
        rows = [batch.code_columns() for batch in batches]
        count, left = sum(map(len, batches)), sum(map(len, gone.batches))
        meter.count(count)
        keys = [np.concatenate([columns[i] for columns in rows]) for i in self.columns]
        codes = np.concatenate([columns[value] for columns in rows])
        numbers, first = group_numbers(keys, count)
        groups = [key[first] for key in keys]
        known, held = self._held(view, groups, len(first))
        # A group whose extreme left is read in the new state; elsewhere the new one is among the old one and what entered.
        reread = np.zeros(len(first), np.bool_)
        reread[numbers[:left][codes[:left] == held[numbers[:left]]]] = True
        reread &= known
        entered = left + np.flatnonzero(~reread[numbers[left:]])
        stays, read = np.flatnonzero(known & ~reread), np.flatnonzero(reread)
        of, found = self._read(source, groups, read, value)
        meter.count(len(of))
        candidates = np.concatenate([codes[entered], held[stays], found])
        owners = np.concatenate([numbers[entered], stays, read[of]])
        vector = Vector(self.space, self.value_type, candidates)
        best, there = best_of_groups(vector, owners, len(first), largest=self.function is Function.MAX)
        self._add_rows_of_view(groups, (known, held), (there, best), view_gone, view_came)
        return True

    def _held(self, view: Readable, groups: Sequence[Array], count: int) -> tuple[Array, Array]:
        """Which groups have stored results, and their codes."""
        held, known = np.full(count, NULL, np.uint32), np.zeros(count, np.bool_)
        if isinstance(view, ColumnTable):
            if len(view):
                positions, numbers = view.find_many(tuple(range(len(groups))), groups)
                held[positions], known[positions] = view.columns[-1][numbers], True
            return known, held
        lookup = self.lookup(view, tuple(range(len(groups))))
        rows = zip(*(group.tolist() for group in groups), strict=True) if groups else [()] * count
        for n, group in enumerate(rows):
            if (entry := lookup(key_of(group))) is not None:
                held[n], known[n] = entry[0], True
        return known, held

    def _read(self, source: ColumnSource, groups: Sequence[Array], read: Array, value: int) -> tuple[Array, Array]:
        """The values of all rows of some groups, by the position of the group."""
        if not len(read):
            return read, np.zeros(0, np.uint32)
        if not groups:
            column = source.scan()[value]
            return np.zeros(len(column), np.int64), column
        by_column = sorted(zip(self.columns, groups, strict=True), key=lambda pair: pair[0])
        of, (found,) = source.find(tuple(i for i, _ in by_column), [group[read] for _, group in by_column], [value])
        return of, found

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
        entry = lookup(key_of(tuple(group[self.columns.index(i)] for i in bound)))
        if entry is None:
            return []
        meter.touched += len(entry)
        # An index entry holds the free columns: a bitmap where there is one, tuples where there are more.
        free = [i for i in range(self.source.arity) if i not in bound]
        if len(free) == 1:
            return [self.values[code] for code in entry]
        position = free.index(column)
        return [self.values[rest[position]] for rest in entry]

    def _best(self, values: Iterable[Value]) -> Code:
        """The code of the extreme: NULLs do not compete; among nothing else, NULL is the outcome."""
        known = (value for value in values if value is not None)
        return self.encode((min if self.function is Function.MIN else max)(known, default=None))


def _has_ranks(type_: Type | None) -> bool:
    """Whether all values of a type compare: not those of floats that are not numbers, and of arrays with NULLs."""
    return type_ is not None and (type_.kind is Kind.SYMBOL or units_of(type_) is not None)
