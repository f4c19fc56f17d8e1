"""The net effect of a small transaction: what is left when opposite and idle changes cancel. And keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rederive.delta import Delta
from rederive.engines.protocol import Operation
from rederive.engines.resident.run.net_effect import net_effect
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.table import Table
from rederive.engines.spark.plan.sources import Frame, Local, Source, pushed, same
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.keys import identity
from rederive.engines.spark.run.storage import Kept
from rederive.engines.spark.session.types import column, columns, from_spark
from rederive.ir.rules import Relation
from rederive.ir.terms import Row


def net_rows(operations: Sequence[Operation], relations: Mapping[str, Relation], kept: Kept, jobs: Jobs) -> Mapping[str, Delta]:
    """Of operations in order: the rows that they are about, or that share a key with one of them, are fetched in one query for
    each relation; the rest is the resident engine's."""
    codes = Codes()
    tables = {}
    for name in dict.fromkeys(operation.relation for operation in operations):
        relation = relations[name]
        rows = (row for operation in operations if operation.relation == name for row in operation.rows)
        tables[name] = Table(name, relation.arity)
        tables[name].load(codes.encode_rows(relation.types, _concerned(relation, frozenset(rows), kept.source(name), jobs)))
    encoders = {name: codes.encoder(relations[name].types) for name in tables}
    return net_effect(operations, relations, tables.__getitem__, encoders, codes)


def _concerned(relation: Relation, rows: frozenset[Row], source: Source, jobs: Jobs) -> list[Row]:
    """The rows of a base relation that a transaction speaks of."""
    if isinstance(source, Local):
        return list(source.rows)
    given = jobs.frame(rows, relation.types)
    by = identity(relation)  # of a relation without columns, the row is in the driver
    near = pushed(f"s.{column(by[0])}", {row[by[0]] for row in rows}, relation.types[by[0]])
    matching = " AND ".join((*(f"s.{column(i)} <=> f.{column(i)}" for i in by), *near))
    text = f"SELECT /*+ BROADCAST(f) */ s.* FROM {source.text()} s LEFT SEMI JOIN {given.text()} f ON {matching}"
    return from_spark(jobs.few(text), relation.types)


def beginning(source: Source, prefixes: Frame, jobs: Jobs) -> list[Row]:
    """The rows of a source whose first columns are one of these, in one query."""
    if source.empty or prefixes.empty:
        return []
    if isinstance(source, Local) and isinstance(prefixes, Local):
        return [row for row in source.rows if row[: len(prefixes.types)] in prefixes.rows]
    matching = " AND ".join(f"s.{c} <=> p.{c}" for c in columns(prefixes.types))
    text = f"SELECT s.* FROM {source.text()} s LEFT SEMI JOIN {prefixes.text()} p ON {matching}"
    return jobs.rows(jobs.materialise(text, source.types))


def difference(one: Source, other: Source, jobs: Jobs) -> Frame:
    """The rows of one source that another has not."""
    types = one.types
    if isinstance(one, Local):
        return jobs.minus(one, [other])
    if other.empty:
        return jobs.frame_of(one)
    return jobs.materialise(f"SELECT o.* FROM {one.text()} o LEFT ANTI JOIN {other.text()} k ON {same(types, 'o', 'k')}", types)
