"""Tables in place: views follow Delta tables that only plain Spark writes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import cycle
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import rederive
from rederive import Database
from rederive.delta import multiplicities
from rederive.errors import NotATable, Redefined, SourceChanged, SourceGone, Unsupported, WrittenInPlace, WrongUse
from rederive.failpoints import VARIABLE
from rederive.lake.source_table import SourceTable
from tests.lake.in_place_load import VIEWS, make_sources, open_mart, run
from tests.selection import fast_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOAD = Path(__file__).with_name("in_place_load.py")
# Each step: statements of Spark, and whether some row changes.
STEPS = (
    (("MERGE", "APPEND_ITEMS"), True),
    (("UPDATE", "DELETE_ITEMS"), True),
    (("OPTIMIZE",), False),
    (("NEW_COLUMN", "SET_NEW_COLUMN"), False),
    (("RESTORE",), True),
)


def check(db: Database, spark: SparkSession, folder: Path) -> None:
    """Each view has the rows that Spark finds over the same commits, and its changes add up to them."""
    for name, commit in db.tables.versions.items():
        table = spark.read.format("delta").option("versionAsOf", commit).load(f"{folder}/{name}")
        table.createOrReplaceTempView(name)
    for view, query in VIEWS.items():
        rows = Counter(db.rows(view))
        assert rows == Counter(tuple(row) for row in spark.sql(query).collect()), (view, db.tables.versions)
        added: Counter[object] = Counter()
        for change in db.changes(view, since=0):
            added.update(multiplicities(change.delta.plus))
            added.subtract(multiplicities(change.delta.minus))
        assert {row: n for row, n in added.items() if n} == dict(rows)


@pytest.mark.parametrize("steps", fast_only([1, len(STEPS)], 1))
def test_views_follow_tables_that_only_spark_writes(spark: SparkSession, tmp_path: Path, steps: int) -> None:
    make_sources(spark, tmp_path)
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        for names, changes in STEPS[:steps]:
            before = db.tables.versions
            run(spark, tmp_path, *names)
            result = db.refresh()
            assert (result is not None) is changes
            assert db.tables.versions != before
        check(db, spark, tmp_path)
        assert db.refresh() is None
        assert db.attach("sale", f"{tmp_path}/sale", key=["id"]) is None
        with pytest.raises(WrittenInPlace, match="'sale' is a table in place"):
            db.sql("INSERT INTO sale VALUES (9, 1, 1)")
        with pytest.raises(WrongUse, match="is followed to commit"):
            db.refresh({"sale": 1})
        seen = db.tables.versions
    # The journal has the commits of the sources: nothing is applied twice, and nothing is left out.
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        assert db.tables.versions == seen
        assert db.refresh() is None
        check(db, spark, tmp_path)


@pytest.mark.slow
def test_a_table_that_was_replaced(spark: SparkSession, tmp_path: Path) -> None:
    make_sources(spark, tmp_path)
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        run(spark, tmp_path, "REPLACE")
        with pytest.raises(SourceChanged, match="was replaced"):
            db.refresh()
        assert db.tables.resync() is not None
        check(db, spark, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["spark", "auto"])
def test_views_are_tables_of_the_catalog(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    make_sources(spark, tmp_path)
    schema = f"mart_{engine}"
    with rederive.open(lake=tmp_path / "lake", spark=spark, engine=engine, schema=schema) as db:
        open_mart(db, tmp_path)
        for names, _ in STEPS:
            run(spark, tmp_path, *names)
            db.refresh()
            check(db, spark, tmp_path)
            for view, query in VIEWS.items():
                expected = Counter(tuple(row) for row in spark.sql(query).collect())
                assert Counter(tuple(row) for row in spark.table(f"{schema}.{view}").collect()) == expected
                assert Counter(tuple(row) for row in db.tables.frame(view).collect()) == expected
                assert spark.table(f"{schema}.{view}").dtypes == spark.sql(query).dtypes
        assert not (tmp_path / "lake" / "base").exists()  # nothing of a source is copied
        changes = db.tables.changes_frame("by_kind", since=1)
        assert changes.columns[:3] == ["_version", "_change", "_count"]
        assert spark.table(f"{schema}.by_kind_changes").count() >= changes.count() > 0
    with rederive.open(lake=tmp_path / "lake", spark=spark, engine=engine, schema=schema) as db:
        assert db.refresh() is None
        check(db, spark, tmp_path)


@pytest.mark.slow
def test_commits_that_were_vacuumed(spark: SparkSession, tmp_path: Path) -> None:
    make_sources(spark, tmp_path)
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        # Both files of the change are gone: the one that it removed, and the one that it wrote.
        run(spark, tmp_path, "APPEND_ITEMS", "APPEND_ITEMS", "OPTIMIZE", "VACUUM")
        with pytest.raises(SourceGone) as refused:
            db.refresh()
        assert "resync" in str(refused.value)
        db.tables.resync()
        check(db, spark, tmp_path)


@pytest.mark.slow
def test_the_old_state_is_the_new_one_minus_the_change(spark: SparkSession, tmp_path: Path) -> None:
    """The files of the old commit were compacted and vacuumed; those of the change are there."""
    make_sources(spark, tmp_path)
    run(spark, tmp_path, "APPEND_ITEMS")
    with rederive.open(tmp_path / "store", spark=spark, engine="spark") as db:
        open_mart(db, tmp_path)
        run(spark, tmp_path, "OPTIMIZE", "APPEND_ITEMS", "VACUUM", "MERGE")
        db.refresh()
        check(db, spark, tmp_path)


@pytest.mark.slow
def test_a_writer_during_a_refresh(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh ends at the commits that it began with; the next one finds the others."""
    make_sources(spark, tmp_path)
    net = SourceTable._net

    def write_first(self: SourceTable, *given: Any) -> Any:
        run(spark, tmp_path, "APPEND_ITEMS")
        return net(self, *given)

    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        run(spark, tmp_path, "APPEND_ITEMS")
        with monkeypatch.context() as during:
            during.setattr(SourceTable, "_net", write_first)
            db.refresh()
        assert db.tables.versions["item"] == 2
        check(db, spark, tmp_path)
        db.refresh()
        assert db.tables.versions["item"] == 3
        check(db, spark, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["refresh:read", "commit:propagated", "journal.append:after", "refresh:committed"])
