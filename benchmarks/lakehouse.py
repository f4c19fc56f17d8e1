"""The Spark engine beside plain Spark: the closure of the Debian graph, and views over generated facts under bulk changes.

The peers are what one writes without rederive. For the closure: a loop over persisted frames that joins, takes distinct rows,
leaves out what is known by a left anti-join, and checkpoints each round. For the views: the query itself, run again.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import rederive
from benchmarks.closure import DATA
from benchmarks.report import Check, Figure, Goal, Section
from benchmarks.rounds import timed
from rederive.engines.spark.engine import SparkEngine
from rederive.lake.session import spark_session

CLOSURE = """
    .decl edge(x: symbol, y: symbol)  .decl closure(x: symbol, y: symbol)
    closure(x, y) :- edge(x, y).  closure(x, y) :- closure(x, z), edge(z, y).
"""
BASES = """
    .decl sale(id: number, item: number, shop: number, amount: number)
    .decl item(item: number, category: number)
    .decl shop(shop: number, region: number)
    .decl banned(item: number)
"""
STAR = f"""{BASES}
    .decl revenue(category: number, region: number, total: number)  .output revenue
    revenue(c, r, t) :- cell(c, r), t = sum a : {{ sale(_, i, s, a), item(i, c), shop(s, r) }}.
    .decl cell(category: number, region: number)
    cell(c, r) :- item(_, c), shop(_, r).
"""
STAR_SQL = """
    SELECT category, region, sum(amount) AS total FROM sale JOIN item USING (item) JOIN shop USING (shop)
    GROUP BY category, region
"""
ANTI = f"""{BASES}
    .decl allowed(id: number, amount: number)  .output allowed
    allowed(n, a) :- sale(n, i, _, a), !banned(i).
