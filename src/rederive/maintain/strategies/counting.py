"""Counting: keep the view with the number of derivations of each row. For components without recursion.

For a rule  p :- r1, ..., rn  and each of its literals:

    (Ai)  p^add :- r1^new, ..., r(i-1)^new, ri^ins, r(i+1), ..., rn.     as a bag; ri^del where ri is negated
    (Si)  p^sub :- r1^new, ..., r(i-1)^new, ri^del, r(i+1), ..., rn.     as a bag; ri^ins where ri is negated

The sum telescopes: count^new = count + add - sub. A row enters when its count leaves zero, and leaves when it comes back to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rederive.analysis.graph import Component
from rederive.errors import StrategyError
from rederive.ir.rules import Atom, Comparison, Negation, Rule, Variant
from rederive.maintain.program import MaintenanceRule, Phase, Section, Semantics, State, Strategy, in_state


def counting(component: Component) -> Section:
    """The counting rules of one component, refused where it is recursive: a cycle would support itself."""
    if component.recursive:
        names = ", ".join(component.relations)
        raise StrategyError(
            f"'{names}' is recursive, and derivations through a cycle cannot be counted", hint="use strategy 'materialized'"
        )
    rules = tuple(d for d in component.definitions if isinstance(d, Rule))
    phases = (Phase("derivation counts", Semantics.BAG, tuple(m for rule in rules for m in count_rules(rule))),)
    states = tuple(State(name) for name in component.relations)
    return Section(component, Strategy.COUNTING, "not recursive: derivations are counted", phases, states)


def count_rules(rule: Rule) -> Iterator[MaintenanceRule]:
    """(Ai) and (Si) for each literal that can change."""
    number = 0
    for i, literal in enumerate(rule.body):
        if isinstance(literal, Comparison):
            continue
        number += 1
        before = in_state(rule.body[:i], Variant.NEW)
        for label, head, change in (("A", Variant.ADD, Variant.INS), ("S", Variant.SUB, Variant.DEL)):
            changed = _changed(literal, change)
            body = (*before, changed, *rule.body[i + 1 :])
            yield MaintenanceRule(f"{label}{number}", Rule(rule.head.as_variant(head), body, rule.span), (i,))


def _changed(literal: Atom | Negation, change: Variant) -> Atom:
    match literal:
        case Atom():
            return literal.as_variant(change)
        case Negation(atom):
            return atom.as_variant(Variant.DEL if change is Variant.INS else Variant.INS)
