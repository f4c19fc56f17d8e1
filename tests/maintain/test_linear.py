"""Non-linear closures in linear form, and closures in the form that a binding asks for."""

from __future__ import annotations

import pytest

import rederive
from rederive.analysis.closure import Form
from rederive.analysis.graph import components
from rederive.ir.printing import show_definition, show_rule
from rederive.ir.rules import Rule
from rederive.lang import compile_program
from rederive.maintain.passes.linearize import closures, form_for, in_form, linearize
from rederive.maintain.passes.start_from_new_pairs import start_from_new_pair
from rederive.maintain.strategies.materialized import insertion_rules

DECLARED = """
.decl e(x: symbol, y: symbol) .decl f(x: symbol, y: symbol) .decl p(x: symbol, y: symbol)
.decl g(a: symbol, b: symbol, c: symbol, d: symbol) .decl w(a: symbol, b: symbol, c: symbol, d: symbol)
"""
STEP = "p(x, y) :- e(x, y)."
TWICE = "p(x, y) :- p(x, z), p(z, y)."
WIDE = "w(a, b, c, d) :- g(a, b, c, d). w(a, b, c, d) :- w(a, b, u, v), w(u, v, c, d)."


def linear(rules: str) -> list[str]:
    program = linearize(compile_program(DECLARED + rules))
    return [show_definition(definition, program) for definition in program.definitions]


def test_a_relation_of_steps_serves_as_it_is() -> None:
    assert linear(STEP + TWICE) == ["p(x, y) :- e(x, y).", "p(x, y) :- e(x, z), p(z, y)."]
    assert linear(WIDE) == ["w(a, b, c, d) :- g(a, b, c, d).", "w(a, b, c, d) :- g(a, b, u, v), w(u, v, c, d)."]


def test_other_exit_rules_define_the_step() -> None:
    assert linear('p(x, y) :- e(y, x). p("a", "b").' + TWICE) == [
        "p.step(x, y) :- e(y, x).",
        'p.step("a", "b").',
        "p(x, y) :- p.step(x, y).",
        "p(x, y) :- p.step(x, z), p(z, y).",
    ]


def test_a_rule_that_stands_there_twice_is_one() -> None:
    """Found by changing definitions: a rule may be added again."""
    assert linear(STEP + TWICE + TWICE) == linear(STEP + TWICE)
    db = rederive.open()
    db.define(DECLARED + STEP + TWICE)
    db.load("e", [("a", "b"), ("b", "c")])
    assert db.definitions.add_rule(TWICE).changes == {}
    assert db.rows("p") == [("a", "b"), ("a", "c"), ("b", "c")]


@pytest.mark.parametrize(
    "rules", [STEP + "p(x, y) :- e(x, z), p(z, y).", STEP + "p(x, y) :- p(x, z), e(z, y).", STEP + TWICE[:-1] + ", x != y."]
)
def test_everything_else_is_left_as_it_is(rules: str) -> None:
    program = compile_program(DECLARED + rules)
    assert linearize(program) == program


@pytest.mark.parametrize(
    ("bound", "form"), [((0, 1), Form.LEFT), ((0, 1, 2), Form.LEFT), ((2, 3), Form.RIGHT), ((0, 2), Form.RIGHT), ((), Form.RIGHT)]
)
def test_the_form_that_carries_a_half_along(bound: tuple[int, ...], form: Form) -> None:
    closure = closures(linearize(compile_program(DECLARED + WIDE)))["w"]
    assert form_for(closure, bound) is form


def test_the_other_form_of_a_step_of_joins_under_names_of_its_own() -> None:
    rules = "p(x, y) :- e(x, z), f(z, y). p(x, y) :- p(x, z), e(z, u), f(u, y)."
    closure = closures(compile_program(DECLARED + rules))["p"]
    assert [show_rule(rule) for rule in in_form(closure, Form.RIGHT)] == [
        "p(x, y) :- e(x, z), f(z, y).",
        "p(x, y) :- e(x, z), f(z, z_), p(z_, y).",
    ]
    assert in_form(closure, Form.LEFT) == (*closure.exits, *closure.recursive)


@pytest.mark.parametrize("recursive", ["e(x, z), p(z, y)", "p(x, z), e(z, y)"])
def test_a_new_step_is_followed_where_its_own_pair_is_new(recursive: str) -> None:
    program = compile_program(DECLARED + STEP + f"p(x, y) :- {recursive}.")
    (component,) = components(program)
    rules = [m for rule in component.definitions if isinstance(rule, Rule) for m in insertion_rules(rule)]
    changed = [show_rule(n.rule) for m in rules if (n := start_from_new_pair(closures(program)["p"], m)) != m]
    pair, step = (
        ("p^ins(x, z)", "e^ins(x, z), p^new(z, y)") if recursive[0] == "e" else ("p^ins(z, y)", "p^new(x, z), e^ins(z, y)")
    )
    assert changed == [f"p^ins(x, y) :- {pair}, {step}."]


@pytest.mark.parametrize("rules", [STEP + TWICE, STEP + "p(x, y) :- p(x, z), e(z, y)."])
def test_a_step_between_places_that_are_connected_is_one_question(rules: str) -> None:
    db = rederive.open(strategy="on_demand")
    db.define(DECLARED + rules)
    db.load("e", [("a", "b"), ("b", "c"), *((f"to{i}", "a") for i in range(300)), *(("c", f"from{i}") for i in range(300))])
    with db.transaction() as tx:
        tx.insert("e", [("a", "c")])
    assert not tx.result.changes
    assert tx.result.touched < 10


def test_steps_of_joins_asked_by_either_end() -> None:
    """Found: a bitmap that was narrowed before the loops went to several rows at once."""
    db = rederive.open(strategy="on_demand")
    db.define(DECLARED + "p(x, y) :- e(x, u), f(u, y). p(x, y) :- e(x, u), f(u, z), p(z, y).")
    db.load("e", [("a", "a"), ("b", "b")])
    db.load("f", [("a", "a"), ("a", "b"), ("b", "a")])
    assert db.rows("p", y="b") == [("a", "b"), ("b", "b")]
    assert db.rows("p", x="b") == [("b", "a"), ("b", "b")]
