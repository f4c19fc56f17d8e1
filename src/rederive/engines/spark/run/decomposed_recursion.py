"""A recursion that decomposes, in one job: its rows parted by the column that it carries along, each part brought to its fixpoint
by the resident engine inside a worker. The other relations are sent to every worker.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql.functions import col

from rederive.analysis.decompose import carried_column
from rederive.analysis.graph import Component
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.spark.plan.sources import Frame, Source, listed
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.session.types import column, columns, from_arrow, schema, to_arrow
from rederive.ir.rules import Atom, Negation, Program, Relation, Rule
from rederive.ir.terms import Type
from rederive.limits import Limits
from rederive.maintain.maintenance_rule import canonical
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy

SENT_ROWS = 5_000_000  # to every worker, at most
Batches = Iterator[pa.RecordBatch]


def recursive_rules(component: Component) -> list[Rule]:
    rules = (definition for definition in component.definitions if isinstance(definition, Rule))
    return [rule for rule in rules if any(atom.relation in component.relations for atom in _atoms(rule))]


def read_beside(component: Component) -> list[str]:
    """The relations that the recursive rules read beside their own."""
    names = (atom.relation for rule in recursive_rules(component) for atom in _atoms(rule))
    return [name for name in dict.fromkeys(names) if name not in component.relations]


def _atoms(rule: Rule) -> list[Atom]:
    atoms = (literal.atom if isinstance(literal, Negation) else literal for literal in rule.body)
    return [atom for atom in atoms if isinstance(atom, Atom)]


def closed(
    component: Component, seeds: Frame, beside: Mapping[str, Source], program: Program, jobs: Jobs, limits: Limits
) -> Frame:
    """The seeds, and everything that the recursive rules derive from them."""
    (name,) = component.relations
    position, relation = carried_column(component), program.relations[name]
    assert position is not None
    sent = jobs.session.sparkContext.broadcast({other: jobs.table(source) for other, source in beside.items()})
    data = jobs.session.sql(f"SELECT {listed(seeds.types)} FROM {seeds.text()}")
    parted = data.repartition(jobs.session.sparkContext.defaultParallelism, col(column(position)))
    found = parted.mapInArrow(_to_fixpoint(_alone(component, program), relation, sent, limits), schema(relation.types))
    return jobs.settled(found, relation.types)


def _seeds(name: str) -> str:
    return f"{name}.seed"


def _alone(component: Component, program: Program) -> Program:
    """The recursive rules over their seeds: a program whose base relations are everything else that they read."""
    (name,) = component.relations
    relation = program.relations[name]
    seed = replace(relation, name=_seeds(name))
    start = Rule(canonical(relation), (canonical(seed),))
    relations = {one.name: one for one in (relation, seed, *(program.relations[other] for other in read_beside(component)))}
    return Program(relations, (start, *recursive_rules(component)))


def _to_fixpoint(
    program: Program, relation: Relation, sent: Broadcast[dict[str, pa.Table]], limits: Limits
) -> Callable[[Batches], Batches]:
    """What a worker does with its part of the seeds."""

    def run(batches: Batches) -> Batches:
        seeds = list(batches)
        if any(batch.num_rows for batch in seeds):
            engine = ResidentEngine(limits)
            tables = {_seeds(relation.name): pa.Table.from_batches(seeds), **sent.value}
            initial = {name: from_arrow(table, program.relations[name].types) for name, table in tables.items()}
            engine.install(plan(program, [relation.name], Strategy.MATERIALIZED.value), [relation.name], initial)
            engine.commit()
            yield from _answer(engine, relation).to_batches(max_chunksize=100_000)

    return run


def _answer(engine: ResidentEngine, relation: Relation) -> pa.Table:
    """The rows of a view by columns: codes first, then a value for each code."""
    primary = engine.installed.tables.table(relation.name).primary
    if relation.arity != 2:
        return to_arrow(engine.rows(relation.name, {}), relation.types)
    first, last = array("I"), array("I")
    for key, leaf in primary.items():
        first.extend(repeat(key, len(leaf)))  # type: ignore[arg-type]
        last.extend(leaf.to_array())
    coded = zip((first, last), relation.types, strict=True)
    return pa.table([_values(engine, codes, type) for codes, type in coded], names=columns(relation.types))


def _values(engine: ResidentEngine, codes: array[int], type: Type) -> pa.ChunkedArray[Any]:
    known = to_arrow(((value,) for value in engine.codes.codec(type).values), (type,)).column(0)
    return known.take(pa.Array.from_buffers(pa.uint32(), len(codes), [None, pa.py_buffer(codes)]))
