"""Counting: store the view with the number of derivations of each row. For components without recursion.

For a rule  p :- r1, ..., rn  and each of its literals:

    (Ai)  p^add :- r1^new, ..., r(i-1)^new, ri^ins, r(i+1), ..., rn.     as a bag; ri^del where ri is negated
    (Si)  p^sub :- r1^new, ..., r(i-1)^new, ri^del, r(i+1), ..., rn.     as a bag; ri^ins where ri is negated

The sum telescopes: count^new = count + add - sub. A row enters when its count leaves zero, and leaves when its
count returns to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from rederive.analysis.graph import Component
from rederive.errors import StrategyError
from rederive.ir.rules import Atom, Comparison, Negation, Rule, Variant
from rederive.maintain.maintenance_rule import MaintenanceRule, State, in_state
from rederive.maintain.program import Phase, Section, Semantics, Strategy
from rederive.maintain.strategies.materialized import insertion_rules
from rederive.maintain.strategies.recompute import evaluation_rules, fresh_rules


def counting(component: Component) -> Section:
    """The counting rules of one component, refused where it is recursive: a cycle would support itself."""
    if component.recursive:
        names = ", ".join(component.relations)
        raise StrategyError(
            f"'{names}' is recursive, and derivations through a cycle cannot be counted", hint="use strategy 'materialized'"
        )
    rules = tuple(d for d in component.definitions if isinstance(d, Rule))
    # What fails for a binding of a count rule counts only where the binding holds in the new state: its insertion rule fails too.
    changes = Phase(
        "derivation counts",
        Semantics.BAG,
        tuple(m for rule in rules for m in count_rules(rule)),
        strict=tuple(m for rule in rules for m in insertion_rules(rule)),
    )
    initial = Phase(
        "initial evaluation",
        Semantics.BAG,
        evaluation_rules(component, Variant.OLD),
        strict=fresh_rules(component, Variant.OLD),
    )
    states = tuple(State(name) for name in component.relations)
    return Section(component, Strategy.COUNTING, "not recursive: derivations are counted", (changes,), states, (initial,))


def count_rules(rule: Rule) -> Iterator[MaintenanceRule]:
    """(Ai) and (Si) for each literal that can change."""
    number = 0
    for i, literal in enumerate(rule.body):
        if isinstance(literal, Comparison):
            continue
        number += 1
        # New before the changed literal, old after it: the sum over i telescopes to body^new - body, and no derivation is
        # counted twice.
        before = in_state(rule.body[:i], Variant.NEW)
        for label, head, change in (("A", Variant.ADD, Variant.INS), ("S", Variant.SUB, Variant.DEL)):
            changed = _changed(literal, change)
            body = (*before, changed, *rule.body[i + 1 :])
            yield MaintenanceRule(f"{label}{number}", Rule(rule.head.as_variant(head), body, rule.span), (i,))


def _changed(literal: Atom | Negation, change: Variant) -> Atom:
    match literal:
        case Atom():
            return literal.as_variant(change)
        # !r becomes true where r loses a row, and false where it gains one.
        case Negation(atom):
            return atom.as_variant(Variant.DEL if change is Variant.INS else Variant.INS)
