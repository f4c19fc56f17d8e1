"""The net effect of a transaction of any size, by two queries (decision 41).

The first gathers the requests. The second reads the candidate rows of the relation, and computes which enter and which leave.
"""

from __future__ import annotations

from rederive.engines.spark.net.requested import (
    WAS,
    Requests,
    candidate_frames,
    candidates_plan,
    identity_columns,
    request_columns,
)
from rederive.engines.spark.plan.expressions import (
    AllColumns,
    CaseWhen,
    Cast,
    ColumnRef,
    Expression,
    Named,
    SortKey,
    Window,
    call,
    count_rows,
    infix,
    number,
    ref,
    refs,
)
from rederive.engines.spark.plan.nodes import Filter, GroupBy, Limit, Plan, Projection, Repartition, Sort, union_all
from rederive.engines.spark.plan.sources import Distributed, Frame, shown
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.storage import StoredRelation, duplicate_key
from rederive.engines.spark.session.types import from_spark
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER, Row

_STAYS, _UPSERTED = "stays", "upserted"


def net_effect_of_query(requests: Requests, stored: StoredRelation, jobs: Jobs) -> tuple[Frame, Frame]:
    """The rows that leave and those that enter; refused where two rows of the new state share a key."""
    relation = requests.relation
    candidates = candidates_plan(requests, candidate_frames(requests, stored), jobs)
    plan = net_effect_plan(relation, requests.has_upserts, jobs.queries.scan(requests.rows), candidates, jobs.parts)
    # Once: the counts below and the two sides are read from these rows, not from the files again.
    data = jobs.queries.cut_lineage(jobs.queries.data(plan), (*shown(relation.types), NUMBER, NUMBER))
    found = jobs.frames.of_data(data, relation.types, 0)
    sign, rivals = map(ColumnRef, request_columns(relation))
    numbers = GroupBy(jobs.queries.scan(found), (sign,), (sign, count_rows(), call("max", rivals)))
    sizes = {row[0]: row[1:] for row in jobs.queries.collect(numbers)}
    if any(most > 1 for _, most in sizes.values()):
        raise _duplicate(relation, found, jobs)
    return jobs.sets.split_by_sign(found, {way: rows for way, (rows, _) in sizes.items()}, requests.ends_of_delta)


def net_effect_plan(relation: Relation, has_upserts: bool, requested: Plan, candidates: Plan | None, parts: int) -> Plan:
    """Rows with their sign, -1 where they leave and 1 where they enter, and the number of rows that then have their key.

    For each row: `was` is 1 if it is there; the last request wins; an upsert takes out the other rows of its key that were
    requested before it, or not at all. Rows that stay as they are are left out, unless they share a key.
    """
    chosen, (last_name, upsert_name) = refs(shown(relation.types)), request_columns(relation)
    last, upsert, was, stays, upserted = map(ColumnRef, (last_name, upsert_name, WAS, _STAYS, _UPSERTED))
    key: tuple[Expression, ...] = tuple(map(ref, relation.key))
    # was(row) = sum of the signs of the row in stored frames, 0 where it is only requested.
    rows: list[Plan] = [Projection(requested, (*chosen, last, upsert, Named(number(0), WAS)))]
    if candidates is not None:
        nothing = (Named(number(-1), last_name), Named(number(0), upsert_name))
        rows.append(Projection(candidates, (*chosen, *nothing, was)))
    # Rows of one identity come together, once for the groups and for the windows.
    together = Repartition(union_all(rows), parts, tuple(map(ColumnRef, identity_columns(relation))))
    maxima = (Named(call("max", last), last_name), Named(call("max", upsert), upsert_name), Named(call("sum", was), WAS))
    each = GroupBy(together, chosen, (*chosen, *maxima))
    last_upsert: Expression = Window(call("max", upsert), key) if key and has_upserts else number(0)
    with_upsert = Projection(each, (AllColumns(), Named(last_upsert, _UPSERTED)))
    # A request is 2 * number + 1 where the row shall be there, 2 * number where it shall not, and -1 where there is none.
    is_replaced = infix("<", infix("DIV", last, number(2)), upserted)
    new_state = CaseWhen(
        ((is_replaced, number(0)), (infix("<", last, number(0)), was)),
        infix("%", last, number(2)),
    )
    states = Projection(with_upsert, (*chosen, was, Named(new_state, _STAYS)))
    # More than one row of the new state with a key is an error; such rows pass the filter even where they do not change.
    rivals: Expression = Window(call("sum", stays), key) if key else number(1)
    sign = Named(Cast(infix("-", stays, was), NUMBER), last_name)
    signed = Projection(states, (*chosen, sign, Named(Cast(rivals, NUMBER), upsert_name)))
    return Filter(signed, (infix("OR", infix("<>", last, number(0)), infix(">", upsert, number(1))),))


def _duplicate(relation: Relation, found: Distributed, jobs: Jobs) -> Exception:
    _, rivals = map(ColumnRef, request_columns(relation))
    shared = Filter(jobs.queries.scan(found), (infix(">", rivals, number(1)),))
    first = Limit(Sort(Projection(shared, refs(relation.types)), tuple(SortKey(ref(i)) for i in relation.key)), 2)
    rows: list[Row] = from_spark(jobs.queries.collect(first), relation.types)
    return duplicate_key(relation, rows)
