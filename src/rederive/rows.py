"""Row typing: rows that come as Python values, JSON or text become rows of a relation, or an error names the wrong value.

`typed_row` takes one row of Python values, `typed_json_rows` rows of JSON, and `typed_rows` whole columns of anything with a
function that converts one value. Rows of Spark data frames are typed by `lake.frame_rows`, where they are.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from rederive.errors import DataError, IllTypedRow, MalformedInput, NotABase, UnknownColumn, UnknownRelation
from rederive.ir.rules import Column, Program, Relation
from rederive.ir.terms import Kind, Row, Type, Value
from rederive.scalar.datalog.signatures import INTEGERS
from rederive.values import column_value, from_json, from_python, from_text

Convert: TypeAlias = Callable[[Any, Type], Value]
"""Converts one value to its column's type, as the functions of `values` do; raises ValueError with the reason."""

RowPlace: TypeAlias = Callable[[int], str]
"""Says where the row with this index comes from. It is called only when an error needs it."""

_SHOWN = 60  # characters of a wrong value that an error message repeats
_NUMERALS = re.compile(r"[0-9+-]*")


def base_relation(program: Program, name: str) -> Relation:
    """The declaration of the base relation with this name; raises UnknownRelation, or NotABase for a view."""
    if name not in program.relations:
        raise UnknownRelation(name, program.tables)
    if name in program.defined and program.numbered_copies(name) is None:
        raise NotABase(name)
    return program.relations[name]


def typed_row(relation: Relation, row: Sequence[Value] | Mapping[str, Value]) -> Row:
    """A row of Python values, in column order or by column name, checked against the columns of its relation.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> typed_row(Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER))), {"n": 3, "item": "bolt"})
    ('bolt', 3)
    """
    names = [column.name for column in relation.columns]
    if isinstance(row, Mapping):
        for name in row:
            if name not in names:
                raise UnknownColumn(relation.name, name, names)
        missing = [name for name in names if name not in row]
        if missing:
            raise IllTypedRow(f"relation '{relation.name}': the row {row!r} lacks column '{missing[0]}'")
        row = [row[name] for name in names]
    if isinstance(row, str) or not isinstance(row, Sequence) or len(row) != len(names):
        raise IllTypedRow(f"relation '{relation.name}' has {len(names)} columns ({', '.join(names)}), not the row {row!r}")
    values = []
    for column, value in zip(relation.columns, row, strict=True):
        try:
            values.append(value if _is_of(value, column) else column_value(value, column, from_python))
        except ValueError as error:
            raise IllTypedRow(f"relation '{relation.name}', column '{column.name}': {error}") from None
    return tuple(values)


def _is_of(value: Value, column: Column) -> bool:
    """Whether a value certainly is one of its column's type already, so that converting it would return it unchanged."""
    match column.type.kind:
        case Kind.SYMBOL:
            return type(value) is str and value.isascii()  # other text may hold half of a surrogate pair
        case Kind.NUMBER:
            return type(value) is int and column.bits == 64 and -(2**63) <= value < 2**63  # not bool, which is an int
        case _:
            return False


_BY_COLUMN = 32  # rows from which on typing whole columns is faster than typing rows


def typed_tuples(rows: Sequence[Any], relation: Relation) -> tuple[Row, ...] | None:
    """Many rows of Python values, typed by column; None where they are few, or one is wrong and has to be named."""
    if len(rows) < _BY_COLUMN or not relation.columns:
        return None
    if set(map(builtins.type, rows)) != {tuple} or set(map(len, rows)) != {relation.arity}:
        return None
    columns = list(zip(*rows, strict=True))
    try:
        converted = [_typed_python_column(values, column) for values, column in zip(columns, relation.columns, strict=True)]
    except ValueError:
        return None
    return tuple(zip(*converted, strict=True))


def _typed_python_column(values: Sequence[Any], declared: Column) -> Sequence[Value]:
    kind, classes = declared.type.kind, set(map(builtins.type, values))
    if declared.nullable:
        classes.discard(builtins.type(None))
    if kind in INTEGERS and classes == {int}:
        # A column holds every value if it holds the least and the greatest.
        known = [value for value in values if value is not None] if declared.nullable else values
        column_value(min(known), declared, from_python)
        column_value(max(known), declared, from_python)
        return values
    if (kind is Kind.SYMBOL and classes == {str} and "".join(filter(None, values)).isascii()) or (
        kind is Kind.BOOLEAN and classes == {bool}
    ):
        return values
    return [column_value(value, declared, from_python) for value in values]


