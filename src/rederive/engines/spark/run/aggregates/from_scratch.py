"""Aggregates over the rows of a query: natively where Spark's result is exact and the same as ours, else by a fold in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from rederive.engines.spark.plan.sources import Frame, Types, listed
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import arrow_type, column, columns, schema, sql_type
from rederive.errors import EvaluationError
from rederive.ir.rules import Aggregate, Function, Order, Program
from rederive.ir.terms import Kind, Type
from rederive.values import INTEGER_RANGES

SUM = "DECIMAL(38,0)"  # of whole numbers: a sum of 10^18 numbers of 64 bits still fits


def folded(aggregate: Aggregate, program: Program, rows: str, jobs: Jobs) -> Frame:
    """One row for each group of the query's rows: the group's columns and the result."""
    view, value = program.relations[aggregate.relation], value_type(aggregate, program)
    if aggregate.function is Function.ROW_NUMBER:
        return jobs.materialise(_numbered(aggregate, program.relations[aggregate.source].arity, rows), view.types)
    if exactly_native(aggregate, value):
        return jobs.materialise(_native(aggregate, rows, view.types, value, jobs), view.types)
    return _by_python(aggregate, rows, view.types, value, jobs)


def value_type(aggregate: Aggregate, program: Program) -> Type | None:
    """The type of what is folded; None where rows are counted."""
    return program.relations[aggregate.source].columns[aggregate.value].type if aggregate.value is not None else None


def exactly_native(aggregate: Aggregate, value: Type | None) -> bool:
    """Sums of floats depend on their order and decimals of many digits overflow Spark's own sums: these are folded in Python."""
    match aggregate.function:
        case Function.COUNT:
            return True
        case Function.MIN | Function.MAX:
            return value is not None and value.kind is not Kind.FLOAT
        case Function.SUM:
            return value is not None and value.kind in INTEGER_RANGES
        case Function.MEAN | Function.ROW_NUMBER:
            return False


def _numbered(aggregate: Aggregate, arity: int, rows: str) -> str:
    """The rows themselves, each with its number; rows that are equal in the order are ordered by their values."""
    chosen = (*aggregate.group, *(i for i in range(arity) if i not in aggregate.group))
    order = ", ".join(map(_ordered, (*aggregate.order, *map(Order, range(arity)))))
    parts = f"PARTITION BY {', '.join(map(column, aggregate.group))} " if aggregate.group else ""
    columns_ = ", ".join(f"{column(c)} AS {column(i)}" for i, c in enumerate(chosen))
    last = column(arity)
    text = f"SELECT {columns_}, CAST(row_number() OVER ({parts}ORDER BY {order}) AS BIGINT) AS {last} FROM ({rows})"
    return f"SELECT * FROM ({text}) WHERE {last} <= {aggregate.most}" if aggregate.most is not None else text


def _ordered(order: Order) -> str:
    nulls = "FIRST" if order.nulls_first else "LAST"
    return f"{column(order.column)} {'DESC' if order.descending else 'ASC'} NULLS {nulls}"


def _native(aggregate: Aggregate, rows: str, types: Types, value: Type | None, jobs: Jobs) -> str:
    groups = [f"{column(c)} AS {column(i)}" for i, c in enumerate(aggregate.group)]
    by = f" GROUP BY {', '.join(column(c) for c in aggregate.group)}" if aggregate.group else " HAVING count(*) > 0"
    last = column(len(aggregate.group))
    match aggregate.function:
        case Function.COUNT:
            result = f"count({column(aggregate.value)})" if aggregate.value is not None else "count(*)"
        case Function.MIN | Function.MAX:
            result = f"{aggregate.function.value}({column(aggregate.value or 0)})"
        case _:
            return _checked_sum(
                aggregate,
                f"SELECT {', '.join([*groups, f'{exact_sum(aggregate)} AS {last}'])} FROM ({rows}){by}",
                types,
                value,
                jobs,
            )
    return f"SELECT {', '.join([*groups, f'{result} AS {last}'])} FROM ({rows}){by}"


def exact_sum(aggregate: Aggregate) -> str:
    return f"sum(CAST({column(aggregate.value or 0)} AS {SUM}))"


