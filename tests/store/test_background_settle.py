"""Settling in the background: commits go on while it is at work, and every version is in the change table once."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.store.lake_sync import LakeSync

PROGRAM = ".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1."


@pytest.mark.slow
def test_commits_go_on_while_the_lake_is_settled(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, settle = Event(), Event(), LakeSync._settle

    def held(self: LakeSync, *given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return settle(self, *given)

    with rederive.open(lake=tmp_path / "lake", spark=spark) as db:
        db.define(PROGRAM)
        insert(db, range(3))
        monkeypatch.setattr(LakeSync, "_settle", held)
        lake = db.pipeline.state.store.lake  # type: ignore[union-attr]
        assert lake is not None
        lake.settle_later(db.pipeline.state.program, db.pipeline.state.stored_views)
        assert begun.wait(60)
        insert(db, range(3, 6))  # each is committed while the settling waits
        assert db.version == 6
        go_on.set()
        lake.wait()
        insert(db, range(6, 8))
        assert db.settle() == 8
    assert sorted((row["_version"], row["x"]) for row in read(spark, tmp_path / "lake/changes/odd")) == [
        (2, 1),
        (4, 3),
        (6, 5),
        (8, 7),
    ]
    assert sorted(row["x"] for row in read(spark, tmp_path / "lake/base/n")) == list(range(8))


def test_what_is_asked_for_meanwhile_is_settled_too(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, settle, passes = Event(), Event(), LakeSync._settle, list[int]()

    def held(self: LakeSync, entries: Any, tables: Any) -> Any:
        passes.append(len(entries))
        begun.set()
        assert go_on.wait(60)
        return settle(self, entries, tables)

    with rederive.open(lake=tmp_path / "lake", spark=spark) as db:
        db.define(PROGRAM)
        insert(db, range(2))
        monkeypatch.setattr(LakeSync, "_settle", held)
        assert db.settle(wait=False) == 0
        assert begun.wait(60)
        for x in range(2, 5):
            insert(db, range(x, x + 1))
            assert db.settle(wait=False) == 0  # the first is at work still
        go_on.set()
    assert passes == [2, 3]
    assert sorted(row["x"] for row in read(spark, tmp_path / "lake/base/n")) == list(range(5))
    assert sorted((row["_version"], row["x"]) for row in read(spark, tmp_path / "lake/changes/odd")) == [(2, 1), (4, 3)]


def read(spark: SparkSession, table: Path) -> list[Any]:
    return spark.read.format("delta").load(str(table)).collect()


def insert(db: rederive.Database, values: range) -> None:
    for x in values:
        with db.transaction() as tx:
            tx.insert("n", [(x,)])
