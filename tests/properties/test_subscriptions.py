"""Subscriptions to one sign, and to a part of a view: notifications are that part of the oracle's change, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.lang import compile_program
from tests.oracle import evaluate, initial
from tests.properties.programs import Change, scenarios
from tests.properties.test_maintained_equals_recomputed import (
    GENERAL,
    PLAIN,
    STRATEGIES,
    Scenario,
    apply,
    changed,
    examples,
    loading,
)
from tests.properties.test_questions import bindings

SIGNS = (None, "plus", "minus")


def expected(old: set[Any], new: set[Any], only: str | None, bound: dict[int, Any]) -> tuple[list[Any], list[Any]]:
    def part(rows: set[Any], sign: str) -> list[Any]:
        fits = (row for row in rows if all(row[i] == value for i, value in bound.items()))
        return sorted(fits) if only in (None, sign) else []

    return part(new - old, "plus"), part(old - new, "minus")


def only_one_sign(strategy: str, scenario: Scenario, only: str) -> None:
    sample, start, transactions = scenario
    program = compile_program(sample.text)
    db = rederive.open(strategy=strategy, only=only)
    db.define(sample.text)
    base = initial(program)
    rows = evaluate(program, base)
    for change in [loading(start), *transactions]:
        base = changed(base, change)
        before, rows = rows, evaluate(program, base)
        with db.transaction() as tx:
            apply(tx, change)
        for view in program.monitored:
            received = tx.result.changes.get(view)
            found = (received.plus, received.minus) if received else ([], [])
            assert found == expected(before[view], rows[view], only, {}), view
            assert db.rows(view) == sorted(rows[view])


@examples(60)
@given(scenario=scenarios(), only=st.sampled_from(SIGNS[1:]))
def test_filtration_of_one_sign(scenario: Scenario, only: str) -> None:
    only_one_sign("filtration", scenario, only)


@pytest.mark.parametrize("strategy", [s for s in GENERAL if s != "filtration"])
@examples(10)
@given(scenario=scenarios(), only=st.sampled_from(SIGNS[1:]))
def test_one_sign(strategy: str, scenario: Scenario, only: str) -> None:
    only_one_sign(strategy, scenario, only)


@pytest.mark.parametrize("strategy", PLAIN)
@examples(20)
@given(scenario=scenarios(recursive=False), only=st.sampled_from(SIGNS[1:]))
def test_one_sign_without_recursion(strategy: str, scenario: Scenario, only: str) -> None:
    only_one_sign(strategy, scenario, only)


def follow(strategy: str, scenario: Scenario, data: st.DataObject) -> None:
    """A few subscriptions at random times, each with a view, bindings and signs of its own; some are cancelled."""
    sample, start, transactions = scenario
    program = compile_program(sample.text)
    db = rederive.open(strategy=strategy)
    db.define(sample.text)
    base = initial(program)
    rows = evaluate(program, base)
    subscriptions: list[tuple[Any, ...]] = []
    changes: list[list[Change]] = [loading(start), *transactions]
    for change in changes:
        for view in data.draw(st.lists(st.sampled_from(sample.views), max_size=2)):
            bound, only = data.draw(bindings(view)), data.draw(st.sampled_from(SIGNS))
            received: list[Any] = []
            named: dict[str, Any] = {f"c{i}": value for i, value in bound.items()}
            handle = db.subscribe(view.name, lambda c, t=received: t.append((c.plus, c.minus)), only=only, **named)  # type: ignore[misc]
            subscriptions.append((view.name, bound, only, received, handle))
        if subscriptions and data.draw(st.integers(0, 4)) == 0:
            subscriptions.pop(data.draw(st.integers(0, len(subscriptions) - 1)))[-1].cancel()
        base = changed(base, change)
        before, rows = rows, evaluate(program, base)
        with db.transaction() as tx:
            apply(tx, change)
        for view_name, bound, only, received, _ in subscriptions:
            wanted = expected(before[view_name], rows[view_name], only, bound)
            assert received == ([wanted] if any(wanted) else []), (view_name, bound, only)
            received.clear()
        for name in program.monitored:
            whole = tx.result.changes.get(name)
            assert ((whole.plus, whole.minus) if whole else ([], [])) == expected(before[name], rows[name], None, {})


@pytest.mark.parametrize("strategy", GENERAL)
@examples(30)
@given(scenario=scenarios(), data=st.data())
def test_parts_of_views(strategy: str, scenario: Scenario, data: st.DataObject) -> None:
    follow(strategy, scenario, data)


@pytest.mark.parametrize("strategy", PLAIN)
@examples(30)
@given(scenario=scenarios(recursive=False), data=st.data())
def test_parts_of_views_without_recursion(strategy: str, scenario: Scenario, data: st.DataObject) -> None:
    follow(strategy, scenario, data)


BELOW = ".decl e(x: symbol, y: symbol) .decl v(x: symbol, y: symbol) .decl w(y: symbol)\n"
BELOW += 'v(x, y) :- e(x, y). w(y) :- v("a", y). .output w'


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_part_that_no_output_reads(strategy: str) -> None:
    """The transaction cannot matter to w; to the part of v that is followed it does."""
    db = rederive.open(strategy=strategy)
    db.define(BELOW)
    received: list[Any] = []
    db.subscribe("v", lambda c: received.append((c.plus, c.minus)), x="b")
    with db.transaction() as tx:
        tx.insert("e", [("b", "c")])
    assert received == [([("b", "c")], [])]
    with db.transaction() as tx:
        tx.delete("e", [("b", "c")])
        tx.insert("e", [("a", "z")])
    assert received[1:] == [([], [("b", "c")])]
    assert tx.result.changes["w"].plus == [("z",)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_followed_part_changes_with_its_definition(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define('.decl e(x: symbol) .decl v(x: symbol) .decl w(x: symbol) v(x) :- e(x), x != "a". w(x) :- e(x). .output w')
    db.load("e", [("a",), ("b",)])
    received: list[Any] = []
    db.subscribe("v", lambda c: received.append((c.version, c.plus, c.minus)), x="a")
    db.definitions.add_rule("v(x) :- e(x).")
    db.definitions.remove_rule("v(x) :- e(x).")
    assert received == [(2, [("a",)], []), (3, [], [("a",)])]
