"""Rows as columns of codes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from rederive.delta import LazyRows
from rederive.engines.resident.batch.vectors import Batch, Space, Vector
from rederive.engines.resident.storage.column_table import CodeColumns, CodedColumns
from rederive.ir.rules import Relation
from rederive.ir.terms import Row


def encode_columns(relation: Relation, rows: Iterable[Row], space: Space) -> CodeColumns:
    """The rows as columns of codes, with their repetitions."""
    if isinstance(rows, CodedColumns) and rows.codes is space.codes:
        return rows.columns
    if isinstance(rows, LazyRows):
        from rederive.engines.resident.batch.arrow_encoding import encode_arrow_rows

        if (encoded := encode_arrow_rows(relation, rows, space)) is not None:
            return encoded
    given: list[Collection[Any]] = list(zip(*rows, strict=True))
    if not given:
        return tuple(np.empty(0, np.uint32) for _ in relation.columns)
    codecs = [space.codes.codec(type_) for type_ in relation.types]
    return tuple(codec.encode_many(column) for codec, column in zip(codecs, given, strict=True))


def as_batch(rows: CodedColumns) -> Batch:
    """The same rows as vectors."""
    space = Space(rows.codes)
    vectors = [Vector(space, type_, codes) for type_, codes in zip(rows.relation.types, rows.columns, strict=True)]
    return Batch(vectors, len(rows))
