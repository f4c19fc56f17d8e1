"""What expressions and queries become before they are rules: typed terms, and relations that know what identifies a row.

A query is lowered to a relation of the IR, which is a set. Where SQL has a bag, the relation has *hidden* columns after the
visible ones: the identities of the source rows that a row is made from. They tell the copies of a row apart, so that a bag is
a set with identities (docs/decisions/0015).
"""

from __future__ import annotations

from dataclasses import dataclass

from rederive.ir.rules import Column, Relation
from rederive.ir.terms import Term, Variable
from rederive.lang.sql.types import SqlType, column_of_type, column_type


@dataclass(frozen=True, slots=True)
class TypedTerm:
    """A term with its SQL type, and whether it may be NULL."""

    term: Term
    type: SqlType
    nullable: bool


def column_of(typed: TypedTerm, name: str) -> Column:
    """The column that holds a term's values."""
    return column_of_type(name, typed.type, typed.nullable)


@dataclass(frozen=True, slots=True)
class Field:
    """A visible column of a query."""

    name: str
    type: SqlType
    nullable: bool

    def column(self, name: str | None = None) -> Column:
        """The column of the IR, under its own or another name."""
        return column_of_type(name or self.name, self.type, self.nullable)


@dataclass(frozen=True, slots=True)
class LoweredRelation:
    """A relation that a query can read: its columns are the visible fields, then the hidden and the correlated columns.

    `key` are the positions, among visible and hidden columns, that identify a row. `outer` are the variables of an enclosing
    query, to which the correlated columns are joined.
    """

    name: str
    fields: tuple[Field, ...]
    hidden: tuple[Column, ...] = ()
    key: tuple[int, ...] = ()
    outer: tuple[Variable, ...] = ()

    @property
    def own(self) -> tuple[Column, ...]:
        """The columns that are not correlated."""
        return (*(field.column() for field in self.fields), *self.hidden)

    @property
    def identity(self) -> tuple[int, ...]:
        """The positions that identify a row: the key, or all columns."""
        return self.key or tuple(range(len(self.own)))


def rows_relation(name: str, relations: dict[str, Relation]) -> str:
    """The relation that holds the rows of a table or view with their identities."""
    bag = relations[name].bag
    return bag.rows if bag is not None else name


def table_as_read(name: str, relations: dict[str, Relation]) -> LoweredRelation:
    """A table or view of the program, as a query reads it: with its identities if it is a bag."""
    declared, rows = relations[name], relations[rows_relation(name, relations)]
    fields = tuple(Field(column.name, column_type(column), column.nullable) for column in declared.columns)
    return LoweredRelation(rows.name, fields, rows.columns[declared.arity :], rows.key)
