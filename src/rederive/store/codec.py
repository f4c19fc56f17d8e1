"""Rows, columns and operations as the journal writes them: JSON, with values encoded as in HTTP.

Rows that are equal for an engine have equal texts, because the journal looks rows up by text: a zero has no sign, NaN and
infinities are texts, and a decimal has the scale of its column.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Final

from rederive.delta import LazyRows
from rederive.engines.protocol import Bulk, Operation
from rederive.errors import CorruptStore, DataError
from rederive.ir.nested import Nested
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import Kind, Part, Row, Type, Value
from rederive.rows import typed_json_rows
from rederive.values import from_json, not_finite_text, to_json


def _encode_other(value: Value) -> object:
    """The JSON of a value that JSON has no type for. Structs and maps are tuples, and so lists of JSON."""
    return to_json(_equal_value(value))


_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=_encode_other).encode
# A number in a JSON array ends with a comma or a bracket. The same characters inside a string only cost a second encoding.
_REPLACED: Final = re.compile(r"(-0\.0|NaN|Infinity)[],]")


def encode_row(row: Row) -> str:
    """One row as JSON text.

    >>> encode_row(("bolt", Decimal("-0.00"), -0.0, None))
    '["bolt","0.00",0.0,null]'
    """
    text = _ENCODE(row)
    return _ENCODE(_equal_row(row)) if _REPLACED.search(text) else text


def _equal_row(row: Row) -> Row:
    return row.__class__(map(_equal_value, row))


def _equal_value(value: Value) -> Value:
    """The value whose JSON is that of all equal values."""
    match value:
        case float():
            # IEEE 754: -0.0 + 0.0 is 0.0, and every other number stays what it is.
            return value + 0.0 if math.isfinite(value) else not_finite_text(value)
        case Decimal() if not value:
            return value.copy_abs()
        case tuple():
            return _equal_row(value)
        case _:
            return value


def encode_rows(rows: Iterable[Row]) -> str:
    """Rows as the text of one JSON array.

    >>> encode_rows([("a", 1), ("b", 2)])
    '[["a",1],["b",2]]'
    """
    listed = list(rows)
    text = _ENCODE(listed)
    return _ENCODE(list(map(_equal_row, listed))) if _REPLACED.search(text) else text


def rows_text(rows: Iterable[Row]) -> str:
    """As `encode_rows`, for readers who do not know the types: structs and maps are objects.

    >>> from rederive.ir.nested import struct
    >>> rows_text([(1, struct(("x",), (2,)))])
    '[[1,{"x":2}]]'
    """
    listed = list(rows)
    if not any(issubclass(found, Nested) for found in set(map(type, chain.from_iterable(listed)))):
        return encode_rows(listed)
    return _ENCODE([[to_json(value) for value in _equal_row(row)] for row in listed])


def decode_rows(text: str, relation: Relation) -> list[Row]:
    """The rows of a JSON array, checked against their columns.

    >>> from rederive.ir.terms import SYMBOL
    >>> decode_rows('[["1.50"],[null]]', Relation("price", (Column("x", Type(Kind.DECIMAL, 9, 2)),)))
    [(Decimal('1.50'),), (None,)]
    """
    try:
        return typed_json_rows(json.loads(text), relation, lambda row: f"row {row}", _value)
    except (ValueError, DataError) as error:
        raise CorruptStore(f"rows of '{relation.name}' cannot be read: {error}") from None


def _value(value: object, type: Type) -> Value:
    return None if value is None else from_json(value, type)


def encode_columns(relation: Relation) -> str:
    """The columns and the key of a relation as JSON text.

    >>> from rederive.ir.terms import NUMBER
    >>> encode_columns(Relation("n", (Column("x", NUMBER),), key=(0,)))
    '{"columns":[["x","number",0,0]],"key":[0]}'
    """
    columns = [[c.name, *_type(c.type), *_domain(c)] for c in relation.columns]
    return _ENCODE({"columns": columns, "key": list(relation.key)})


def _domain(column: Column) -> list[object]:
    """What only columns of SQL have: whether they may be NULL, and the width of narrow numbers."""
    # Left out for plain columns: the journal compares columns by text, also with texts from before SQL.
    if parts := column.type.parts:
        return [column.nullable, column.bits, _parts(parts)]
    return [column.nullable, column.bits] if column.nullable or column.bits < 64 else []


def _type(type: Type) -> tuple[str, int, int]:
    return type.kind.value, type.precision, type.scale


def _parts(parts: Sequence[Part]) -> list[object]:
    return [[part.name, *_type(part.type), part.bits, _parts(part.type.parts)] for part in parts]


def decode_relation(name: str, text: str) -> Relation:
    """The relation whose columns `encode_columns` wrote."""
    try:
        # Whoever edits the file by hand gets CorruptStore, not an exception of Python's.
        read = json.loads(text)
        columns = tuple(_column(*column) for column in read["columns"])
        return Relation(name, columns, tuple(read["key"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptStore(f"the columns of '{name}' cannot be read: {error!r}") from None


def _column(
    name: str, kind: str, precision: int, scale: int, nullable: bool = False, bits: int = 64, parts: Sequence[list[Any]] = ()
) -> Column:
    return Column(name, Type(Kind(kind), precision, scale, tuple(_part(*part) for part in parts)), nullable, bits)


def _part(name: str, kind: str, precision: int, scale: int, bits: int, parts: Sequence[list[Any]]) -> Part:
    return Part(name, Type(Kind(kind), precision, scale, tuple(_part(*part) for part in parts)), bits)


def encode_counts(counts: tuple[Sequence[int], Sequence[int]] | None) -> str | None:
    """The multiplicities of the rows that entered and of those that left, as JSON text.

    >>> encode_counts(([2, 1], []))
    '[[2,1],[]]'
    """
    return None if counts is None else _ENCODE([list(side) for side in counts])


def decode_counts(text: str | None, plus: Sequence[Row], minus: Sequence[Row]) -> tuple[list[int], list[int]] | None:
    """The multiplicities that `encode_counts` wrote for these rows."""
    try:
        if text is None:
            return None
        came, gone = json.loads(text)
        if (len(came), len(gone)) != (len(plus), len(minus)) or not all(type(n) is int and n > 0 for n in (*came, *gone)):
            raise ValueError("a number for each row is expected")
        return came, gone
    except (ValueError, TypeError) as error:
        raise CorruptStore(f"the numbers of copies cannot be read: {error}") from None


def digest(operations: Sequence[Operation]) -> str:
    """A hash of operations: only equal operations in equal order have equal digests.

    >>> from rederive.engines.protocol import Action
    >>> one, two = (Operation(Action.INSERT, "edge", (("a", y),)) for y in "bc")
    >>> digest([one]) == digest([one]), digest([one]) == digest([two])
    (True, False)
    """
    # The digest is compared by later processes and releases, so it hashes the stored form and not Python's objects.
    steps = ([step.action.value, step.relation, _rows_digest(step.rows)] for step in operations)
    return hashlib.sha256(_ENCODE(list(steps)).encode()).hexdigest()


def _rows_digest(rows: tuple[Row, ...] | LazyRows) -> str:
    return rows.digest() if isinstance(rows, Bulk) else encode_rows(rows)
