"""The state of an engine as bytes: values by code, tables, and auxiliary state. A program continues from it unevaluated.

Secondary indexes are not part of it: sections build those that they need when they are linked.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import numpy as np

from rederive.engines.resident.run.ages import Moments
from rederive.engines.resident.run.group_totals import SavedTotals
from rederive.engines.resident.storage.codes import CodedRow, Codes
from rederive.engines.resident.storage.column_table import CodeColumns, ColumnTable
from rederive.engines.resident.storage.table import Key, Leaf, StoredTable, rows_of
from rederive.ir.terms import Type, Value

# What values, rows and auxiliary state consist of. Nothing else is made when bytes are read, whoever wrote them.
_KNOWN: Final = {
    ("pyroaring", "BitMap"),
    ("decimal", "Decimal"),
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "timezone"),
    ("datetime", "timedelta"),
    ("rederive.ir.terms", "Type"),
    ("rederive.ir.terms", "Kind"),
    ("rederive.ir.terms", "Part"),
    ("rederive.ir.nested", "Array"),
    ("rederive.ir.nested", "Map"),
    ("rederive.ir.nested", "struct"),
    ("rederive.engines.resident.run.saved_state", "SavedState"),
}

SavedTable = dict[Key, Leaf] | tuple[bytes, ...]
"""The primary index of a table, or the columns of codes of a wide one."""


@dataclass(slots=True)
class SavedState:
    """What an engine holds at one version. `moments` and `now`: the ages of rows, and the youngest of each view's component.

    `seconds`: what the first evaluation of each component took.
    """

    values: dict[Type, list[Value]]
    tables: dict[str, SavedTable]
    counts: dict[str, dict[CodedRow, int]]
    totals: dict[str, SavedTotals]
    moments: dict[str, dict[Key, Moments]]
    now: dict[str, int]
    seconds: dict[tuple[str, ...], float]

    def to_bytes(self) -> bytes:
        """The state for `from_bytes`."""
        return pickle.dumps(self, 5)

    @classmethod
    def from_bytes(cls, data: bytes) -> SavedState:
        """The state that `to_bytes` wrote."""
        found = _StateUnpickler(BytesIO(data)).load()
        assert isinstance(found, SavedState)
        return found


class _StateUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """A class that states consist of; anything else is refused."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"a state has no {module}.{name}")
        return super().find_class(module, name)


@contextmanager
def without_collection() -> Iterator[None]:
    """Millions of new objects, none of which is garbage: Python would look through all of them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def saved_table(table: StoredTable) -> SavedTable:
    """The rows of a table."""
    if isinstance(table, ColumnTable):
        return tuple(column.tobytes() for column in table.scan())
    return table.primary


def fill_table(table: StoredTable, saved: SavedTable) -> None:
    """Put saved rows into an empty table. A program that was extended may store by row what the whole one stores by column."""
    if isinstance(table, ColumnTable):
        columns = _columns(saved, table.arity)
        if len(columns[0]):
            table.add_columns(columns)
    elif isinstance(saved, dict):
        table.primary.update(saved)
    else:
        columns = _columns(saved, table.arity)
        table.load(list(zip(*(column.tolist() for column in columns), strict=True)))


def _columns(saved: SavedTable, arity: int) -> CodeColumns:
    if isinstance(saved, tuple):
        return tuple(np.frombuffer(column, np.uint32) for column in saved)
    return tuple(np.array([row[i] for row in rows_of(saved, arity)], np.uint32) for i in range(arity))


def saved_values(codes: Codes) -> dict[Type, list[Value]]:
    """The listed values of each type, in the order of their codes."""
    return {type_: codec.listed for type_, codec in codes.by_type()}


def fill_codes(codes: Codes, values: dict[Type, list[Value]]) -> None:
    """Give values the codes that they had."""
    for type_, found in values.items():
        codes.codec(type_).restore(found)
