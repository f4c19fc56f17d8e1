"""The benchmarks run, check their answers and report; no time is asserted."""

from __future__ import annotations

import doctest
import json

import pytest

from benchmarks import closure, growth, memory, peers, report, rounds
from benchmarks.report import Check, Figure, Goal, Machine, Section, Unit


@pytest.mark.parametrize("module", [closure, growth, memory, peers, report, rounds], ids=lambda module: module.__name__)
def test_examples_of(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_growth_checks_its_answers() -> None:
    (section,) = growth.run(sizes=(200, 80), changes=20, repeats=1, seed=7)
    assert [figure.name for figure in section.figures[:2]] == ["delete, 80 edges", "delete, 200 edges"]
    assert section.checks
    assert all(check.ok for check in section.checks)


def test_a_wrong_closure_is_noticed() -> None:
    graph = peers.DuckDB.of([(1, 2), (2, 3)])
    assert graph.agrees([(1, 2), (2, 3), (1, 3)])
    assert not graph.agrees([(1, 2), (2, 3)])
    assert not graph.agrees([(1, 2), (2, 3), (1, 3), (1, 3)])
    assert not graph.agrees([(1, 2), (2, 3), (1, 3), (3, 1)])


def test_a_round_that_does_not_come_back_is_noticed() -> None:
    db = closure.evaluated(closure.loaded([("a", "b"), ("b", "c")]))
    there = rounds.one_round(db, ("a", "b"))
    assert (there.rows, there.verified) == ((("a", "b"), ("a", "c")), True)
    absent = rounds.one_round(db, ("c", "d"))  # deleting it changes nothing, inserting it does
    assert not absent.verified


def test_forms_of_a_report() -> None:
    section = Section(
        "one",
        (Figure("fast", 0.001, 1.0, Goal("1,000x", True)), Figure("small", 2e6, 1e6, Goal("< 1 MB", False), Unit.BYTES)),
        (Check("same", True),),
        ("a note",),
    )
    machine = Machine("today", "a processor", 2, 4e9, "Linux", (("python", "3.11"),))
    page = report.markdown(machine, [section])
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