def _checked_sum(aggregate: Aggregate, text: str, types: Types, value: Type | None, jobs: Jobs) -> str:
    """The sums in the value's own type; one that does not fit it is an error."""
    assert value is not None
    low, high = INTEGER_RANGES[value.kind]
    last = column(len(types) - 1)
    check_sums(aggregate, value, f"SELECT 1 FROM ({text}) WHERE {last} < {low} OR {last} > {high} LIMIT 1", jobs)
    kept = [*columns(types)[:-1], f"CAST({last} AS {sql_type(value)}) AS {last}"]
    return f"SELECT {', '.join(kept)} FROM ({text})"


def check_sums(aggregate: Aggregate, value: Type, text: str, jobs: Jobs) -> None:
    """Raise an error where the query finds a sum that does not fit its type."""
    if jobs.few(text):
        raise too_large(aggregate, value)


def too_large(aggregate: Aggregate, value: Type | None) -> EvaluationError:
    return EvaluationError(f"the {aggregate.function.value} over '{aggregate.source}' does not fit {value}")


def _by_python(aggregate: Aggregate, rows: str, types: Types, value: Type | None, jobs: Jobs) -> Frame:
    """Whole groups at a time, in Spark's Python workers, with exact arithmetic."""
    assert value is not None
    assert aggregate.value is not None
    data = jobs.session.sql(rows)
    keys = [column(c) for c in aggregate.group]
    fold = _folding(aggregate, types, value)
    grouped = data.groupBy(*keys).applyInArrow(fold, f"{schema(types)}, e STRING")
    found = jobs.named(grouped, types, 0)
    if jobs.few(f"SELECT 1 FROM {found.text()} WHERE e IS NOT NULL LIMIT 1"):
        raise too_large(aggregate, value)
    return jobs.materialise(f"SELECT {listed(types)} FROM {found.text()}", types)


def _folding(aggregate: Aggregate, types: Types, value: Type) -> Callable[[pa.Table], pa.Table]:
    keys, position = list(aggregate.group), aggregate.value or 0
    result, arrow = result_of(aggregate.function, value, types[-1]), [arrow_type(t) for t in types]

    def fold(rows: pa.Table) -> pa.Table:
        if not rows.num_rows:
            return pa.table([pa.array([], t) for t in (*arrow, pa.string())], names=[*columns(types), "e"])
        given = rows.column(position).to_pylist()
        group = [rows.column(i)[0].as_py() for i in keys]
        try:
            row, error = [*group, result(given)], None
        except OverflowError:
            row, error = [*group, None], "overflow"
        arrays = [pa.array([v], t) for v, t in zip(row, arrow, strict=True)]
        return pa.table([*arrays, pa.array([error], pa.string())], names=[*columns(types), "e"])

    return fold


def result_of(function: Function, value: Type, gives: Type) -> Callable[[Sequence[Any]], Any]:
    """The exact result over the values of a group, NULL where it has none; OverflowError where it does not fit its type."""
    known = _of_values(function, value, gives)

    def result(values: Sequence[Any]) -> Any:
        there = [one for one in values if one is not None]
        return known(there) if there else None

    return result


def _of_values(function: Function, value: Type, gives: Type) -> Callable[[Sequence[Any]], Any]:

    def total(values: Sequence[Any]) -> Fraction:
        return sum(map(Fraction, values), Fraction())

    def summed(values: Sequence[Any]) -> Any:
        found = total(values)
        if value.kind is Kind.FLOAT:
            return found.numerator / found.denominator
        units = found * 10**value.scale
        if abs(units) >= 10**gives.precision:
            raise OverflowError
        return Decimal(int(units)).scaleb(-value.scale)

    def mean(values: Sequence[Any]) -> float | Decimal:
        found = total(values) / len(values)
        if gives.kind is Kind.DECIMAL:
            return _half_up(found, gives.scale)
        return found.numerator / found.denominator

    match function:
        case Function.MEAN:
            return mean
        case Function.SUM:
            return summed
        case Function.MIN:
            return min
        case _:
            return max


def _half_up(value: Fraction, scale: int) -> Decimal:
    """Rounded away from zero where two are equally near.

    >>> _half_up(Fraction(-1, 8), 2)
    Decimal('-0.13')
    """
    units = abs(value) * 10**scale
    rounded = (2 * units.numerator + units.denominator) // (2 * units.denominator)
    return Decimal(rounded if value >= 0 else -rounded).scaleb(-scale)
