"""Derivation counts: the signs, the states, and where counting is refused."""

from __future__ import annotations

import pytest

from rederive.errors import StrategyError
from rederive.ir.printing import show_rule
from rederive.ir.rules import Rule, Variant
from rederive.lang import compile_program
from rederive.maintain.plan import plan
from rederive.maintain.program import Semantics
from rederive.maintain.strategies.counting import count_rules

DECLARATIONS = ".decl r(x: symbol, y: symbol) .decl s(x: symbol) .decl p(x: symbol, y: symbol)\n"


def counted(rule: str) -> list[str]:
    definition = compile_program(DECLARATIONS + rule).definitions[-1]
    assert isinstance(definition, Rule)
    return [f"{m.label} {show_rule(m.rule)}" for m in count_rules(definition)]


def test_a_join_telescopes_new_before_the_change_and_old_after_it() -> None:
    assert counted("p(x, y) :- r(x, z), r(z, w), r(w, y).") == [
        "A1 p^add(x, y) :- r^ins(x, z), r(z, w), r(w, y).",
        "S1 p^sub(x, y) :- r^del(x, z), r(z, w), r(w, y).",
        "A2 p^add(x, y) :- r^new(x, z), r^ins(z, w), r(w, y).",
        "S2 p^sub(x, y) :- r^new(x, z), r^del(z, w), r(w, y).",
        "A3 p^add(x, y) :- r^new(x, z), r^new(z, w), r^ins(w, y).",
        "S3 p^sub(x, y) :- r^new(x, z), r^new(z, w), r^del(w, y).",
    ]


def test_negation_adds_when_it_loses_and_subtracts_when_it_gains() -> None:
    assert counted("p(x, y) :- r(x, y), !s(x), !s(y).") == [
        "A1 p^add(x, y) :- r^ins(x, y), !s(x), !s(y).",
        "S1 p^sub(x, y) :- r^del(x, y), !s(x), !s(y).",
        "A2 p^add(x, y) :- r^new(x, y), s^del(x), !s(y).",
        "S2 p^sub(x, y) :- r^new(x, y), s^ins(x), !s(y).",
        "A3 p^add(x, y) :- r^new(x, y), !s^new(x), s^del(y).",
        "S3 p^sub(x, y) :- r^new(x, y), !s^new(x), s^ins(y).",
    ]


def test_comparisons_stay_and_have_no_change_of_their_own() -> None:
    assert counted('p(x, "c") :- x != "a", s(x), strlen(x) < 3.') == [
        'A1 p^add(x, "c") :- x != "a", s^ins(x), strlen(x) < 3.',
        'S1 p^sub(x, "c") :- x != "a", s^del(x), strlen(x) < 3.',
    ]


def test_the_changed_literal_drives_and_keeps_its_place() -> None:
    definition = compile_program(DECLARATIONS + "p(x, y) :- r(x, y), !s(x), x != y, s(y).").definitions[-1]
    assert isinstance(definition, Rule)
    made = list(count_rules(definition))
    assert [m.drivers for m in made] == [(0,), (0,), (1,), (1,), (3,), (3,)]
    assert {m.rule.head.variant for m in made} == {Variant.ADD, Variant.SUB}


def test_a_fact_has_a_derivation_that_never_changes() -> None:
    assert counted('p("a", "b").  p(x, y) :- r(x, y).') == ["A1 p^add(x, y) :- r^ins(x, y).", "S1 p^sub(x, y) :- r^del(x, y)."]
    program = compile_program(DECLARATIONS + 'p("a", "b").  p(x, y) :- r(x, y).')
    (section,) = plan(program, ["p"], "counting").sections
    assert len(section.component.definitions) == 2


def test_one_phase_counts_as_a_bag() -> None:
    program = compile_program(DECLARATIONS + "p(x, y) :- r(x, y) ; r(y, x).")
    (section,) = plan(program, ["p"], "counting").sections
    assert [phase.semantics for phase in section.phases] == [Semantics.BAG]
    assert len(section.phases[0].rules) == 4


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ("p(x, y) :- r(x, y). p(x, z) :- p(x, y), r(y, z).", ["p"]),
        (".decl q(x: symbol, y: symbol) p(x, y) :- r(x, y) ; q(x, y). q(x, z) :- p(x, y), r(y, z).", ["p", "q"]),
    ],
)
def test_recursion_is_refused_by_name(rules: str, names: list[str]) -> None:
    with pytest.raises(StrategyError) as caught:
        plan(compile_program(DECLARATIONS + rules), ["p"], "counting")
    assert caught.value.code == "strategy"
    assert all(name in caught.value.message for name in names)
    assert caught.value.hint is not None
    assert "materialized" in caught.value.hint


def test_a_recursive_view_that_nobody_needs_does_not_stand_in_the_way() -> None:
    program = compile_program(DECLARATIONS + ".decl v(x: symbol) v(x) :- s(x). p(x, y) :- r(x, y). p(x, z) :- p(x, y), p(y, z).")
    assert [s.component.relations for s in plan(program, ["v"], "counting").sections] == [("v",)]
