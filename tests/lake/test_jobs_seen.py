"""What a person sees of the lake's jobs: a description of each, and lines of progress."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.engines.spark.session.sessions import described
from rederive.lake import progress

PROGRAM = ".decl n(x: number)  .decl twice(x: number, y: number)  twice(x, 2 * x) :- n(x)."


def job_descriptions(spark: SparkSession, after: int = -1) -> dict[int, str | None]:
    """The descriptions of the jobs after a number."""
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    found = context.statusStore().jobsList(None)
    described = ((job.jobId(), job.description()) for job in (found.apply(i) for i in range(found.size())))
    return {number: text.get() if text.isDefined() else None for number, text in described if number > after}


@pytest.mark.slow
def test_every_job_of_a_settle_is_described(spark: SparkSession, tmp_path: Path) -> None:
    before = max(job_descriptions(spark), default=-1)
    with rederive.open(lake=tmp_path, spark=spark, engine="resident") as db:
        db.define(PROGRAM)
        store = db.pipeline.state.store
        assert store is not None
        assert store.lake is not None
        store.lake.lake.local_root = None  # as on an object store: Spark writes every table
        for row in (1, 2):
            with db.transaction() as tx:
                tx.insert("n", [(row,)])
            db.settle()
        with db.transaction() as tx:
            tx.delete("n", [(1,)])
        db.settle()
    new = set(job_descriptions(spark, before).values())
    assert None not in new
    assert {f"settle {table} to version 3" for table in ("base/n", "changes/twice", "views/twice", "state/settled")} <= new


def test_a_long_job_logs_its_progress(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_watched", set())
    caplog.set_level(logging.INFO, "rederive.progress")
    progress.log_progress(spark, interval=0.05)
    assert not caplog.records
    with described(spark, "view v"), described(spark, "a slow step"):
        # About a second of work in two tasks.
        spark.range(0, 3 * 10**6, 1, 2).selectExpr("max(sha1(cast(id AS STRING)))").collect()
    assert any(record.message.startswith("view v: a slow step: ") for record in caplog.records)
    assert "of 2 tasks, " in caplog.records[0].message or "of 3 tasks, " in caplog.records[0].message
