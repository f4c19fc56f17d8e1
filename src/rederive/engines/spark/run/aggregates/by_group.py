"""Aggregates maintained by affected group.

Counts and sums of whole numbers have totals as auxiliary state, one row for each group, to which the changed rows are added. A
minimum or maximum, and what Spark does not sum exactly, is evaluated from scratch for the affected groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

import pyarrow as pa

from rederive.engines.spark.plan.expressions import (
    TRUE,
    AllColumns,
    CaseWhen,
    Cast,
    ColumnRef,
    Expression,
    Named,
    NullTest,
    TypedValue,
    call,
    equal,
    infix,
    number,
    ref,
    renumbered,
)
from rederive.engines.spark.plan.nodes import (
    Aliased,
    Distinct,
    Filter,
    GroupBy,
    Hint,
    Join,
    JoinKind,
    Plan,
    Projection,
    union_all,
)
from rederive.engines.spark.plan.sources import Frame, Local, Source, Types, broadcast_hint, combine
from rederive.engines.spark.run.aggregates.arrow_totals import table_totals
from rederive.engines.spark.run.aggregates.first_rows import (
    first_rows_name,
    has_prefix,
    prefix_plan,
    prefix_types,
    shift,
    shown_plan,
    shown_rows,
)
from rederive.engines.spark.run.aggregates.from_scratch import (
    TOTAL,
    aggregate_rows,
    check_sums,
    group_rows,
    is_exact_in_spark,
    overflow_error,
    value_type,
)
from rederive.engines.spark.run.arrow_sets import can_compare, cast_columns, distinct, select_matching
from rederive.engines.spark.run.evaluation import as_view, derivation
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Relations
from rederive.engines.spark.run.storage import Storage
from rederive.engines.spark.session.types import column
from rederive.ir.rules import Aggregate, Function, Variant
from rederive.ir.terms import NUMBER, Row
from rederive.maintain.maintenance_rule import Fold
from rederive.values import INTEGER_RANGES

SharedTotals = dict[tuple[str, tuple[int, ...]], Frame]  # by the rows and the groups that they are of


def totals_name(view: str) -> str:
    """The name under which the totals of a view are stored: for each group, the number of rows, of values, and their sum."""
    return f"{view}.totals"


def fill(fold: Fold, relations: Relations, storage: Storage, jobs: Jobs, shared: SharedTotals) -> None:
    """The first evaluation."""
    aggregate, source = fold.aggregate, _source(fold, relations, jobs)
    types = relations.types(aggregate.relation)
    # An empty source has no groups; Spark need not be asked.
    if source.empty:
        storage.write(aggregate.relation, Local(types, frozenset()))
        if _has_totals(aggregate, relations):
            storage.write(totals_name(aggregate.relation), Local(_totals_types(types), frozenset()))
        elif has_prefix(aggregate, types):
            storage.write(first_rows_name(aggregate.relation), Local(prefix_types(types), frozenset()))
    elif has_prefix(aggregate, types):
        found = jobs.queries.materialize(
            _prefix_plan(aggregate, relations, jobs.queries.select(source), jobs), prefix_types(types)
        )
        storage.write(first_rows_name(aggregate.relation), found)
        storage.write(aggregate.relation, _shown(aggregate, found, types, jobs))
    elif _has_totals(aggregate, relations):
        found = _totals(aggregate, [(source, 1)], relations, jobs, shared)
        storage.write(totals_name(aggregate.relation), found)
        storage.write(aggregate.relation, _results(aggregate, relations, found, jobs))
    else:
        storage.write(aggregate.relation, aggregate_rows(aggregate, relations.program, jobs.queries.select(source), jobs))


def change(
    fold: Fold, relations: Relations, storage: Storage, jobs: Jobs, shared: SharedTotals
) -> dict[str, tuple[Source, Source]]:
    """The exact delta of the view goes to its relations; the delta of its totals is returned."""
    aggregate = fold.aggregate
    if _has_totals(aggregate, relations):
        return _change_totals(aggregate, relations, storage, jobs, shared)
    # A state that was saved by an earlier release has none.
    if has_prefix(aggregate, relations.types(aggregate.relation)) and first_rows_name(aggregate.relation) in storage:
        return _change_prefixes(fold, relations, storage, jobs)
    # Only groups of changed rows can have another result (G).
    groups = _affected_groups(aggregate, relations, jobs)
    before = _find_groups(storage.source(aggregate.relation), groups, len(aggregate.group), jobs)
    _set_delta(aggregate, relations, before, _recompute(fold, relations, groups, jobs), jobs)
    return {}


def compare(aggregate: Aggregate, relations: Relations, jobs: Jobs) -> None:
    """The exact delta of an aggregate that is not stored: its affected groups in both states, compared."""
    groups = _affected_groups(aggregate, relations, jobs)
    bound = tuple(range(len(aggregate.group)))
    states: list[Frame] = []
    for state in (Variant.OLD, Variant.NEW):
        view = relations.state(aggregate.relation, state)
        assert not isinstance(view, Source)
        view.request(bound, groups)
        rows = view.source()
        plan = _rows_of_groups(rows, groups, bound, jobs)
        states.append(Local(rows.types, frozenset()) if rows.empty else jobs.queries.materialize(plan, rows.types))
    _set_delta(aggregate, relations, states[0], states[1], jobs)


def _set_delta(aggregate: Aggregate, relations: Relations, before: Frame, after: Frame, jobs: Jobs) -> None:
    """A group whose result stays the same is on neither side."""
    relations.found(aggregate.relation, Variant.DEL).replace([jobs.sets.minus(before, [after])])
    relations.found(aggregate.relation, Variant.INS).replace([jobs.sets.minus(after, [before])])


def _source(fold: Fold, relations: Relations, jobs: Jobs) -> Source:
    """The rows to aggregate. Where they are not stored, all are derived: by one query, if each has one derivation."""
    name = fold.aggregate.source
    found = relations.state(name, fold.state)
    if isinstance(found, Source):
        return found
    if fold.source is not None:
        types = relations.types(name)
        one = derivation(fold.source.rule, None, None, relations.of, jobs, relations.program.relations)
        return as_view([one], types, jobs) if one is not None else Local(types, frozenset())
    # A request without bound columns has one key, the empty row: everything is derived.
    found.request((), Local((), frozenset({()})))
    return found.source()


def _signed_source(aggregate: Aggregate, relations: Relations) -> list[tuple[Source, int]]:
    """The changed rows of the source, with their signs."""
    found = ((relations.found(aggregate.source, v).source, sign) for v, sign in ((Variant.DEL, -1), (Variant.INS, 1)))
    return [(source, sign) for source, sign in found if not source.empty]


def _affected_groups(aggregate: Aggregate, relations: Relations, jobs: Jobs) -> Frame:
    changed = [source for source, _ in _signed_source(aggregate, relations)]
    types = relations.types(aggregate.relation)[: len(aggregate.group)]
    if not types:
        return Local((), frozenset({()}))
    tables = jobs.queries.driver_tables(changed) if can_compare(types) else None
    if tables is not None:
        names = [column(c) for c in aggregate.group]
        return jobs.frames.of_table(cast_columns(distinct(pa.concat_tables(t.select(names) for t in tables)), types), types)
    groups = renumbered(aggregate.group)
    plan = union_all(Projection(jobs.queries.scan(source), groups) for source in changed)
    return jobs.queries.materialize(Distinct(plan), types)


def _find_groups(stored: Source, groups: Frame, width: int, jobs: Jobs) -> Frame:
    """The stored rows of some groups, which are the first columns: in the driver where the rows are there, or fit."""
    if isinstance(stored, Local) and isinstance(groups, Local):
        keys = frozenset(row[:width] for row in groups.rows)
        return Local(stored.types, frozenset(row for row in stored.rows if row[:width] in keys))
    if not width:
        return jobs.queries.frame_of(stored)
    few = jobs.queries.driver_table(groups) if can_compare(groups.types[:width]) else None
    table = jobs.queries.fetch(stored) if few is not None else None
    if few is not None and table is not None:
        names = [column(i) for i in range(width)]
        found = select_matching(table, names, distinct(few.select(names)))
        if found is not None:
            return jobs.frames.of_table(found, stored.types)
    return jobs.queries.materialize(_rows_of_groups(stored, groups, range(width), jobs), stored.types)


def _rows_of_groups(source: Source, groups: Frame, positions: Iterable[int], jobs: Jobs) -> Plan:
    # Few groups change, so they are sent to the rows.
    hint = broadcast_hint(groups, jobs.tuning)
    return rows_of_groups(jobs.queries.scan(source), jobs.queries.scan(groups), tuple(positions), hint)


def rows_of_groups(rows: Plan, groups: Plan, positions: tuple[int, ...], hint: Hint | None = None) -> Plan:
    """The rows that belong to some groups; `positions` are the group's columns in them."""
    # Null-safe: NULLs are one group.
    on = tuple(equal(ref(p, "s"), ref(i, "g")) for i, p in enumerate(positions)) or (TRUE,)
    return Projection(Join(Aliased(rows, "s"), Aliased(groups, "g", hint), JoinKind.SEMI, on), (AllColumns("s"),))