def test_a_kill_during_a_refresh(spark: SparkSession, tmp_path: Path, point: str) -> None:
    make_sources(spark, tmp_path)
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
    run(spark, tmp_path, "MERGE", "APPEND_ITEMS")
    killed = subprocess.run(
        [sys.executable, str(LOAD), str(tmp_path / "store")], env={**os.environ, VARIABLE: point}, check=False, timeout=600
    )
    assert killed.returncode == -9
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        db.refresh()
        check(db, spark, tmp_path)


@pytest.mark.slow
def test_tables_of_views_say_what_the_views_say(spark: SparkSession, tmp_path: Path) -> None:
    """Comments reach the catalog; a frame of a source has the rows of the commit that the version follows."""

    def said() -> dict[str, str | None]:
        rows = spark.sql("DESCRIBE TABLE EXTENDED mart_said.by_item").collect()
        return {row[0]: row[1] if row[0] == "Comment" else row[2] for row in rows if row[0] in ("item", "n", "Comment")}

    make_sources(spark, tmp_path)
    with rederive.open(lake=tmp_path / "lake", spark=spark, engine="resident", schema="mart_said") as db:
        db.attach("sale", f"{tmp_path}/sale", key=["id"])
        query = "SELECT item, count(*) FROM sale GROUP BY item"
        db.sql(f"CREATE MATERIALIZED VIEW by_item (item COMMENT 'an item''s id', n) COMMENT 'Sales' AS {query}")
        db.sql("CREATE TEMPORARY VIEW sold AS SELECT DISTINCT item FROM sale")
        db.settle()
        assert said() == {"item": "an item's id", "n": None, "Comment": "Sales"}
        db.sql("COMMENT ON VIEW by_item IS 'All sales'")
        run(spark, tmp_path, "DELETE_SALE")
        assert db.tables.frame("sale").count() == 3
        db.refresh()
        assert said()["Comment"] == "All sales"
        assert db.tables.frame("sale").count() == 2
        assert Counter(map(tuple, spark.table("mart_said.by_item").collect())) == Counter(db.rows("by_item"))
        with pytest.raises(NotATable, match="'sold' is not stored"):
            db.tables.frame("sold")


