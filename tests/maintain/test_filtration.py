"""HD94's Propositions 1 to 3, on random programs: every update is filtered once, and only actual updates are propagated."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given

import rederive
from rederive.delta import Sign
from rederive.engines.protocol import FilterStep
from rederive.ir.printing import show_rule
from rederive.ir.rules import Atom, Negation, Program, Rule
from tests.oracle import Rows, evaluate, initial
from tests.properties.programs import scenarios
from tests.properties.test_maintained_equals_recomputed import Scenario, apply, changed, examples, loading


@examples(60)
@given(scenario=scenarios())
def test_every_update_is_filtered_once(scenario: Scenario) -> None:
    sample, start, transactions = scenario
    db = rederive.open(strategy="filtration")
    db.define(sample.text)
    program = db.pipeline.state.engine.installed.program  # type: ignore[attr-defined]  # with the versions of views that constants make
    calls: list[FilterStep] = []
    db.pipeline.state.trace(calls.append)
    base = initial(program)
    rows = evaluate(program, base)
    for change in [loading(start), *transactions]:
        base = changed(base, change)
        before, rows = rows, evaluate(program, base)
        calls.clear()
        with db.transaction() as tx:
            apply(tx, change)
        check(program, calls, before, rows)


def check(program: Program, calls: list[FilterStep], old: Rows, new: Rows) -> None:
    filtered: Counter[Any] = Counter()
    actual: dict[Any, set[Any]] = {}
    for call in calls:
        assert call.approximation
        assert set(call.updates) <= old[call.updated] ^ new[call.updated]  # no disqualified update is propagated
        sign = sign_of(program, call, old, new)
        if sign is None:
            continue
        approximation, disqualified, found = map(set, (call.approximation, call.disqualified, call.actual))
        state, other = (old, new) if sign is Sign.MINUS else (new, old)
        assert approximation <= state[call.view]  # propagated in one state
        assert disqualified <= approximation & other[call.view]  # Proposition 2: provable in the other
        assert found <= approximation - other[call.view]
        assert not found & disqualified
        filtered.update((call.view, sign, row) for row in disqualified | found)
        actual.setdefault((call.view, sign), set()).update(found)
    assert not [update for update, times in filtered.items() if times > 1]  # Propositions 1 and 3
    for view, sign in actual:
        exact = new[view] - old[view] if sign is Sign.PLUS else old[view] - new[view]
        assert actual[view, sign] == exact, (view, sign)


def sign_of(program: Program, call: FilterStep, old: Rows, new: Rows) -> Sign | None:
    """What a call propagates to its view: the sign of its updates, turned by a negation."""
    came = set(call.updates) <= new[call.updated] - old[call.updated]
    rule = next(d for d in program.definitions if isinstance(d, Rule) and show_rule(d) == call.rule)
    kinds = {type(literal) for literal in rule.body if relation(literal) == call.updated}
    if len(kinds) > 1:  # read both ways: what was found tells, if anything
        return (Sign.PLUS if set(call.actual) <= new[call.view] else Sign.MINUS) if call.actual else None
    return Sign.PLUS if came == (kinds == {Atom}) else Sign.MINUS


def relation(literal: object) -> str | None:
    match literal:
        case Atom():
            return literal.relation
        case Negation(atom):
            return atom.relation
        case _:
            return None


def test_an_update_that_two_paths_suggest_is_filtered_once() -> None:
    """b is suggested by both edges, and disqualified by the one that stays."""
    db = rederive.open(strategy="filtration")
    db.define(".decl e(x: symbol, y: symbol) .decl f(x: symbol, y: symbol) .decl v(y: symbol) v(y) :- e(_, y). v(y) :- f(_, y).")
    db.load("e", [("1", "b"), ("2", "b"), ("3", "b")])
    db.load("f", [("1", "b"), ("2", "c")])
    calls: list[FilterStep] = []
    db.pipeline.state.trace(calls.append)
    with db.transaction() as tx:
        tx.delete("e", [("1", "b"), ("2", "b")])
        tx.delete("f", [("1", "b"), ("2", "c")])
    assert [(c.updated, c.approximation, c.disqualified, c.actual) for c in calls] == [
        ("e", (("b",),), (("b",),), ()),
        ("f", (("b",), ("c",)), (), (("c",),)),
    ]
    assert tx.result.changes["v"].minus == [("c",)]


WALKED = {
    "all starts": "p(x, y) :- e(x, y).  p(x, y) :- p(x, z), e(z, y).",
    "one start": "p(0, y) :- e(0, y).  p(0, y) :- p(0, z), e(z, y).",
    "steps of another relation": "p(x, y) :- f(x, y).  p(x, y) :- p(x, z), e(z, y).",
    "steps that are derived": "p(x, y) :- f(x, y).  p(x, y) :- p(x, z), q(z, y).  q(x, y) :- e(y, x).",
}


@pytest.mark.parametrize("rules", WALKED.values(), ids=list(WALKED))
@pytest.mark.parametrize("size", [5, 40], ids=["cycles", "fans"])
def test_updates_are_the_same_whether_calls_are_made_or_places_are_walked(rules: str, size: int) -> None:
    random = Random(size)
    text = " ".join(f".decl {name}(x: number, y: number)" for name in "efqp") + f" {rules}"
    walked, called, recomputed = (rederive.open(strategy=s) for s in ("filtration", "filtration", "recompute"))
    calls: list[FilterStep] = []
    for db in (walked, called, recomputed):
        db.define(text)
    called.pipeline.state.trace(calls.append)
    # Few starts for many ends: some places have more steps than are tested one by one.
    for _ in range(40):
        results = []
        change = [
            (name, sign, {(random.randrange(5), random.randrange(size)) for _ in range(3)}) for name in "ef" for sign in (0, 1)
        ]
        for db in (walked, called, recomputed):
            with db.transaction() as tx:
                for name, sign, rows in change:
                    (tx.delete if sign else tx.insert)(name, rows)
            delta = tx.result.changes.get("p")
            results.append((sorted(delta.plus), sorted(delta.minus)) if delta is not None else ([], []))
        assert results[0] == results[1] == results[2]
    assert calls


def test_figure_2_with_a_chain_touches_a_third_of_what_dred_touches() -> None:
    """Nothing that a still reaches is considered: the cost is that of the rows that b loses."""
    touched = {}
    for strategy in ("filtration", "materialized"):
        db = rederive.open(strategy=strategy)
        rules = "tc(x, y) :- edge(x, y).  tc(x, y) :- tc(x, w), edge(w, y)."
        db.define(f".decl edge(x: symbol, y: symbol) .decl tc(x: symbol, y: symbol) {rules}")
        chain = ["d", *(f"e{i}" for i in range(300))]
        db.load("edge", [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), *pairwise(chain)])
        with db.transaction() as tx:
            tx.delete("edge", [("b", "d")])
        assert sorted(tx.result.changes["tc"].minus) == sorted(("b", end) for end in chain)
        touched[strategy] = tx.result.touched
    assert touched["filtration"] < 310 < 900 < touched["materialized"]