def _recompute(fold: Fold, relations: Relations, groups: Frame, jobs: Jobs) -> Frame:
    """The affected groups in the new state, from scratch."""
    aggregate, source = fold.aggregate, _source(fold, relations, jobs)
    if source.empty:
        return Local(relations.types(aggregate.relation), frozenset())
    rows = _rows_of_groups(source, groups, aggregate.group, jobs)
    return aggregate_rows(aggregate, relations.program, rows, jobs)


# The first rows of groups, by prefixes that are longer


def _change_prefixes(fold: Fold, relations: Relations, storage: Storage, jobs: Jobs) -> dict[str, tuple[Source, Source]]:
    """The exact delta of the view goes to its relations; the delta of the prefixes is returned."""
    aggregate = fold.aggregate
    name, types = first_rows_name(aggregate.relation), prefix_types(relations.types(aggregate.relation))
    groups = _affected_groups(aggregate, relations, jobs)
    before = _find_groups(storage.source(name), groups, len(aggregate.group), jobs)
    kept, short = _shift(aggregate, relations, before, types, jobs) or (Local(types, frozenset()), groups)
    after = [kept]
    if not short.empty and not (source := _source(fold, relations, jobs)).empty:
        rows = _rows_of_groups(source, short, aggregate.group, jobs)
        after.append(jobs.queries.materialize(_prefix_plan(aggregate, relations, rows, jobs), types))
    # The parts have different groups.
    new = jobs.queries.frame_of(combine(types, after))
    shown = [_shown(aggregate, one, types[:-1], jobs) for one in (before, new)]
    _set_delta(aggregate, relations, shown[0], shown[1], jobs)
    return {name: (jobs.sets.minus(before, [new]), jobs.sets.minus(new, [before]))}


