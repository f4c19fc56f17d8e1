"""Partial evaluation: where constants go, where they stop, and what is no longer looked at."""

from __future__ import annotations

import pytest

import rederive
from rederive.ir.printing import show_definition
from rederive.ir.terms import Row
from rederive.lang import compile_program
from rederive.maintain.passes.linearize import linearize
from rederive.maintain.passes.push_constants import push_constants
from tests.oracle import evaluate

DECLARED = """
.decl edge(x: symbol, y: symbol) .decl n(x: symbol)
.decl path(x: symbol, y: symbol) .decl v(y: symbol)
path(x, y) :- edge(x, y).
"""
RIGHT, LEFT, TWICE = (
    f"path(x, y) :- {step}." for step in ("edge(x, z), path(z, y)", "path(x, z), edge(z, y)", "path(x, z), path(z, y)")
)


def pushed(rules: str, target: str = "v") -> list[str]:
    """The definitions that the target still needs, as text."""
    program = push_constants(linearize(compile_program(DECLARED + rules)), [target])
    shown, waiting = [], [target]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        if name not in seen:
            seen.add(name)
            for definition in program.definitions_of(name):
                shown.append(show_definition(definition, program))
                waiting += [atom.relation for atom in getattr(definition, "body", ()) if hasattr(atom, "relation")]
                waiting += [literal.atom.relation for literal in getattr(definition, "body", ()) if hasattr(literal, "atom")]
    return shown


@pytest.mark.parametrize("recursive", [RIGHT, LEFT, TWICE], ids=["right", "left", "twice"])
def test_the_first_end_of_a_closure_is_carried_along_however_it_is_written(recursive: str) -> None:
    assert pushed(recursive + 'v(y) :- path("a", y).') == [
        'v(y) :- path.at("a", _)("a", y).',
        'path.at("a", _)("a", y) :- edge("a", y).',
        'path.at("a", _)("a", y) :- path.at("a", _)("a", z), edge(z, y).',
    ]


@pytest.mark.parametrize("recursive", [RIGHT, LEFT, TWICE], ids=["right", "left", "twice"])
def test_so_is_the_last(recursive: str) -> None:
    assert pushed(recursive + 'v(x) :- path(x, "a").') == [
        'v(x) :- path.at(_, "a")(x, "a").',
        'path.at(_, "a")(x, "a") :- edge(x, "a").',
        'path.at(_, "a")(x, "a") :- edge(x, z), path.at(_, "a")(z, "a").',
    ]


def test_both_ends_need_the_walk_from_the_first() -> None:
    rules = pushed(RIGHT + 'v(x) :- n(x), path("a", "b").')
    assert 'path.at("a", "b")("a", "b") :- path.at("a", _)("a", z), edge(z, "b").' in rules
    assert not [rule for rule in rules if rule.startswith("path(")]


def test_a_recursion_that_does_not_carry_the_constant_is_left_alone() -> None:
    kept = "path(x, y) :- edge(x, z), path(z, y), x != y."
    assert pushed(kept + 'v(y) :- path("a", y).') == ['v(y) :- path("a", y).', "path(x, y) :- edge(x, y).", kept]


def test_a_view_that_is_needed_as_a_whole_has_no_versions() -> None:
    rules = pushed(LEFT + 'v(y) :- path("a", y), path(y, z), n(z).')
    assert not [rule for rule in rules if ".at(" in rule]


def test_the_head_rules_constants_out() -> None:
    rules = '.decl q(x: symbol, y: symbol) q("a", y) :- n(y). q("b", y) :- edge(y, y). q(x, x) :- n(x).\n'
    assert pushed(rules + 'v(y) :- q("b", y).') == [
        'v(y) :- q.at("b", _)("b", y).',
        'q.at("b", _)("b", y) :- edge(y, y).',
        'q.at("b", _)("b", "b") :- n("b").',
    ]


def test_constants_pass_through_negation_but_not_into_aggregates() -> None:
    rules = ".decl q(x: symbol) q(x) :- n(x). .decl c(x: symbol, k: number) c(x, k) :- n(x), k = count : { edge(x, _) }.\n"
    assert 'v(y) :- n(y), !q.at("a")("a").' in pushed(rules + 'v(y) :- n(y), !q("a").')
    shown = pushed(rules + '.decl u(k: number) u(k) :- c("a", k).', "u")
    assert any('c.count1("a", ' in rule for rule in shown)
    assert not [rule for rule in shown if "c.count1.at(" in rule]


def test_constants_in_comparisons_are_substituted() -> None:
    rules = ".decl q(x: symbol, y: symbol) q(x, y) :- edge(x, y), cat(x, y) != x.\n"
    assert pushed(rules + 'v(y) :- q("a", y).')[1] == 'q.at("a", _)("a", y) :- edge("a", y), cat("a", y) != "a".'


@pytest.mark.parametrize("recursive", [RIGHT, LEFT, TWICE], ids=["right", "left", "twice"])
@pytest.mark.parametrize("asked", ['path("a", y)', 'path(y, "a")', 'path("a", "b"), n(y)'])
def test_the_versions_mean_the_same(recursive: str, asked: str) -> None:
    program = compile_program(f"{DECLARED}{recursive} v(y) :- {asked}.")
    rewritten = push_constants(linearize(program), ["v"])
    edges: set[Row] = {("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("x", "a")}
    for gone in edges:
        base: dict[str, set[Row]] = {"edge": edges - {gone}, "n": {("k",)}}
        assert evaluate(rewritten, base)["v"] == evaluate(program, base)["v"]


@pytest.mark.parametrize("strategy", ["on_demand", "filtration", "materialized"])
@pytest.mark.parametrize("recursive", [RIGHT, LEFT, TWICE], ids=["right", "left", "twice"])
def test_a_change_that_the_constant_does_not_reach_is_not_followed(strategy: str, recursive: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(DECLARED + recursive + 'v(y) :- path("a", y). .output v')
    db.load("edge", [("a", "b"), *((f"far{i}", f"far{i + 1}") for i in range(200))])
    with db.transaction() as tx:
        tx.delete("edge", [("far100", "far101")])
    assert not tx.result.changes
    assert tx.result.touched < 5  # of 10,000 pairs that this edge was on the way of
