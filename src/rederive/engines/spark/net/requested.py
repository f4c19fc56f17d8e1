"""The requests of a transaction, and the candidate rows: those of a stored relation that the requests can be about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from rederive.engines.protocol import Action, Bulk, Operation
from rederive.engines.spark.plan.expressions import (
    AllColumns,
    CaseWhen,
    Cast,
    ColumnRef,
    Expression,
    Infix,
    Named,
    NullTest,
    TypedValue,
    call,
    disjunction,
    equal,
    infix,
    number,
    ref,
    refs,
)
from rederive.engines.spark.plan.nodes import Aliased, GroupBy, Hint, Join, JoinKind, Plan, Projection, filtered, union_all
from rederive.engines.spark.plan.sources import Ends, Frame, Local, shown
from rederive.engines.spark.run.arrow_sets import can_compare, cast_columns, int64, range_of
from rederive.engines.spark.run.data_frames import missing_value, take_unchecked
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.storage import StoredRelation, identity
from rederive.engines.spark.session.types import column, columns, from_spark
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER


@dataclass(frozen=True, slots=True)
class Requests:
    """Requested rows with two more columns: the request, and the number of the operation if it is an upsert, else 0.

    A request is twice the number of its operation, plus 1 where the row shall be there: the greatest request of a row is its last
    one. `table`: the same rows in the driver, where they are not too many. `ends`: the least and greatest values of the first
    identity column, for rows that shall leave (False) and for rows that shall be there (True). `has_upserts`: rows may leave that
    no operation names.
    """

    relation: Relation
    rows: Frame
    ends: Mapping[bool, Ends]
    has_upserts: bool
    table: pa.Table | None = None

    @property
    def ranges(self) -> list[Ends]:
        """The ranges of the identity's first column, as far as it is not NULL."""
        return [ends for ends in self.ends.values() if None not in ends]

    @property
    def may_have_nulls(self) -> bool:
        """Whether the identity's first column may be NULL."""
        return self.relation.columns[identity(self.relation)[0]].nullable

    @property
    def ends_of_delta(self) -> tuple[Ends | None, Ends | None]:
        """The ranges of the rows that leave and of those that enter, where they are known; NULL is in no range."""
        if not self.relation.arity or self.may_have_nulls:
            return None, None
        return None if self.has_upserts else self.ends.get(False), self.ends.get(True)

    def may_be_in(self, frame: Frame) -> bool:
        """Whether a frame can hold requested rows, by the ranges that are known."""
        if isinstance(frame, Local) or frame.ends is None:
            return True
        low, high = frame.ends
        return any(
            None in (low, high, least, greatest) or (low <= greatest and least <= high)  # type: ignore[operator]
            for least, greatest in self.ends.values()
        )

    def are_dense(self, factor: int) -> bool:
        """Whether the ranges of a whole-number key can hold at most `factor` rows for each requested one."""
        key, types = self.relation.key, self.relation.types
        if len(key) != 1 or types[key[0]] != NUMBER:
            return False
        # A key of whole numbers: a range holds at most so many rows.
        most = sum(high - low + 1 for low, high in self.ends.values() if isinstance(low, int) and isinstance(high, int))
        return most <= factor * len(self.rows)


def request_columns(relation: Relation) -> tuple[str, str]:
    """The names of the two columns of requests, after those of the relation."""
    width = len(shown(relation.types))
    return column(width), column(width + 1)


def identity_columns(relation: Relation) -> list[str]:
    """The names of the columns that identify a row; the stand-in column where there are none."""
    return [column(i) for i in identity(relation)] or [*columns(())]


def gather_requests(operations: Sequence[Operation], relation: Relation, jobs: Jobs) -> Requests:
    """The requests of operations on one relation, in order; refused where a row lacks a value."""
    numbered = list(_number(operations, relation, jobs))
    has_upserts = any(operation.action is Action.UPSERT for operation in operations)
    table = _in_driver(numbered, relation, jobs)
    rows, ends = _on_executors(numbered, relation, jobs) if table is None else _check_table(table, relation, jobs)
    return Requests(relation, rows, ends, has_upserts, table)


@dataclass(frozen=True, slots=True)
class _NumberedRows:
    """The rows of an operation, and its number; where that is None, each row has its own in one more column."""

    action: Action
    rows: Frame
    number: int | None = None

    @property
    def stays(self) -> int:
        return int(self.action is not Action.DELETE)

    @property
    def upserts(self) -> int:
        return int(self.action is Action.UPSERT)


