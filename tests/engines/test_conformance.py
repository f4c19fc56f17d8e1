"""Every program folder, on every engine and strategy, gives the expected lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rederive
from rederive.errors import StrategyError
from tests.engines.cases import FOLDERS, Case, lines, load

ENGINES = ("resident",)
STRATEGIES = ("recompute", "counting", "materialized", "on_demand", "filtration", "differencing", "auto")
RECURSIVE = {
    "access_rights",
    "arithmetic",
    "bill_of_materials",
    "mutual_recursion",
    "negation",
    "non_linear_closure",
    "points_to",
    "same_generation",
}


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def case(request: pytest.FixtureRequest) -> Case:
    folder: Path = request.param
    return load(folder)


def played(case: Case, engine: str, strategy: str) -> list[dict[str, Any]]:
    """The output lines of a run through the Python API."""
    db = rederive.open(engine=engine, strategy=strategy)
    db.define(case.text)
    for name, rows in case.facts.items():
        db.load(name, rows)
    views = case.program.monitored
    output = [{"version": 0, "view": view, "plus": as_lists(db.rows(view)), "minus": []} for view in views if db.rows(view)]
    for change in case.changes:
        with db.transaction() as tx:
            for action in (tx.delete, tx.insert, tx.upsert):
                for name, listed in change.get(action.__name__, {}).items():
                    action(name, listed)
        version = tx.result.version
        changed = [(view, tx.result.changes[view]) for view in views if view in tx.result.changes]
        output += [{"version": version, "view": v, "plus": as_lists(c.plus), "minus": as_lists(c.minus)} for v, c in changed]
    return output


def as_lists(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(row) for row in rows]


def test_expected_is_what_the_oracle_says(case: Case) -> None:
    assert list(lines(case)) == case.expected


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_conformance(case: Case, engine: str, strategy: str) -> None:
    if strategy in ("counting", "differencing") and case.folder.name in RECURSIVE:
        with pytest.raises(StrategyError):
            rederive.open(engine=engine, strategy=strategy).define(case.text)
    else:
        assert played(case, engine, strategy) == case.expected
