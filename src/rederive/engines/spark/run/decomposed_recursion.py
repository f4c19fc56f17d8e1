"""A recursion that decomposes by a column, as one job (SPARK.md, "Recursion on Spark").

Every recursive rule carries the column unchanged from body to head, so the fixpoint of rows with one value of it needs no other
rows of the recursion. The seeds are partitioned by the column; inside each executor the resident engine runs the whole fixpoint
of its partition. The other relations are broadcast.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql.functions import col

from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.spark.plan.sources import Frame, Source
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import column, columns, from_arrow, schema, to_arrow
from rederive.ir.rules import Relation
from rederive.ir.terms import Type
from rederive.limits import Limits
from rederive.maintain.program import PartitionProgram

Batches = Iterator[pa.RecordBatch]


def run_decomposed(
    name: str, partition: PartitionProgram, seeds: Frame, others: Mapping[str, Source], jobs: Jobs, limits: Limits
) -> Frame:
    """The seeds, and everything that the recursive rules derive from them."""
    # Sent to each executor once, not with each task.
    sent = jobs.session.sparkContext.broadcast({other: jobs.queries.table(source) for other, source in others.items()})
    data = jobs.queries.data(jobs.queries.select(seeds))
    # By the carried column: the fixpoints of two partitions have no row in common, so the union of them is the fixpoint.
    partitioned = data.repartition(jobs.session.sparkContext.defaultParallelism, col(column(partition.column)))
    relation = partition.inside.program.relations[name]
    run = _run_partition(partition, relation, sent, limits, jobs.tuning.batch_rows)
    return jobs.queries.materialize_data(partitioned.mapInArrow(run, schema(relation.types)), relation.types)


def _run_partition(
    partition: PartitionProgram, relation: Relation, sent: Broadcast[dict[str, pa.Table]], limits: Limits, batch_rows: int
) -> Callable[[Batches], Batches]:
    """What an executor does with its partition of the seeds."""

    def run(batches: Batches) -> Batches:
        seeds = list(batches)
        # Without seeds the recursion derives nothing, and no engine has to be built.
        if any(batch.num_rows for batch in seeds):
            # Within a task: nothing of the engine is pickled, only the program and the limits.
            engine = ResidentEngine(limits)
            tables = {partition.seed: pa.Table.from_batches(seeds), **sent.value}
            relations = partition.inside.program.relations
            initial = {name: from_arrow(table, relations[name].types) for name, table in tables.items()}
            engine.install(partition.inside, [relation.name], initial)
            engine.commit()
            yield from _extent(engine, relation).to_batches(max_chunksize=batch_rows)

    return run


def _extent(engine: ResidentEngine, relation: Relation) -> pa.Table:
    """The rows of a view by columns: codes first, then a value for each code."""
    primary = engine.installed.tables.table(relation.name).primary
    if relation.arity != 2:
        return to_arrow(engine.rows(relation.name, {}), relation.types)
    first, last = array("I"), array("I")
    # Codes are 32-bit numbers in C arrays: no Python object is made for a row.
    for key, leaf in primary.items():
        first.extend(repeat(key, len(leaf)))  # type: ignore[arg-type]
        last.extend(leaf.to_array())
    coded = zip((first, last), relation.types, strict=True)
    return pa.table([_values(engine, codes, type) for codes, type in coded], names=list(columns(relation.types)))


def _values(engine: ResidentEngine, codes: array[int], type: Type) -> pa.ChunkedArray[Any]:
    # A dictionary-encoded column, decoded by one `take`. Position 0 is NULL, as in the codec.
    numbers, values = engine.codes.codec(type).compact(np.frombuffer(codes, np.uint32))
    known = to_arrow(((value,) for value in values), (type,)).column(0)
    return known.take(numbers)