# Columns that change


@pytest.mark.slow
@pytest.mark.parametrize("case", ["resident id", "spark id", "resident", "spark"])
def test_a_new_column_is_taken_by_attaching_once_more(spark: SparkSession, tmp_path: Path, case: str) -> None:
    engine, *key = case.split()
    make_sources(spark, tmp_path)
    place = f"{tmp_path}/sale"
    with rederive.open(tmp_path / "store", spark=spark, engine=engine) as db:
        db.attach("sale", place, key=key)
        db.sql("CREATE VIEW total AS SELECT item, sum(amount) AS total FROM sale GROUP BY item")
        run(spark, tmp_path, "NEW_COLUMN", "SET_NEW_COLUMN", "UPDATE")
        result = db.attach("sale", place)
        assert result is not None
        assert result.changes["total"].plus == [(1, 31), (2, 31)]
        assert db.tables.versions == {"sale": 4}
        assert db.attach("sale", place) is None
        db.sql("CREATE VIEW notes AS SELECT note, count(*) AS n FROM sale GROUP BY note")
        run(spark, tmp_path, "DELETE_SALE")
        db.refresh()
        assert db.rows("notes") == [("seen", 2)]
        with pytest.raises(Redefined, match="is attached with the key"):
            db.attach("sale", place, key=["item"])
    with rederive.open(tmp_path / "store", spark=spark, engine=engine) as db:
        assert db.refresh() is None
        assert db.rows("total") == [(1, 21), (2, 31)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        ("DROP COLUMN amount", "ADD COLUMN amount INT"),
        ("RENAME COLUMN amount TO x", "RENAME COLUMN item TO amount", "RENAME COLUMN x TO item"),
    ],
)
def test_a_column_that_is_another_one_under_the_same_name(spark: SparkSession, tmp_path: Path, changes: tuple[str, ...]) -> None:
    """No commit reports that its values are others: a refresh that looked at names alone would find no change."""
    make_sources(spark, tmp_path)
    run(spark, tmp_path, "MAP_COLUMNS")
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        for change in changes:
            spark.sql(f"ALTER TABLE delta.`{tmp_path}/sale` {change}")
        with pytest.raises(SourceChanged, match="is another one since commit"):
            db.refresh()
        db.tables.resync()
        check(db, spark, tmp_path)


@pytest.mark.slow
def test_a_column_that_is_renamed_and_back(spark: SparkSession, tmp_path: Path) -> None:
    make_sources(spark, tmp_path)
    run(spark, tmp_path, "MAP_COLUMNS")
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/sale` RENAME COLUMN amount TO x")
        with pytest.raises(SourceChanged, match="is missing since commit"):
            db.refresh()
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/sale` RENAME COLUMN x TO amount")
        run(spark, tmp_path, "UPDATE")
        with pytest.raises(SourceChanged, match="has other columns"):
            db.refresh()
        db.tables.resync()
        check(db, spark, tmp_path)
        run(spark, tmp_path, "UPDATE")
        db.refresh()
        check(db, spark, tmp_path)


