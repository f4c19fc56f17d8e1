"""Views that only one rule reads: what is put into that rule, and what is left as a view."""

from __future__ import annotations

import pytest

import rederive
from rederive.ir.printing import show_definition
from rederive.lang import compile_program
from rederive.maintain.passes.unfold import unfold

DECLARED = """
.decl e(x: symbol, y: symbol) .decl n(x: symbol) .decl p(x: symbol, y: symbol) .decl q(x: symbol) .decl r(x: symbol)
"""


def read(rules: str, *targets: str) -> list[str]:
    """The targets' own rules, with what was put into them."""
    program = unfold(compile_program(DECLARED + rules), targets)
    return [show_definition(d, program) for target in targets for d in program.definitions_of(target)]


def test_each_rule_of_the_view_makes_one_of_the_reader() -> None:
    rules = "p(x, y) :- e(x, y). p(x, y) :- e(y, x), !n(x). q(x) :- p(x, y), n(y)."
    assert read(rules, "q") == ["q(x) :- e(x, y), n(y).", "q(x) :- e(y, x), !n(x), n(y)."]


def test_names_and_constants() -> None:
    assert read('p(a, b) :- e(a, x), e(x, b). q(x) :- p(x, "b"), n(x).', "q") == ['q(x) :- e(x, x_), e(x_, "b"), n(x).']
    assert read("p(a, b) :- e(a, _), e(_, b). q(x) :- p(x, x), e(_, x).", "q") == ["q(x) :- e(x, _), e(_, x), e(_, x)."]
    assert read("p(x, y) :- e(x, y). q(y) :- p(y, x), n(x).", "q") == ["q(y) :- e(y, x), n(x)."]


def test_views_on_views() -> None:
    assert read("p(x, y) :- e(y, x). r(x) :- p(x, y), n(y). q(x) :- r(x), n(x).", "q") == ["q(x) :- e(y, x), n(y), n(x)."]


@pytest.mark.parametrize(
    "rules",
    [
        "p(x, y) :- e(x, y). p(x, y) :- e(x, z), p(z, y). q(x) :- p(x, x).",  # recursive
        "p(x, y) :- e(x, y). q(x) :- n(x), !p(x, x).",  # negated
        "p(x, y) :- e(x, y). q(x) :- p(x, y), p(y, x).",  # read twice
        "p(x, y) :- e(x, y). q(x) :- p(x, _). q(x) :- p(_, x).",
        "p(x, y) :- e(x, y). q(x) :- p(x, y), !p(y, x).",
        'p("a", y) :- e(y, y). q(x) :- p(x, x).',  # a head that tests
        "p(x, x) :- n(x). q(x) :- p(x, x).",
    ],
)
def test_what_stays_a_view(rules: str) -> None:
    program = compile_program(DECLARED + rules)
    assert unfold(program, ["q"]) == program


def test_a_target_stays_a_view() -> None:
    assert read("p(x, y) :- e(x, y). q(x) :- p(x, x).", "q", "p") == ["q(x) :- p(x, x).", "p(x, y) :- e(x, y)."]


def test_a_view_that_was_put_into_another_still_has_its_rows() -> None:
    db = rederive.open(strategy="on_demand")
    db.define(DECLARED + "p(x, y) :- e(y, x). q(x) :- p(x, y), n(y). .output q")
    db.load("n", [("a",)])
    with db.transaction() as tx:
        tx.insert("e", [("a", "b"), ("c", "d")])
    assert tx.result.changes["q"].plus == [("b",)]
    assert db.rows("p") == [("b", "a"), ("d", "c")]


def test_a_test_above_keeps_a_change_from_being_followed() -> None:
    """By way of `used`, every module that reaches the changed one would be asked for."""
    db = rederive.open(strategy="on_demand")
    db.define(
        ".decl e(x: symbol, y: symbol) .decl has(x: symbol, p: symbol) .decl named(p: symbol, s: symbol)\n"
        ".decl c(x: symbol, y: symbol) c(x, y) :- e(x, y). c(x, y) :- c(x, z), c(z, y).\n"
        ".decl used(x: symbol, p: symbol) used(x, p) :- c(x, y), has(y, p).\n"
        '.decl v(x: symbol, p: symbol) v(x, p) :- used(x, p), named(p, "sort"). .output v'
    )
    db.load("e", [(f"m{i}", f"m{i + 1}") for i in range(300)])
    db.load("named", [("p", "sort"), ("q", "find")])
    with db.transaction() as tx:
        tx.insert("has", [("m300", "q")])
    assert tx.result.touched == 0
    with db.transaction() as tx:
        tx.insert("has", [("m300", "p")])
    assert len(tx.result.changes["v"].plus) == 300
