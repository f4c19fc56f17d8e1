"""A store with a lake: what is committed is in the tables, whatever engine ran and wherever it was killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rederive
from rederive.engines.memory_budget import BYTES_PER_ROW
from rederive.errors import Mismatch, NoLake, SchemaMismatch
from rederive.failpoints import POINTS, VARIABLE
from rederive.store.backup import restore
from rederive.store.journal.writer import Journal
from tests.lake import witness
from tests.store.bulk_load import BEFORE, CAME, DEGREE, EDGE, GONE, KEY, PROGRAM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Edge = tuple[int, int]
LOAD = Path(__file__).with_name("bulk_load.py")
AFTER = sorted({*BEFORE, *CAME}.difference(GONE))
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


def check_lake(lake: Path, loaded: int, version: int, views: Sequence[str] = ("closure", "degree")) -> None:
    """Base table, views and replayed changes agree with the oracle; the changes begin with those of the load."""
    assert table(lake, "base/edge") == AFTER
    for view in views:
        assert table(lake, f"views/{view}") == expected(view, AFTER)
        changes = table(lake, f"changes/{view}")
        assert {row[0] for row in changes} == {loaded, version}
        replayed: set[Any] = set()
        for number, edges in ((loaded, BEFORE), (version, AFTER)):
            replayed -= {row[3:] for row in changes if row[:2] == (number, "minus")}
            replayed |= {row[3:] for row in changes if row[:2] == (number, "plus")}
            assert sorted(replayed) == expected(view, edges)


# A closure on Spark takes many jobs; it is the same commit.
def test_bulk_without_recursion(spark: SparkSession, tmp_path: Path) -> None:
    check_bulk(spark, tmp_path, "spark", EDGE + DEGREE, ["degree"])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_bulk(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    check_bulk(spark, tmp_path, engine, PROGRAM, ["closure", "degree"])


def check_bulk(spark: SparkSession, tmp_path: Path, engine: str, program: str, views: Sequence[str]) -> None:
    came, gone = (spark.createDataFrame(rows, "x bigint, y bigint") for rows in (CAME, GONE))
    with rederive.open(lake=tmp_path, engine=engine, spark=spark) as db:
        db.migrate(program)
        db.load("edge", BEFORE)
        result = db.apply("edge", inserts=came, deletes=gone, key=KEY)
        assert result.engine == ("spark" if engine == "spark" else "resident")
        assert result.engine_reason
        assert db.apply("edge", inserts=came, deletes=gone, key=KEY).repeated
        assert db.settle() == 2
    check_lake(tmp_path, 1, 2, views)
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        assert db.version == 2
        assert all(db.rows(view) == expected(view, AFTER) for view in views)
        first, change = db.changes("degree", since=0)
        assert (first.plus, change.plus) == (expected("degree", BEFORE), result.changes["degree"].plus)
        assert [db.rows("degree", as_of=version) for version in (0, 1)] == [[], expected("degree", BEFORE)]
        with db.transaction() as tx:
            tx.insert("edge", [(7, 8)])
        assert db.settle() == 3
    assert table(tmp_path, "base/edge") == sorted([*AFTER, (7, 8)])


MANY = [(1, n) for n in range(2, 3_002)]  # more than the driver keeps


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_what_is_loaded_and_defined_is_in_the_change_tables(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Facts, a data frame, a view over rows that are there, replaced views: all as changes that add up, none in the driver."""
    with rederive.open(lake=tmp_path, engine=engine, spark=spark) as db:
        db.define(PROGRAM + "edge(9, 9).")
        db.load("edge", spark.createDataFrame(MANY, "x bigint, y bigint"))
        db.sql("CREATE VIEW starts AS SELECT x FROM edge")
        db.sql("CREATE OR REPLACE VIEW starts AS SELECT DISTINCT x FROM edge")
        db.sql("CREATE OR REPLACE VIEW starts AS SELECT x FROM edge WHERE y = 0")
        assert db.settle() == db.version == 5
        rows = {view: db.rows(view) for view in db.pipeline.state.monitored}
    for view, found in rows.items():
        changes = table(tmp_path, f"changes/{view}")
        added: Counter[Any] = Counter()
        for version in range(1, 6):
            added.subtract({row[3:]: row[2] for row in changes if row[:2] == (version, "minus")})
            assert min(added.values(), default=0) >= 0
            added.update({row[3:]: row[2] for row in changes if row[:2] == (version, "plus")})
        assert sorted(added.elements()) == found
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        assert [db.rows("starts", as_of=n) for n in (0, 2, 4, 5)] == [[], [], [(1,), (9,)], []]
        assert sum(len(change.plus) for change in db.changes("closure", since=0)) == len(rows["closure"])


