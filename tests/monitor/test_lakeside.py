"""A store with a lake: what is committed is in the tables, whatever engine ran and wherever it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rederive
from rederive.engines.footprint import BYTES_PER_ROW
from rederive.errors import Mismatch, NoLake, SchemaMismatch
from rederive.faults import POINTS, VARIABLE
from tests.lake import witness
from tests.monitor.bulk_load import BEFORE, CAME, GONE, KEY, PROGRAM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Edge = tuple[int, int]
LOAD = Path(__file__).with_name("bulk_load.py")
AFTER = sorted({*BEFORE, *CAME}.difference(GONE))
FAST = ("lake.stage:part", "lake.settle:table")
LAKE = ("lake.", "journal.attach", "journal.settle")
KILLS = (*(point for point in POINTS if point.startswith(LAKE)), "commit:propagated", "journal.append:after")


def expected(view: str, edges: list[Edge]) -> list[Edge]:
    """The view by a plain search of the graph."""
    after: dict[int, list[int]] = {}
    for x, y in edges:
        after.setdefault(x, []).append(y)
    if view == "degree":
        return sorted((x, len(ys)) for x, ys in after.items())
    found = set()
    for start in after:
        waiting = [start]
        while waiting:
            for y in after.get(waiting.pop(), ()):
                if (start, y) not in found:
                    found.add((start, y))
                    waiting.append(y)
    return sorted(found)


def table(lake: Path, folder: str) -> list[Any]:
    """A table's rows, read without Spark."""
    return sorted(witness.rows(str(lake / folder)))


def check_lake(lake: Path, version: int) -> None:
    """Base table, views and replayed changes agree with the oracle."""
    assert table(lake, "base/edge") == AFTER
    for view, before in (("closure", expected("closure", BEFORE)), ("degree", expected("degree", BEFORE))):
        after = expected(view, AFTER)
        assert table(lake, f"views/{view}") == after
        changes = table(lake, f"changes/{view}")
        assert {row[0] for row in changes} == {version}
        replayed = set(before)
        replayed -= {row[3:] for row in changes if row[1] == "minus"}
        replayed |= {row[3:] for row in changes if row[1] == "plus"}
        assert sorted(replayed) == after


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_bulk(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    came, gone = (spark.createDataFrame(rows, "x bigint, y bigint") for rows in (CAME, GONE))
    with rederive.open(lake=tmp_path, engine=engine, spark=spark) as db:
        db.ensure(PROGRAM)
        db.load("edge", BEFORE)
        result = db.apply("edge", inserts=came, deletes=gone, key=KEY)
        assert result.engine == ("spark" if engine == "spark" else "resident")
        assert result.why
        assert db.apply("edge", inserts=came, deletes=gone, key=KEY).repeated
        assert db.settle() == 1
    check_lake(tmp_path, 1)
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        assert db.version == 1
        assert db.rows("closure") == expected("closure", AFTER)
        (change,) = db.changes("degree", since=0)
        assert change.plus == result.changes["degree"].plus
        with db.transaction() as tx:
            tx.insert("edge", [(7, 8)])
        assert db.settle() == 2
    assert table(tmp_path, "base/edge") == sorted([*AFTER, (7, 8)])


@pytest.mark.parametrize("point", [pytest.param(p, marks=() if p in FAST else pytest.mark.slow) for p in KILLS])
def test_killed(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """After a kill anywhere in a bulk commit, the next start has the version whole or not at all; repeating it is harmless."""
    command = [sys.executable, str(LOAD), str(tmp_path), "spark"]
    environment = {**os.environ, VARIABLE: point, "PYTHONPATH": "src"}
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert killed.returncode == -9, killed.stderr
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        assert db.version in (0, 1)
        if point.startswith("journal.attach"):  # nothing was defined yet
            db.ensure(PROGRAM)
            db.load("edge", BEFORE)
        assert db.rows("edge") == (AFTER if db.version else BEFORE)
        assert db.version == 1 or "ack" not in killed.stdout
        came, gone = (spark.createDataFrame(rows, "x bigint, y bigint") for rows in (CAME, GONE))
        assert db.apply("edge", inserts=came, deletes=gone, key=KEY).version == 1
        assert db.settle() == 1
    check_lake(tmp_path, 1)


def test_refused(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(tmp_path / "store", lake=tmp_path / "lake", spark=spark) as db:
        db.ensure(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        with pytest.raises(SchemaMismatch, match="missing"):
            db.apply("n", inserts=spark.range(3).toDF("y"))
        with pytest.raises(SchemaMismatch, match="'y'"):
            db.apply("n", inserts=spark.range(3).selectExpr("id AS x", "id AS y"))
        assert db.version == 0
    with pytest.raises(Mismatch, match="lake"):
        rederive.open(tmp_path / "store")
    with pytest.raises(Mismatch, match="another lake"):
        rederive.open(tmp_path / "store", lake=tmp_path / "other", spark=spark)
    with rederive.open(tmp_path / "plain") as plain, pytest.raises(NoLake):
        plain.settle()


def test_moves_to_spark_when_memory_is_short(spark: SparkSession) -> None:
    db = rederive.open(engine="auto", spark=spark, limits=rederive.Limits(memory=50 * BYTES_PER_ROW))
    db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
    with db.transaction() as tx:
        tx.insert("n", [(n,) for n in range(20)])
    assert (tx.result.engine, len(tx.result.changes["big"].plus)) == ("resident", 10)
    with db.transaction() as tx:
        tx.insert("n", [(n,) for n in range(10, 60)])
    assert (tx.result.engine, len(tx.result.changes["big"].plus)) == ("spark", 40)
    assert "do not fit" in tx.result.why
    assert len(db.rows("big")) == 50


def test_a_session_stays_as_it_was(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        db = rederive.open(engine="spark", spark=spark)
        db.define(".decl n(x: timestamp)  .decl m(x: timestamp)  m(x) :- n(x).")
        with db.transaction() as tx:
            tx.insert("n", [("2024-02-29T12:30:00",)])
        assert str(tx.result.changes["m"].plus[0][0]) == "2024-02-29 12:30:00"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert not spark.sql("SHOW VIEWS LIKE 'rederive*'").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
