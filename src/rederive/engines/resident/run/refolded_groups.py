"""Groups whose change reads all their rows: aggregates that no total maintains are folded from scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyroaring import BitMap

from rederive.engines.resident.compile.rule_compiler import Source
from rederive.engines.resident.run.aggregates import Groups, key_of
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.storage.codes import CodedRow, Codes
from rederive.engines.resident.storage.table import Key, Leaf, Readable, Table, whole_rows
from rederive.ir.rules import Aggregate, Relation
from rederive.ir.terms import Row, Type
from rederive.scalar.failures import ScalarError
from rederive.scalar.folds import fold_of


class RefoldedGroups(Groups):
    """An aggregate of all values of a group: an affected group has one row, its result."""

    def __init__(self, aggregate: Aggregate, source: Relation, result: Type, codes: Codes) -> None:
        super().__init__(aggregate, source, result, codes)
        self.rest: Sequence[int] = ()  # the columns of the source that the view has besides those of the group
        self.decoders = [codes.codec(type_).values for type_ in source.types]
        self.compute: Callable[[Sequence[Row]], Any] = self._computation()

    def _computation(self) -> Callable[[Sequence[Row]], Any]:
        return fold_of(self.aggregate, self.source.types, self.result_type)

    def prepare(self, new: Readable) -> None:
        """Build the index by which the rows of a group are read."""
        self.lookups.clear()
        self.lookup(new, tuple(sorted(self.columns)))

    def change(
        self, gone: Table, came: Table, new: Source, view: Readable, view_gone: Table, view_came: Table, meter: Meter
    ) -> None:
        """Fold each affected group in the new state, and report the rows that differ."""
        changed = (row for table in (gone, came) for row in self._rows(table, meter))
        for group in {tuple([row[i] for i in self.columns]) for row in changed}:
            rows = self._group_rows(group, new, meter)
            change_rows(self._stored_rows(group, view), self._view_rows_of(rows), view_gone, view_came)

    def fold(self, rows: Iterable[CodedRow]) -> Iterable[tuple[Key, Leaf]]:
        """The rows of whole groups as entries of the view."""
        groups: dict[CodedRow, list[CodedRow]] = {}
        for row in rows:
            groups.setdefault(tuple([row[i] for i in self.columns]), []).append(row)
        for members in groups.values():
            for row in self._view_rows_of(members):
                yield key_of(row[:-1]), BitMap((row[-1],))

    def _group_rows(self, group: CodedRow, new: Source, meter: Meter) -> list[CodedRow]:
        """The rows of a group in the new state."""
        # Columns of the source in ascending order; in the view the group comes first.
        bound = tuple(sorted(self.columns))
        key = key_of(tuple(group[self.columns.index(i)] for i in bound))
        rows = list(whole_rows(bound, key, self.lookup(new, bound)(key) or (), self.source.arity))
        meter.touched += len(rows)
        return rows

    def _stored_rows(self, group: CodedRow, view: Readable) -> set[CodedRow]:
        """The rows of a group that the view has."""
        # An empty view needs no index.
        if not view:
            return set()
        prefix = tuple(range(len(self.columns)))
        found = self.lookup(view, prefix)(key_of(group)) or ()
        return set(whole_rows(prefix, key_of(group), found, len(self.columns) + len(self.rest) + 1))

    def _view_rows_of(self, rows: list[CodedRow]) -> set[CodedRow]:
        """All rows of one group as rows of the view."""
        if not rows:
            return set()
        result = self._guard(self.compute, self._decoded(rows))
        return {(*(rows[0][i] for i in self.columns), self.encode(result))}

    def _decoded(self, rows: Sequence[CodedRow]) -> list[Row]:
        return [tuple([values[code] for values, code in zip(self.decoders, row, strict=True)]) for row in rows]

    def _guard(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result, or the error that the user sees."""
        try:
            return function(*arguments)
        except OverflowError:
            raise self._too_large() from None
        except ScalarError as error:
            raise error.kind(str(error)).of((self.aggregate.source,)) from None


def change_rows(before: set[CodedRow], after: set[CodedRow], gone: Table, came: Table) -> None:
    """The difference of two sets of rows, into the tables of what leaves and what enters."""
    for rows, table in ((before - after, gone), (after - before, came)):
        table.load(rows)
