"""Aggregates from scratch, over the rows of a plan: by Spark's functions where these are exact, else by a fold in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from rederive.engines.spark.plan.expressions import (
    Cast,
    ColumnRef,
    Expression,
    Named,
    NullTest,
    Output,
    SortKey,
    TypedValue,
    Window,
    call,
    count_rows,
    infix,
    number,
    ref,
    refs,
    renumbered,
)
from rederive.engines.spark.plan.nodes import Filter, GroupBy, Plan, Projection, exists
from rederive.engines.spark.plan.rule_query import ERROR
from rederive.engines.spark.plan.sources import Frame, Types
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import arrow_type, column, columns, schema
from rederive.errors import EvaluationError
from rederive.ir.rules import Aggregate, Function, Order, Program
from rederive.ir.terms import NUMBER, Kind, Type
from rederive.values import INTEGER_RANGES

TOTAL = Type(Kind.DECIMAL, 38, 0)  # of whole numbers: a sum of 10^18 numbers of 64 bits still fits


def aggregate_rows(aggregate: Aggregate, program: Program, rows: Plan, jobs: Jobs) -> Frame:
    """One row for each group of a plan's rows: the group's columns and the result."""
    view, value = program.relations[aggregate.relation], value_type(aggregate, program)
    if aggregate.function is Function.ROW_NUMBER:
        return jobs.queries.materialize(numbered_plan(aggregate, program.relations[aggregate.source].arity, rows), view.types)
    if not is_exact_in_spark(aggregate, value):
        return _fold_in_python(aggregate, rows, view.types, value, jobs)
    plan = native_plan(aggregate, rows)
    if aggregate.function is Function.SUM:
        assert value is not None
        check_sums(aggregate, value, plan, len(view.types) - 1, jobs)
        plan = _in_type(plan, view.types, value)
    return jobs.queries.materialize(plan, view.types)


def value_type(aggregate: Aggregate, program: Program) -> Type | None:
    """The type of the aggregated values; None where rows are counted."""
    return program.relations[aggregate.source].columns[aggregate.value].type if aggregate.value is not None else None


def is_exact_in_spark(aggregate: Aggregate, value: Type | None) -> bool:
    """Whether Spark's result is exact: its sums of floats depend on their order, and decimals of many digits overflow them."""
    match aggregate.function:
        case Function.COUNT:
            return True
        case Function.MIN | Function.MAX:
            return value is not None and value.kind is not Kind.FLOAT
        case Function.SUM:
            return value is not None and value.kind in INTEGER_RANGES
        case Function.MEAN | Function.ROW_NUMBER:
            return False


def numbered_plan(aggregate: Aggregate, arity: int, rows: Plan) -> Plan:
    """The rows themselves, each with its number; rows that are equal in the order are ordered by all their values."""
    chosen = (*aggregate.group, *(i for i in range(arity) if i not in aggregate.group))
    # Ties are broken by all columns, so that both engines number alike.
    keys = (SortKey(ref(o.column), o.descending, o.nulls_first) for o in (*aggregate.order, *map(Order, range(arity))))
    window = Window(call("row_number"), tuple(map(ref, aggregate.group)), tuple(keys))
    plan = Projection(rows, (*renumbered(chosen), Named(Cast(window, NUMBER), column(arity))))
    return Filter(plan, (infix("<=", ref(arity), number(aggregate.most)),)) if aggregate.most is not None else plan


def native_plan(aggregate: Aggregate, rows: Plan) -> Plan:
    """The groups and their results, by Spark's own functions. A sum has 38 digits."""
    value = ref(aggregate.value) if aggregate.value is not None else None
    match aggregate.function:
        case Function.COUNT:
            result = call("count", value) if value is not None else count_rows()
        case Function.MIN | Function.MAX:
            result = call(aggregate.function.value, value or ref(0))
        case _:
            # In 38 digits: Spark's own sum of BIGINT overflows, also where the final sum would fit.
            result = call("sum", Cast(value or ref(0), TOTAL))
    groups = tuple(Named(ref(old), column(new)) for new, old in enumerate(aggregate.group))
    return group_rows(rows, tuple(map(ref, aggregate.group)), (*groups, Named(result, column(len(aggregate.group)))))


