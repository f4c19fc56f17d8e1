"""Insertions into a transitive closure that is not stored start from new pairs instead of new steps.

    p^ins(X, Y) :- step^ins(X, Z), p^new(Z, Y).      becomes      p^ins(X, Y) :- p^ins(X, Z), step^ins(X, Z), p^new(Z, Y).

If (X, Z) is not an insertion into p, X reached Z without the new steps, and whatever Z newly reaches comes to X along those.
Where rows are derived on demand, a test whether a pair is new costs less than deriving everything that Z reaches.
"""

from __future__ import annotations

from dataclasses import replace

from rederive.analysis.closure import Closure, Form, closure_of
from rederive.ir.rules import Atom, Variant
from rederive.maintain.maintenance_rule import MaintenanceRule
from rederive.maintain.program import Phase, Section, Semantics


def start_from_new_pairs(section: Section) -> Section:
    """The section with the insertion rules of a derived transitive closure started from new pairs."""
    closure = closure_of(section.component)
    if closure is None or section.is_stored:
        return section
    return replace(section, phases=tuple(_rewritten_phase(closure, phase) for phase in section.phases))


def _rewritten_phase(closure: Closure, phase: Phase) -> Phase:
    if phase.semantics is not Semantics.SET:
        return phase
    return replace(phase, rules=tuple(start_from_new_pair(closure, m) for m in phase.rules))


def start_from_new_pair(closure: Closure, m: MaintenanceRule) -> MaintenanceRule:
    """The rule behind its new pair, where it is an insertion rule that starts from a new step; any other rule as it is."""
    match m.rule.head.variant, closure.form, m.rule.body:
        case Variant.INS, Form.RIGHT | Form.LEFT, (Atom() as one, Atom() as two) if closure.step is not None:
            # Right-linear: step^ins(X, Z), p^new(Z, Y). Left-linear: p^new(X, Z), step^ins(Z, Y).
            step, pair = (one, two) if closure.form is Form.RIGHT else (two, one)
            if step.variant is Variant.INS and step.relation == closure.step and pair.relation == closure.relation:
                # step^ins implies p^new, so step^ins with p^ins is those new steps whose pair is new as well.
                new_pair = replace(step, relation=closure.relation)
                return replace(m, rule=replace(m.rule, body=(new_pair, *m.rule.body)), drivers=(0,))
    return m
