"""Which views are recognised as transitive closures, and which look like one and are none."""

from __future__ import annotations

import pytest

from rederive.analysis.closure import Closure, Form, closure_of
from rederive.analysis.graph import components
from rederive.lang import compile_program

DECLARED = """
.decl e(x: symbol, y: symbol) .decl f(x: symbol, y: symbol) .decl n(x: symbol) .decl w(x: symbol, y: symbol, c: symbol)
.decl p(x: symbol, y: symbol) .decl q(x: symbol, y: symbol) .decl t(x: symbol, y: symbol, z: symbol)
.decl e4(a: symbol, b: symbol, c: symbol, d: symbol) .decl p4(a: symbol, b: symbol, c: symbol, d: symbol)
"""


def recognised(rules: str, view: str = "p") -> Closure | None:
    (component,) = [c for c in components(compile_program(DECLARED + rules)) if view in c.relations]
    return closure_of(component)


@pytest.mark.parametrize(
    ("rules", "form"),
    [
        ("p(x, y) :- e(x, y). p(x, y) :- p(x, z), e(z, y).", Form.LEFT),
        ("p(x, y) :- e(x, y). p(x, y) :- e(z, y), p(x, z).", Form.LEFT),
        ("p(x, y) :- e(x, y). p(x, y) :- e(x, z), p(z, y).", Form.RIGHT),
        ("p(a, b) :- e(a, b). p(x, y) :- p(z, y), e(x, z).", Form.RIGHT),
        ("p(x, y) :- e(x, y). p(x, y) :- p(x, z), p(z, y).", Form.NONLINEAR),
        ("p(x, y) :- e(x, y). p(x, y) :- p(z, y), p(x, z).", Form.NONLINEAR),
        ("p(u, v) :- e(u, v). p(y, x) :- p(y, z), p(z, x).", Form.NONLINEAR),
    ],
)
def test_the_three_forms_over_a_relation(rules: str, form: Form) -> None:
    found = recognised(rules)
    assert found is not None
    assert (found.form, found.step, found.width, [v.name for v in found.middle]) == (form, "e", 1, ["z"])


@pytest.mark.parametrize(
    "rules",
    [
        "p(x, y) :- e(x, y). p(x, y) :- f(y, x). p(x, y) :- p(x, z), p(z, y).",
        "p(x, y) :- e(x, y), n(x). p(x, y) :- p(x, z), p(z, y).",
        'p(x, y) :- w(x, y, "c"), !f(x, y), x < y. p(x, y) :- p(x, z), p(z, y).',
        'p("a", y) :- n(y). p(x, x) :- n(x). p(x, y) :- p(x, z), p(z, y).',
        "p(x, y) :- e(y, x). p(x, y) :- p(x, z), p(z, y).",
        'p(x, y) :- e(x, y). p("a", "b"). p(x, y) :- p(x, z), p(z, y).',
    ],
)
def test_a_non_linear_one_may_have_any_exit_rules(rules: str) -> None:
    found = recognised(rules)
    assert found is not None
    assert (found.form, found.step) == (Form.NONLINEAR, None)


@pytest.mark.parametrize(
    ("rules", "form"),
    [
        ("p(x, y) :- w(x, y, c), n(c). p(x, y) :- p(x, z), w(z, y, d), n(d).", Form.LEFT),
        ("p(x, y) :- w(x, y, _), !f(x, y). p(x, y) :- w(x, z, _), !f(x, z), p(z, y).", Form.RIGHT),
        (
            "p(x, y) :- e(x, y). p(x, y) :- f(y, x). p(x, y) :- f(z, x), p(z, y). p(x, y) :- e(x, z), p(z, y).",
            Form.RIGHT,
        ),
    ],
)
def test_a_linear_one_repeats_its_exit_rules_as_steps(rules: str, form: Form) -> None:
    found = recognised(rules)
    assert found is not None
    assert (found.form, found.step) == (form, None)


