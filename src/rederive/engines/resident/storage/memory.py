"""How much memory an engine's tables take: every container is measured, its entries by a sample.

An object counts in each container that refers to it by its share, its size divided by its references: the codes in keys are
counted once for all indexes together, and what the interpreter holds for itself counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from sys import getrefcount, getsizeof
from typing import Any, Final, Protocol

from pyroaring import BitMap

from rederive.engines.resident.storage.codes import Codec
from rederive.engines.resident.storage.column_table import ColumnTable
from rederive.engines.resident.storage.table import StoredTable

_SAMPLE: Final = 100  # entries of a container
_FEW: Final = 10  # entries of a container within a container
_UNIT: Final = 16  # bytes: what the allocator rounds up to
# Of a bitmap, fitted to the growth of a process by bitmaps of 1 to 6,000 codes (pyroaring 1.0): within a tenth of it.
_BITMAP: Final = 120
_CONTAINER: Final = 75
_CONTENT: Final = 1.25
_SLACK: Final = 1.35  # what allocators hold beyond that, measured over the shapes of tests/engines/test_memory.py


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes, about. `tables`: rows and indexes of each relation; `state`: auxiliary state of views; `values`: the coded
    values, which all relations share. `rows`: of all tables."""

    tables: Mapping[str, int] = field(default_factory=dict)
    state: Mapping[str, int] = field(default_factory=dict)
    values: int = 0
    rows: int = 0

    @property
    def total(self) -> int:
        """The bytes of all parts."""
        return sum(self.tables.values()) + sum(self.state.values()) + self.values


class Arrays(Protocol):
    """State that is in arrays and knows their size."""

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""


def memory_of(
    tables: Iterable[StoredTable], auxiliary: Iterable[tuple[str, Mapping[Any, Any] | Arrays]], codecs: Iterable[Codec]
) -> Memory:
    """What an engine holds, measured in time proportional to the number of its keys."""
    found: dict[str, int] = {}
    rows = 0
    for table in tables:
        found[table.name] = found.get(table.name, 0) + table_bytes(table)
        rows += len(table)
    state: dict[str, int] = {}
    for name, held in auxiliary:
        state[name] = state.get(name, 0) + (_scaled(_mapping(held)) if isinstance(held, Mapping) else held.nbytes)
    return Memory(found, state, sum(map(_codec, codecs)), rows)


def table_bytes(table: StoredTable) -> int:
    """A table's rows and indexes, without the coded values.

    >>> from rederive.engines.resident.storage.table import Table
    >>> table = Table("e", 2)
    >>> _ = table.load([(x, x + 1) for x in range(1000)])
    >>> alone = table_bytes(table)
    >>> _ = table.entries((1,))  # another index
    >>> 200_000 < alone < 500_000, 1.5 < table_bytes(table) / alone < 2.5
    (True, True)
    """
    if isinstance(table, ColumnTable):
        return table.nbytes
    # Leaves of the primary index are counted there; secondary indexes have bitmaps and sets of their own.
    return _scaled(sum(map(_mapping, (table.primary, *table.indexes()))))


def _scaled(size: float) -> int:
    return round(_SLACK * size)


def _mapping(entries: Mapping[Any, Any]) -> float:
    return getsizeof(entries) + _sampled(entries, len(entries)) + _sampled(entries.values(), len(entries))


def _codec(codec: Codec) -> int:
    """A codec holds its values for good, whoever refers to them while they come in: they count whole, and not by share."""
    held = 0.0
    if codec.listed:
        values = codec.listed[:: max(len(codec.listed) // _SAMPLE, 1)]
        held = sum(_rounded(getsizeof(value)) for value in values) * len(codec.listed) / len(values)
    codes = _sampled(codec.codes.values(), len(codec.codes))
    return _scaled(getsizeof(codec.listed) + getsizeof(codec.codes) + held + codes) + codec.nbytes


def _sampled(objects: Iterable[Any], number: int, sample: int = _SAMPLE) -> float:
    """The bytes of so many objects, from a sample over all of them."""
    # Evenly spaced: rows that were loaded together are alike, so the first entries alone would mislead.
    step = max(number // sample, 1)
    chosen = list(islice(objects, step // 2, None, step))
    return sum(map(_share, chosen)) * number / len(chosen) if chosen else 0.0


def _share(found: Any) -> float:
    # Divided by its references, an object counts once in total, however many containers refer to it.
    references = max(_references(found), 1)
    match found:
        case BitMap():
            size = _bitmap(found)
        case tuple():
            size = _rounded(getsizeof(found)) + sum(map(_share, list(found)))
        case set() | list():
            size = getsizeof(found) + _sampled(found, len(found), _FEW)
        case _:
            size = _rounded(getsizeof(found))
    return size / references


def _rounded(size: int) -> float:
    return float(-(-size // _UNIT) * _UNIT)


def _bitmap(leaf: BitMap) -> float:
    about = leaf.get_statistics()
    content = about["n_bytes_array_containers"] + about["n_bytes_run_containers"] + about["n_bytes_bitset_containers"]
    return _BITMAP + _CONTAINER * about["n_containers"] + _CONTENT * content


def _references(found: Any) -> int:
    """How many references there are to an object, but for those that come from looking at it as `_share` does."""
    return getrefcount(found) - _LOOKING


# How many references come from the look itself depends on the interpreter, so it is measured once, on an object that only
# a dictionary holds.
_LOOKING = 0
_KEPT: Final = {object(): None}
(_LOOKING,) = (count - 1 for count in map(lambda found: _references(found), list(_KEPT)))  # noqa: C417
