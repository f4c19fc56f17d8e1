"""Aggregates from scratch, over the rows of a plan: by Spark's functions where these are exact, else by a fold in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from rederive.arrow_types import to_arrow_column
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
from rederive.engines.spark.plan.nodes import Filter, GroupBy, Limit, Plan, Projection, exists
from rederive.engines.spark.plan.rule_query import ERROR
from rederive.engines.spark.plan.sources import Frame, Types
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import arrow_type, column, columns, from_arrow, schema
from rederive.errors import EvaluationError
from rederive.ir.rules import Aggregate, Function, Order, Program
from rederive.ir.terms import NUMBER, Kind, Row, Type
from rederive.scalar.failures import ScalarError
from rederive.scalar.folds import fold_of
from rederive.scalar.windows import window_of
from rederive.values import INTEGER_RANGES

TOTAL = Type(Kind.DECIMAL, 38, 0)  # of whole numbers: a sum of 10^18 numbers of 64 bits still fits


def aggregate_rows(aggregate: Aggregate, program: Program, rows: Plan, jobs: Jobs) -> Frame:
    """One row for each group of a plan's rows: the group's columns and the result."""
    view, value = program.relations[aggregate.relation], value_type(aggregate, program)
    if aggregate.function is Function.ROW_NUMBER:
        return jobs.queries.materialize(numbered_plan(aggregate, program.relations[aggregate.source].arity, rows), view.types)
    if not is_exact_in_spark(aggregate, value):
        return _fold_in_python(aggregate, program.relations[aggregate.source].types, rows, view.types, jobs)
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
    if aggregate.is_window:
        return False
    match aggregate.function:
        case Function.COUNT:
            return True
        case Function.MIN | Function.MAX:
            return value is not None and value.kind is not Kind.FLOAT
        case Function.SUM:
            return value is not None and value.kind in INTEGER_RANGES
        case _:
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
    view = aggregate.relation.partition(".")[0]
    return EvaluationError(f"the {aggregate.function.value} in '{view}' does not fit {value}")


def _fold_in_python(aggregate: Aggregate, source: Types, rows: Plan, types: Types, jobs: Jobs) -> Frame:
    """Whole groups at a time, in Spark's Python workers, by the functions of the resident engine."""
    grouped = jobs.queries.data(rows).groupBy(*(column(c) for c in aggregate.group))
    data = grouped.applyInArrow(_folding(aggregate, source, types), f"{schema(types)}, {ERROR} STRING")
    # The number of rows is not known yet; 0 is never read, because the frame is only scanned.
    found = jobs.queries.scan(jobs.frames.of_data(data, types, 0))
    # Read once more where it succeeds: an error ends the transaction, so its text need not be cheap.
    failed = Projection(Filter(found, (NullTest(ColumnRef(ERROR), is_null=False),)), (Named(ColumnRef(ERROR), column(0)),))
    for (error,) in jobs.queries.collect(Limit(failed, 1)):
        raise overflow_error(aggregate, types[-1]) if error == _OVERFLOW else EvaluationError(str(error))
    return jobs.queries.materialize(Projection(found, refs(types)), types)


_OVERFLOW = "overflow"


def _folding(aggregate: Aggregate, source: Types, types: Types) -> Callable[[pa.Table], pa.Table]:
    """The function that makes rows of the view of the rows of a group."""
    results = _window_rows(aggregate, source, types) if aggregate.is_window else _group_row(aggregate, source, types)
    arrow = [arrow_type(t) for t in types]

    def fold(rows: pa.Table) -> pa.Table:
        error = None
        try:
            # A group without rows has no result, also without group columns.
            found = results(from_arrow(rows, source)) if rows.num_rows else []
        except (OverflowError, ScalarError) as failure:
            error = str(failure) if isinstance(failure, ScalarError) else _OVERFLOW
            found = [(None,) * len(types)]
        arrays = [to_arrow_column((row[i] for row in found), type, arrow[i]) for i, type in enumerate(types)]
        return pa.table([*arrays, pa.array([error] * len(found), pa.string())], names=[*columns(types), ERROR])

    return fold


def _group_row(aggregate: Aggregate, source: Types, types: Types) -> Callable[[Sequence[Row]], list[Row]]:
    compute, group = fold_of(aggregate, source, types[-1]), aggregate.group
    return lambda rows: [(*(rows[0][i] for i in group), compute(rows))]


def _window_rows(aggregate: Aggregate, source: Types, types: Types) -> Callable[[Sequence[Row]], list[Row]]:
    compute = window_of(aggregate, source, types[-1])
    chosen = (*aggregate.group, *(i for i in range(len(source)) if i not in aggregate.group))
    return lambda rows: [(*(row[i] for i in chosen), result) for row, result in compute(rows)]