"""
ANTI_SQL = "SELECT id, amount FROM sale LEFT ANTI JOIN banned USING (item)"
ITEMS, SHOPS, CATEGORIES, REGIONS = 20_000, 500, 50, 10
GOAL_STAR, GOAL_DECOMPOSED, GOAL_LOOP = 5, 10, 3


def run(facts: tuple[int, ...], seed: int) -> Iterator[Section]:
    spark = spark_session(master="local[*]", options={"spark.driver.memory": "10g"})
    yield closure(spark)
    for title, program, query, view in (
        ("star join with a sum", STAR, STAR_SQL, "revenue"),
        ("anti-join", ANTI, ANTI_SQL, "allowed"),
    ):
        yield bulk(spark, title, program, query, view, facts)
    yield small(spark)


# The closure


def closure(spark: SparkSession) -> Section:
    edges = spark.read.option("header", True).csv(str(DATA)).toDF("x", "y").distinct().localCheckpoint()
    loop_seconds, pairs = timed(lambda: plain_loop(edges))
    figures = []
    sizes = []
    for name, decompose, goal in (("decomposed", True, GOAL_DECOMPOSED), ("by rounds", False, GOAL_LOOP)):
        seconds, size = min(timed(lambda d=decompose: engine_closure(spark, edges, d)) for _ in range(2))  # type: ignore[misc]
        figures.append(Figure(f"closure, {name}", seconds, loop_seconds, Goal(f"{goal}x", loop_seconds >= goal * seconds)))
        sizes.append(size)
    return Section(
        "Spark engine: the closure of the Debian graph",
        tuple(figures),
        (Check(f"all find the same number of pairs, {pairs:,}", sizes == [pairs, pairs]),),
        ("Warm: the better of two runs in one session. The plain loop runs once.",),
        peer="plain PySpark loop",
    )


def plain_loop(edges: DataFrame) -> int:
    """closure(x, y) :- closure(x, z), edge(z, y), round by round, as a tutorial has it."""
    known = delta = edges.persist()
    step = edges.toDF("z", "w").persist()
    while not delta.isEmpty():
        found = delta.join(step, col("y") == col("z")).select("x", col("w").alias("y")).distinct()
        delta = found.join(known, ["x", "y"], "left_anti").localCheckpoint()
        known = known.union(delta).localCheckpoint()
    return known.count()


def engine_closure(spark: SparkSession, edges: DataFrame, decompose: bool) -> int:
    engine = SparkEngine(spark, decompose=decompose)
    db = rederive.Database(engine, "materialized")
    db.define(CLOSURE)
    db.load("edge", edges)
    return engine.size("closure")


# Bulk changes


@dataclass(frozen=True, slots=True)
class Measured:
    facts: int
    incremental: float
    again: float
    same: bool


def bulk(spark: SparkSession, title: str, program: str, query: str, view: str, facts: tuple[int, ...]) -> Section:
    measured = [one_bulk(spark, program, query, view, number) for number in facts]
    goal = GOAL_STAR if view == "revenue" else None
    figures = [
        Figure(
            f"{m.facts:,} facts, 1 % changed",
            m.incremental,
            m.again,
            Goal(f"{goal}x", m.again >= goal * m.incremental) if goal and m.facts >= 10_000_000 else None,
        )
        for m in measured
    ]
    return Section(
        f"Spark engine: {title}, a bulk change",
        tuple(figures),
        (Check("the view equals the query's answer after the change", all(m.same for m in measured)),),
        (
            f"{ITEMS:,} items, {SHOPS} shops. Half of the change deletes facts, half inserts new ones. All of it is in memory.",
            "Ours ends with the exact change, applied; the peer ends with the new answer, counted.",
        ),
        peer="Spark, the query again",
    )


def one_bulk(spark: SparkSession, program: str, query: str, view: str, number: int) -> Measured:
    sales = facts_of(spark, 0, number).localCheckpoint()
    dimensions = dimension_frames(spark)
    db = rederive.open(engine="spark", spark=spark, strategy="materialized")
    db.define(program)
    for name, frame in (("sale", sales), *dimensions.items()):
        db.load(name, frame)
    change = number // 200
    gone = sales.where("id % 200 = 7").localCheckpoint()
    came = facts_of(spark, number, number + change).localCheckpoint()
    warm = facts_of(spark, 2 * number, 2 * number + 1000).localCheckpoint()
    db.apply("sale", inserts=warm)
    incremental, _ = timed(lambda: db.apply("sale", inserts=came, deletes=gone))
    after = sales.join(gone, "id", "left_anti").select(sales.columns).union(came).union(warm).localCheckpoint()
    for name, frame in (("sale", after), *dimensions.items()):
        frame.createOrReplaceTempView(name)
    answer = spark.sql(query)
    again = min(timed(answer.count)[0], timed(lambda: _written(spark.sql(query)))[0])
    kept = db.engine.size(view)
    return Measured(number, incremental, again, kept == answer.count())


def _written(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def facts_of(spark: SparkSession, start: int, end: int) -> DataFrame:
    scattered = "pmod(hash(id, '{0}'), {1})"
    return spark.range(start, end).selectExpr(
        "id",
        f"CAST({scattered.format('item', ITEMS)} AS BIGINT) AS item",
        f"CAST({scattered.format('shop', SHOPS)} AS BIGINT) AS shop",
        f"CAST({scattered.format('amount', 1000)} AS BIGINT) AS amount",
    )


def dimension_frames(spark: SparkSession) -> dict[str, DataFrame]:
    items = spark.range(ITEMS)
    return {
        "item": items.selectExpr("id AS item", f"id % {CATEGORIES} AS category"),
        "shop": spark.range(SHOPS).selectExpr("id AS shop", f"id % {REGIONS} AS region"),
        "banned": items.where("id % 10 = 3").selectExpr("id AS item"),
    }


# Small transactions


def small(spark: SparkSession) -> Section:
    """One edge deleted and inserted, on a part of the Debian graph."""
    rows = [tuple(line.split(",")) for line in _lines(DATA)[1:20_001]]
    times = {}
    changes = []
    for engine in ("resident", "spark"):
        db = rederive.open(engine=engine, spark=spark if engine == "spark" else None, strategy="materialized")
        db.define(CLOSURE)
        db.load("edge", rows)
        _transaction(db, rows[0])
        times[engine], found = timed(lambda d=db: _transaction(d, rows[1]))  # type: ignore[misc]
        changes.append(found)
    return Section(
        "Small transactions: the resident engine beside the Spark engine",
        (Figure("one edge deleted and inserted", times["resident"], times["spark"]),),
        (Check("both find the same changes", changes[0] == changes[1]),),
        ("20,000 edges of the Debian graph; the view is kept.",),
        peer="Spark engine",
    )


def _transaction(db: rederive.Database, row: tuple[str, ...]) -> list[object]:
    found: list[object] = []
    for action in ("delete", "insert"):
        with db.transaction() as tx:
            getattr(tx, action)("edge", [row])
        change = tx.result.changes.get("closure")
        found.append((change.plus, change.minus) if change else None)
    return found


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()
