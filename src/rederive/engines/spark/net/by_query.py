"""The net effect of a transaction of any size, in two queries for each relation.

The first gathers what the operations wish of each row that they name. The second reads the rows of the relation that have the
identity of one of these, where the identity's first column is in their range, and tells which rows enter and which leave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.engines.protocol import Operation
from rederive.engines.spark.net.by_arrow import effect_here
from rederive.engines.spark.net.candidates import near, parts_near
from rederive.engines.spark.net.requested import Wishes, beside, by_identity, wishes_of
from rederive.engines.spark.plan.sources import Distributed, Frame, Local, listed, shown
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.keys import duplicate
from rederive.engines.spark.run.storage import Held, Kept
from rederive.engines.spark.session.types import column, from_spark
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER, Row


def net_bulk(
    operations: Sequence[Operation], relations: Mapping[str, Relation], kept: Kept, jobs: Jobs
) -> dict[str, tuple[Frame, Frame]]:
    """Of operations in order: the rows that leave and those that enter, for each relation that changes."""
    found = {}
    for name in dict.fromkeys(operation.relation for operation in operations):
        wishes = wishes_of([operation for operation in operations if operation.relation == name], relations[name], jobs)
        gone, came = _effect(wishes, kept.held[name], jobs)
        if not gone.empty or not came.empty:
            found[name] = (gone, came)
    return found


def _effect(wishes: Wishes, held: Held, jobs: Jobs) -> tuple[Frame, Frame]:
    """The rows that leave and those that enter; refused where two that are left share a key."""
    relation = wishes.relation
    if not len(wishes.rows):
        return _nothing(relation), _nothing(relation)
    if wishes.table is not None:
        return effect_here(wishes, wishes.table, held, jobs)
    sign, rivals = beside(relation)
    data = jobs.cut(jobs.session.sql(_compared(wishes, held, jobs)), (*shown(relation.types), NUMBER, NUMBER))
    found = jobs.named(data, relation.types, 0)
    told = {row[0]: row[1:] for row in jobs.few(f"SELECT {sign}, count(*), max({rivals}) FROM {found.text()} GROUP BY {sign}")}
    if any(most > 1 for _, most in told.values()):
        _refuse(relation, found, jobs)
    return jobs.by_sign(found, {way: number for way, (number, _) in told.items()}, wishes.around)


def _compared(wishes: Wishes, held: Held, jobs: Jobs) -> str:
    """Rows with `sign`, -1 where they leave and 1 where they enter, and with the number of rows that then have their key."""
    relation = wishes.relation
    chosen, wish, upsert = listed(shown(relation.types)), *beside(relation)
    key = ", ".join(column(i) for i in relation.key)
    rows = f"SELECT {chosen}, {wish}, {upsert}, 0L AS was FROM {wishes.rows.text()}"
    if there := near(wishes, parts_near(wishes, held), jobs):
        rows += f" UNION ALL SELECT {chosen}, -1L, 0L, was FROM ({there})"
    last = f"max({wish}) AS {wish}, max({upsert}) AS {upsert}, sum(was) AS was"
    each = f"SELECT {chosen}, {last} FROM ({_by_identity(rows, relation, jobs)}) GROUP BY {chosen}"
    upserted = f"max({upsert}) OVER (PARTITION BY {key})" if key and wishes.upserts else "0L"
    stays = f"CASE WHEN {wish} DIV 2 < upserted THEN 0 WHEN {wish} < 0 THEN was ELSE {wish} % 2 END"
    states = f"SELECT {chosen}, was, {stays} AS stays FROM (SELECT *, {upserted} AS upserted FROM ({each}))"
    rivals = f"sum(stays) OVER (PARTITION BY {key})" if key else "1"
    signed = f"SELECT {chosen}, CAST(stays - was AS BIGINT) AS {wish}, CAST({rivals} AS BIGINT) AS {upsert} FROM ({states})"
    return f"SELECT * FROM ({signed}) WHERE {wish} <> 0 OR {upsert} > 1"


def _refuse(relation: Relation, found: Distributed, jobs: Jobs) -> None:
    _, rivals = beside(relation)
    key = ", ".join(column(i) for i in relation.key)
    text = f"SELECT {listed(relation.types)} FROM {found.text()} WHERE {rivals} > 1 ORDER BY {key} LIMIT 2"
    rows: list[Row] = from_spark(jobs.few(text), relation.types)
    raise duplicate(relation, rows)


def _by_identity(rows: str, relation: Relation, jobs: Jobs) -> str:
    """Rows where the others of their identity are."""
    return f"SELECT /*+ REPARTITION({jobs.parts}, {', '.join(by_identity(relation))}) */ * FROM ({rows})"


def _nothing(relation: Relation) -> Local:
    return Local(relation.types, frozenset())