def _number(operations: Sequence[Operation], relation: Relation, jobs: Jobs) -> Iterator[_NumberedRows]:
    """Operations, numbered. The rows of a list are requested one after the other, those of a data frame at once."""
    frames = iter(take_unchecked([one.rows for one in operations if isinstance(one.rows, Bulk)], relation.types, jobs))
    next_number = 1
    for operation in operations:
        if isinstance(operation.rows, Bulk):
            yield _NumberedRows(operation.action, next(frames), next_number)
            next_number += 1
        else:
            # Of equal rows in a list the last number counts; a relation without columns has its stand-in column.
            rows = {row or (True,): n for n, row in enumerate(operation.rows, next_number)}
            types = (*shown(relation.types), NUMBER)
            yield _NumberedRows(operation.action, jobs.frames.of_rows(((*row, n) for row, n in rows.items()), types))
            next_number += len(operation.rows)


# In the driver


def _in_driver(numbered: Sequence[_NumberedRows], relation: Relation, jobs: Jobs) -> pa.Table | None:
    """The requests as a table, where they are in the driver and not too many."""
    # A relation without columns has no identity to join by, and floats compare otherwise in Arrow.
    is_large = sum(len(one.rows) for one in numbered) > jobs.tuning.arrow_rows
    if not relation.arity or not can_compare(relation.types) or is_large:
        return None
    tables = jobs.queries.driver_tables([one.rows for one in numbered])
    if tables is None:
        return None
    request, upsert = request_columns(relation)
    parts = []
    for one, table in zip(numbered, tables, strict=True):
        numbers = table[request] if one.number is None else pa.repeat(int64(one.number), table.num_rows)
        requests = pc.add(pc.multiply(numbers, 2), one.stays)
        rows = table.select(columns(relation.types))
        parts.append(rows.append_column(request, requests).append_column(upsert, pc.multiply(numbers, one.upserts)))
    return cast_columns(pa.concat_tables(parts), (*relation.types, NUMBER, NUMBER))


def _check_table(table: pa.Table, relation: Relation, jobs: Jobs) -> tuple[Frame, dict[bool, Ends]]:
    for i, one in enumerate(relation.columns):
        if not one.nullable and table.column(i).null_count:
            raise missing_value(relation, i)
    request, _ = request_columns(relation)
    by = identity(relation)[0]
    # Deletions and insertions have ranges of their own: stored frames outside of both are not read.
    stays = pc.equal(pc.bit_wise_and(table[request], int64(1)), int64(1))
    ends = {}
    for side in (False, True):
        values = table.column(by).filter(stays if side else pc.invert(stays))
        if len(values):
            ends[side] = range_of(values, relation.types[by])
    return jobs.frames.of_table(table, (*relation.types, NUMBER, NUMBER)), ends


# On executors


def _on_executors(numbered: Sequence[_NumberedRows], relation: Relation, jobs: Jobs) -> tuple[Frame, dict[bool, Ends]]:
    plan = requests_plan(relation, [(jobs.queries.scan(one.rows), one.number, one.stays, one.upserts) for one in numbered])
    found = jobs.frames.of_data(jobs.queries.data(plan), shown(relation.types), sum(len(one.rows) for one in numbered))
    return found, find_ends(found, relation, jobs)


def find_ends(requests: Frame, relation: Relation, jobs: Jobs) -> dict[bool, Ends]:
    """The least and greatest values of the first identity column on both sides; refused where a row lacks a value."""
    types = shown(relation.types)
    rows = jobs.queries.collect(ends_plan(relation, jobs.queries.scan(requests)))
    for row in rows:
        if row[1] is not None:
            raise missing_value(relation, row[1])
    by = types[identity(relation)[0]] if relation.arity else types[0]
    values = from_spark((row[2:] for row in rows), (by, by))
    return {bool(row[0]): (low, high) for row, (low, high) in zip(rows, values, strict=True)}


def requests_plan(relation: Relation, operations: Sequence[tuple[Plan, int | None, int, int]]) -> Plan:
    """The rows of operations with their two columns; an operation is (rows, number, 1 if rows shall stay, 1 if it upserts)."""
    request, upsert = request_columns(relation)
    parts = []
    for rows, given, stays, upserts in operations:
        position: Expression = ColumnRef(request) if given is None else number(given)
        requests = Cast(infix("+", infix("*", number(2), position), number(stays)), NUMBER)
        upserted = Cast(infix("*", number(upserts), position), NUMBER)
        parts.append(Projection(rows, (*refs(shown(relation.types)), Named(requests, request), Named(upserted, upsert))))
    return union_all(parts)


def ends_plan(relation: Relation, requests: Plan) -> Plan:
    """For both sides of the requests: the first column that lacks a value, and the ends of the identity's first column."""
    side = infix("%", ColumnRef(request_columns(relation)[0]), number(2))
    required = [(NullTest(ref(i)), number(i)) for i, c in enumerate(relation.columns) if not c.nullable]
    missing: Expression = CaseWhen(tuple(required)) if required else TypedValue(None, NUMBER)
    first = ColumnRef(identity_columns(relation)[0])
    return GroupBy(requests, (side,), (side, call("min", missing), call("min", first), call("max", first)))


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
