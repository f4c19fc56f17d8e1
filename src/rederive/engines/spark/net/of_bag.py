"""The net effect of a transaction on a bag whose requests are in Spark: copies are counted and numbered there (decision 228).

A bag is held by its numbered copies, (row, 1) ... (row, n): all that matters of a row is its number of copies before and after.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from rederive.engines.protocol import Action, Bulk, Operation
from rederive.engines.spark.net.requested import WAS, Requests, candidate_frames, candidates_plan, find_ends, request_columns
from rederive.engines.spark.plan.expressions import (
    AllColumns,
    CaseWhen,
    Cast,
    ColumnRef,
    Expression,
    Named,
    Output,
    call,
    count_rows,
    equal,
    infix,
    number,
    ref,
    refs,
    same_row,
)
from rederive.engines.spark.plan.nodes import Aliased, Filter, GroupBy, Hint, Join, JoinKind, Plan, Projection, union_all
from rederive.engines.spark.plan.sources import Frame, Local, Source, Types
from rederive.engines.spark.run.data_frames import take_unchecked
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.storage import StoredRelation
from rederive.engines.spark.session.types import column, columns
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER, Row

_BEFORE, _AFTER = "before", "after"


def net_effect_of_bag(
    operations: Sequence[Operation], relation: Relation, stored: StoredRelation, jobs: Jobs
) -> tuple[Frame, Frame] | None:
    """The numbered copies that leave and those that enter; None where few rows are requested, and this process has them."""
    bag = Relation(relation.name, relation.columns[:-1])
    frames = take_unchecked([one.rows for one in operations if isinstance(one.rows, Bulk)], bag.types, jobs)
    lists = sum(len(one.rows) for one in operations if not isinstance(one.rows, Bulk))
    if all(frame.table is not None for frame in frames) and lists + sum(map(len, frames)) <= jobs.tuning.driver_rows:
        return None
    steps = [list(run) for _, run in groupby(operations, lambda one: one.action is Action.DELETE)]
    plan = union_all(_requests(steps, iter(frames), bag, jobs))
    rows = jobs.frames.of_data(jobs.queries.data(plan), bag.types, lists + sum(map(len, frames)))
    requests = Requests(bag, rows, find_ends(rows, bag, jobs), has_upserts=False)
    candidates = candidates_plan(requests, candidate_frames(requests, stored), jobs)
    signs = [_stays(step) for step in steps]
    # Once: the count below and both sides are read from these rows.
    data = jobs.queries.data(counts_plan(bag, signs, jobs.queries.scan(rows), candidates)).selectExpr(
        *columns(bag.types),
        f"explode(sequence(least({_BEFORE}, {_AFTER}) + 1, greatest({_BEFORE}, {_AFTER}))) AS {column(bag.arity)}",
        f"CAST(sign({_AFTER} - {_BEFORE}) AS BIGINT) AS {column(bag.arity + 1)}",
    )
    found = jobs.frames.of_data(jobs.queries.cut_lineage(data, (*relation.types, NUMBER)), relation.types, 0)
    sign = ref(relation.arity)
    numbers = jobs.queries.collect(GroupBy(jobs.queries.scan(found), (sign,), (sign, count_rows())))
    return jobs.sets.split_by_sign(found, {row[0]: row[1] for row in numbers}, requests.ends_of_delta)


def counts_plan(bag: Relation, signs: Sequence[int], requested: Plan, candidates: Plan | None) -> Plan:
    """The rows whose number of copies changes, with that number `before` and `after`. `signs`: of each step, 1 if copies enter.

    after = the number before, taken through the steps in their order: one that deletes stops at zero.
    """
    own, (request, times) = refs(bag.types), map(ColumnRef, request_columns(bag))
    rows: list[Plan] = [Projection(requested, (*own, request, times, Named(number(0), WAS)))]
    if candidates is not None:
        nothing = (Named(number(0), request.name), Named(number(0), times.name))
        rows.append(Projection(candidates, (*own, *nothing, ColumnRef(WAS))))
    numbered = [(f"s{n}", _request(n, sign)) for n, sign in enumerate(signs, 1)]
    sums = (
        Named(call("sum", CaseWhen(((equal(request, number(one), null_safe=False), times),), number(0))), name)
        for name, one in numbered
    )
    each = GroupBy(union_all(rows), own, (*own, Named(call("sum", ColumnRef(WAS)), _BEFORE), *sums))
    after: Expression = ColumnRef(_BEFORE)
    for (name, _), sign in zip(numbered, signs, strict=True):
        after = infix("+", after, ColumnRef(name)) if sign else call("greatest", infix("-", after, ColumnRef(name)), number(0))
    counted = Projection(each, (*own, ColumnRef(_BEFORE), Named(after, _AFTER)))
    return Filter(counted, (infix("<>", ColumnRef(_BEFORE), ColumnRef(_AFTER)),))


def copies(source: Source, rows: Frame, jobs: Jobs) -> Mapping[Row, int]:
    """How many numbered copies each of some rows has; rows without copies are left out."""
    if source.empty or rows.empty:
        return {}
    if isinstance(source, Local) and isinstance(rows, Local):
        return Counter(row[:-1] for row in source.rows if row[:-1] in rows.rows)
    left, right = Aliased(jobs.queries.scan(source), "s"), Aliased(jobs.queries.scan(rows), "p", Hint.BROADCAST)
    found = Projection(Join(left, right, JoinKind.SEMI, same_row(rows.types, "s", "p")), (AllColumns("s"),))
    own = refs(rows.types)
    plan = GroupBy(found, own, (*own, Named(count_rows(), column(len(own)))))
    counted = jobs.queries.materialize(plan, (*rows.types, NUMBER))
    return {row[:-1]: row[-1] for row in jobs.queries.rows(counted)}  # type: ignore[misc]


def add_counts(signed: Sequence[tuple[Frame, int]], jobs: Jobs) -> tuple[Frame, Frame]:
    """The counted rows that leave a bag and those that enter it, by the sum of the signed counts of each row."""
    types = signed[0][0].types
    own, count, sign = refs(types[:-1]), ref(len(types) - 1), ref(len(types))
    parts = (
        Projection(jobs.queries.scan(frame), (*own, Named(infix("*", count, number(way)), count.name))) for frame, way in signed
    )
    total = call("sum", count)
    changed = GroupBy(union_all(parts), own, (*own, Named(total, count.name)), infix("<>", total, number(0)))
    # The sign behind the count, and the count without it.
    outputs: tuple[Output, ...] = (
        *own,
        Named(call("abs", count), count.name),
        Named(Cast(call("sign", count), NUMBER), sign.name),
    )
    data = jobs.queries.cut_lineage(jobs.queries.data(Projection(changed, outputs)), (*types, NUMBER))
    found = jobs.frames.of_data(data, types, 0)
    numbers = jobs.queries.collect(GroupBy(jobs.queries.scan(found), (sign,), (sign, count_rows())))
    return jobs.sets.split_by_sign(found, {row[0]: row[1] for row in numbers})


def _requests(steps: Sequence[Sequence[Operation]], frames: Iterator[Frame], bag: Relation, jobs: Jobs) -> Iterator[Plan]:
    """The requested rows with their request, by whose parity they leave or enter, and how often it asks for that."""
    request, times = request_columns(bag)
    own = refs(bag.types)
    for n, step in enumerate(steps, 1):
        asked = Named(number(_request(n, _stays(step))), request)
        for operation in step:
            if isinstance(operation.rows, Bulk):
                yield Projection(jobs.queries.scan(next(frames)), (*own, asked, Named(number(1), times)))
            elif operation.rows:
                types: Types = (*bag.types, NUMBER)
                counted = jobs.frames.of_rows(((*row, n) for row, n in Counter(operation.rows).items()), types)
                yield Projection(jobs.queries.scan(counted), (*own, asked, Named(ref(bag.arity), times)))


def _request(number: int, sign: int) -> int:
    return 2 * number + sign


def _stays(step: Sequence[Operation]) -> int:
    return int(step[0].action is not Action.DELETE)
