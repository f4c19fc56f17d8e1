"""The net effect of a transaction: of Python rows by the resident engine, over the candidate rows; of bulk changes in bulk.

Bulk changes whose requests are in the driver are worked out over Arrow tables (`by_arrow`), others by two queries (`by_query`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.delta import Delta, Rows
from rederive.engines.protocol import Bulk, Operation
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.spark.net.by_arrow import net_effect_of_table
from rederive.engines.spark.net.by_query import net_effect_of_query
from rederive.engines.spark.net.requested import gather_requests
from rederive.engines.spark.plan.expressions import AllColumns, Expression, equal, ref, same_row
from rederive.engines.spark.plan.nodes import Aliased, Hint, Join, JoinKind, Plan, Projection
from rederive.engines.spark.plan.sources import Frame, Local, Source, pushed_filter
from rederive.engines.spark.run.data_frames import as_rows
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.storage import Storage, identity
from rederive.engines.spark.session.types import from_spark
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Row
from rederive.maintain.maintenance_rule import State
from rederive.maintain.program import MaintenanceProgram


def net_effect(
    operations: Sequence[Operation], relations: Mapping[str, Relation], storage: Storage, jobs: Jobs
) -> Mapping[str, tuple[Rows, Rows]]:
    """The net effect of operations in order: (minus, plus) of each relation that changes."""
    if not any(isinstance(operation.rows, Bulk) for operation in operations):
        deltas = net_effect_of_rows(operations, relations, storage, jobs)
        return {name: (delta.minus, delta.plus) for name, delta in deltas.items()}
    found = {}
    for name in dict.fromkeys(operation.relation for operation in operations):
        requests = gather_requests([one for one in operations if one.relation == name], relations[name], jobs)
        if not len(requests.rows):
            continue
        if requests.table is not None:
            minus, plus = net_effect_of_table(requests, requests.table, storage.relations[name], jobs)
        else:
            minus, plus = net_effect_of_query(requests, storage.relations[name], jobs)
        if not minus.empty or not plus.empty:
            found[name] = (as_rows(minus, jobs), as_rows(plus, jobs))
    return found


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
    # No rules: the engine holds the candidates, and nothing has to be planned.
    engine.install(MaintenanceProgram(Program(changed, ()), (), tuple(map(State, changed))), [], candidates)
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