@pytest.mark.slow
def test_the_changes_before_the_lake_are_in_the_change_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a bag, of a view that had other columns, and of one that is gone; a first attempt was stopped at its end."""
    store, lake = tmp_path / "store", tmp_path / "lake"
    with rederive.open(store) as db:
        db.sql("CREATE TABLE t (a INT, b INT); CREATE VIEW bag AS SELECT a FROM t; CREATE VIEW n AS SELECT count(*) AS n FROM t")
        db.sql("CREATE VIEW other AS SELECT a, b FROM t; CREATE VIEW gone AS SELECT b FROM t")
        db.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 2)")
        db.sql("DELETE FROM t WHERE b = 1")
        db.sql("DROP VIEW gone; CREATE OR REPLACE VIEW other AS SELECT b FROM t")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Journal, "attach_lake", _interrupted)
        rederive.open(store, lake=lake, spark=spark, engine="resident")
    with rederive.open(store) as db:
        db.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        before = db.version
    for _ in range(2):
        with rederive.open(store, lake=lake, spark=spark, engine="resident") as db:
            db.sql("INSERT INTO t VALUES (3, 3)")
            db.settle()
            rows = {view: Counter(db.rows(view)) for view in ("bag", "n", "other")}
    for view, found in rows.items():
        changes = table(lake, f"changes/{view}")
        total: Counter[Any] = Counter()
        for _, sign, count, *row in changes:
            total[tuple(row)] += count if sign == "plus" else -count
        assert +total == found
        assert min(total.values()) >= 0
        assert {row[0] for row in changes} >= {before + 1, before + 2}
    assert table(lake, "changes/n")[0][:2] == (1, "plus")
    assert table(lake, "state/settled") == [(before - 1,), (before,), (before + 1,), (before + 2,)]


def test_a_store_with_a_history_gets_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    """The rows are in the tables, and the changes from before the lake are in the change table."""
    store, lake = tmp_path / "store", tmp_path / "lake"
    with rederive.open(store) as db:
        db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        for action, row in (("insert", (11,)), ("insert", (12,)), ("delete", (11,))):
            with db.transaction() as tx:
                getattr(tx, action)("n", [row])
    with rederive.open(store, lake=lake, spark=spark, engine="resident") as db:
        with db.transaction() as tx:
            tx.insert("n", [(13,)])
        assert db.settle() == 4
    assert (table(lake, "base/n"), table(lake, "views/big")) == ([(12,), (13,)], [(12,), (13,)])
    assert table(lake, "changes/big") == [(1, "plus", 1, 11), (2, "plus", 1, 12), (3, "minus", 1, 11), (4, "plus", 1, 13)]


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("point", KILLS)
def test_killed(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """After a kill anywhere in a bulk commit, the next start has the version whole or not at all; repeating it is harmless."""
    command = [sys.executable, str(LOAD), str(tmp_path), "spark"]
    environment = {**os.environ, VARIABLE: point, "PYTHONPATH": "src"}
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)
    assert killed.returncode == -9, killed.stderr
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        assert db.version in (0, 1, 2)
        if not db.version:  # nothing was loaded yet
            db.migrate(PROGRAM)
            db.load("edge", BEFORE)
        assert db.rows("edge") == (AFTER if db.version == 2 else BEFORE)
        assert db.version == 2 or "ack" not in killed.stdout
        came, gone = (spark.createDataFrame(rows, "x bigint, y bigint") for rows in (CAME, GONE))
        assert db.apply("edge", inserts=came, deletes=gone, key=KEY).version == 2
        assert db.settle() == 2
    check_lake(tmp_path, 1, 2)


def test_refused(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(tmp_path / "store", lake=tmp_path / "lake", spark=spark) as db:
        db.migrate(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
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
    assert "do not fit" in tx.result.engine_reason
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


@pytest.mark.slow
def test_a_restored_store_takes_its_lake_only_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """What the lake has more than the backup would be read as if it were of the new history."""
    lake, store = tmp_path / "lake", tmp_path / "store"
    with rederive.open(store, lake=lake, spark=spark, engine="resident") as db:
        db.migrate(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        for number in (11, 12):
            with db.transaction() as tx:
                tx.insert("n", [(number,)])
            if number == 11:
                assert db.settle() == 1
                rederive.backup(store, tmp_path / "backup")
                shutil.copytree(lake, tmp_path / "copy")
        db.settle()
    made = restore(tmp_path / "backup", tmp_path / "one")
    assert (made.lake, made.settled, made.version) == (str(lake), 1, 1)
    with pytest.raises(Mismatch, match="the lake is at version 2, and the restored store at version 1"):
        rederive.open(tmp_path / "one", lake=lake, spark=spark, engine="resident")
    restore(tmp_path / "backup", tmp_path / "two", lake=str(tmp_path / "copy"))
    with rederive.open(tmp_path / "two", lake=tmp_path / "copy", spark=spark, engine="resident") as db:
        assert db.rows("big") == [(11,)]
        with db.transaction() as tx:
            tx.insert("n", [(13,)])
        assert (db.settle(), db.rows("big")) == (2, [(11,), (13,)])
    assert table(tmp_path / "copy", "base/n") == [(11,), (13,)]
