"""Arrow columns as codes, without a Python object for each row. Imported where Arrow rows come, and not before."""

from __future__ import annotations

from decimal import Context, Decimal
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rederive.arrow_rows import ArrowRows
from rederive.arrow_types import from_arrow_column
from rederive.delta import LazyRows
from rederive.engines.resident.batch.vectors import Space
from rederive.engines.resident.storage.codes import NULL
from rederive.engines.resident.storage.column_table import CodeColumns
from rederive.engines.resident.storage.row_index import Array
from rederive.ir.rules import Relation
from rederive.ir.terms import Kind, Type

EXACT: Final = Context(prec=100)


def encode_arrow_rows(relation: Relation, rows: LazyRows, space: Space) -> CodeColumns | None:
    """The rows as columns of codes, with their repetitions; None where they are not Arrow's."""
    if not isinstance(rows, ArrowRows):
        return None
    return tuple(encode_arrow(column, type_, space) for column, type_ in zip(rows.columns, relation.types, strict=True))


def encode_arrow(column: pa.ChunkedArray[Any], type_: Type, space: Space) -> Array:
    """The codes of a column: each distinct value becomes one Python object, if it has no code yet."""
    if type_.kind is Kind.FLOAT:
        column = pc.add(column, 0.0)  # -0.0 has the code of 0.0
    array: Any = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    units = _units(array, type_)
    if units is not None:
        return _encode_units(units, type_, space)
    coded = array.dictionary_encode()
    codes = space.encode_distinct(type_, from_arrow_column(coded.dictionary, type_))
    indices = coded.indices
    if indices.null_count:
        # NULL has an entry of its own behind the others.
        indices = pc.fill_null(indices, len(codes))
        codes = np.append(codes, np.uint32(NULL))
    found: Array = codes[indices.to_numpy(zero_copy_only=False)]
    return found


def _units(array: pa.Array[Any], type_: Type) -> Array | None:
    """The values in units, where Arrow holds them so and none is NULL."""
    if array.null_count or not len(array):
        return None
    if type_.kind is Kind.NUMBER:
        return array.to_numpy()
    if type_.kind is Kind.DECIMAL and type_.precision <= 18:
        # An Arrow decimal is 128 bits, least significant first; of at most 18 digits, the lower half is the number.
        words = np.frombuffer(array.buffers()[1], np.int64)  # type: ignore[call-overload]
        units: Array = words[2 * array.offset : 2 * (array.offset + len(array)) : 2]
        return units
    return None


def _encode_units(units: Array, type_: Type, space: Space) -> Array:
    distinct, numbers = _distinct(units)
    values: list[Any] = distinct.tolist()
    if type_.kind is Kind.DECIMAL:
        # Times 10^-s, which keeps all digits and is faster than a shift of the exponent.
        values = list(map(EXACT.multiply, map(Decimal, values), repeat(Decimal((0, (1,), -type_.scale)))))
    codes = space.encode_units(type_, values, distinct)
    found: Array = codes[numbers]
    return found


def _distinct(units: Array) -> tuple[Array, Array]:
    """The distinct numbers, and for each number which of them it is."""
    least, most = int(units.min()), int(units.max())
    # Numbers that are close together are found by a table, others by sorting.
    if most - least < 4 * len(units) + 1024:
        offsets = units - least
        there = np.zeros(most - least + 1, np.bool_)
        there[offsets] = True
        numbers = (np.cumsum(there) - 1)[offsets]
        return np.flatnonzero(there) + least, numbers
    distinct, inverse = np.unique(units, return_inverse=True)
    return distinct, inverse
