"""The jobs of a transaction on Spark: how many there are, what they are called, and which views run at the same time."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.run.installed import independent_chains
from rederive.engines.spark.tuning import Tuning
from rederive.lang import compile_program
from rederive.maintain.plan import plan

TWO_VIEWS = """
    .decl e(x: number, y: number)  .decl f(x: number)
    .decl big(x: number, y: number)   big(x, y) :- e(x, y), x > 5.
    .decl pair(x: number, z: number)  pair(x, z) :- e(x, y), e(y, z).
    .decl total(n: number)            total(n) :- n = count : { pair(_, _) }.
    .decl other(x: number)            other(x) :- f(x).
    .output big  .output total  .output other
"""
ONLY_JOBS = Tuning(driver_rows=5, python_rows=-1, arrow_rows=-1)


def test_views_that_share_no_view_are_independent() -> None:
    program = compile_program(TWO_VIEWS)
    chains = independent_chains(plan(program, ["big", "total", "other"], "materialized").sections)
    views = [{name for section in chain for name in section.component.relations} for chain in chains]
    assert sorted(min(names) for names in views) == ["big", "other", "pair"]
    # In the order of components: what a section reads comes before it.
    (pairs,) = (chain for chain in chains if len(chain) > 1)
    assert pairs[0].component.relations == ("pair",)


def test_a_view_that_two_others_read_makes_one_chain() -> None:
    text = """
        .decl e(x: number)  .decl a(x: number)  .decl b(x: number)  .decl c(x: number)
        a(x) :- e(x).  b(x) :- a(x), x > 1.  c(x) :- a(x), x > 2.
    """
    (chain,) = independent_chains(plan(compile_program(text), ["b", "c"], "materialized").sections)
    assert [section.component.relations for section in chain] == [("a",), ("b",), ("c",)]


@pytest.fixture
def db(spark: SparkSession) -> rederive.Database:
    found = rederive.Database(SparkEngine(spark, tuning=ONLY_JOBS), "auto")
    found.define(TWO_VIEWS)
    found.load("e", [(i, i + 1) for i in range(40)])
    return found


def descriptions(spark: SparkSession) -> dict[int, str]:
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    found = [jobs.apply(i) for i in range(jobs.size())]
    # Jobs of other tests may have no description.
    return {job.jobId(): job.description().get() for job in found if job.description().isDefined()}


def test_jobs_are_counted_and_name_view_and_phase(spark: SparkSession, db: rederive.Database) -> None:
    before = set(descriptions(spark))
    with db.transaction() as tx:
        tx.insert("e", [(100, 101), (101, 102)])
    new = {job: text for job, text in descriptions(spark).items() if job not in before}
    # Those of the commit come after the result.
    assert 0 < tx.result.jobs <= len(new)
    assert any(text.startswith("pair: insertions") for text in new.values()), new
    assert all(": " in text for text in new.values() if text != "applying deltas"), new


def test_a_small_change_next_to_tables_in_the_driver_takes_no_job(spark: SparkSession) -> None:
    """The rows of the relation are fetched once, and stay in the driver for the transactions to come."""
    db = rederive.Database(SparkEngine(spark, tuning=Tuning(driver_rows=5)), "auto")
    db.define(TWO_VIEWS)
    db.load("e", spark.createDataFrame([(i, i + 1) for i in range(40)], "x bigint, y bigint"))
    results = []
    for n in (100, 200):
        with db.transaction() as tx:
            tx.insert("e", [(n, n + 1), (n + 1, n + 2)])
        results.append(tx.result)
    assert results[1].jobs < results[0].jobs or results[0].jobs == 0
    assert set(results[1].changes["big"].plus) == {(200, 201), (201, 202)}
    assert set(db.rows("total")) == {(39 + 2,)}


def test_a_change_of_most_rows_is_evaluated_from_scratch(spark: SparkSession) -> None:
    rows = [(i, i + 1) for i in range(40)]
    changes = []
    for fraction in (0.5, 100.0):
        tuning = Tuning(driver_rows=5, python_rows=-1, arrow_rows=-1, recomputed_fraction=fraction)
        db = rederive.Database(SparkEngine(spark, tuning=tuning), "auto")
        db.define(TWO_VIEWS)
        db.load("e", rows)
        with db.transaction() as tx:
            tx.delete("e", rows[:25])
            tx.insert("e", [(i, i + 2) for i in range(25)])
        changes.append({name: (set(c.plus), set(c.minus)) for name, c in tx.result.changes.items()})
        assert (tx.result.recomputed > 0) == (fraction < 1)
    assert changes[0] == changes[1]
