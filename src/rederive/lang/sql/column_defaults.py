"""What a change of data puts into columns that it leaves out: DEFAULT, GENERATED ALWAYS AS, or NULL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from sqlglot import exp

from rederive.ir.rules import Column, Relation
from rederive.ir.substitute import substitute_term
from rederive.ir.terms import Constant, variables
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.types import column_type


class Lowered(exp.Expression):
    """A node that has a term already: the default of a column, or an argument whose type decided which function is meant."""

    arg_types: ClassVar[dict[str, bool]] = {"typed": True}


def is_generated(column: Column) -> bool:
    """Whether the value of a column follows from the others of its row."""
    return column.default is not None and bool(variables(column.default))


def is_default(node: exp.Expr) -> bool:
    """Whether a value of a VALUES list or of SET is the word DEFAULT."""
    bare = isinstance(node, exp.Var) or (isinstance(node, exp.Column) and not node.args.get("table") and not node.this.quoted)
    return bare and node.name.upper() == "DEFAULT"


def default_of(column: Column) -> TypedTerm:
    """The value of a column that a row leaves out, where it does not follow from the row."""
    type = column_type(column)
    if column.default is None or is_generated(column):
        return TypedTerm(Constant(None, type.type), type, True)
    return TypedTerm(column.default, type, column.nullable)


def generate_columns(row: Sequence[TypedTerm], table: Relation, given: Collection[int] = ()) -> list[TypedTerm]:
    """The row with its generated columns; those that are `given` stay, and the constraint of the table checks them."""
    terms = {f"c{i}": typed.term for i, typed in enumerate(row)}
    found = list(row)
    for i, column in enumerate(table.columns):
        if is_generated(column) and i not in given:
            assert column.default is not None
            found[i] = TypedTerm(substitute_term(column.default, terms), column_type(column), column.nullable)
    return found
