"""Recompute: keep nothing; evaluate the view in the old state and in the new one, and take the difference.

p :- r1, ..., rn.        p^new :- r1^new, ..., rn^new.        p^plus :- p^new, !p.        p^minus :- p, !p^new.
"""

from __future__ import annotations

from rederive.analysis.graph import Component
from rederive.ir.rules import Atom, Literal, Negation, Program, Rule, Variant
from rederive.maintain.program import MaintenanceRule, Phase, Section, Semantics, Strategy, canonical, in_state, positions_in


def recompute(component: Component, program: Program) -> Section:
    """Both states from scratch, then their difference."""
    phases = (
        Phase("old state", Semantics.SET, evaluation(component, Variant.OLD)),
        Phase("new state", Semantics.SET, evaluation(component, Variant.NEW)),
        Phase("net effect", Semantics.DIFF, tuple(m for name in component.relations for m in _difference(program, name))),
    )
    return Section(component, Strategy.RECOMPUTE, "nothing is kept", phases, ())


def evaluation(component: Component, state: Variant) -> tuple[MaintenanceRule, ...]:
    """The component's own rules over one state, semi-naive: a recursive rule starts from each tuple its component gains."""
    found = []
    for definition in component.definitions:
        if isinstance(definition, Rule):
            body = in_state(definition.body, state)
            rule = Rule(definition.head.as_variant(state), body, definition.span)
            found.append(MaintenanceRule("O" if state is Variant.OLD else "O'", rule, positions_in(component, body) or (None,)))
    return tuple(found)


def anew(component: Component, state: Variant = Variant.NEW) -> tuple[MaintenanceRule, ...]:
    """The component's own rules over one state, into p^fresh: what a view that is kept is compared with when it is redone."""
    found = []
    for m in evaluation(component, state):
        body = tuple(_fresh(literal, component) for literal in m.rule.body)
        found.append(MaintenanceRule(m.label, Rule(m.rule.head.as_variant(Variant.FRESH), body, m.rule.span), m.drivers))
    return tuple(found)


def _fresh(literal: Literal, component: Component) -> Literal:
    inside = isinstance(literal, Atom) and literal.relation in component.relations
    return literal.as_variant(Variant.FRESH) if inside and isinstance(literal, Atom) else literal


def _difference(program: Program, name: str) -> tuple[MaintenanceRule, ...]:
    old, new = (canonical(program.relations[name], v) for v in (Variant.OLD, Variant.NEW))
    plus = Rule(old.as_variant(Variant.PLUS), (new, Negation(old)))
    minus = Rule(old.as_variant(Variant.MINUS), (old, Negation(new)))
    return (MaintenanceRule("E1", plus, (0,)), MaintenanceRule("E2", minus, (0,)))
