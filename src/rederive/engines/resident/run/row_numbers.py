"""Rows numbered within their groups: a group that changed is ordered from scratch, and compared with its old rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key

from pyroaring import BitMap

from rederive.engines.resident.compile.rule_compiler import Source
from rederive.engines.resident.run.aggregates import Groups
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.storage.codes import CodedRow, Codes
from rederive.engines.resident.storage.table import Key, Leaf, Readable, Table, whole_rows
from rederive.ir.rules import Aggregate, Order, Relation
from rederive.ir.terms import Type, Value


class Ranks(Groups):
    """See `ir.rules.Aggregate`: the result of a row is its number in its group."""

    def __init__(self, aggregate: Aggregate, source: Relation, result: Type, codes: Codes) -> None:
        super().__init__(aggregate, source, result, codes)
        self.rest = [i for i in range(source.arity) if i not in aggregate.group]
        self.decoders = [codes.codec(type_).values for type_ in source.types]
        # Ties are broken by all columns, so that the numbers are a function of the rows: recomputation finds the same.
        ties = (Order(i) for i in range(source.arity))
        self.by = (*aggregate.order, *ties)

    def change(
        self, gone: Table, came: Table, new: Source, view: Readable, view_gone: Table, view_came: Table, meter: Meter
    ) -> None:
        """Number the rows of each affected group in the new state, and report the rows that differ."""
        changed = (row for table in (gone, came) for row in self._rows(table, meter))
        groups = {tuple([row[i] for i in self.columns]) for row in changed}
        # Columns of the source in ascending order; in the view the group comes first.
        bound, prefix = tuple(sorted(self.columns)), tuple(range(len(self.columns)))
        lookup, stored = self.lookup(new, bound), view.lookup(prefix)
        for group in groups:
            key = _key(tuple(group[self.columns.index(i)] for i in bound))
            rows = list(whole_rows(bound, key, lookup(key) or (), self.source.arity))
            meter.touched += len(rows)
            before = set(whole_rows(prefix, _key(group), stored(_key(group)) or (), len(self.columns) + len(self.rest) + 1))
            change_rows(before, self._numbered(rows), view_gone, view_came)

    def prepare(self, new: Readable) -> None:
        """Build the index by which the rows of a group are read."""
        self.lookups.clear()
        self.lookup(new, tuple(sorted(self.columns)))

    def fold(self, rows: Iterable[CodedRow]) -> Iterable[tuple[Key, Leaf]]:
        """Yield the numbered rows of whole groups as entries of the view."""
        groups: dict[CodedRow, list[CodedRow]] = {}
        for row in rows:
            groups.setdefault(tuple([row[i] for i in self.columns]), []).append(row)
        for members in groups.values():
            for numbered in self._numbered(members):
                yield _key(numbered[:-1]), BitMap((numbered[-1],))

    def _numbered(self, rows: list[CodedRow]) -> set[CodedRow]:
        """The rows of one group as rows of the view."""
        # A comparison, not a key: descending order and the place of NULL differ from column to column.
        ordered = sorted(rows, key=cmp_to_key(self._compare))[: self.aggregate.most]
        columns = (*self.columns, *self.rest)
        return {(*(row[i] for i in columns), self.encode(n)) for n, row in enumerate(ordered, 1)}

    def _compare(self, one: CodedRow, two: CodedRow) -> int:
        for order in self.by:
            a, b = one[order.column], two[order.column]
            # Equal codes are equal values; only what differs is decoded.
            if a != b:
                values = self.decoders[order.column]
                return _compared(values[a], values[b], order)
        return 0


def _compared(a: Value, b: Value, order: Order) -> int:
    if a is None or b is None:
        return -1 if (a is None) == order.nulls_first else 1
    less = a < b  # type: ignore[operator]
    return -1 if less != order.descending else 1


def change_rows(before: set[CodedRow], after: set[CodedRow], gone: Table, came: Table) -> None:
    """The difference of two sets of rows, into the tables of what leaves and what enters."""
    for rows, table in ((before - after, gone), (after - before, came)):
        table.load(rows)


def _key(group: CodedRow) -> Key:
    return group[0] if len(group) == 1 else group
