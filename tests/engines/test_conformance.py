"""Every program folder, on every engine and strategy, gives the expected lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rederive
from rederive.errors import StrategyError
from tests.engines.cases import FOLDERS, Case, lines, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRATEGIES = ("recompute", "counting", "materialized", "on_demand", "filtration", "differencing", "auto")
CHANGING = ("auto", "materialized", "counting", "differencing")  # that follow changes more than they derive
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


def played(case: Case, db: rederive.Database) -> list[dict[str, Any]]:
    """The output lines of a run through the Python API."""
    with db.setup() as setup:
        db.define(case.text)
        for name, rows in case.facts.items():
            db.load(name, rows)
    views = case.program.monitored
    assert setup.result is not None
    output = lines_of(setup.result, views)
    for change in case.changes:
        with db.transaction() as tx:
            for action in (tx.delete, tx.insert, tx.upsert):
                for name, listed in change.get(action.__name__, {}).items():
                    action(name, listed)
        output += lines_of(tx.result, views)
    return output


def lines_of(result: rederive.Result, views: Iterable[str]) -> list[dict[str, Any]]:
    changed = [(view, result.changes[view]) for view in views if view in result.changes]
    return [
        {"version": result.version, "view": view, "plus": as_lists(change.plus), "minus": as_lists(change.minus)}
        for view, change in changed
    ]


def as_lists(rows: list[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(row) for row in rows]


def test_expected_is_what_the_oracle_says(case: Case) -> None:
    assert list(lines(case)) == case.expected


def refused(case: Case, strategy: str) -> bool:
    return strategy in ("counting", "differencing") and case.folder.name in RECURSIVE


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_conformance(case: Case, strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    if refused(case, strategy):
        with pytest.raises(StrategyError):
            db.define(case.text)
    else:
        assert played(case, db) == case.expected


# On Spark a folder takes ten seconds or more, so `make test` plays a few of them, under different strategies.
FAST_JOBS = {"keyed", "mutual_recursion"}
FAST_TABLES = {"keyed", "nullary", "same_generation"}


def on_spark(among: Sequence[str], fast: set[str]) -> list[Any]:
    """Every folder under every strategy; all are slow but one strategy of each fast folder, by round robin."""
    pairs = []
    for i, folder in enumerate(FOLDERS):
        fitting = [s for s in STRATEGIES if s not in ("counting", "differencing") or folder.name not in RECURSIVE]
        quick = [s for s in among if s in fitting]
        chosen = quick[i % len(quick)]
        is_fast = folder.name in fast
        marks = {strategy: () if is_fast and strategy == chosen else (pytest.mark.slow,) for strategy in fitting}
        pairs += [pytest.param(folder, s, marks=marks[s], id=f"{folder.name}-{s}") for s in fitting]
    return pairs


@pytest.mark.parametrize(("folder", "strategy"), on_spark(STRATEGIES, FAST_JOBS))
def test_conformance_on_spark(spark: SparkSession, folder: Path, strategy: str) -> None:
    """Every rule is a Spark job: none runs in the driver, small as its relations are."""
    case = load(folder)
    assert played(case, tuned(spark, strategy, python_rows=-1, arrow_rows=-1)) == case.expected


@pytest.mark.parametrize(("folder", "strategy"), on_spark(CHANGING, FAST_TABLES))
def test_conformance_over_tables(spark: SparkSession, folder: Path, strategy: str) -> None:
    """All rows are in Arrow tables, few as they are, until a rule needs Spark."""
    case = load(folder)
    # The row of a relation without columns is always in the driver.
    assert played(case, tuned(spark, strategy, python_rows=-1, driver_rows=1)) == case.expected


def tuned(spark: SparkSession, strategy: str, **thresholds: int) -> rederive.Database:
    from rederive.engines.spark.engine import SparkEngine
    from rederive.engines.spark.tuning import Tuning

    return rederive.Database(SparkEngine(spark, tuning=Tuning(**thresholds)), strategy)
