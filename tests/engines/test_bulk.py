"""Bulk changes on the Spark engine, of relations that are kept in files: against the same query on Spark, run again."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import rederive
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.tuning import Tuning
from rederive.errors import DuplicateKey, NullInKey
from tests.selection import fast_only

BASES = """
    .decl sale(id: number, item: number, amount: number) {key}
    .decl item(item: number, category: symbol)
    .decl banned(item: number)
    .decl revenue(category: symbol, total: number, n: number)
    revenue(c, t, n) :- item(_, c), t = sum a : {{ sale(_, i, a), item(i, c) }}, n = count : {{ sale(_, i, _), item(i, c) }}.
    .decl allowed(id: number, amount: number)
    allowed(n, a) :- sale(n, i, a), !banned(i).
"""
REVENUE = "SELECT category, sum(amount), count(*) FROM sale JOIN item USING (item) GROUP BY category"
ALLOWED = "SELECT DISTINCT id, amount FROM sale LEFT ANTI JOIN banned USING (item)"
SCHEMAS = {"sale": "id bigint, item bigint, amount bigint", "item": "item bigint, category string", "banned": "item bigint"}
FACTS = 6_000


KEYS = {"no key": "", "a key": "key(id)"}
TUNINGS = {"tables": Tuning(file_rows=3_000), "jobs": Tuning(file_rows=3_000, arrow_rows=-1)}
CASES = [f"{key}, {tuning}" for key in KEYS for tuning in TUNINGS]


def each_case(fast: str) -> pytest.MarkDecorator:
    """Run a test with and without a key, over tables and as jobs; one of these cases is fast, another one for each test."""
    return pytest.mark.parametrize("db", fast_only(CASES, fast), indirect=True)


@pytest.fixture
def db(request: pytest.FixtureRequest, spark: SparkSession) -> rederive.Database:
    """Relations of a few thousand rows are kept as large ones are; changes are a matter of tables, or of jobs of Spark."""
    key, tuning = request.param.split(", ")
    found = rederive.Database(SparkEngine(spark, tuning=TUNINGS[tuning]), "materialized")
    found.define(BASES.format(key=KEYS[key]))
    found.load("sale", facts(spark, 0, FACTS))
    found.load("item", [(i, "abc"[i % 3]) for i in range(50)])
    found.load("banned", [(7,), (8,)])
    return found


def facts(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).selectExpr("id", "id * 7 % 50 AS item", "id % 11 AS amount")


def check(db: rederive.Database, spark: SparkSession) -> None:
    """The views are what Spark makes of the base relations, by itself."""
    for name, columns in SCHEMAS.items():
        spark.createDataFrame(db.rows(name), columns).createOrReplaceTempView(name)
    assert set(db.rows("revenue")) == {tuple(row) for row in spark.sql(REVENUE).collect()}
    assert set(db.rows("allowed")) == {tuple(row) for row in spark.sql(ALLOWED).collect()}
    for name in SCHEMAS:
        spark.catalog.dropTempView(name)


@each_case(fast="a key, jobs")
def test_a_range_is_replaced_and_a_range_is_added(db: rederive.Database, spark: SparkSession) -> None:
    before = {view: set(db.rows(view)) for view in ("revenue", "allowed")}
    gone = facts(spark, 1_000, 3_500)
    came = facts(spark, FACTS, FACTS + 2_500).unionByName(facts(spark, 10, 20))  # some are there already
    result = db.apply("sale", inserts=came, deletes=gone)
    assert len(db.rows("sale")) == FACTS
    check(db, spark)
    for view, rows in before.items():
        change = result.changes[view]
        assert (rows - set(change.minus)) | set(change.plus) == set(db.rows(view))
        assert rows.isdisjoint(change.plus)
        assert rows.issuperset(change.minus)


@each_case(fast="no key, tables")
def test_scattered_changes_and_idle_ones(db: rederive.Database, spark: SparkSession) -> None:
    gone = facts(spark, 0, 2 * FACTS).where("id % 2 = 1")  # half of them were never there
    db.apply("sale", deletes=gone)
    check(db, spark)
    assert not db.apply("sale", deletes=gone).changes
    db.apply("sale", inserts=facts(spark, 0, FACTS))
    check(db, spark)


@pytest.mark.slow
@each_case(fast="no key, jobs")
def test_a_row_that_goes_and_comes_in_one_transaction_stays(db: rederive.Database, spark: SparkSession) -> None:
    rows = facts(spark, 100, 3_000)
    assert not db.apply("sale", inserts=rows, deletes=rows).changes


@each_case(fast="a key, tables")
def test_dimensions_change_as_well(db: rederive.Database, spark: SparkSession) -> None:
    with db.transaction() as tx:
        tx.delete("banned", [(7,)])
        tx.insert("banned", [(9,)])
        tx.delete("item", [(4, "b")])
        tx.insert("sale", facts(spark, FACTS, FACTS + 3_000))
    check(db, spark)


@each_case(fast="a key, tables")
def test_a_key_that_is_there_already_is_refused(db: rederive.Database, spark: SparkSession) -> None:
    other = facts(spark, 0, 3_000).selectExpr("id", "item", "amount + 1 AS amount")
    if not db.pipeline.state.program.relations["sale"].key:
        db.apply("sale", inserts=other)
        check(db, spark)
        return
    with pytest.raises(DuplicateKey):
        db.apply("sale", inserts=other)
    assert len(db.rows("sale")) == FACTS
    db.apply("sale", inserts=other, deletes=facts(spark, 0, 3_000))
    check(db, spark)


def test_a_small_change_reads_what_it_can_meet(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that a change can join with are looked for in the files, by the values that it has."""
    # Of so many rows the relation is not fetched into the driver.
    engine = SparkEngine(spark, tuning=Tuning(file_rows=3_000, arrow_rows=4_000, python_rows=1_000, collected_rows=1_000))
    db = rederive.Database(engine, "materialized")
    db.define("""
        .decl sale(id: number, item: number, amount: number)  .decl picked(id: number)
        .decl shown(id: number, amount: number)  shown(n, a) :- picked(n), sale(n, _, a).
    """)
    db.load("sale", facts(spark, 0, FACTS))
    db.load("picked", [(-1,)])
    texts: list[str] = []
    session = engine.jobs.session
    asked = session.sql

    def noted(text: str) -> DataFrame:
        texts.append(text)
        return asked(text)

    monkeypatch.setattr(session, "sql", noted)
    with db.transaction() as tx:
        tx.insert("picked", [(7,), (70,)])
    assert set(tx.result.changes["shown"].plus) == {(7, 7), (70, 4)}
    plans = [asked(text)._jdf.queryExecution().toString() for text in texts if "rederive_" in text]
    scans = [line for plan in plans for line in plan.splitlines() if "PushedFilters" in line]
    assert scans
    assert all("In(c0, [7,70])" in scan or "In(c0, [70,7])" in scan for scan in scans)


@each_case(fast="no key, tables")
@pytest.mark.parametrize(("side", "lacking"), [("inserts", "id"), pytest.param("deletes", "amount", marks=pytest.mark.slow)])
def test_null_is_refused_in_any_column(db: rederive.Database, spark: SparkSession, side: str, lacking: str) -> None:
    """It is looked for in the query that reads the rows; the other side is as it should be."""
    right = facts(spark, FACTS, FACTS + 3)
    wrong = facts(spark, 0, 5).withColumn(lacking, expr(f"CASE WHEN id <> 3 THEN {lacking} END"))
    frames = {"inserts": right, "deletes": right, side: wrong}
    with pytest.raises(NullInKey, match=f"relation 'sale': a row has no value in column '{lacking}'"):
        db.apply("sale", inserts=frames["inserts"], deletes=frames["deletes"])
    assert db.version == 3  # the loads
    change = db.apply("sale", inserts=wrong.where("id <> 3").union(right)).changes["allowed"]
    assert change.plus == [(FACTS, 5), (FACTS + 2, 7)]  # the other is of a banned item