def _shift(aggregate: Aggregate, relations: Relations, before: Frame, types: Types, jobs: Jobs) -> tuple[Frame, Frame] | None:
    """The prefixes that follow from the change, and the groups for which too few rows are known; None where rows are in Spark."""
    sides = (relations.found(aggregate.source, variant).source for variant in (Variant.DEL, Variant.INS))
    tables = jobs.queries.driver_tables([before, *sides])
    if tables is None:
        return None
    known, minus, plus = tables
    kept, short = shift(aggregate, known, (minus, plus), jobs.tuning.first_rows_margin, types)
    return jobs.frames.of_table(kept, types), jobs.frames.of_table(short, types[: len(aggregate.group)])


def _prefix_plan(aggregate: Aggregate, relations: Relations, rows: Plan, jobs: Jobs) -> Plan:
    return prefix_plan(aggregate, relations.program.relations[aggregate.source].arity, rows, jobs.tuning.first_rows_margin)


def _shown(aggregate: Aggregate, prefixes: Frame, types: Types, jobs: Jobs) -> Frame:
    """The rows of the view."""
    arity = len(types) - 1
    if (table := jobs.queries.driver_table(prefixes)) is not None:
        return jobs.frames.of_table(cast_columns(shown_rows(aggregate, arity, table), types), types)
    return jobs.queries.materialize(shown_plan(aggregate, arity, jobs.queries.scan(prefixes)), types)


