"""Random programs, rules and transactions against the plain simulation: who fires, for what, in which order, and what is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.errors import CascadeLimit
from rederive.lang import compile_program
from tests.oracle import evaluate, initial
from tests.properties.programs import DOMAIN, Sample, Signature, constant, scenarios
from tests.properties.test_maintained_equals_recomputed import Scenario, apply, changed, examples, loading
from tests.rules.simulation import Endless, Fired, Plan, Simulation

LIMIT = 12


@st.composite
def writes(draw: st.DrawFn, view: Signature, sample: Sample) -> tuple[str, str, tuple[tuple[str, object], ...]]:
    """An insert or delete of rows made from the columns of the view, and constants where no column fits."""
    base = draw(st.sampled_from(sample.bases))
    columns = []
    for kind in base.types:
        fitting = [("column", i) for i, other in enumerate(view.types) if other == kind]
        constants = [("constant", value) for value in DOMAIN[kind][:2]]
        columns.append(draw(st.sampled_from(fitting or constants)))
    return draw(st.sampled_from(["insert", "insert", "delete"])), base.name, tuple(columns)


@st.composite
def plans(draw: st.DrawFn, sample: Sample, number: int) -> Plan:
    view = draw(st.sampled_from(sample.views))
    write = draw(st.one_of(st.none(), writes(view, sample))) if view.types else None
    signs = draw(st.sampled_from(["plus", "plus", "minus"] if write else ["plus", "plus", "minus", "both"]))
    return Plan(f"r{number}", view.name, signs, draw(st.booleans()), draw(st.integers(-1, 1)), write)


@st.composite
def rule_sets(draw: st.DrawFn, sample: Sample) -> list[Plan]:
    return [draw(plans(sample, number)) for number in range(draw(st.integers(1, 3)))]


def action(plan: Plan, sample: Sample) -> str:
    if plan.write is None:
        return f"CALL {plan.name}"
    kind, relation, columns = plan.write
    types = next(base.types for base in sample.bases if base.name == relation)
    values = [f"c{value}" if how == "column" else constant(value) for how, value in columns]
    if kind == "insert":
        return f"INSERT INTO {relation} SELECT {', '.join(values)} FROM firing"
    tests = [f"t.c{i} = {f'firing.{v}' if v.startswith('c') else v}" for i, v in enumerate(values)]
    assert len(tests) == len(types)
    return f"DELETE FROM {relation} AS t WHERE EXISTS (SELECT 1 FROM firing WHERE {' AND '.join(tests)})"


def installed(db: rederive.Database, sample: Sample, rules: list[Plan], calls: list[Fired]) -> None:
    for plan in rules:

        def called(*rows: list[tuple[object, ...]], plan: Plan = plan) -> None:
            plus, minus = rows if len(rows) == 2 else (rows[0], []) if plan.signs == "plus" else ([], rows[0])
            calls.append((plan.name, plus, minus))

        db.rules.register(called, plan.name)
        mode = "IMMEDIATE" if plan.immediate else "DEFERRED"
        options = f"{mode} ON {plan.signs.upper()} PRIORITY {plan.priority} RECURSIVE"
        db.sql(f"CREATE RULE {plan.name} WHEN TABLE {plan.view} DO {action(plan, sample)} {options}")
    db.rules.most_firings = LIMIT


def follow(db: rederive.Database, scenario: Scenario, rules: list[Plan]) -> None:
    """One view at most is monitored, so that what conditions need is mostly theirs alone."""
    sample, start, transactions = scenario
    sample = replace(sample, outputs=(sample.views[0].name,))
    program = compile_program(sample.text)
    calls: list[Fired] = []
    db.define(sample.text)
    base = changed(initial(program), loading(start))
    with db.transaction() as tx:
        apply(tx, loading(start))
    installed(db, sample, rules, calls)
    simulation = Simulation(program, base, rules, LIMIT)
    for change in transactions:
        before, version = evaluate(program, simulation.base), db.version
        calls.clear()
        try:
            fired = simulation.transaction(change)
        except Endless:
            with pytest.raises(CascadeLimit), db.transaction() as tx:
                apply(tx, change)
            assert db.version == version
        else:
            with db.transaction() as tx:
                apply(tx, change)
            assert [(f.rule, list(f.plus), list(f.minus)) for f in tx.result.firings] == fired
            assert calls == [one for one in fired if next(r for r in rules if r.name == one[0]).write is None]
            after = evaluate(program, simulation.base)
            told = {view: (set(c.plus), set(c.minus)) for view, c in tx.result.changes.items()}
            wanted = {view: (after[view] - before[view], before[view] - after[view]) for view in program.monitored}
            assert told == {view: sides for view, sides in wanted.items() if any(sides)}
        assert {name: set(db.rows(name)) for name in program.bases} == {n: simulation.base[n] for n in program.bases}


@examples(50)
@given(scenario=scenarios(), data=st.data())
def test_rules_fire_as_simulated(scenario: Scenario, data: st.DataObject) -> None:
    follow(rederive.open(), scenario, data.draw(rule_sets(scenario[0])))


@pytest.mark.parametrize("strategy", ["counting", "on_demand", "filtration", "recompute"])
@examples(5)
@given(scenario=scenarios(recursive=False), data=st.data())
def test_under_every_strategy(strategy: str, scenario: Scenario, data: st.DataObject) -> None:
    follow(rederive.open(strategy=strategy), scenario, data.draw(rule_sets(scenario[0])))


@examples(5)
@given(scenario=scenarios(), data=st.data())
def test_in_a_store(tmp_path_factory: pytest.TempPathFactory, scenario: Scenario, data: st.DataObject) -> None:
    folder: Path = tmp_path_factory.mktemp("store")
    with rederive.open(folder) as db:
        follow(db, scenario, data.draw(rule_sets(scenario[0])))


@examples(25)
@given(scenario=scenarios(), data=st.data())
def test_strict_firings_are_the_oracles_transitions(scenario: Scenario, data: st.DataObject) -> None:
    """Without changes of data: a deferred rule fires for exactly the rows that go from false to true, once a transaction."""
    sample, start, transactions = scenario
    program = compile_program(sample.text)
    view = data.draw(st.sampled_from([view.name for view in sample.views]))
    db = rederive.open()
    seen: list[object] = []
    db.define(sample.text)
    db.rules.on(view, name="watch")(seen.append)
    base = initial(program)
    for change in [loading(start), *transactions]:
        before, base = evaluate(program, base)[view], changed(base, change)
        seen.clear()
        with db.transaction() as tx:
            apply(tx, change)
        true = evaluate(program, base)[view] - before
        assert seen == ([sorted(true)] if true else [])


@examples(25)
@given(scenario=scenarios(), data=st.data())
def test_nervous_firings_are_between_the_transitions_and_the_truth(scenario: Scenario, data: st.DataObject) -> None:
    sample, start, transactions = scenario
    program = compile_program(sample.text)
    view = data.draw(st.sampled_from([view.name for view in sample.views]))
    db = rederive.open()
    seen: list[object] = []
    db.define(f"{sample.text}\n.output {next(v.name for v in sample.views)}" if not sample.outputs else sample.text)
    db.rules.on(view, name="watch", precision="nervous")(seen.extend)
    base = initial(program)
    for change in [loading(start), *transactions]:
        before, base = evaluate(program, base)[view], changed(base, change)
        seen.clear()
        with db.transaction() as tx:
            apply(tx, change)
        now = evaluate(program, base)[view]
        assert now - before <= set(seen) <= now
        assert len(seen) == len(set(seen))
