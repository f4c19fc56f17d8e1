"""Relational plans, as frozen data. `plan.printer` writes a plan as one Spark SQL query.

Columns are named by position (`c0`, `c1`, ...), so no name of a program clashes with another or with a keyword. Inputs of a join
have aliases, which the expressions above them refer to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rederive.engines.spark.plan.expressions import ColumnRef, Expression, Output, SortKey, number
from rederive.ir.terms import Row, Type


class JoinKind(Enum):
    """How a join treats the rows of its left side. The value is its SQL text."""

    INNER = "JOIN"
    CROSS = "CROSS JOIN"
    SEMI = "LEFT SEMI JOIN"  # rows of the left side that match
    ANTI = "LEFT ANTI JOIN"  # rows of the left side that do not match


class Hint(Enum):
    """How Spark brings one input of a join to the other. The value is its SQL text."""

    BROADCAST = "BROADCAST"  # to every executor
    SHUFFLE_HASH = "SHUFFLE_HASH"  # a hash table for each partition


@dataclass(frozen=True, slots=True)
class OneRow:
    """One row without columns."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a temporary view."""

    view: str


@dataclass(frozen=True, slots=True)
class Values:
    """Literal rows."""

    types: tuple[Type, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Aliased:
    """An input of a join under an alias."""

    input: Plan
    alias: str
    # Printed in the SELECT that joins under this alias.
    hint: Hint | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """The left side joined with one more input."""

    left: Plan
    right: Aliased
    kind: JoinKind = JoinKind.INNER
    on: tuple[Expression, ...] = ()

    def __post_init__(self) -> None:
        # Expressions refer to the aliases of both sides: a SELECT list on the left would hide them.
        if not _has_aliases(self.left):
            raise TypeError(f"the left side of a join has no alias: {type(self.left).__name__}")
        if (self.kind is JoinKind.CROSS) == bool(self.on):
            raise ValueError(f"a {self.kind.name} join with {len(self.on)} conditions")


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which all conditions are true."""

    input: Plan
    conditions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """The values of some expressions for each row."""

    input: Plan
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class GroupBy:
    """One row for each group. Without keys, all rows are one group: also no rows at all, unless `having` says otherwise."""

    input: Plan
    keys: tuple[Expression, ...]
    outputs: tuple[Output, ...]
    having: Expression | None = None


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each row once."""

    input: Plan


@dataclass(frozen=True, slots=True)
class UnionAll:
    """The rows of all parts, one after the other."""

    # By position, as in SQL: all parts have the same columns in the same order.
    parts: tuple[Plan, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a union without parts")


@dataclass(frozen=True, slots=True)
class Repartition:
    """The same rows, partitioned by the hash of some columns."""

    input: Plan
    partitions: int
    by: tuple[ColumnRef, ...]


@dataclass(frozen=True, slots=True)
class Sort:
    """The same rows in an order."""

    input: Plan
    keys: tuple[SortKey, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many rows."""

    input: Plan
    # Which rows is not determined without a Sort below.
    rows: int


Plan: TypeAlias = (
    OneRow | Scan | Values | Aliased | Join | Filter | Projection | GroupBy | Distinct | UnionAll | Repartition | Sort | Limit
)


def _has_aliases(plan: Plan) -> bool:
    return isinstance(plan, Aliased | Join) or (isinstance(plan, Filter) and _has_aliases(plan.input))


def union_all(parts: Iterable[Plan]) -> Plan:
    """The rows of all parts; a single part is itself."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else UnionAll(found)


def filtered(plan: Plan, conditions: Iterable[Expression]) -> Plan:
    """The rows for which all conditions are true; the plan itself where there are none."""
    tests = tuple(conditions)
    return Filter(plan, tests) if tests else plan


def exists(plan: Plan) -> Plan:
    """One row where the plan has any."""
    # Spark stops at the first row.
    return Limit(Projection(plan, (number(1),)), 1)