# Totals, to which changed rows are added


def _has_totals(aggregate: Aggregate, relations: Relations) -> bool:
    # Linear functions alone: total^new = total + plus - minus.
    can_add = aggregate.function in (Function.COUNT, Function.SUM)
    return can_add and is_exact_in_spark(aggregate, value_type(aggregate, relations.program))


def _totals_types(types: Types) -> Types:
    return (*types[:-1], NUMBER, NUMBER, TOTAL)


def _totals(
    aggregate: Aggregate, rows: list[tuple[Source, int]], relations: Relations, jobs: Jobs, shared: SharedTotals
) -> Frame:
    """For each group of the signed rows: the number of rows and of values, and the sum of the values.

    Aggregates of the same rows and groups are summed by one query, which the first of them runs.
    """
    alike = [
        other
        for other in relations.program.definitions
        if isinstance(other, Aggregate)
        and (other.source, other.group) == (aggregate.source, aggregate.group)
        and _has_totals(other, relations)
    ]
    groups = relations.types(aggregate.relation)[:-1]
    place = aggregate.source, aggregate.group
    if place not in shared:
        types = (*groups, NUMBER, *(type for _ in alike for type in (NUMBER, TOTAL)))
        in_driver = _totals_in_driver(alike, rows, types, relations, jobs)
        if in_driver is None:
            plan = totals_plan(alike, [(jobs.queries.scan(source), sign) for source, sign in rows])
            in_driver = jobs.queries.materialize(plan, types)
        shared[place] = in_driver
    width = len(groups)
    own = width + 1 + 2 * alike.index(aggregate)
    return jobs.sets.choose_columns(shared[place], [*range(width + 1), own, own + 1])


def _totals_in_driver(
    alike: list[Aggregate], rows: list[tuple[Source, int]], types: Types, relations: Relations, jobs: Jobs
) -> Frame | None:
    """The same over Arrow tables, where all rows are in the driver and the summed values are numbers of 64 bits."""
    summed = [a for a in alike if a.function is Function.SUM]
    is_plain = can_compare(types[: len(alike[0].group)]) and all(value_type(a, relations.program) == NUMBER for a in summed)
    tables = jobs.queries.signed_driver_tables(rows) if is_plain else None
    return jobs.frames.of_table(table_totals(alike, tables, types), types) if tables is not None else None


def totals_plan(alike: Sequence[Aggregate], rows: Sequence[tuple[Plan, int]]) -> Plan:
    """The groups of some aggregates, their number of rows, and for each aggregate the number of values and their sum."""
    group, times = alike[0].group, ColumnRef("times")
    # Each row counts with its sign: times is 1 where it enters and -1 where it leaves.
    signed = union_all(Projection(plan, (AllColumns(), Named(number(sign), "times"))) for plan, sign in rows)
    sums: list[Expression] = [call("sum", times)]
    for aggregate in alike:
        value = ref(aggregate.value) if aggregate.value is not None else None
        # NULL counts as a row, not as a value.
        known = CaseWhen(((NullTest(value), number(0)),), times) if value is not None else times
        sums.append(call("sum", known))
        total = call("coalesce", call("sum", infix("*", Cast(value or ref(0), TOTAL), times)), TypedValue(0, TOTAL))
        sums.append(Cast(total if aggregate.function is Function.SUM else number(0), TOTAL))
    keys = tuple(map(ref, group))
    return group_rows(signed, keys, tuple(Named(value, column(i)) for i, value in enumerate((*keys, *sums))))


def _results(aggregate: Aggregate, relations: Relations, totals: Frame, jobs: Jobs) -> Frame:
    """The view's rows from the totals of its groups. A sum that does not fit its type is an error."""
    types = relations.types(aggregate.relation)
    if totals.empty:
        return Local(types, frozenset())
    width, value = len(aggregate.group), value_type(aggregate, relations.program)
    # A group without rows does not appear.
    rows = Filter(jobs.queries.scan(totals), (infix(">", ref(width), number(0)),))
    groups = tuple(ref(i) for i in range(width))
    if aggregate.function is Function.COUNT:
        result: Expression = ref(width + 1)
    else:
        assert value is not None
        check_sums(aggregate, value, rows, width + 2, jobs)
        # The sum of no values is NULL.
        result = CaseWhen(((infix(">", ref(width + 1), number(0)), Cast(ref(width + 2), value)),))
    return jobs.queries.materialize(Projection(rows, (*groups, Named(result, column(width)))), types)


