"""Groups whose change reads all their rows: aggregates that no total maintains, and the functions of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rederive.engines.resident.run.aggregates import Groups
from rederive.engines.resident.run.extreme_groups import ExtremeGroups
from rederive.engines.resident.run.row_numbers import Ranks
from rederive.engines.resident.storage.codes import CodedRow, Codes
from rederive.ir.rules import EXTREMES, TOTALS, Aggregate, Function, Relation
from rederive.ir.terms import Row, Type
from rederive.scalar.failures import ScalarError
from rederive.scalar.folds import fold_of
from rederive.scalar.windows import window_of


def groups_class(aggregate: Aggregate) -> type[Groups]:
    """How an aggregate is maintained."""
    if aggregate.function is Function.ROW_NUMBER:
        return Ranks
    if aggregate.is_window:
        return WindowedRows
    if aggregate.function in EXTREMES:
        return ExtremeGroups
    return Groups if aggregate.function in TOTALS else RefoldedGroups


class RefoldedGroups(Ranks):
    """An aggregate of all values of a group: an affected group has one row, its result."""

    def __init__(self, aggregate: Aggregate, source: Relation, result: Type, codes: Codes) -> None:
        super().__init__(aggregate, source, result, codes)
        self.rest = []
        self.compute: Callable[[Sequence[Row]], Any] = self._computation()

    def _computation(self) -> Callable[[Sequence[Row]], Any]:
        return fold_of(self.aggregate, self.source.types, self.result_type)

    def _numbered(self, rows: list[CodedRow]) -> set[CodedRow]:
        if not rows:
            return set()
        result = self._guard(self.compute, self._decoded(rows))
        return {(*(rows[0][i] for i in self.columns), self.encode(result))}

    def _decoded(self, rows: Sequence[CodedRow]) -> list[Row]:
        return [tuple([values[code] for values, code in zip(self.decoders, row, strict=True)]) for row in rows]

    def _guard(self, function: Callable[[list[Row]], Any], rows: list[Row]) -> Any:
        """The result, or the error that the user sees."""
        try:
            return function(rows)
        except OverflowError:
            raise self._too_large() from None
        except ScalarError as error:
            raise error.kind(str(error)).of((self.aggregate.source,)) from None


class WindowedRows(RefoldedGroups):
    """A function of a window: the rows of an affected partition, each with its result."""

    def __init__(self, aggregate: Aggregate, source: Relation, result: Type, codes: Codes) -> None:
        super().__init__(aggregate, source, result, codes)
        self.rest = [i for i in range(source.arity) if i not in aggregate.group]

    def _computation(self) -> Callable[[Sequence[Row]], Any]:
        return window_of(self.aggregate, self.source.types, self.result_type)

    def _numbered(self, rows: list[CodedRow]) -> set[CodedRow]:
        by_values = dict(zip(self._decoded(rows), rows, strict=True))
        columns = (*self.columns, *self.rest)
        found = self._guard(self.compute, list(by_values))
        return {(*(by_values[row][i] for i in columns), self.encode(result)) for row, result in found}
