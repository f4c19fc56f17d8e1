"""Arrow columns as codes, without a Python object for each row. Imported where Arrow rows come, and not before."""

from __future__ import annotations

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

_EPOCH_DAY: Final = 719_163  # the ordinal of 1970-01-01


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
        return space.unit_codec(type_).from_units(units)
    coded = array.dictionary_encode()
    codes = space.codes.codec(type_).encode_distinct(from_arrow_column(coded.dictionary, type_))
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
    if type_.kind is Kind.DATE and pa.types.is_date32(array.type):
        return array.view(pa.int32()).to_numpy().astype(np.int64) + _EPOCH_DAY
    if type_.kind is Kind.DECIMAL and type_.precision <= 18:
        # An Arrow decimal is 128 bits, least significant first; of at most 18 digits, the lower half is the number.
        words = np.frombuffer(array.buffers()[1], np.int64)  # type: ignore[call-overload]
        units: Array = words[2 * array.offset : 2 * (array.offset + len(array)) : 2]
        return units
    return None