def typed_rows(columns: Sequence[Sequence[Any]], relation: Relation, convert: Convert, place: RowPlace) -> list[Row]:
    """The rows of `relation` from its columns, in their order, each value converted to its column's type.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> stock = Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER)))
    >>> typed_rows([("bolt", "nut"), ("3", "4")], stock, lambda text, type: int(text), lambda row: f"line {row}")
    [('bolt', 3), ('nut', 4)]
    """
    try:
        converted = [_typed_column(values, column, convert) for values, column in zip(columns, relation.columns, strict=True)]
    except ValueError:
        raise _first_ill_typed(columns, relation, convert, place) from None
    return list(zip(*converted, strict=True))


def _typed_column(column: Sequence[Any], declared: Column, convert: Convert) -> Sequence[Value]:
    """The converted values of a column, with as few calls of `convert` as the column's type allows."""
    type = declared.type
    classes = set(map(builtins.type, column))
    # As in `column_value`: an empty field of a text file is NULL.
    nulls = (None, "") if convert is from_text else (None,)
    if declared.nullable and any(null in column for null in nulls):
        known = iter(_typed_column([value for value in column if value not in nulls], declared, convert))
        return [None if value in nulls else next(known) for value in column]
    if classes == {str} and type.kind is Kind.SYMBOL:  # decoding has checked already that a string is Unicode
        return column
    if type.kind in INTEGERS and (classes == {int} or (classes == {str} and _NUMERALS.fullmatch("".join(column)))):
        return _integers(column, declared, convert)
    if declared.bits < 64:
        return [column_value(value, declared, convert) for value in column]
    if classes == {str}:
        # Each distinct text is converted once.
        values = {text: convert(text, type) for text in set(column)}
        return [values[text] for text in column]
    return [convert(value, type) for value in column]


def _integers(column: Sequence[Any], declared: Column, convert: Convert) -> list[int]:
    """An integer type is a range, so it holds every value of a column if it holds the least and the greatest."""
    column_value(min(column, key=int), declared, convert)
    column_value(max(column, key=int), declared, convert)
    return list(map(int, column))


def _first_ill_typed(columns: Sequence[Sequence[Any]], relation: Relation, convert: Convert, place: RowPlace) -> IllTypedRow:
    for number, row in enumerate(zip(*columns, strict=True)):
        for value, column in zip(row, relation.columns, strict=True):
            try:
                column_value(value, column, convert)
            except ValueError as reason:
                return IllTypedRow(f"column '{column.name}' of relation '{relation.name}': {reason}").at(place(number))
    raise AssertionError("a column is refused, but each of its values is accepted")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def typed_json_rows(rows: Sequence[object], relation: Relation, place: RowPlace, convert: Convert = from_json) -> list[Row]:
    """The rows of `relation` from JSON, where a row is an array, or an object by column name.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import SYMBOL
    >>> edge = Relation("edge", (Column("x", SYMBOL), Column("y", SYMBOL)))
    >>> typed_json_rows([["b", "c"], {"y": "d", "x": "h"}], edge, lambda row: f"row {row}")
    [('b', 'c'), ('h', 'd')]
    """
    arrays = [_positional(row, relation, number, place) for number, row in enumerate(rows)]
    if not relation.columns:
        return [() for _ in arrays]
    return typed_rows(columns_of(arrays, range(relation.arity)), relation, convert, place)


def _positional(row: object, relation: Relation, number: int, place: RowPlace) -> Sequence[object]:
    match row:
        case list():
            if len(row) != relation.arity:
                raise wrong_width(len(row), relation).at(place(number))
            return row
        case dict():
            names = [column.name for column in relation.columns]
            if row.keys() != set(names):
                raise wrong_names(list(row), relation).at(place(number))
            return [row[name] for name in names]
        case _:
            message = f"a row of relation '{relation.name}' must be an array, or an object by column name, not {_shown(row)}"
            raise IllTypedRow(message).at(place(number))


def columns_of(rows: Sequence[Sequence[Any]], positions: Iterable[int]) -> list[list[Any]]:
    """The columns at these positions of rows that all have them.

    >>> columns_of([("a", "b"), ("c", "d")], (1, 0))
    [['b', 'd'], ['a', 'c']]
    """
    return [list(map(itemgetter(position), rows)) for position in positions]


def wrong_width(width: int, relation: Relation) -> IllTypedRow:
    """The error about a row with too many or too few values."""
    columns = ", ".join(column.name for column in relation.columns)
    plural = "" if relation.arity == 1 else "s"
    return IllTypedRow(f"relation '{relation.name}({columns})' has {relation.arity} column{plural}, the row has {width}")


def wrong_names(names: Sequence[str], relation: Relation) -> DataError:
    """The error about names that are not exactly those of the columns."""
    declared = [column.name for column in relation.columns]
    missing = [name for name in declared if name not in names]
    if unknown := [name for name in names if name not in declared]:
        return UnknownColumn(relation.name, unknown[0], missing or declared)
    return MalformedInput(f"column '{missing[0]}' of relation '{relation.name}' is missing")
