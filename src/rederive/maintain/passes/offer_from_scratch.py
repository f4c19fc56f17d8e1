"""A stored view can also be evaluated from scratch: for a large transaction that touches fewer tuples than its propagation does.

    p^fresh :- r1^new, ..., rn^new.         p^plus :- p^fresh, !p.         p^minus :- p, !p^fresh.

Recursive literals read p^fresh. Which way costs less is known only when a transaction arrives, so the section carries both.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.ir.rules import Program, Variant
from rederive.maintain.program import Phase, Section, Semantics, Strategy
from rederive.maintain.strategies.recompute import difference_rules, fresh_rules


def offer_from_scratch(section: Section, program: Program) -> Section:
    """The section with its evaluation from scratch, where its view is stored and has rules."""
    if section.strategy is not Strategy.MATERIALIZED or section.aggregate is not None:
        return section
    # Into p^fresh, so that the stored p stays readable until the commit.
    names = section.component.relations
    difference = tuple(m for name in names for m in difference_rules(program.relations[name], Variant.FRESH))
    phases = (
        Phase("evaluation from scratch", Semantics.SET, fresh_rules(section.component, Variant.NEW)),
        Phase("net effect", Semantics.DIFF, difference),
    )
    return replace(section, from_scratch=phases, is_adaptive=True)


def offer_fallback(section: Section, program: Program) -> Section:
    """The section with an evaluation from scratch for transactions that cost too much, where these can occur.

    Not for a view of which one sign is maintained: both states would give both signs.
    """
    if section.aggregate is not None or section.skipped_paths or section.has_one_derivation:
        return section
    if section.is_stored:
        # Without recursion a deletion does not spread, and the rules cost what the change joins with.
        offered = offer_from_scratch(section, program) if section.component.recursive else section
        return replace(offered, is_adaptive=False)
    if section.strategy.is_derived_on_demand:
        return replace(section, from_scratch=_both_states(section, program))
    return section


def _both_states(section: Section, program: Program) -> tuple[Phase, ...]:
    """p^before :- r1, ..., rn.        p^fresh :- r1^new, ..., rn^new.        The difference of the two."""
    component = section.component
    names = (program.relations[name] for name in component.relations)
    difference = tuple(m for relation in names for m in difference_rules(relation, Variant.FRESH, Variant.BEFORE))
    return (
        Phase("old state from scratch", Semantics.SET, fresh_rules(component, Variant.OLD, Variant.BEFORE)),
        Phase("new state from scratch", Semantics.SET, fresh_rules(component, Variant.NEW)),
        Phase("net effect", Semantics.DIFF, difference),
    )
