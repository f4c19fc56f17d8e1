"""The net effect of a transaction whose rows are Python rows: the resident engine computes it over the candidate rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.delta import Delta
from rederive.engines.protocol import Operation
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.spark.plan.expressions import AllColumns, Expression, equal, ref, same_row
from rederive.engines.spark.plan.nodes import Aliased, Hint, Join, JoinKind, Plan, Projection
from rederive.engines.spark.plan.sources import Frame, Local, Source, pushed_filter
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.keys import identity
from rederive.engines.spark.run.storage import Storage
from rederive.engines.spark.session.types import from_spark
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Row
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy


def net_effect_of_rows(
    operations: Sequence[Operation], relations: Mapping[str, Relation], storage: Storage, jobs: Jobs
) -> Mapping[str, Delta]:
    """The net effect of operations in order. The candidate rows are fetched by one query for each relation."""
    changed = {operation.relation: relations[operation.relation] for operation in operations}
    candidates = {}
    for name, relation in changed.items():
        requested = (row for operation in operations if operation.relation == name for row in operation.rows)
        candidates[name] = _candidates(relation, frozenset(requested), storage.source(name), jobs)
    engine = ResidentEngine()
    engine.install(plan(Program(changed, ()), [], Strategy.MATERIALIZED.value), [], candidates)
    engine.commit()
    return engine.net_effect(operations)


def _candidates(relation: Relation, requested: frozenset[Row], source: Source, jobs: Jobs) -> list[Row]:
    """The rows of a base relation that are requested, or share a key with a requested row."""
    if isinstance(source, Local):
        return list(source.rows)
    by = identity(relation)  # a relation without columns has its only row in the driver
    first, values = ref(by[0], "s"), {row[by[0]] for row in requested}
    pushed = pushed_filter(first, values, relation.types[by[0]], jobs.tuning)
    given = jobs.queries.scan(jobs.frames.of_rows(requested, relation.types))
    return from_spark(jobs.queries.collect(candidate_rows(jobs.queries.scan(source), given, by, pushed)), relation.types)


def candidate_rows(rows: Plan, requested: Plan, by: Sequence[int], pushed: tuple[Expression, ...] = ()) -> Plan:
    """The rows that have the identity of a requested one."""
    on = (*(equal(ref(i, "s"), ref(i, "f")) for i in by), *pushed)
    return Projection(Join(Aliased(rows, "s"), Aliased(requested, "f", Hint.BROADCAST), JoinKind.SEMI, on), (AllColumns("s"),))


def rows_with_prefix(source: Source, prefixes: Frame, jobs: Jobs) -> list[Row]:
    """The rows of a source whose first columns are one of the prefixes, by one query."""
    if source.empty or prefixes.empty:
        return []
    if isinstance(source, Local) and isinstance(prefixes, Local):
        return [row for row in source.rows if row[: len(prefixes.types)] in prefixes.rows]
    left, right = Aliased(jobs.queries.scan(source), "s"), Aliased(jobs.queries.scan(prefixes), "p")
    join = Join(left, right, JoinKind.SEMI, same_row(prefixes.types, "s", "p"))
    return jobs.queries.rows(jobs.queries.materialize(Projection(join, (AllColumns("s"),)), source.types))
