"""Recompute: store nothing; evaluate the view in the old state and in the new one, and take the difference.

p :- r1, ..., rn.        p^new :- r1^new, ..., rn^new.        p^plus :- p^new, !p.        p^minus :- p, !p^new.
"""

from __future__ import annotations

from rederive.analysis.graph import Component
from rederive.ir.rules import Aggregate, Atom, Literal, Negation, Program, Relation, Rule, Variant
from rederive.maintain.maintenance_rule import Fold, MaintenanceRule, canonical, in_state, positions_in
from rederive.maintain.program import Phase, Section, Semantics, Strategy


def recompute(component: Component, program: Program) -> Section:
    """Both states from scratch, then their difference."""
    differences = (m for name in component.relations for m in difference_rules(program.relations[name], Variant.NEW))
    # No `states`: the new state is evaluated as a table, and is not an overlay over the old one.
    phases = (
        evaluation_phase("old state", component, Variant.OLD),
        evaluation_phase("new state", component, Variant.NEW),
        Phase("net effect", Semantics.DIFF, tuple(differences)),
    )
    return Section(component, Strategy.RECOMPUTE, "nothing is stored", phases)


def evaluation_phase(name: str, component: Component, state: Variant) -> Phase:
    """The whole component over one state, by its rules or by its aggregate."""
    for definition in component.definitions:
        if isinstance(definition, Aggregate):
            return Phase(name, Semantics.FOLD, fold=Fold(definition, state, state))
    return Phase(name, Semantics.SET, evaluation_rules(component, state))


def evaluation_rules(component: Component, state: Variant) -> tuple[MaintenanceRule, ...]:
    """The component's own rules over one state, semi-naive: a recursive rule starts from each tuple its component gains."""
    found = []
    for definition in component.definitions:
        if isinstance(definition, Rule):
            body = in_state(definition.body, state)
            rule = Rule(definition.head.as_variant(state), body, definition.span)
            # A driver for each recursive literal; None where there is none, so that the engine chooses the join order.
            found.append(MaintenanceRule("O" if state is Variant.OLD else "O'", rule, positions_in(component, body) or (None,)))
    return tuple(found)


def fresh_rules(component: Component, state: Variant, into: Variant = Variant.FRESH) -> tuple[MaintenanceRule, ...]:
    """The component's own rules over one state, into p^fresh: a stored view is compared with it and is not overwritten."""
    found = []
    for m in evaluation_rules(component, state):
        body = tuple(_inside(literal, component, into) for literal in m.rule.body)
        found.append(MaintenanceRule(m.label, Rule(m.rule.head.as_variant(into), body, m.rule.span), m.drivers))
    return tuple(found)


def _inside(literal: Literal, component: Component, into: Variant) -> Literal:
    # A stored p still holds the old state, so recursive literals must read p^fresh.
    inside = isinstance(literal, Atom) and literal.relation in component.relations
    return literal.as_variant(into) if inside and isinstance(literal, Atom) else literal


def difference_rules(relation: Relation, after: Variant, before: Variant = Variant.OLD) -> tuple[MaintenanceRule, ...]:
    """(E1), (E2): what the states `before` and `after` do not share."""
    old, new = canonical(relation, before), canonical(relation, after)
    plus = Rule(old.as_variant(Variant.PLUS), (new, Negation(old)))
    minus = Rule(old.as_variant(Variant.MINUS), (old, Negation(new)))
    return (MaintenanceRule("E1", plus, (0,)), MaintenanceRule("E2", minus, (0,)))
