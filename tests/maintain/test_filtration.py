"""HD94's Propositions 1 to 3, on random programs: every update is filtered once, and only actual updates are propagated."""

from __future__ import annotations

from collections import Counter
from typing import Any

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