@pytest.mark.slow
def test_writers_while_refreshes_run(spark: SparkSession, tmp_path: Path) -> None:
    """Two threads write without a pause; each version is exact for the commits that it follows."""
    make_sources(spark, tmp_path)
    stop = Event()

    def write(*names: str) -> None:
        for name in cycle(names):
            if stop.is_set():
                return
            run(spark, tmp_path, name)

    with rederive.open(tmp_path / "store", spark=spark, engine="spark") as db:
        open_mart(db, tmp_path)
        writers = [Thread(target=write, args=names) for names in (("UPDATE", "MERGE"), ("APPEND_ITEMS", "DELETE_ITEMS"))]
        for writer in writers:
            writer.start()
        try:
            for _ in range(4):
                db.refresh()
                check(db, spark, tmp_path)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        db.refresh()
        check(db, spark, tmp_path)


# Each of these is on the way of a refresh with a lake, in this order.
POINTS = (
    "refresh:read",
    "commit:propagated",
    "journal.append:begun",
    "journal.append:written",
    "journal.append:after",
    "commit:applied",
    "refresh:committed",
    "lake.settle:table",
    "lake.settle:table@3",
    "lake.settle:tables",
    "lake.settle:after",
    "journal.settle:written",
    "journal.settle:after",
)


@pytest.mark.slow
def test_killed_at_every_step_with_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    """Others write, a refresh is killed, others write again: the next refresh and the tables of the views are exact."""
    make_sources(spark, tmp_path)
    store, lake = tmp_path / "store", tmp_path / "lake"
    with rederive.open(store, lake=lake, spark=spark, engine="spark") as db:
        open_mart(db, tmp_path)
        db.settle()
    writes = cycle([("MERGE", "APPEND_ITEMS"), ("UPDATE", "DELETE_ITEMS", "APPEND_ITEMS"), ("OPTIMIZE", "RESTORE")])
    for point in POINTS:
        run(spark, tmp_path, *next(writes))
        killed = subprocess.run(
            [sys.executable, str(LOAD), str(store), str(lake)], env={**os.environ, VARIABLE: point}, check=False, timeout=600
        )
        assert killed.returncode == -9, point
    run(spark, tmp_path, *next(writes))
    with rederive.open(store, lake=lake, spark=spark, engine="spark") as db:
        db.refresh()
        check(db, spark, tmp_path)
        for view, query in VIEWS.items():
            expected = Counter(tuple(row) for row in spark.sql(query).collect())
            assert Counter(tuple(row) for row in db.tables.frame(view).collect()) == expected
            # The change table alone adds up to the view.
            signed = F.when(F.col("_change") == "plus", F.col("_count")).otherwise(-F.col("_count"))
            columns = spark.sql(query).columns
            added = db.tables.changes_frame(view).groupBy(*columns).agg(F.sum(signed).alias("_sum")).where("_sum != 0")
            assert Counter({tuple(row[:-1]): row["_sum"] for row in added.collect()}) == expected


# By Structured Streaming


@pytest.mark.slow
@pytest.mark.parametrize("commits", [None, 1])
def test_a_stream_of_commits(spark: SparkSession, tmp_path: Path, commits: int | None) -> None:
    make_sources(spark, tmp_path)
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        run(spark, tmp_path, "MERGE", "APPEND_ITEMS", "UPDATE", "OPTIMIZE")
        before, seen = db.version, list[int]()
        progress = db.tables.stream(
            once=True, commits=commits, on_batch=lambda batch: seen.append(batch.result.version) if batch.result else None
        ).wait()
        assert db.tables.versions == {"sale": 3, "item": 3}
        # All commits at once, or each pair of commits on its own; those from before the tables were attached change nothing.
        assert db.version - before == len(seen) == (1 if commits is None else 2)
        assert progress.version == db.version
        check(db, spark, tmp_path)
        # The next start continues after the commits that the checkpoint has.
        assert db.tables.stream(once=True, commits=commits).wait().batches == 0
        run(spark, tmp_path, "DELETE_ITEMS")
        assert db.tables.stream(once=True, commits=commits).wait().batches == 1
        check(db, spark, tmp_path)
        with pytest.raises(WrongUse, match="no table in place"):
            rederive.open(tmp_path / "other").tables.stream()


