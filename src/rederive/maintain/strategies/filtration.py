"""HD94: extended propagation and filtration. Nothing is stored; no disqualified update is ever propagated.

    (Di)  p^del :- r1, ..., ri^del, ..., rn, !p^new.                  propagated in the old state, filtered in the new one
    (Ii)  p^ins :- r1^new, ..., ri^ins, ..., rn^new, !p.              propagated in the new state, filtered in the old one

Each state is derived from the base relations alone, where a rule or a filter reads it, and remembered until the transaction
ends; so is every disqualified update, which is therefore filtered once. Both chains are exact and independent of one another: a
subscriber of insertions needs the (Ii) alone, and through a negation the (Di) of the negated relation.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.analysis.graph import Component
from rederive.ir.rules import Rule, Variant
from rederive.maintain.maintenance_rule import MaintenanceRule
from rederive.maintain.program import Phase, Section, Semantics, Strategy
from rederive.maintain.strategies.materialized import deletion_rules, insertion_rules

ALL = frozenset({Variant.DEL, Variant.INS})


def filtration(component: Component, variants: frozenset[Variant] = ALL) -> Section:
    """Propagation with immediate filtration, for these variants of its relations."""
    rules = tuple(d for d in component.definitions if isinstance(d, Rule))
    deletions = tuple(m for rule in rules for m in deletion_rules(rule))
    insertions = tuple(m for rule in rules for m in insertion_rules(rule))
    phases = tuple(
        Phase(name, Semantics.FILTERED, tuple(map(_filtered, found)))
        for name, sign, found in (("deletions", Variant.DEL, deletions), ("insertions", Variant.INS, insertions))
        if sign in variants
    )
    # A sign that is not monitored needs no rules: the two chains do not read each other's results.
    skipped = sum(len(found) for sign, found in ((Variant.DEL, deletions), (Variant.INS, insertions)) if sign not in variants)
    return Section(
        component,
        Strategy.FILTRATION,
        "nothing is stored: updates are filtered when they are found",
        phases,
        skipped_paths=skipped,
    )


def _filtered(m: MaintenanceRule) -> MaintenanceRule:
    """With the filter: what it finds must not hold in the other state."""
    # A deletion must be false in the new state, an insertion must have been false in the old one.
    return replace(m, filter=Variant.NEW if m.rule.head.variant is Variant.DEL else Variant.OLD)