def group_rows(rows: Plan, keys: tuple[Expression, ...], outputs: tuple[Output, ...]) -> Plan:
    """The groups that have rows. Without keys, SQL has one group even of no rows; we have none."""
    return GroupBy(rows, keys, outputs, None if keys else infix(">", count_rows(), number(0)))


def check_sums(aggregate: Aggregate, value: Type, sums: Plan, position: int, jobs: Jobs) -> None:
    """Raise an error where a sum at a position of the rows does not fit its type."""
    low, high = INTEGER_RANGES[value.kind]
    total = ref(position)
    is_outside = infix("OR", infix("<", total, TypedValue(low, TOTAL)), infix(">", total, TypedValue(high, TOTAL)))
    # Before the cast, which would end the query with an error of Spark's own.
    if jobs.queries.collect(exists(Filter(sums, (is_outside,)))):
        raise overflow_error(aggregate, value)


def _in_type(sums: Plan, types: Types, value: Type) -> Plan:
    """The sums in the value's own type."""
    last = len(types) - 1
    return Projection(sums, (*(ref(i) for i in range(last)), Named(Cast(ref(last), value), column(last))))


def overflow_error(aggregate: Aggregate, value: Type | None) -> EvaluationError:
    """The error of a result that does not fit its type."""
    return EvaluationError(f"the {aggregate.function.value} over '{aggregate.source}' does not fit {value}")


def _fold_in_python(aggregate: Aggregate, rows: Plan, types: Types, value: Type | None, jobs: Jobs) -> Frame:
    """Whole groups at a time, in Spark's Python workers, with exact arithmetic."""
    assert value is not None
    assert aggregate.value is not None
    grouped = jobs.queries.data(rows).groupBy(*(column(c) for c in aggregate.group))
    data = grouped.applyInArrow(_folding(aggregate, types, value), f"{schema(types)}, {ERROR} STRING")
    # The number of rows is not known yet; 0 is never read, because the frame is only scanned.
    found = jobs.queries.scan(jobs.frames.of_data(data, types, 0))
    if jobs.queries.collect(exists(Filter(found, (NullTest(ColumnRef(ERROR), is_null=False),)))):
        raise overflow_error(aggregate, value)
    return jobs.queries.materialize(Projection(found, refs(types)), types)


def _folding(aggregate: Aggregate, types: Types, value: Type) -> Callable[[pa.Table], pa.Table]:
    """The function that makes one row of the rows of a group."""
    keys, position = list(aggregate.group), aggregate.value or 0
    result, arrow = exact_result(aggregate.function, value, types[-1]), [arrow_type(t) for t in types]

    def fold(rows: pa.Table) -> pa.Table:
        # A group without rows has no result, also without group columns.
        if not rows.num_rows:
            return pa.table([pa.array([], t) for t in (*arrow, pa.string())], names=[*columns(types), ERROR])
        given = rows.column(position).to_pylist()
        group = [rows.column(i)[0].as_py() for i in keys]
        try:
            row, error = [*group, result(given)], None
        except OverflowError:
            row, error = [*group, None], "overflow"
        arrays = [pa.array([v], t) for v, t in zip(row, arrow, strict=True)]
        return pa.table([*arrays, pa.array([error], pa.string())], names=[*columns(types), ERROR])

    return fold


def exact_result(function: Function, value: Type, gives: Type) -> Callable[[Sequence[Any]], Any]:
    """The exact result over the values of a group, NULL where it has none; OverflowError where it does not fit its type."""
    # NULL is not folded.
    known = _of_values(function, value, gives)

    def result(values: Sequence[Any]) -> Any:
        there = [one for one in values if one is not None]
        return known(there) if there else None

    return result


def _of_values(function: Function, value: Type, gives: Type) -> Callable[[Sequence[Any]], Any]:

    # As fractions the sum is exact; it is rounded once at the end, as in the resident engine.
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
    # floor(units + 1/2) in whole numbers, on the absolute value.
    rounded = (2 * units.numerator + units.denominator) // (2 * units.denominator)
    return Decimal(rounded if value >= 0 else -rounded).scaleb(-scale)
