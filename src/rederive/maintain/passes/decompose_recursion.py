"""A recursion that carries a column unchanged from body to head can be evaluated by partitions of that column.

    p(X, Y) :- e(X, Y).   p(X, Y) :- p(X, Z), e(Z, Y).      becomes      p.seed(X, Y) :- e(X, Y).
                                                            and, within each partition by X:
                                                            p(X, Y) :- p.seed(X, Y).   p(X, Y) :- p(X, Z), e(Z, Y).

No row with one X leads to a row with another, so the union of the fixpoints is the fixpoint. An engine that holds rows in
partitions evaluates the seeds, and runs the program of a partition where the seeds are.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.analysis.decompose import carried_column
from rederive.analysis.graph import components
from rederive.ir.rules import Program, Rule, read_by
from rederive.maintain.maintenance_rule import MaintenanceRule, State, canonical
from rederive.maintain.program import MaintenanceProgram, PartitionProgram, Section, Semantics
from rederive.maintain.strategies.materialized import materialized


def decompose_recursion(section: Section, program: Program) -> Section:
    """The section with the program of one partition, where its view is stored and falls apart by a column."""
    column = carried_column(section.component) if section.is_stored else None
    if column is None:
        return section
    rules = [m for phase in section.initial if phase.semantics is Semantics.SET for m in phase.rules]
    (name,) = section.component.relations
    relation = program.relations[name]
    seed = replace(relation, name=f"{name}.seed")
    # The exit rules have no driver: nothing of the component is among what they read.
    seeds = tuple(_of_seed(m, seed.name) for m in rules if m.drivers == (None,))
    recursive = [m.rule for m in rules if m.drivers != (None,)]
    read = dict.fromkeys(one for rule in recursive for one in read_by(rule))
    relations = {seed.name: seed, **{one: program.relations[one] for one in read}}
    start = Rule(canonical(relation), (canonical(seed),))
    inside = Program(relations, (start, *recursive))
    sections = tuple(materialized(component, inside, proves=False) for component in components(inside))
    within = MaintenanceProgram(inside, sections, tuple(map(State, inside.bases)))
    return replace(section, by_partition=PartitionProgram(column, seeds, seed.name, within))


def _of_seed(m: MaintenanceRule, name: str) -> MaintenanceRule:
    return replace(m, rule=replace(m.rule, head=replace(m.rule.head, relation=name)))
