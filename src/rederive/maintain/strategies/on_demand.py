"""SJ96, Algorithms 2 and 3: rederivation on demand. Nothing is kept; the old state is derived where a rule asks for it.

The maintenance rules are those of Algorithm 1 (`materialized`). They are rewritten so that bindings pass from the changed literal
to the others, and every literal over a view raises the question that makes its rows available:

    (Di)  sup :- ri^del, r(i+1).  ...       m_rj :- sup.         p^del :- sup, ....
    (R)   sup :- p^del, r1^new.   ...       m_rj :- sup.         p^red :- sup, rn^new.
    (Ii)  sup :- ri^ins, r(i+1)^new.  ...   m_rj :- sup.         p^ins :- sup, ....
    (E1)  m_p :- p^ins.                                          p^plus :- p^ins, !p.

Evaluation is in phases (deletions, rederivations, insertions, net effect), each to its own fixpoint together with the query
rules. An engine that derives the old state behind its lookups runs Algorithm 1's rules as they are: the lookup is the magic rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from rederive.analysis.bindings import binding_pattern, join_order
from rederive.analysis.graph import Component
from rederive.ir.rules import Atom, Literal, Negation, Program, Rule, Variant, literal_variables
from rederive.ir.terms import Variable
from rederive.maintain.passes.magic_sets import QueryRules, Question, magic_atom, query_rules
from rederive.maintain.program import MaintenanceRule, Section, Strategy
from rederive.maintain.strategies.materialized import materialized


def on_demand(component: Component, program: Program) -> Section:
    """Algorithm 1's phases over a view that is not kept, and Algorithm 2's rules for `explain`."""
    kept = materialized(component, program)
    numbers = count(1)
    rewritten = [demand_rules(m, program, numbers) for phase in kept.phases for m in phase.rules]
    rules = tuple(rule for one in rewritten for rule in one.rules)
    asked = dict.fromkeys(question for one in rewritten for question in one.asks)
    reason = "nothing is kept: the old state is derived where rules ask for it"
    return replace(kept, strategy=Strategy.ON_DEMAND, reason=reason, rewritten=rules + answering_rules(asked, program))


def demand_rules(m: MaintenanceRule, program: Program, numbers: Iterator[int]) -> QueryRules:
    """One maintenance rule in supplementary form, with the magic rules for its literals over views.

    `numbers` tell the supplementary relations of different rules apart.
    """
    (driver, *_) = m.drivers
    assert driver is not None
    rest = [literal for i, literal in enumerate(m.rule.body) if i != driver]
    before: list[Literal] = [m.rule.body[driver]]
    steps = [step.literal for step in join_order(rest, frozenset(_names(before)))]
    rules: list[MaintenanceRule] = []
    asks: list[Question] = []
    for i, literal in enumerate(steps):
        atom = literal.atom if isinstance(literal, Negation) else literal
        if isinstance(atom, Atom) and atom.variant in (Variant.OLD, Variant.NEW) and atom.relation in program.views:
            if len(before) > 1:
                sup = _supplementary(m, next(numbers), before, steps[i:])
                rules.append(MaintenanceRule(m.label, Rule(sup, tuple(before)), (0,)))
                before = [sup]
            asks.append(Question(atom.relation, binding_pattern(atom, _names(before))))
            asking = magic_atom(asks[-1], atom, program.relations[atom.relation])
            rules.append(MaintenanceRule("M", Rule(asking, tuple(before)), (0,)))
        before.append(literal)
    rules.append(MaintenanceRule(m.label, Rule(m.rule.head, tuple(before), m.rule.span), (0,)))
    return QueryRules(tuple(rules), (), tuple(asks))


def answering_rules(asked: Iterable[Question], program: Program) -> tuple[MaintenanceRule, ...]:
    """The query rules for these questions, and for those that answering them raises in turn."""
    waiting = list(asked)
    found: dict[Question, tuple[MaintenanceRule, ...]] = {}
    while waiting:
        question = waiting.pop(0)
        if question not in found and question.relation in program.views:
            definitions = program.definitions_of(question.relation)
            answer = query_rules(question, definitions, program.relations, program.views, supplementary=True)
            found[question] = answer.rules
            waiting += answer.asks
    return tuple(rule for rules in found.values() for rule in rules)


def _names(literals: Iterable[Literal]) -> set[str]:
    return {v.name for literal in literals for v in literal_variables(literal)}


def _supplementary(m: MaintenanceRule, number: int, before: list[Literal], later: list[Literal]) -> Atom:
    """What was joined so far, in the variables that are still needed."""
    needed = _names((m.rule.head, *later))
    kept = dict.fromkeys(v.name for literal in before for v in literal_variables(literal) if v.name in needed)
    return Atom(f"sup{number}_{m.label}_{m.rule.head.relation}", tuple(map(Variable, kept)))
