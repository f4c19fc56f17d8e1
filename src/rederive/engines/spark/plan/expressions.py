"""Scalar expressions of a plan, as frozen data. `plan.printer` writes them as Spark SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from rederive.engines.spark.session.types import column, columns
from rederive.ir.terms import BOOLEAN, NUMBER, Type, Value


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column, of the input that has this alias where one is given."""

    name: str
    alias: str = ""


@dataclass(frozen=True, slots=True)
class AllColumns:
    """Every column, of the input that has this alias where one is given."""

    alias: str = ""


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A constant with its type."""

    value: Value
    type: Type


@dataclass(frozen=True, slots=True)
class Cast:
    """A value in another type."""

    value: Expression
    type: Type


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function of Spark, an aggregate function, or a registered Python function."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Infix:
    """Operands with one operator between them."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class LogicalNot:
    """The negation of a condition; NULL stays NULL."""

    condition: Expression


@dataclass(frozen=True, slots=True)
class NullTest:
    """Whether a value is NULL, or is not."""

    value: Expression
    is_null: bool = True


@dataclass(frozen=True, slots=True)
class CaseWhen:
    """The result of the first branch whose condition is true; NULL where no branch is and nothing else is given."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None


@dataclass(frozen=True, slots=True)
class InList:
    """Whether a value is one of some options."""

    value: Expression
    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class FieldOf:
    """A field of a struct, such as what a Python function returns."""

    value: Expression
    field: str


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by."""

    value: Expression
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Window:
    """A function over the rows that agree on `partition`."""

    function: FunctionCall
    partition: tuple[Expression, ...] = ()
    order: tuple[SortKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Named:
    """An expression of a SELECT list under a name."""

    value: Expression
    name: str


Expression: TypeAlias = (
    ColumnRef
    | AllColumns
    | TypedValue
    | Cast
    | FunctionCall
    | Infix
    | LogicalNot
    | NullTest
    | CaseWhen
    | InList
    | FieldOf
    | Window
)
Output: TypeAlias = Expression | Named  # an item of a SELECT list

# The condition of a join that has none, and the stand-in column of a relation without columns.
TRUE: Final = TypedValue(True, BOOLEAN)
FALSE: Final = TypedValue(False, BOOLEAN)


def number(value: int) -> TypedValue:
    """A whole number of 64 bits."""
    return TypedValue(value, NUMBER)


def ref(position: int, alias: str = "") -> ColumnRef:
    """The column at a position of a relation."""
    return ColumnRef(column(position), alias)


def refs(types: tuple[Type, ...], alias: str = "") -> tuple[ColumnRef, ...]:
    """The columns of a relation; the stand-in column where it has none."""
    return tuple(ColumnRef(name, alias) for name in columns(types))


def renumbered(positions: Iterable[int]) -> tuple[Output, ...]:
    """The columns at these positions, named by their new ones; the stand-in column where there are none."""
    # Columns are known by position alone, so a projection gives them new numbers.
    found = tuple(Named(ref(old), column(new)) for new, old in enumerate(positions))
    return found or (Named(TRUE, column(0)),)


def call(function: str, *arguments: Expression) -> FunctionCall:
    """A call of a function."""
    return FunctionCall(function, arguments)


def infix(operator: str, *operands: Expression) -> Infix:
    """An operator between operands."""
    return Infix(operator, operands)


def conjunction(conditions: Sequence[Expression]) -> Expression:
    """All conditions at once; TRUE where there are none."""
    return conditions[0] if len(conditions) == 1 else Infix("AND", tuple(conditions)) if conditions else TRUE


def disjunction(conditions: Sequence[Expression]) -> Expression:
    """At least one condition; FALSE where there are none."""
    return conditions[0] if len(conditions) == 1 else Infix("OR", tuple(conditions)) if conditions else FALSE


def equal(one: Expression, other: Expression, *, null_safe: bool = True) -> Infix:
    """Equality; a null-safe one finds NULL identical to NULL.

    Spark joins by `=` without moving rows that are partitioned by the column; a null-safe key does not count as one.
    """
    # a <=> b is TRUE for two NULLs and never NULL itself.
    return Infix("<=>" if null_safe else "=", (one, other))


def same_row(types: tuple[Type, ...], one: str, other: str, *, null_safe: bool = True) -> tuple[Expression, ...]:
    """The conditions under which two aliases have the same row."""
    return tuple(equal(ColumnRef(c, one), ColumnRef(c, other), null_safe=null_safe) for c in columns(types))


def count_rows() -> FunctionCall:
    """The number of rows of a group."""
    return call("count", number(1))
