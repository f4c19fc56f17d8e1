"""The benchmarks run, check their answers and report; no time is asserted."""

from __future__ import annotations

import doctest
import json
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import benchmarks
import rederive
from benchmarks import (
    closure,
    growth,
    modules,
    on_demand,
    peers,
    report,
    rounds,
    rules,
    selfmaint,
    service,
    service_load,
    tradeoff,
)
from benchmarks.peers import rust
from benchmarks.report import Check, Figure, Goal, Machine, Section, Unit
from rederive.delta import Delta

NAMES = [module.name for module in walk_packages(benchmarks.__path__, "benchmarks.")]
MODULES = [import_module(name) for name in NAMES if name != "benchmarks.run"]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_of(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_growth_checks_its_answers() -> None:
    (section,) = growth.run(sizes=(200, 80), changes=20, repeats=1, seed=7)
    assert [figure.name for figure in section.figures[:2]] == ["delete, 80 edges", "delete, 200 edges"]
    assert section.checks
    assert all(check.ok for check in section.checks)


def test_selfmaint_checks_its_answers() -> None:
    section, classes = selfmaint.run(sizes=(400, 100), changes=5, repeats=1)
    assert [figure.name for figure in section.figures[:2]] == [
        "decide and maintain, 100 rows stored",
        "decide and maintain, 400 rows stored",
    ]
    assert section.checks
    assert all(check.ok for check in (*section.checks, *classes.checks))
    assert "growth from 100 to 400 rows" in section.notes[1]


def test_rules_checks_its_answers() -> None:
    salaries, constraints = rules.run(sizes=(50, 20), views=3, changes=6, seed=7)
    assert [figure.name for figure in salaries.figures] == ["one update, 20 employees", "one update, 50 employees"]
    assert [figure.unit for figure in constraints.figures] == [Unit.SECONDS, Unit.SECONDS, Unit.RATIO]
    assert len(salaries.checks + constraints.checks) == 5
    assert all(check.ok for check in salaries.checks + constraints.checks)


def test_idle_subscribers_are_told() -> None:
    section = service.held(20)
    assert [check.ok for check in section.checks] == [True]
    assert section.figures[1].ours > 0


@pytest.mark.slow
def test_service_checks_its_answers() -> None:
    sections = list(service.run(subscribers=3, seconds=0.3, idle_subscribers=20))
    assert [section.peer for section in sections] == ["one sync for each", "polling", "none"]
    assert all(check.ok for section in sections for check in section.checks)
    assert [len(section.checks) for section in sections] == [2, 1, 1]


def test_a_version_that_nobody_was_told_is_noticed() -> None:
    work = service_load.Work(acknowledged={1: 0.0, 2: 0.0, 3: 0.0})
    assert service.Run(work, [[(0.1, 1, 2, 2), (0.2, 3, 3, 1)]]).whole
    assert not service.Run(work, [[(0.1, 1, 1, 1), (0.2, 3, 3, 1)]]).whole
    assert not service.Run(work, [[(0.1, 1, 3, 2)]]).whole  # two of them as one
    assert service_load.late(work.acknowledged, [[(0.1, 1, 2, 2)]]) == [0.1, 0.1]


def test_a_wrong_closure_is_noticed() -> None:
    graph = peers.DuckDB.of([(1, 2), (2, 3)])
    assert graph.agrees([(1, 2), (2, 3), (1, 3)])
    assert not graph.agrees([(1, 2), (2, 3)])
    assert not graph.agrees([(1, 2), (2, 3), (1, 3), (1, 3)])
    assert not graph.agrees([(1, 2), (2, 3), (1, 3), (3, 1)])


def test_a_change_that_an_engine_in_rust_does_not_find_is_noticed() -> None:
    """The changes of each deletion and insertion are compared, row by row."""
    done = [rounds.Round(0.1, 0.1, 0.0, (3, 4), (("a", "b"),), True)] * 4
    times = closure.Evaluations([1.0], [1.0], [1.0], [1.0], [1.0], {7})
    same = rust.RustRun("an engine", 1.0, 7, 1, [0.1] * 8, [{("a", "b")}] * 8)
    other = rust.RustRun("an engine", 1.0, 7, 1, [0.1] * 8, [{("a", "b")}] * 7 + [{("a", "c")}])
    assert [check.ok for check in closure.rust_section(same, done, times, 1, 1).checks] == [True, True]
    assert [check.ok for check in closure.rust_section(other, done, times, 1, 1).checks] == [True, False]


def test_a_round_that_does_not_come_back_is_noticed() -> None:
    db = closure.evaluated(closure.loaded([("a", "b"), ("b", "c")]))
    there = rounds.one_round(db, ("a", "b"))
    assert (there.rows, there.verified) == ((("a", "b"), ("a", "c")), True)
    absent = rounds.one_round(db, ("c", "d"))  # deleting it changes nothing, inserting it does
    assert not absent.verified


def test_a_delete_that_a_monotone_view_gains_by_is_noticed() -> None:
    db = rederive.open()
    db.define(".decl edge(x: number, y: number)  .decl rest(x: number)  rest(x) :- edge(x, _), !edge(_, x).  .output rest")
    db.pipeline.load({"edge": [(1, 2), (2, 3)]})
    assert not rounds.one_round(db, (1, 2), "rest").verified
    assert rounds.one_round(db, (1, 2), "rest", monotone=False).verified


@pytest.mark.parametrize("strategy", on_demand.STRATEGIES)
def test_rows_left_sees_what_a_transaction_derives(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(closure.BASE + closure.RULES)
    db.pipeline.load({"edge": [("a", "b"), ("b", "c"), ("a", "c")]})
    assert on_demand.rows_left(db) == 0
    db.pipeline.state.engine.propagate({"edge": Delta(minus=(("b", "c"),))})
    assert on_demand.rows_left(db) > 1  # the base relation's own change is one row
    db.pipeline.state.engine.commit()
    assert on_demand.rows_left(db) == 0


def test_on_demand_reports_rows_left() -> None:
    round_ = rounds.Round(0.1, 0.1, 0.0, (3, 4), (("a", "b"),), True)
    run = on_demand.Run([round_] * 2, [0, 7, 0, 0], 10, 20, 30, 40)
    section = on_demand.section("filtration", run, 1.0, [(("a", "b"),), (("a", "c"),)])
    assert [check.ok for check in section.checks] == [True, False]
    assert next(figure for figure in section.figures if figure.name.startswith("rows left")).goal == Goal("0", False)


def test_the_modules_are_layered() -> None:
    library = modules.generate(seed=3)
    homes = {p: home for p, home, _, _ in library.procedures}
    upwards = [(m, p) for m, p in library.links if homes[p] >= m]
    assert 0 < len(upwards) < len(library.links) / 50
    assert not set(library.links).intersection(modules.new_links(library, library.modules, 50, seed=3))


def test_the_modules_table_checks_its_answers() -> None:
    every = next(modules.run(links=1, seed=1))
    assert len(every.figures) == 16
    assert all(check.ok for check in every.checks)


@pytest.mark.slow
def test_the_whole_modules_table_checks_its_answers() -> None:
    every, fewer, one = modules.run(links=3, seed=1)
    assert [(figure.name[0], figure.goal.text) for figure in every.figures if figure.goal] == [
        ("1", "5.5x"),
        ("2", "1.2x"),
        ("3", "15x"),
        ("4", "8.8x"),
    ]
    assert not [figure for section in (fewer, one) for figure in section.figures if figure.goal]
    assert len(fewer.figures) == len(one.figures) == len(every.figures) == 16
    assert all(check.ok for section in (every, fewer, one) for check in section.checks)


def test_the_modules_have_as_many_importers_as_asked_for() -> None:
    for importers in (1.0, 3.0):
        links = modules.generate(seed=3, importers=importers).links
        assert 0 <= len(links) - importers * modules.PROCEDURES < 3


def test_strategies_that_lose_different_rows_are_noticed() -> None:
    one, other = (tradeoff.Point(1.0, 0, 0, True, [[("a", x)], [("b", "c")]]) for x in "bc")
    assert tradeoff.agree([one, one])
    assert not tradeoff.agree([one, other])
    shorter = tradeoff.Point(1.0, 0, 0, True, one.changes[:1])
    assert tradeoff.agree([shorter, one])


def test_the_page_and_the_picture_of_the_trade_off(tmp_path: Path) -> None:
    points = {
        name: {strategy: tradeoff.Point(10.0**-i, i * 1_000_000, i, True, []) for i, strategy in enumerate(case.strategies)}
        for name, case in tradeoff.CASES.items()
    }
    tradeoff.write(points, tmp_path)
    assert (tmp_path / "tradeoff.png").read_bytes().startswith(b"\x89PNG")
    assert "| Star join with a sum | counting | 100 µs | 4 MB | 4 |" in (tmp_path / "tradeoff.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", tradeoff.CASES)
def test_all_strategies_agree_on(name: str) -> None:
    case = tradeoff.CASES[name]
    points = {strategy: tradeoff.measured(name, strategy, 4, 2) for strategy in case.strategies}
    assert all(check.ok for check in tradeoff.section(case, points, 4).checks)


@pytest.mark.slow
def test_nothing_is_left_of_the_debian_closure() -> None:
    for section in on_demand.run(edges=10, repeats=1, seed=2):
        assert all(check.ok for check in section.checks)
        assert all(figure.goal.met for figure in section.figures if figure.goal and figure.name.startswith("rows left"))


def test_forms_of_a_report() -> None:
    section = Section(
        "one",
        (Figure("fast", 0.001, 1.0, Goal("1,000x", True)), Figure("small", 2e6, 1e6, Goal("< 1 MB", False), Unit.BYTES)),
        (Check("same", True),),
        ("a note",),
    )
    machine = Machine("today", "a processor", 2, 4e9, "Linux", (("python", "3.11"),))
    page = report.markdown("one", machine, [section])
    assert "| fast | 1 ms | 1 s | 1,000x faster | 1,000x: met |" in page
    assert "| small | 2 MB | 1 MB | 2x larger | < 1 MB: missed |" in page
    figures = json.loads(json.dumps(report.data(machine, [section])))["sections"][0]["figures"]
    assert figures[1] == {
        "name": "small",
        "rederive": 2e6,
        "peer": 1e6,
        "unit": "bytes",
        "goal": {"text": "< 1 MB", "met": False},
    }


@pytest.mark.slow
def test_the_debian_closure_is_right() -> None:
    sections = list(closure.run(edges=20, repeats=1, seed=2))
    assert all(check.ok for section in sections for check in section.checks)
