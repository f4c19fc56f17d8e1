"""Aggregates by affected group: only the groups that a changed source row belongs to are looked at.

For  p(g, result) :- result = f v : { s(g, v, ...) }:

    (G)   p^touched(g) :- s^del(g, ...).      p^touched(g) :- s^ins(g, ...).
    (D)   p^del(g, result) :- p^touched(g), p(g, result).
    (F)   p^fold(g, result) :- result = f v : { s^new(g, v, ...) }.
    (I)   p^ins(g, result) :- p^touched(g), p^fold(g, result).

A group whose result stays the same appears in neither. Counts and sums are kept for each group and moved by the changed rows
alone; a minimum or maximum looks at its group again only when the row that held it leaves.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.analysis.graph import Component
from rederive.ir.rules import Aggregate, Atom, Function, Program, Rule, Variant
from rederive.maintain.program import MaintenanceRule, Phase, Section, Semantics, State, Strategy, canonical


def by_group(component: Component, program: Program, aggregate: Aggregate, strategy: Strategy) -> Section:
    """One aggregate, maintained by affected group. Where nothing is kept, a group is folded in both states."""
    states = (State(aggregate.relation),) if strategy.stored else ()
    phase = Phase("groups", Semantics.GROUPS, group_rules(program, aggregate), folded(aggregate))
    return Section(component, strategy, _reason(aggregate), (phase,), states)


def _reason(aggregate: Aggregate) -> str:
    if aggregate.function is not Function.ROW_NUMBER:
        return "aggregate: affected groups only"
    return WHOLE if not aggregate.group else "numbered rows: affected partitions are ordered anew"


WHOLE = "not incremental: all rows are one partition, which is ordered anew at every change of it"


def not_incremental(program: Program) -> Aggregate | None:
    """A definition whose every change costs as much as its whole input, if there is one."""
    aggregates = (definition for definition in program.definitions if isinstance(definition, Aggregate))
    return next((a for a in aggregates if _reason(a) == WHOLE), None)


def group_rules(program: Program, aggregate: Aggregate) -> tuple[MaintenanceRule, ...]:
    """(G), (D) and (I)."""
    source, view = program.relations[aggregate.source], canonical(program.relations[aggregate.relation])
    deleted, inserted = (canonical(source, variant) for variant in (Variant.DEL, Variant.INS))
    touched = Atom(aggregate.relation, tuple(deleted.terms[i] for i in aggregate.group), Variant.TOUCHED)
    groups = Atom(aggregate.relation, view.terms[: len(aggregate.group)], Variant.TOUCHED)
    return (
        MaintenanceRule("G1", Rule(touched, (deleted,)), (0,)),
        MaintenanceRule("G2", Rule(touched, (inserted,)), (0,)),
        MaintenanceRule("D", Rule(view.as_variant(Variant.DEL), (groups, view)), (0,)),
        MaintenanceRule("I", Rule(view.as_variant(Variant.INS), (groups, view.as_variant(Variant.FOLD))), (0,)),
    )


def folded(aggregate: Aggregate) -> Aggregate:
    """(F): the aggregate over the new state of its source."""
    return replace(aggregate, relation=f"{aggregate.relation}^fold", source=f"{aggregate.source}^new")
