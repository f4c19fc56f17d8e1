"""Lakes that are settled often, maintained, and moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.errors import Expired, Mismatch
from rederive.lake import tables
from rederive.lake.local_log import LocalLog
from tests.lake import witness

PROGRAM = ".decl n(x: number)  .decl twice(x: number, y: number)  twice(x, 2 * x) :- n(x)."


def change(db: rederive.Database, version: int) -> None:
    """Rows enter, and some of those before leave."""
    with db.transaction() as tx:
        tx.insert("n", [(10 * version + i,) for i in range(5)])
        tx.delete("n", [(10 * (version - 1) + 1,), (10 * (version - 2) + 2,)])


@pytest.mark.slow
def test_many_settles_leave_few_files(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_SMALL_FILES", 8)
    monkeypatch.setattr(tables, "_COMMITS", 10)
    with rederive.open(lake=tmp_path, spark=spark, engine="resident") as db:
        db.define(PROGRAM)
        for version in range(1, 26):
            change(db, version)
            db.settle()
        for folder in ("base/n", "views/twice", "changes/twice", "state/settled"):
            read = log_of(tmp_path / folder)
            assert len(read.files) <= 8, folder
            assert read.checkpoint > 0
            # The log from Delta's checkpoint on is the log from its first commit on.
            with monkeypatch.context() as patched:
                patched.setattr(LocalLog, "_read_checkpoint", lambda self: None)
                whole = log_of(tmp_path / folder)
            vectors = [{path: file.get("deletionVector") for path, file in log.files.items()} for log in (read, whole)]
            assert vectors[0] == vectors[1]
        expected = db.rows("n")
        assert witness.rows(str(tmp_path / "base/n")) == sorted(expected, key=repr)
        by_spark = spark.read.format("delta").load(str(tmp_path / "views/twice")).collect()
        assert sorted(map(tuple, by_spark)) == db.rows("twice")
        db.tables.maintain()
        assert len(log_of(tmp_path / "base/n").files) == 1
        assert witness.rows(str(tmp_path / "base/n")) == sorted(expected, key=repr)
        assert db.rows("twice", as_of=20) == [(x, 2 * x) for x in sorted(rows_at(20))]


@pytest.mark.slow
def test_spark_and_this_process_write_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=tmp_path, spark=spark, engine="resident") as db:
        db.define(PROGRAM)
        store = db.pipeline.state.store
        assert store is not None
        assert store.lake is not None
        for version in range(1, 6):
            change(db, version)
            store.lake.lake.local_root = tmp_path if version % 2 == 1 else None
            db.settle()
            assert witness.rows(str(tmp_path / "base/n")) == sorted(((x,) for x in rows_at(version)), key=repr)
        changes = spark.read.format("delta").load(str(tmp_path / "changes/twice"))
        assert changes.where("_change = 'plus'").count() - changes.where("_change = 'minus'").count() == len(rows_at(5))


@pytest.mark.slow
def test_change_tables_follow_the_retention(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=tmp_path, spark=spark, engine="resident", retention=3) as db:
        db.define(PROGRAM)
        for version in range(1, 8):
            change(db, version)
        assert db.tables.changes_frame("twice").where("_version = 1").count() == 5
        db.tables.maintain()
        with pytest.raises(Expired, match="the changes of 'twice' up to version 4 are no longer in the lake"):
            db.tables.changes_frame("twice", since=3)
        kept = db.tables.changes_frame("twice", since=4)
        assert {row[0] for row in kept.select("_version").collect()} == {5, 6, 7}
        with pytest.raises(Expired):  # as the journal gives it
            list(db.changes("twice", since=3))
        assert db.rows("twice") == [(x, 2 * x) for x in sorted(rows_at(7))]


def log_of(place: Path) -> LocalLog:
    log = LocalLog(place)
    assert log.refresh()
    return log


def rows_at(version: int) -> set[int]:
    found: set[int] = set()
    for v in range(1, version + 1):
        found |= {10 * v + i for i in range(5)}
        found -= {10 * (v - 1) + 1, 10 * (v - 2) + 2}
    return found


def test_a_moved_lake(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=tmp_path / "old", spark=spark, engine="resident") as db:
        db.define(PROGRAM)
        change(db, 1)
        db.settle()
        change(db, 2)  # not settled
    shutil.copytree(tmp_path / "old", tmp_path / "copied")
    with pytest.raises(Mismatch, match="another lake"):
        rederive.open(lake=tmp_path / "copied", spark=spark, engine="resident")
    shutil.rmtree(tmp_path / "copied")
    with pytest.raises(Mismatch, match="this is not it"):
        shutil.move(tmp_path / "old", tmp_path / "new")
        rederive.open(tmp_path / "new" / "_store", lake=tmp_path / "empty", spark=spark, engine="resident")
    with rederive.open(lake=tmp_path / "new", spark=spark, engine="resident") as db:
        change(db, 3)
        assert db.rows("n") == [(x,) for x in sorted(rows_at(3))]
        db.settle()
    assert witness.rows(str(tmp_path / "new" / "base" / "n")) == sorted(((x,) for x in rows_at(3)), key=repr)
