"""Explain is what runs: the printed maintenance program, run without an engine, finds the changes that the engine finds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

import rederive
from rederive.ir.printing import show_rule
from rederive.lang import compile_program
from rederive.maintain.explain import explain
from rederive.maintain.plan import plan
from rederive.maintain.program import MaintenanceProgram
from tests.explained import Deltas, ExplainedProgram, Rows
from tests.properties.programs import Sample, Signature, scenarios
from tests.properties.test_maintained_equals_recomputed import Scenario, apply, changed, examples, loading


def run_both(strategy: str, scenario: Scenario) -> None:
    """The same transactions on a database and on the printed program."""
    sample, start, transactions = scenario
    db = rederive.open(strategy=strategy)
    db.define(sample.text)
    program = compile_program(sample.text)
    printed = ExplainedProgram(plan(program, program.monitored, strategy), {})
    base: Rows = {name: set() for name in program.bases}
    for change in [loading(start), *transactions]:
        with db.transaction() as tx:
            apply(tx, change)
        after = changed(base, change)
        deltas: Deltas = {name: (after[name] - base[name], base[name] - after[name]) for name in base}
        found = printed.propagate(deltas)
        expected = {name: (set(c.plus), set(c.minus)) for name, c in tx.result.changes.items()}
        assert {name: found[name] for name in program.monitored if any(found[name])} == expected
        printed.commit()
        base = after


@pytest.mark.parametrize("strategy", ["auto", "materialized", "on_demand", "filtration", "recompute"])
@examples(25)
@given(scenario=scenarios())
def test_the_printed_program_finds_what_the_engine_finds(strategy: str, scenario: Scenario) -> None:
    run_both(strategy, scenario)


def test_a_recursion_that_is_looked_up_in_the_new_state() -> None:
    """Found by the property: the interpreter read the rows of a component in the new state as those of another relation."""
    rules = ("v(x, x) :- b(x).", "v(x, y) :- v(x, x), b(z), y = x + 1, y < 5.")
    views = (Signature("v", ("number", "number")),)
    sample = Sample((Signature("b", ("number",)),), views, rules, ())
    run_both("filtration", (sample, {"b": [(0,), (1,), (2,)]}, [[("delete", "b", [(0,)])]]))


@pytest.mark.parametrize("strategy", ["counting", "differencing"])
@examples(25)
@given(scenario=scenarios(recursive=False))
def test_so_does_that_of_a_strategy_without_recursion(strategy: str, scenario: Scenario) -> None:
    run_both(strategy, scenario)


@pytest.mark.parametrize("strategy", ["auto", "counting", "on_demand", "filtration"])
@examples(5)
@given(scenario=scenarios(recursive=False))
def test_every_rule_that_runs_is_printed(strategy: str, scenario: Scenario) -> None:
    sample, _, _ = scenario
    program = compile_program(sample.text)
    maintenance = plan(program, program.monitored, strategy)
    data = json.loads(explain(maintenance, "json"))
    parts = [phase for s in data["sections"] for kind in ("initial", "phases", "from_scratch") for phase in s[kind]]
    printed = [rule["rule"] for part in parts for rule in (*part["rules"], *part.get("strict", ()))]
    assert set(rules_that_run(maintenance)) <= set(printed)


def rules_that_run(maintenance: MaintenanceProgram) -> list[str]:
    phases = [p for s in maintenance.sections for p in (*s.initial, *s.phases, *s.from_scratch)]
    return [show_rule(m.whole) for phase in phases for m in (*phase.rules, *phase.strict)]
