"""Candidate rows: the rows of a stored relation that the requests of a transaction can be about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rederive.engines.spark.net.requested import Requests, identity_columns
from rederive.engines.spark.plan.expressions import (
    AllColumns,
    ColumnRef,
    Expression,
    Infix,
    Named,
    NullTest,
    TypedValue,
    disjunction,
    equal,
    number,
    ref,
    refs,
)
from rederive.engines.spark.plan.nodes import Aliased, Hint, Join, JoinKind, Plan, Projection, filtered, union_all
from rederive.engines.spark.plan.sources import Frame, shown
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.keys import identity
from rederive.engines.spark.run.storage import StoredRelation

WAS = "was"  # the column of a candidate's sign

# Rows of a stored relation with their sign: 1, or -1 where a delta took them out.
SignedFrame: TypeAlias = tuple[Frame, int]


def candidate_frames(requests: Requests, stored: StoredRelation) -> list[SignedFrame]:
    """The frames of a relation's rows and deltas that may hold candidates."""
    # The deltas are signed rows, too: their sum with the rows is the relation, so nothing has to be merged first.
    parts = ((stored.rows, 1), *stored.signed)
    return [(frame, sign) for frame, sign in parts if not frame.empty and requests.may_be_in(frame)]


def candidates_plan(requests: Requests, parts: Sequence[SignedFrame], jobs: Jobs) -> Plan | None:
    """The rows that are requested or share a key with a requested row; column `was` is 1 or -1. None where no part is given.

    Where the key range of the requests holds few other rows, all of it is read.
    """
    if not parts:
        return None
    relation, within = requests.relation, in_ranges(requests)
    chosen = refs(shown(relation.types))
    rows = union_all(
        Projection(filtered(jobs.queries.scan(frame), within), (*chosen, Named(number(sign), WAS))) for frame, sign in parts
    )
    # Other rows of the range come along; they have no request, so they stay as they were.
    if requests.are_dense(jobs.tuning.dense_factor):
        return rows
    null_safe = not relation.key and jobs.sets.null_safe  # a key has no NULL
    names = identity_columns(relation)
    on = tuple(equal(ColumnRef(c, "s"), ColumnRef(c, "f"), null_safe=null_safe) for c in names)
    hint = Hint.BROADCAST if len(requests.rows) <= jobs.tuning.broadcast_request_rows else None
    requested = Aliased(jobs.queries.scan(requests.rows), "f", hint)
    return Projection(Join(Aliased(rows, "s"), requested, JoinKind.SEMI, on), (AllColumns("s"),))


def in_ranges(requests: Requests) -> list[Expression]:
    """The condition that the first column of the identity is in the ranges of the requests."""
    relation = requests.relation
    if not relation.arity:
        return []
    by = identity(relation)[0]
    value, type = ref(by), relation.types[by]
    tests: list[Expression] = [
        Infix("AND", (Infix(">=", (value, TypedValue(low, type))), Infix("<=", (value, TypedValue(high, type)))))
        for low, high in requests.ranges
    ]
    # NULL is in no range of values.
    tests += [NullTest(value)] if requests.may_have_nulls or not tests else []
    return [disjunction(tests)]
