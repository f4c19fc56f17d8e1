"""SJ96, Algorithm 1: store the view; overestimate the deletions, put back what another derivation supports, insert.

For a rule  p :- r1, ..., rn  and each of its literals:

    (Di)  p^del :- r1, ..., ri^del, ..., rn.                    ri^ins where ri is negated
    (R)   p^red :- p^del, r1^new, ..., rn^new.
    (Ii)  p^ins :- r1^new, ..., ri^ins, ..., rn^new.            ri^del where ri is negated
    (E1)  p^plus :- p^ins, !p.
    (E2)  p^minus :- p^del, !p^ins, !p^red.

A relation of a lower component enters with its net change as r^del and r^ins (section 4.2), so phantom insertions through
negation cannot arise. Idle insertions are dropped as they are found, against p^new, and so do not propagate.

In a recursion a deletion is proved before it spreads, where an engine can do that: most rows that (Di) finds have another
derivation, and what follows from them need not be looked at.

    (P)   p^kept :- p^del, r1^new, ..., rn^new.                 p^earlier for the literals of the component itself

The proof of a row reads rows that come earlier in a fixed order, so that two rows cannot prove one another. In a closure the
order is that of the strongly connected components of its steps; elsewhere rows are older than what was derived from them
(decision 74).

Where every row has one derivation at most, (R) finds nothing and is left out: a row whose derivation broke is in the new state
only by another one, which (Ii) finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rederive.analysis.closure import closure_of
from rederive.analysis.derivations import derived_once
from rederive.analysis.graph import Component
from rederive.ir.rules import Atom, Comparison, Literal, Negation, Program, Rule, Variant
from rederive.maintain.maintenance_rule import MaintenanceRule, State, canonical, in_state, positions_in
from rederive.maintain.program import Phase, Proof, ProofOrder, Section, Semantics, Strategy
from rederive.maintain.strategies.recompute import evaluation_phase


def materialized(component: Component, program: Program, *, proves: bool = True) -> Section:
    """Algorithm 1 for one component, in phases: deletions, rederivations, insertions, net effect.

    `proves`: a deletion in a recursion is proved before it spreads, by rows that are stored.
    """
    rules = tuple(d for d in component.definitions if isinstance(d, Rule))
    once = derived_once(component, program)
    put_back = Phase("rederivations", Semantics.SET, tuple(rederivation_rule(rule, component) for rule in rules))
    proof = deletion_proof(component, rules) if proves and component.recursive and not once else None
    # Without (R), nothing is put back, and (E2) does not subtract p^red.
    net = (m for name in component.relations for m in net_rules(program, name, rederived=not once))
    phases = (
        Phase("deletions", Semantics.SET, tuple(m for rule in rules for m in deletion_rules(rule)), proof=proof),
        *(() if once else (put_back,)),
        Phase("insertions", Semantics.SET, tuple(m for rule in rules for m in insertion_rules(rule))),
        Phase("net effect", Semantics.NET, tuple(net)),
    )
    # p^new = (p - p^del) + p^red + p^ins holds during all phases: in each it is the state reached so far.
    came = (Variant.INS,) if once else (Variant.RED, Variant.INS)
    states = tuple(State(name, Variant.DEL, came) for name in component.relations)
    initial = (evaluation_phase("initial evaluation", component, Variant.OLD),)
    return Section(component, Strategy.MATERIALIZED, _reason(component, once), phases, states, initial, has_one_derivation=once)


def _reason(component: Component, once: bool) -> str:
    if component.recursive:
        return "recursive: derivations cannot be counted"
    return "the view is stored; each row has one derivation" if once else "the view is stored"


def deletion_rules(rule: Rule) -> Iterator[MaintenanceRule]:
    """(Di): what the old state derived with a literal that no longer holds."""
    yield from _changed_rules(rule, "D", Variant.DEL, Variant.OLD)


def insertion_rules(rule: Rule) -> Iterator[MaintenanceRule]:
    """(Ii): what the new state derives with a literal that did not hold."""
    yield from _changed_rules(rule, "I", Variant.INS, Variant.NEW)


def _changed_rules(rule: Rule, label: str, change: Variant, state: Variant) -> Iterator[MaintenanceRule]:
    # !r becomes false where r gains a row, and true where r loses one.
    opposite = Variant.INS if change is Variant.DEL else Variant.DEL
    number = 0
    for i, literal in enumerate(rule.body):
        match literal:
            case Comparison():
                continue
            case Atom():
                changed = literal.as_variant(change)
            case Negation(atom):
                changed = atom.as_variant(opposite)
        number += 1
        # All other literals in one state, old for (Di) and new for (Ii): as sets, overlaps between the rules do no harm.
        body = (*in_state(rule.body[:i], state), changed, *in_state(rule.body[i + 1 :], state))
        yield MaintenanceRule(f"{label}{number}", Rule(rule.head.as_variant(change), body, rule.span), (i,), rule)


def rederivation_rule(rule: Rule, component: Component) -> MaintenanceRule:
    """(R): a deleted tuple that the new state still derives. It starts from the deletions, and again from what was put back."""
    # p^del comes first: only rows that were deleted are looked for in the new state.
    body = (rule.head.as_variant(Variant.DEL), *in_state(rule.body, Variant.NEW))
    recursive = positions_in(component, rule.body)
    return MaintenanceRule("R", Rule(rule.head.as_variant(Variant.RED), body, rule.span), (0, *(i + 1 for i in recursive)))


def deletion_proof(component: Component, rules: Sequence[Rule]) -> Proof:
    """How the deletions of a recursive component are proved."""
    closure = closure_of(component)
    # The order of components walks single codes along one relation.
    walks = closure is not None and closure.step is not None and closure.width == 1
    order = ProofOrder.COMPONENTS if walks else ProofOrder.AGES
    return Proof(order, tuple(proof_rule(rule, component) for rule in rules))


def proof_rule(rule: Rule, component: Component) -> MaintenanceRule:
    """(P): a row that may leave, derived from rows that come before it."""
    body: list[Literal] = [rule.head.as_variant(Variant.DEL), *in_state(rule.body, Variant.NEW)]
    for i in positions_in(component, rule.body):
        literal = rule.body[i]
        assert isinstance(literal, Atom)
        body[i + 1] = literal.as_variant(Variant.EARLIER)
    return MaintenanceRule("P", Rule(rule.head.as_variant(Variant.KEPT), tuple(body), rule.span), (0,))


def net_rules(program: Program, name: str, *, rederived: bool = True) -> tuple[MaintenanceRule, ...]:
    """(E1), (E2): without idle insertions and phantom deletions."""
    old, gone, red, came = (canonical(program.relations[name], v) for v in (Variant.OLD, Variant.DEL, Variant.RED, Variant.INS))
    plus = Rule(old.as_variant(Variant.PLUS), (came, Negation(old)))
    back = (Negation(came), Negation(red)) if rederived else (Negation(came),)
    minus = Rule(old.as_variant(Variant.MINUS), (gone, *back))
    return (MaintenanceRule("E1", plus, (0,)), MaintenanceRule("E2", minus, (0,)))