@pytest.mark.slow
def test_a_stream_that_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    make_sources(spark, tmp_path)
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        followed = Event()
        stream = db.tables.stream(trigger="1 second", on_batch=lambda batch: followed.set() if batch.result else None)
        for statement in ("MERGE", "APPEND_ITEMS", "UPDATE"):
            followed.clear()
            run(spark, tmp_path, statement)
            assert followed.wait(120)
        stream.stop()
        assert not stream.running
        check(db, spark, tmp_path)


@pytest.mark.slow
def test_a_stream_ends_with_the_error_of_its_source(spark: SparkSession, tmp_path: Path) -> None:
    make_sources(spark, tmp_path)
    with rederive.open(tmp_path / "store", spark=spark, engine="resident") as db:
        open_mart(db, tmp_path)
        run(spark, tmp_path, "REPLACE")
        with pytest.raises(SourceChanged, match="was replaced"):
            db.tables.stream(once=True).wait()
        db.tables.resync()
        assert db.tables.stream(once=True).wait().version is None  # nothing is left to follow
        check(db, spark, tmp_path)


# Without Spark

REFUSED = {
    "CREATE TABLE t USING DELTA": "a table without columns",
    "CREATE TABLE t (x INT) LOCATION '/t'": "LOCATION of something other than a Delta table",
    "CREATE TABLE t (x INT) USING CSV LOCATION '/t'": "LOCATION of something other than a Delta table",
    "CREATE VIEW v USING DELTA LOCATION '/t' AS SELECT 1 AS x": "LOCATION",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_statements_that_are_refused(statement: str) -> None:
    with pytest.raises(Unsupported, match=REFUSED[statement]):
        rederive.open().sql(statement)


def test_a_table_in_place_needs_a_free_name() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (x INT PRIMARY KEY)")
    with pytest.raises(Redefined):
        db.sql("CREATE TABLE t (x INT PRIMARY KEY) USING DELTA LOCATION '/t'")


@pytest.mark.parametrize("statement", fast_only(["REFRESH TABLE t", "REFRESH MATERIALIZED VIEW t"], "REFRESH TABLE t"))
def test_refresh_without_tables_in_place_changes_nothing(statement: str) -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (x INT PRIMARY KEY)")
    assert db.sql(statement) == []


@pytest.mark.slow
def test_the_page(spark: SparkSession, tmp_path: Path) -> None:
    """The examples of docs/in_place.md run as they stand there."""
    page = (Path(__file__).parents[2] / "docs" / "in_place.md").read_text(encoding="utf-8")
    example, stream = (part.partition("```")[0] for part in page.split("```python\n")[1:])
    spark.sql("CREATE SCHEMA IF NOT EXISTS shop")
    for table, columns, rows in (
        ("sale", "id INT, item INT, amount INT", "(1, 1, 5)"),
        ("item", "item INT, kind STRING", "(1, 'a')"),
    ):
        spark.sql(f"CREATE TABLE shop.{table} ({columns}) USING DELTA LOCATION '{tmp_path}/{table}'")
        spark.sql(f"INSERT INTO shop.{table} VALUES {rows}")
    found: dict[str, Any] = {"rederive": rederive, "spark": spark, "folder": tmp_path}
    exec(example, found)
    with found["db"]:
        assert found["result"].changes["by_kind"].plus == [("a", 7)]
        assert [tuple(row) for row in spark.table("mart.by_kind").collect()] == [("a", 7)]
        assert spark.table("mart.by_kind_changes").count() == 3
        spark.sql("UPDATE shop.sale SET amount = 8 WHERE id = 1")
        exec(stream, found)
        assert [tuple(row) for row in spark.table("mart.by_kind").collect()] == [("a", 8)]
