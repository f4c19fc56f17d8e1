"""Partial evaluation (HD94, section 4): constants pushed down to base relations, and transactions that cannot matter."""

from __future__ import annotations

from typing import Any

import pytest

import rederive
from rederive.analysis.relevance import base_patterns
from rederive.delta import Delta, Pattern
from rederive.lang import compile_program

DECLARATIONS = """
.decl e(x: symbol, y: symbol) .decl f(x: symbol, y: symbol) .decl n(x: symbol, k: number)
.decl v(x: symbol, y: symbol) .decl w(x: symbol, y: symbol) .decl t(x: symbol, k: number) .decl z(y: symbol)
"""


def patterns(rules: str, view: str, bindings: Pattern = ()) -> dict[str, set[Pattern]]:
    found = base_patterns(compile_program(DECLARATIONS + rules), view, bindings)
    return {name: set(those) for name, those in found.items()}


A0, B1 = (0, "a"), (1, "b")


def test_constants_of_a_rule() -> None:
    assert patterns('v(x, y) :- e("a", x), e(x, y), f(y, "b").', "v") == {"e": {(A0,), ()}, "f": {(B1,)}}


def test_constants_of_a_rule_above() -> None:
    assert patterns('v(x, y) :- e(x, y), f(y, x). z(y) :- v("a", y).', "z") == {"e": {(A0,)}, "f": {((1, "a"),)}}


def test_bindings_of_a_question() -> None:
    assert patterns("v(x, y) :- e(x, y), f(y, x).", "v", (A0, B1)) == {"e": {(A0, B1)}, "f": {((0, "b"), (1, "a"))}}


def test_a_head_that_cannot_match_reads_nothing() -> None:
    assert patterns('v("c", y) :- e("c", y). v(x, x) :- f(x, x).', "v", (A0,)) == {"f": {((0, "a"), (1, "a"))}}
    assert patterns("v(x, x) :- f(x, x).", "v", (A0, B1)) == {}


def test_through_a_recursion_that_keeps_the_binding() -> None:
    """Left-linear: the first column stays the same all the way down, so base rows of the first rule must start with it."""
    rules = "v(x, y) :- e(x, y). v(x, y) :- v(x, z), f(z, y)."
    assert patterns(rules, "v", (A0,)) == {"e": {(A0,)}, "f": {()}}


def test_through_a_recursion_that_loses_it() -> None:
    assert patterns("v(x, y) :- e(x, y). v(x, y) :- f(x, z), v(z, y).", "v", (A0,)) == {"e": {(A0,), ()}, "f": {(A0,), ()}}


def test_negation_is_read_too() -> None:
    assert patterns('v(x, y) :- e(x, y), !f(x, "b").', "v", (A0,)) == {"e": {(A0,)}, "f": {(A0, B1)}}


def test_an_aggregate_passes_its_group_on_and_not_its_result() -> None:
    rules = "t(x, k) :- e(x, _), k = sum m : { n(x, m) }."
    assert patterns(rules, "t", (A0,)) == {"e": {(A0,)}, "n": {(A0,)}}
    assert patterns(rules, "t", (A0, (1, 7))) == {"e": {(A0,)}, "n": {(A0,)}}
    assert patterns(rules, "t", ((1, 7),)) == {"e": {()}, "n": {()}}


def test_a_base_relation_is_its_own_pattern() -> None:
    assert patterns("v(x, y) :- e(x, y).", "e", (A0,)) == {"e": {(A0,)}}


def test_rows_fit_patterns() -> None:
    wanted = {"e": frozenset({(A0,), (B1, (2, 3))}), "f": frozenset[Any]({()})}
    assert Delta([("z", "z", 0)], [("a", "z", 0)]).fits_any(wanted["e"])
    assert Delta([("z", "b", 3)]).fits_any(wanted["e"])
    assert not Delta([("z", "b", 2), ("b", "a", 3)]).fits_any(wanted["e"])
    assert not Delta().fits_any(wanted.get("f", ()))
    assert Delta([("z",)]).fits_any(wanted["f"])
    assert not Delta([("z",)]).fits_any(wanted.get("g", ()))


# Transactions

CONSTANTS = """
.decl e(x: symbol, y: symbol) .decl path(x: symbol, y: symbol) .decl from_a(y: symbol) .decl blocked(x: symbol)
.decl allowed(y: symbol)
path(x, y) :- e(x, y). path(x, y) :- path(x, z), e(z, y).
from_a(y) :- e("a", y).
allowed(y) :- from_a(y), !blocked("a").
.output allowed
"""


@pytest.mark.parametrize("strategy", ["on_demand", "filtration"])
def test_a_transaction_that_cannot_matter_to_constants(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(CONSTANTS)
    db.load("e", [("a", "b"), ("b", "c")])
    with db.transaction() as tx:
        tx.insert("e", [("b", "d"), ("c", "a")])
        tx.delete("e", [("b", "c")])
        tx.insert("blocked", [("b",)])
    assert (tx.result.version, tx.result.touched, tx.result.derived, tx.result.changes) == (2, 0, {}, {})
    with db.transaction() as tx:
        tx.insert("e", [("a", "z"), ("b", "y")])
    assert tx.result.changes["allowed"].plus == [("z",)]
    with db.transaction() as tx:
        tx.insert("blocked", [("a",)])
    assert tx.result.changes["allowed"].minus == [("b",), ("z",)]


@pytest.mark.parametrize("strategy", ["on_demand", "filtration"])
def test_a_transaction_that_cannot_matter_to_a_bound_subscription(strategy: str) -> None:
    """closure("a", y) by hops: the binding goes down to e where the analysis allows it, and no rule is evaluated."""
    db = rederive.open(strategy=strategy)
    db.define(
        ".decl e(x: symbol, y: symbol) .decl two(x: symbol, y: symbol) .decl other(x: symbol) .decl o(x: symbol)\n"
        "two(x, y) :- e(x, z), e(x, y), z != y. other(x) :- o(x). .output other"
    )
    db.load("e", [("a", "b"), ("c", "d")])
    seen: list[Any] = []
    db.subscribe("two", lambda c: seen.append((c.version, c.plus, c.minus)), x="a")
    with db.transaction() as tx:
        tx.insert("e", [("c", "e"), ("b", "a")])
        tx.delete("e", [("c", "d")])
    assert (tx.result.touched, tx.result.derived, seen) == (0, {}, [])
    with db.transaction() as tx:
        tx.insert("e", [("a", "c"), ("c", "g")])
    assert seen == [(3, [("a", "b"), ("a", "c")], [])]
    assert tx.result.touched > 0