def test_halves_of_two_columns() -> None:
    found = recognised("p4(a, b, c, d) :- e4(a, b, c, d). p4(a, b, c, d) :- p4(a, b, u, v), p4(u, v, c, d).", "p4")
    assert found is not None
    assert (found.form, found.step, found.width, [v.name for v in found.middle]) == (Form.NONLINEAR, "e4", 2, ["u", "v"])


@pytest.mark.parametrize(
    "recursive",
    [
        "p(x, x) :- p(x, z), p(z, x).",  # a repeated variable in the head
        "p(x, y) :- p(x, x), p(x, y).",  # the middle is an end
        "p(x, y) :- p(x, y), p(y, y).",
        "p(x, y) :- p(z, x), p(z, y).",  # swapped columns
        "p(x, y) :- p(x, z), p(y, z).",
        "p(y, x) :- p(x, z), p(z, y).",  # backwards
        'p(x, y) :- p(x, "a"), p("a", y).',  # a constant for the middle
        'p("a", y) :- p("a", z), p(z, y).',
        "p(x, y) :- p(x, z), p(z, y), n(z).",  # more than the two
        "p(x, y) :- p(x, z), p(z, y), x != y.",
        "p(x, y) :- p(x, z), p(z, y), !f(x, y).",
        "p(x, y) :- p(x, z), p(z, u), p(u, y).",
        "p(x, y) :- p(x, _), p(_, y).",  # nothing joined
        "p(x, y) :- p(x, z), e(z, y), n(x).",  # the step reads the end that it should leave alone
        "p(x, y) :- e(x, z), p(z, y), n(y).",
        "p(x, y) :- p(x, z), e(y, z).",  # a step backwards
        "p(x, y) :- p(x, z), f(z, y).",  # another relation than that of the exit rule
        "p(x, y) :- f(x, z), p(z, y).",
        "p(x, y) :- p(x, z), e(z, y). p(x, y) :- p(x, z), f(z, y).",  # a step that is no exit
        "p(x, y) :- p(x, z), e(z, y). p(x, y) :- e(x, z), p(z, y).",  # both forms at once
        "p(x, y) :- p(x, z), p(z, y). p(x, y) :- p(x, z), e(z, y).",
        "p(x, y) :- p(y, x).",  # symmetry is no transitivity
        "p(x, y) :- p(x, z), q(z, y). q(x, y) :- p(x, y).",  # two views through each other
    ],
)
def test_near_misses_are_left_as_they_are(recursive: str) -> None:
    assert recognised("p(x, y) :- e(x, y). " + recursive) is None


def test_steps_that_are_linear_must_all_be_repeated() -> None:
    assert recognised("p(x, y) :- e(x, y). p(x, y) :- f(x, y). p(x, y) :- p(x, z), e(z, y).") is None
    assert recognised("p(x, y) :- w(x, y, c), n(c). p(x, y) :- p(x, z), w(z, y, c), n(z).") is None


def test_other_arities() -> None:
    assert recognised("t(x, y, z) :- w(x, y, z). t(x, y, z) :- t(x, y, u), t(u, y, z).", "t") is None
    exits = "p4(a, b, c, d) :- e4(a, b, c, d). "
    assert recognised(exits + "p4(a, b, c, d) :- p4(a, b, u, v), p4(v, u, c, d).", "p4") is None
    assert recognised(exits + "p4(a, b, c, d) :- p4(a, b, u, u), p4(u, u, c, d).", "p4") is None
    assert recognised(exits + "p4(a, b, c, d) :- p4(a, u, c, v), p4(u, b, v, d).", "p4") is None


def test_what_is_not_recursive_or_has_no_exit_is_none() -> None:
    assert recognised("p(x, y) :- e(x, y).") is None
    assert recognised("p(x, y) :- p(x, z), p(z, y).") is None


def test_an_aggregate_is_none() -> None:
    assert recognised(".decl c(x: symbol, n: number) c(x, k) :- n(x), k = count : { e(x, _) }.", "c") is None
