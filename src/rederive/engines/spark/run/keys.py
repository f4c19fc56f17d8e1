"""Keys of base relations: the columns that identify a row, and the check that no two rows share a key."""

from __future__ import annotations

from collections.abc import Sequence

from rederive.engines.spark.plan.sources import Source
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import column, from_spark
from rederive.errors import DuplicateKey
from rederive.ir.rules import Relation
from rederive.ir.terms import Row


def identity(relation: Relation) -> tuple[int, ...]:
    """The columns that identify a row."""
    return relation.key or tuple(range(relation.arity))


def check_keys(relation: Relation, state: Source, came: Source, jobs: Jobs) -> None:
    """Refuse a state in which two rows share the key of a row that entered."""
    if not relation.key or came.empty:
        return
    key = [column(i) for i in relation.key]
    near = " AND ".join(f"s.{c} <=> k.{c}" for c in key)
    rows = f"SELECT s.* FROM {state.text()} s LEFT SEMI JOIN {came.text()} k ON {near}"
    shared = f"SELECT {', '.join(key)} FROM ({rows}) GROUP BY {', '.join(key)} HAVING count(*) > 1 LIMIT 1"
    pairs = f"SELECT s.* FROM {state.text()} s LEFT SEMI JOIN ({shared}) k ON {near} LIMIT 2"
    found = from_spark(jobs.few(pairs), relation.types)
    if found:
        raise duplicate(relation, found)


def duplicate(relation: Relation, rows: Sequence[Row]) -> DuplicateKey:
    return DuplicateKey(relation.name, [relation.columns[i].name for i in relation.key], rows[0], rows[1])
