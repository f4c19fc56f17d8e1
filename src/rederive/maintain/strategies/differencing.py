"""SR: partial differencing. For views without recursion; nothing is stored except deltas on their way.

For a rule  p :- r1, ..., rn  and each influent ri, the partial differentials are

    (Ii)  p^ins :- r1^new, ..., ri^ins, ..., rn^new.      the positive one, in the new state
    (Di)  p^del :- r1, ..., ri^del, ..., rn.              the negative one, in the old state, by logical rollback

evaluated from the base relations upwards, breadth first; a change set is dropped when the wave has passed the views above it.
*Strict* filters each set against the other state, so that it is exact; *nervous* does not, and may report a row that was there
before, or one that stays. Still a nervous plus is in the new state, and a nervous minus was in the old one.

Where each row has one derivation at most, there is nothing to filter: what both sets have in common stays, the rest is exact.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.analysis.graph import Component
from rederive.errors import StrategyError
from rederive.ir.rules import Negation, Rule, Variant
from rederive.maintain.maintenance_rule import MaintenanceRule
from rederive.maintain.program import Phase, Section, Semantics, Strategy
from rederive.maintain.strategies.filtration import ALL, filtration
from rederive.maintain.strategies.materialized import deletion_rules, insertion_rules


def differencing(component: Component, variants: frozenset[Variant] = ALL, *, nervous: bool = False) -> Section:
    """The partial differentials of one component, strict or nervous; refused where it is recursive."""
    if component.recursive:
        names = ", ".join(component.relations)
        raise StrategyError(
            f"'{names}' is recursive, and partial differencing is for views without recursion",
            hint="use strategy 'filtration' or 'on_demand'",
        )
    strict = filtration(component, variants)
    if not nervous:
        return replace(strict, strategy=Strategy.DIFFERENCING, reason="not recursive: partial differentials, filtered")
    # Nervous: the same rules without their filters.
    rules = tuple(d for d in component.definitions if isinstance(d, Rule))
    makers = (("deletions", Variant.DEL, deletion_rules), ("insertions", Variant.INS, insertion_rules))
    phases = tuple(
        Phase(name, Semantics.SET, tuple(_guarded(m) for rule in rules for m in maker(rule)))
        for name, sign, maker in makers
        if sign in variants
    )
    return replace(
        strict, strategy=Strategy.DIFFERENCING, reason="not recursive: partial differentials, not filtered", phases=phases
    )


def differencing_once(component: Component) -> Section:
    """The differentials of a view whose rows have one derivation each, and that is only summed and counted: a row that leaves and
    enters again counts for nothing. Nothing is stored or looked up."""
    (rule,) = component.definitions
    assert isinstance(rule, Rule)
    # With one derivation for each row, del and ins can only share rows that stay, and these cancel in a sum.
    deletions = Phase("deletions", Semantics.SET, tuple(deletion_rules(rule)))
    insertions = Phase("insertions", Semantics.SET, tuple(insertion_rules(rule)))
    reason = "read by sums and counts alone, and each row has one derivation: partial differentials are exact"
    return Section(component, Strategy.DIFFERENCING, reason, (deletions, insertions), has_one_derivation=True)


def _guarded(m: MaintenanceRule) -> MaintenanceRule:
    """A nervous change of a negated relation may be none; the literal is tested in the rule's own state as well."""
    (driver,) = m.drivers
    assert driver is not None
    assert m.origin is not None
    negated = m.origin.body[driver]
    if not isinstance(negated, Negation):
        return m
    # p^del needs !r in the old state, p^ins needs !r in the new one; an exact r^ins or r^del would imply it.
    state = Variant.OLD if m.rule.head.variant is Variant.DEL else Variant.NEW
    return replace(m, rule=replace(m.rule, body=(*m.rule.body, Negation(negated.atom.as_variant(state)))))
