"""Aggregates by affected group: only the groups that a changed source row belongs to are looked at.

For  p(g, result) :- result = f v : { s(g, v, ...) }:

    (G)   p^touched(g) :- s^del(g, ...).      p^touched(g) :- s^ins(g, ...).
    (D)   p^del(g, result) :- p^touched(g), p(g, result).
    (F)   p^fold(g, result) :- result = f v : { s^new(g, v, ...) }.
    (I)   p^ins(g, result) :- p^touched(g), p^fold(g, result).
    (E)   p^plus :- p^ins, !p^del.            p^minus :- p^del, !p^ins.

By (E) a group whose result stays the same appears in neither. Counts and sums are stored for each group and change by the changed
rows alone; a minimum or maximum looks at its group again only when the row that held it leaves.
"""

from __future__ import annotations

from rederive.analysis.graph import Component
from rederive.ir.rules import EXTREMES, TOTALS, Aggregate, Atom, Negation, Program, Rule, Variant
from rederive.maintain.maintenance_rule import Fold, MaintenanceRule, State, canonical
from rederive.maintain.program import Phase, Section, Semantics, Strategy
from rederive.maintain.strategies.recompute import evaluation_phase


def by_group(component: Component, program: Program, aggregate: Aggregate, strategy: Strategy) -> Section:
    """One aggregate, maintained by affected group. Where nothing is stored, a group is folded in both states."""
    # Where nothing is stored, the new state has no law: it is derived from the source's new state.
    states = (State(aggregate.relation),) if strategy.is_stored else ()
    initial = (evaluation_phase("initial evaluation", component, Variant.OLD),) if strategy.is_stored else ()
    # Over the new state: s^new is complete, because the source belongs to a lower component.
    fold = Fold(aggregate, Variant.NEW, Variant.FOLD)
    phase = Phase("groups", Semantics.GROUPS, group_rules(program, aggregate), fold)
    return Section(component, strategy, _reason(aggregate, is_stored=strategy.is_stored), (phase,), states, initial)


def _reason(aggregate: Aggregate, *, is_stored: bool = True) -> str:
    """Which rows a change reads: none but its own, those of a group whose extreme leaves, or all of the affected groups."""
    if aggregate.is_window:
        return WHOLE if not aggregate.group else "window: affected partitions only"
    if not is_stored:
        return "aggregate: affected groups only, folded in both states"
    if aggregate.function in TOTALS:
        return "aggregate: affected groups only, moved by the changed rows"
    if aggregate.function in EXTREMES:
        return "aggregate: affected groups only, folded from scratch if the extreme leaves"
    return "aggregate: affected groups only, folded from scratch"


WHOLE = "not incremental: all rows are one partition, and a change of one row may change the results of all"


def not_incremental(program: Program) -> Aggregate | None:
    """A definition whose every change costs as much as its whole input, if there is one."""
    aggregates = (definition for definition in program.definitions if isinstance(definition, Aggregate))
    return next((a for a in aggregates if _reason(a) == WHOLE), None)


def group_rules(program: Program, aggregate: Aggregate) -> tuple[MaintenanceRule, ...]:
    """(G), (D), (I) and (E)."""
    source, view = program.relations[aggregate.source], canonical(program.relations[aggregate.relation])
    deleted, inserted = (canonical(source, variant) for variant in (Variant.DEL, Variant.INS))
    # One head for (G1) and (G2): both sources name their columns alike.
    touched = Atom(aggregate.relation, tuple(deleted.terms[i] for i in aggregate.group), Variant.TOUCHED)
    groups = Atom(aggregate.relation, view.terms[: len(aggregate.group)], Variant.TOUCHED)
    gone, came = view.as_variant(Variant.DEL), view.as_variant(Variant.INS)
    return (
        MaintenanceRule("G1", Rule(touched, (deleted,)), (0,)),
        MaintenanceRule("G2", Rule(touched, (inserted,)), (0,)),
        MaintenanceRule("D", Rule(gone, (groups, view)), (0,)),
        MaintenanceRule("I", Rule(came, (groups, view.as_variant(Variant.FOLD))), (0,)),
        MaintenanceRule("E1", Rule(view.as_variant(Variant.PLUS), (came, Negation(gone))), (0,)),
        MaintenanceRule("E2", Rule(view.as_variant(Variant.MINUS), (gone, Negation(came))), (0,)),
    )
