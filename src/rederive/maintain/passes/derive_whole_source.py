"""An aggregate over a view that is derived on demand: the rule that derives all rows of that view at once.

    p(g, result) :- result = sum v : { s(g, v) }.     s(G, V) :- r1, ..., rn.     without a request, in the state of the fold

Where each row of the source has one derivation, its rule is a query of its own: nothing has to be requested, stored or compared.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rederive.analysis.derivations import derived_once
from rederive.analysis.graph import Component, components
from rederive.ir.rules import Program
from rederive.maintain.program import Phase, Section
from rederive.maintain.strategies.recompute import evaluation_rules


def derive_whole_source(section: Section, program: Program, derived: Collection[str]) -> Section:
    """The section with the rules of its aggregate's source, where the aggregate is stored and the source is in `derived`."""
    aggregate = section.aggregate
    if aggregate is None or not section.is_stored or aggregate.source not in derived:
        return section
    source = next(component for component in components(program) if aggregate.source in component.relations)
    if not derived_once(source, program):
        return section
    return replace(
        section,
        initial=tuple(_with_source(phase, source) for phase in section.initial),
        phases=tuple(_with_source(phase, source) for phase in section.phases),
    )


def _with_source(phase: Phase, source: Component) -> Phase:
    if phase.fold is None:
        return phase
    # One definition, and so one rule.
    (rule,) = evaluation_rules(source, phase.fold.state)
    return replace(phase, fold=replace(phase.fold, source=rule))
