"""Derivation counts, the auxiliary state of counting: a row enters when its count leaves zero, leaves when it is zero again."""

from __future__ import annotations

from collections.abc import Callable

from rederive.analysis.graph import Component
from rederive.engines.spark.plan.expressions import (
    AllColumns,
    ColumnRef,
    Named,
    NullTest,
    call,
    infix,
    number,
    ref,
    refs,
    same_row,
)
from rederive.engines.spark.plan.nodes import Aliased, GroupBy, Join, JoinKind, Plan, Projection, filtered, union_all
from rederive.engines.spark.plan.rule_query import ERROR
from rederive.engines.spark.plan.sources import Frame, Local, Source, Types, broadcast_hint, shown
from rederive.engines.spark.run.evaluation import Derivation, derivation, evaluate
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.relations import Relations
from rederive.engines.spark.run.storage import Storage
from rederive.engines.spark.session.types import column
from rederive.ir.rules import Variant
from rederive.ir.terms import NUMBER
from rederive.maintain.maintenance_rule import MaintenanceRule
from rederive.maintain.program import Phase

CheckInsertions = Callable[[Component, tuple[MaintenanceRule, ...]], None]


def counts_name(view: str) -> str:
    """The name under which the counts of a view are stored."""
    return f"{view}.counts"


def fill(component: Component, rules: tuple[MaintenanceRule, ...], relations: Relations, storage: Storage, jobs: Jobs) -> None:
    """The first evaluation: every derivation counts once."""
    (name,) = component.relations
    types = relations.types(name)
    declared = relations.program.relations
    # Not in the driver: the ways there return sets, and a count needs each derivation.
    derived = [derivation(m.rule, None, None, relations.of, jobs, declared, in_driver=False) for m in rules]
    found = [(one, 1) for one in derived if one is not None]
    evaluate([one for one, _ in found if one.can_fail], types, jobs)  # raises their errors
    counted = _count(found, types, jobs)
    storage.write(counts_name(name), counted)
    storage.write(name, _rows(counted, types, jobs))


def change(
    component: Component,
    phase: Phase,
    relations: Relations,
    storage: Storage,
    jobs: Jobs,
    check_insertions: CheckInsertions,
) -> dict[str, tuple[Source, Source]]:
    """The exact delta of the view goes to its relations; the delta of the counts is returned."""
    (name,) = component.relations
    types = relations.types(name)
    found = []
    for m in phase.rules:
        (driver,) = m.drivers
        one = derivation(m.rule, driver, None, relations.of, jobs, relations.program.relations, in_driver=False)
        if one is not None:
            found.append((one, 1 if m.rule.head.variant is Variant.ADD else -1))
    if any(one.can_fail for one, _ in found):
        # A failure counts if its binding holds in the new state: then a strict rule fails too, and raises the error.
        check_insertions(component, phase.strict)
    delta = _count(found, types, jobs)
    if delta.empty:
        return {}
    # count^new = count + add - sub, for the rows of the delta alone.
    before, after = _before_and_after(storage.source(counts_name(name)), delta, types, jobs)
    rows = [_rows(frame, types, jobs) for frame in (before, after)]
    # A row leaves where it has a count before and none after, and enters the other way round.
    relations.found(name, Variant.DEL).replace([jobs.sets.minus(rows[0], [rows[1]])])
    relations.found(name, Variant.INS).replace([jobs.sets.minus(rows[1], [rows[0]])])
    return {counts_name(name): (before, after)}


def _count(found: list[tuple[Derivation, int]], types: Types, jobs: Jobs) -> Frame:
    """The sum of the signed derivations of each row; rows whose derivations cancel are left out."""
    if not found:
        return Local(_with_count(types), frozenset())
    derived = [(one.query(types, jobs), one.can_fail, sign) for one, sign in found]
    return jobs.queries.materialize(counted_plan(derived, types), _with_count(types))


def counted_plan(derived: list[tuple[Plan, bool, int]], types: Types) -> Plan:
    """The plan of `_count` over (rows, whether they have errors, sign)."""
    own, has_no_error = refs(types), NullTest(ColumnRef(ERROR))
    # A binding that fails holds in neither state, or a strict rule has raised its error: it counts for nothing.
    parts = [
        Projection(filtered(rows, [has_no_error] if can_fail else []), (*own, Named(number(sign), "times")))
        for rows, can_fail, sign in derived
    ]
    total = Named(call("sum", ColumnRef("times")), _count_name(types))
    return _nonzero(GroupBy(union_all(parts), own, (*own, total)), types)


def _nonzero(plan: Plan, types: Types) -> Plan:
    return filtered(plan, [infix("<>", ColumnRef(_count_name(types)), number(0))])


def _count_name(types: Types) -> str:
    return column(len(shown(types)))


def _with_count(types: Types) -> Types:
    return (*shown(types), NUMBER)


def _before_and_after(counts: Source, delta: Frame, types: Types, jobs: Jobs) -> tuple[Frame, Frame]:
    """The counts of the rows in the delta; rows without derivations have none."""
    all_types, count = _with_count(types), ref(len(shown(types)))
    right = Aliased(jobs.queries.scan(delta), "m", broadcast_hint(delta, jobs.tuning))
    known = Join(Aliased(jobs.queries.scan(counts), "k"), right, JoinKind.SEMI, same_row(types, "k", "m"))
    before = (
        Local(all_types, frozenset())
        if counts.empty
        else jobs.queries.materialize(Projection(known, (AllColumns("k"),)), all_types)
    )
    # Rows without stored derivations have no row in `before`: the sum is that of the delta.
    both = union_all(jobs.queries.select(frame) for frame in (before, delta))
    summed = GroupBy(both, refs(types), (*refs(types), Named(call("sum", count), _count_name(types))))
    return before, jobs.queries.materialize(_nonzero(summed, types), all_types)


def _rows(counted: Frame, types: Types, jobs: Jobs) -> Frame:
    """The rows without their counts."""
    if isinstance(counted, Local):
        return Local(types, frozenset(row[: len(types)] for row in counted.rows))
    return jobs.queries.materialize(Projection(jobs.queries.scan(counted), refs(types)), types)
