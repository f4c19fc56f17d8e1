"""Keys of base relations: the columns that identify a row, and the check that no two rows share a key."""

from __future__ import annotations

from collections.abc import Sequence

from rederive.engines.spark.plan.expressions import AllColumns, count_rows, equal, infix, number, ref
from rederive.engines.spark.plan.nodes import Aliased, GroupBy, Join, JoinKind, Limit, Plan, Projection
from rederive.engines.spark.plan.sources import Source
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import from_spark
from rederive.errors import DuplicateKey
from rederive.ir.rules import Relation
from rederive.ir.terms import Row


def identity(relation: Relation) -> tuple[int, ...]:
    """The columns that identify a row: the key, or all columns."""
    return relation.key or tuple(range(relation.arity))


def check_keys(relation: Relation, state: Source, plus: Source, jobs: Jobs) -> None:
    """Refuse a state in which two rows share the key of a row that entered."""
    if not relation.key or plus.empty:
        return
    rows = duplicate_rows(relation, jobs.queries.scan(state), jobs.queries.scan(plus))
    found = from_spark(jobs.queries.collect(rows), relation.types)
    if found:
        raise duplicate_key(relation, found)


def duplicate_rows(relation: Relation, state: Plan, plus: Plan) -> Plan:
    """Two rows of a state that share the key of a row that entered; none if every key has one row."""
    key = tuple(ref(i) for i in relation.key)
    same_key = tuple(equal(ref(i, "s"), ref(i, "k")) for i in relation.key)
    entered = Projection(Join(Aliased(state, "s"), Aliased(plus, "k"), JoinKind.SEMI, same_key), (AllColumns("s"),))
    # One key suffices for the message.
    shared = Limit(GroupBy(entered, key, key, infix(">", count_rows(), number(1))), 1)
    # The key's columns of a group are named as in the relation, whatever their positions.
    pairs = Join(Aliased(state, "s"), Aliased(shared, "k"), JoinKind.SEMI, same_key)
    return Limit(Projection(pairs, (AllColumns("s"),)), 2)


def duplicate_key(relation: Relation, rows: Sequence[Row]) -> DuplicateKey:
    """The error of two rows that share a key."""
    return DuplicateKey(relation.name, [relation.columns[i].name for i in relation.key], rows[0], rows[1])
