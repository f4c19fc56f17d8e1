"""Tables and views that are bags, whose requests, copies and changes stay in Spark: against the resident engine's."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import rederive
from rederive.engines.protocol import Action
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.tuning import Tuning
from rederive.errors import NullInKey
from rederive.ir.terms import Row
from tests.selection import fast_only

TABLES = """
    CREATE TABLE sold (item STRING, n INT NOT NULL);
    CREATE TABLE price (item STRING PRIMARY KEY, cents INT);
    CREATE VIEW priced AS SELECT sold.item, cents FROM sold JOIN price ON sold.item = price.item;
    CREATE VIEW total AS SELECT item, count(*) AS times, sum(n) AS n FROM sold GROUP BY item;
"""
IN_SPARK = Tuning(driver_rows=2, arrow_rows=-1, collected_rows=2)
PLACES = {"Spark": IN_SPARK, "tables": Tuning(driver_rows=2)}
SCHEMA = "item string, n int"


@pytest.fixture(params=fast_only(PLACES, "Spark"))
def databases(request: pytest.FixtureRequest, spark: SparkSession) -> tuple[rederive.Database, rederive.Database]:
    found = (rederive.Database(SparkEngine(spark, tuning=PLACES[request.param]), "auto"), rederive.open(engine="resident"))
    for db in found:
        db.sql(TABLES)
        db.load("price", [("a", 1), ("b", 2), ("c", 3)])
    return found


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(rows, SCHEMA)


def requests(chance: random.Random) -> Iterator[tuple[Action, list[Row], bool]]:
    for _ in range(chance.randint(1, 4)):
        rows: list[Row] = [(chance.choice(["a", "b", None]), chance.randint(0, 2)) for _ in range(chance.randint(1, 9))]
        yield chance.choice([Action.INSERT, Action.DELETE]), rows, chance.random() < 0.7


@pytest.mark.slow
def test_random_operations(spark: SparkSession, databases: tuple[rederive.Database, rederive.Database]) -> None:
    chance = random.Random(5)
    ours, witness = databases
    for _ in range(4):
        given: list[tuple[Action, list[Row], bool]] = [*requests(chance), (Action.INSERT, [("c", 7)], True)]
        results = []
        for db in (ours, witness):
            with db.transaction() as tx:
                for action, rows, framed in given:
                    step = tx.insert if action is Action.INSERT else tx.delete
                    requested: Any = frame(spark, rows) if framed and db is ours else rows
                    step("sold", requested)
            results.append({view: (change.plus, change.minus, change.counts) for view, change in tx.result.changes.items()})
        assert results[0] == results[1], given
        assert ours.rows("sold") == witness.rows("sold")


def test_rows_are_loaded_after_those_that_are_there(spark: SparkSession, databases: tuple[rederive.Database, ...]) -> None:
    rows: list[Row] = [("a", 1), ("a", 1), ("b", 0), ("a", 1), (None, 4), (None, 4)]
    ours, witness = databases
    for _ in range(2):
        ours.load("sold", frame(spark, rows))
        witness.load("sold", rows)
    assert ours.rows("sold") == witness.rows("sold") == sorted(rows * 2, key=lambda row: (row[0] is not None, row))
    assert ours.rows("priced") == witness.rows("priced")


def test_a_missing_value_is_refused(spark: SparkSession) -> None:
    db = rederive.Database(SparkEngine(spark, tuning=IN_SPARK), "auto")
    db.sql(TABLES)
    with pytest.raises(NullInKey, match="'n'"):
        db.apply("sold", inserts=frame(spark, [("a", 1), ("b", None), ("c", 1), ("d", 1)]))
    assert db.rows("sold") == []


def test_changes_that_enter_and_leave_a_bag_are_staged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change of a bag that has both sides reaches the tables of a lake without being read here."""
    monkeypatch.setattr(SparkEngine, "default_tuning", IN_SPARK)
    lake = str(tmp_path / "lake")
    with rederive.open(lake=lake, spark=spark, engine="spark") as db:
        db.sql(TABLES)
        db.load("price", [("a", 1), ("b", 2), ("c", 3)])
        db.apply("sold", inserts=frame(spark, [("a", 1), ("a", 1), ("a", 2), ("b", 1), ("b", 1)] * 3))
        changed = db.apply(
            "sold", inserts=frame(spark, [("c", 1)] * 5), deletes=frame(spark, [("a", 1), ("b", 1), ("b", 1), ("b", 9)])
        )
        change = changed.changes["priced"]
        assert (len(change.delta.plus), len(change.delta.minus)) == (1, 2)
        expected = Counter({("a", 1): 8, ("b", 2): 4, ("c", 3): 5})
        assert Counter(db.rows("priced")) == expected
        db.settle()
        assert Counter(map(tuple, db.tables.frame("priced").collect())) == expected
        signed = db.tables.changes_frame("priced").selectExpr("item", "cents", "if(_change = 'plus', _count, -_count) AS n")
        assert {row[:2]: row[2] for row in signed.groupBy("item", "cents").sum("n").collect()} == expected
    with rederive.open(lake=lake, spark=spark, engine="spark") as db:
        assert Counter(db.rows("priced")) == expected
