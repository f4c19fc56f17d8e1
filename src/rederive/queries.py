"""Queries as an engine takes them: a relation, and values by position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rederive.bags import read_rows
from rederive.engines.protocol import Engine
from rederive.errors import IllTypedRow, UnknownColumn
from rederive.ir.rules import Atom, Program, Relation
from rederive.ir.terms import Constant, Row, Value, Variable
from rederive.lang import compile_query
from rederive.values import from_python


def positions(relation: Relation, bindings: Mapping[str, Value]) -> dict[int, Value]:
    """Bindings by column name as typed values by position.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER, SYMBOL
    >>> positions(Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER))), {"n": 3})
    {1: 3}
    """
    columns = {column.name: (i, column.type) for i, column in enumerate(relation.columns)}
    found = {}
    for name, value in bindings.items():
        if name not in columns:
            raise UnknownColumn(relation.name, name, columns)
        position, type_ = columns[name]
        try:
            found[position] = from_python(value, type_)
        except ValueError as error:
            raise IllTypedRow(f"relation '{relation.name}', column '{name}': {error}") from None
    return found


def matching(engine: Engine, program: Program, text: str) -> list[Row]:
    """The rows that match an atom; a variable that occurs twice has one value."""
    atom = compile_query(text, program)
    constants = {i: term.value for i, term in enumerate(atom.terms) if isinstance(term, Constant)}
    return with_equal_values(atom, read_rows(program, atom.relation, constants, engine))


def with_equal_values(atom: Atom, rows: Iterable[Row]) -> list[Row]:
    """The rows in which a variable that occurs twice has one value."""
    variables: dict[str, list[int]] = {}
    for i, term in enumerate(atom.terms):
        if isinstance(term, Variable):
            variables.setdefault(term.name, []).append(i)
    same = [where for where in variables.values() if len(where) > 1]
    return [row for row in rows if all(len({row[i] for i in where}) == 1 for where in same)]
