"""Untyped columns and rows from outside become typed rows, or an error that says which value of which row is at fault."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from rederive.errors import DataError, IllTypedRow, MalformedInput, UnknownColumn
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import Kind, Row, Type, Value
from rederive.scalar.datalog.signatures import INTEGERS
from rederive.values import column_value, from_json

Convert: TypeAlias = Callable[[Any, Type], Value]
"""One value to its column's type, as in `lang.values`: raises ValueError with the reason."""

RowPlace: TypeAlias = Callable[[int], str]
"""Where the row with this index comes from. Asked for only when an error needs it."""

_SHOWN = 60
_NUMERALS = re.compile(r"[0-9+-]*")


def typed_rows(columns: Sequence[Sequence[Any]], relation: Relation, convert: Convert, place: RowPlace) -> list[Row]:
    """Rows of `relation` out of its columns, in their order, each value converted to its column's type.

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
    """What `convert` gives for each value, with as few calls of it as the column's type allows."""
    type = declared.type
    if declared.nullable or declared.bits < 64:
        return [column_value(value, declared, convert) for value in column]
    classes = set(map(builtins.type, column))
    if classes == {str} and type.kind is Kind.SYMBOL:  # whoever decoded a string saw to its being Unicode
        return column
    if type.kind in INTEGERS and (classes == {int} or (classes == {str} and _NUMERALS.fullmatch("".join(column)))):
        return _integers(column, type, convert)
    if classes == {str}:
        values = {text: convert(text, type) for text in set(column)}
        return [values[text] for text in column]
    return [convert(value, type) for value in column]


def _integers(column: Sequence[Any], type: Type, convert: Convert) -> list[int]:
    """A type of integers is a range: it holds all of them where it holds the least and the greatest."""
    convert(min(column, key=int), type)
    convert(max(column, key=int), type)
    return list(map(int, column))


def _first_ill_typed(columns: Sequence[Sequence[Any]], relation: Relation, convert: Convert, place: RowPlace) -> IllTypedRow:
    for number, row in enumerate(zip(*columns, strict=True)):
        for value, column in zip(row, relation.columns, strict=True):
            try:
                column_value(value, column, convert)
            except ValueError as reason:
                return IllTypedRow(f"column '{column.name}' of relation '{relation.name}': {reason}").at(place(number))
    raise AssertionError("a column was refused, yet each of its values is accepted")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def typed_json_rows(rows: Sequence[object], relation: Relation, place: RowPlace, convert: Convert = from_json) -> list[Row]:
    """Rows of `relation` out of JSON, where a row is an array, or an object by column name.

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
            message = f"a row of relation '{relation.name}' is an array, or an object by column name; not {_shown(row)}"
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