def _change_totals(
    aggregate: Aggregate, relations: Relations, storage: Storage, jobs: Jobs, shared: SharedTotals
) -> dict[str, tuple[Source, Source]]:
    """The totals of the affected groups before and after, and the view's rows that follow from them."""
    name = aggregate.relation
    all_types = _totals_types(relations.types(name))
    delta = _totals(aggregate, _signed_source(aggregate, relations), relations, jobs, shared)
    width = len(aggregate.group)
    # Only totals of affected groups are read and written.
    before = _find_groups(storage.source(totals_name(name)), delta, width, jobs)
    in_driver = all(isinstance(frame, Local) or frame.table is not None for frame in (before, delta))
    if in_driver and max(len(before), len(delta)) <= jobs.tuning.python_totals:
        return _change_local_totals(aggregate, relations, before, delta, jobs)
    plan = summed_totals(union_all(jobs.queries.select(frame) for frame in (before, delta)), width)
    after = jobs.queries.materialize(plan, all_types)
    rows = [_results(aggregate, relations, totals, jobs) for totals in (before, after)]
    _set_delta(aggregate, relations, rows[0], rows[1], jobs)
    return {totals_name(name): (before, after)}


def summed_totals(totals: Plan, width: int) -> Plan:
    """The sum of totals by group, of the groups that have rows; the first columns are the group."""
    groups = tuple(ref(i) for i in range(width))
    rows, values, total = (ref(width + i) for i in range(3))
    sums = (
        Named(call("sum", rows), rows.name),
        Named(call("sum", values), values.name),
        Named(Cast(call("sum", total), TOTAL), total.name),
    )
    return Filter(GroupBy(totals, groups, (*groups, *sums)), (infix(">", rows, number(0)),))


def _change_local_totals(
    aggregate: Aggregate, relations: Relations, stored: Frame, delta: Frame, jobs: Jobs
) -> dict[str, tuple[Source, Source]]:
    """The same where the totals of the affected groups are in the driver."""
    name, width = aggregate.relation, len(aggregate.group)
    known = {row[:width]: row for row in jobs.queries.rows(stored)}
    pairs = [(known.get(row[:width]), row) for row in jobs.queries.rows(delta)]
    before = frozenset(old for old, _ in pairs if old is not None)
    # A group whose number of rows reaches zero is dropped.
    after = frozenset(row for old, change in pairs if (row := _add_totals(old, change, width))[width])
    rows = [frozenset(_result(aggregate, relations, row) for row in side) for side in (before, after)]
    types = relations.types(name)
    relations.found(name, Variant.DEL).replace([jobs.frames.of_rows(rows[0] - rows[1], types)])
    relations.found(name, Variant.INS).replace([jobs.frames.of_rows(rows[1] - rows[0], types)])
    return {totals_name(name): (jobs.frames.of_rows(before, stored.types), jobs.frames.of_rows(after, stored.types))}


def _add_totals(old: Row | None, change: Row, width: int) -> Row:
    if old is None:
        return change
    # As whole numbers: decimals of Python would be rounded to 28 digits.
    sums = [int(a) + int(b) for a, b in zip(old[width:], change[width:], strict=True)]  # type: ignore[arg-type]
    return (*change[:width], *sums[:-1], Decimal(sums[-1]))


def _result(aggregate: Aggregate, relations: Relations, total: Row) -> Row:
    """The view's row of a group's totals."""
    *group, _, known, found = total
    if aggregate.function is Function.COUNT:
        return (*group, known)
    value = value_type(aggregate, relations.program)
    assert value is not None
    low, high = INTEGER_RANGES[value.kind]
    units = int(found)  # type: ignore[arg-type]
    if not low <= units <= high:
        raise overflow_error(aggregate, value)
    return (*group, units if known else None)
