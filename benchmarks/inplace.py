"""Views over tables in place against INSERT OVERWRITE of the same query: from a source commit to the view's table.

    python -m benchmarks.inplace --facts 1000000 --changes 0.0001 0.001 0.01 0.1 --views star join

For each view and each size of change: a plain UPDATE of the facts, then a refresh that ends when the table of the view is
written; as the peer in the same run, INSERT OVERWRITE of the query over the same commit. Both are checked against each other.
Prints seconds, CPU seconds of the process with its JVM, their ratios, and for both the number of Spark jobs and the bytes that
both processes read, from files and connections. On a busy machine the CPU seconds say more. `--folder` keeps the source tables
for the next run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rederive
from rederive.lake.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS: Final = {
    "star": "SELECT kind, region, sum(amount) AS total FROM fact JOIN item ON fact.item = item.id "
    "JOIN shop ON fact.shop = shop.id GROUP BY kind, region",
    "join": "SELECT fact.id, amount, kind FROM fact JOIN item ON fact.item = item.id WHERE amount > 900",
    "distinct": "SELECT shop, count(DISTINCT item) AS items FROM fact GROUP BY shop",
    "top": "SELECT shop, id, amount FROM (SELECT shop, id, amount, row_number() OVER (PARTITION BY shop "
    "ORDER BY amount DESC, id) AS place FROM fact) WHERE place <= 3",
    "outer": "SELECT shop.id, region, fact.id AS sale FROM shop LEFT JOIN fact ON fact.shop = shop.id AND fact.amount > 990",
    # With an alias: inside the subquery, Spark takes `item.id` for a field of the column `fact.item`.
    "anti": "SELECT i.id, kind FROM item AS i WHERE NOT EXISTS (SELECT 1 FROM fact WHERE fact.item = i.id AND amount > 995)",
}

# What an UPDATE changes: a column that the view reads. {n}: the number of the change.
CHANGED: Final = {"distinct": "item = (item + {n}) % {items}"}
AMOUNT: Final = "amount = (amount + 37 * {n}) % 1000"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way took."""

    seconds: float
    cpu: float
    jobs: int
    megabytes: float


def measure(spark: SparkSession, work: Callable[[], object]) -> Cost:
    """Run `work`, and count its Spark jobs and the bytes that are read for it."""
    before, cpu, started = counters(spark), cpu_seconds(spark), time.perf_counter()
    work()
    seconds, used, after = time.perf_counter() - started, cpu_seconds(spark) - cpu, counters(spark)
    return Cost(seconds, used, after[0] - before[0], (after[1] - before[1]) / 1e6)


def jvm(spark: SparkSession) -> Path:
    """What the system says of the JVM, in which the executors run."""
    gateway: Any = spark.sparkContext._gateway
    return Path(f"/proc/{gateway.proc.pid}")


def cpu_seconds(spark: SparkSession) -> float:
    """The CPU time of this process and of its JVM."""
    fields = (jvm(spark) / "stat").read_text().rpartition(")")[2].split()
    # Of the whole line, user time is the 14th field and system time the 15th; the first two are cut off here.
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def counters(spark: SparkSession) -> tuple[int, int]:
    """The jobs that the context has started, and the bytes that this process and its JVM have read.

    Spark's own counter misses what Parquet reads in threads of its own.
    """
    context: Any = spark.sparkContext._jsc.sc()
    lines = [line for place in (jvm(spark), Path("/proc/self")) for line in (place / "io").read_text().splitlines()]
    read = sum(int(line.partition(":")[2]) for line in lines if line.startswith("rchar"))
    return int(context.dagScheduler().nextJobId()), read


def dimensions(facts: int) -> tuple[int, int]:
    """How many items and shops there are."""
    return max(facts // 1000, 10), max(facts // 10_000, 5)


def make_sources(spark: SparkSession, folder: str, facts: int) -> None:
    """A star: facts with a key, and two small dimensions."""
    items, shops = dimensions(facts)
    tables = {
        "fact": f"SELECT id, id * 7919 % {items} AS item, id * 104729 % {shops} AS shop, CAST(id * 31 % 1000 AS INT) AS amount "
        f"FROM range({facts})",
        "item": f"SELECT id, concat('kind', id % 20) AS kind FROM range({items})",
        "shop": f"SELECT id, concat('region', id % 10) AS region FROM range({shops})",
    }
    for name, query in tables.items():
        spark.sql(
            f"CREATE TABLE delta.`{folder}/{name}` USING DELTA TBLPROPERTIES (delta.enableChangeDataFeed = true) AS {query}"
        )


def compare(spark: SparkSession, sources: str, folder: str, view: str, facts: int, changes: list[float]) -> None:
    """Print one line for each size of change. `sources`: where the tables are; `folder`: for the lake and the peer's table."""
    query = VIEWS[view]
    with rederive.open(lake=f"{folder}/lake_{view}", spark=spark, engine="spark") as db:
        with db.setup():
            for name in ("fact", "item", "shop"):
                db.attach(name, f"{sources}/{name}", key=["id"])
            db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        db.settle()
        for name in ("fact", "item", "shop"):
            spark.read.format("delta").load(f"{sources}/{name}").createOrReplaceTempView(name)
        peer = f"delta.`{folder}/peer_{view}`"
        spark.sql(f"CREATE TABLE {peer} USING DELTA AS {query}")
        for number, share in enumerate(changes, 1):
            # Scattered rows, by a hash of the key: the other columns are periodic in the key itself.
            step = max(round(1 / share), 1)
            new = CHANGED.get(view, AMOUNT).format(n=number, items=dimensions(facts)[0])
            spark.sql(f"UPDATE delta.`{sources}/fact` SET {new} WHERE pmod(hash(id), {step}) = {number % step}")
            ours = measure(spark, db.refresh)
            theirs = measure(spark, lambda: spark.sql(f"INSERT OVERWRITE {peer} {query}"))
            mine, other = db.tables.frame("v"), spark.read.format("delta").load(f"{folder}/peer_{view}")
            wrong = mine.exceptAll(other).count() + other.exceptAll(mine).count()
            problem = f"WRONG: {wrong} rows" if wrong else ""
            print(
                f"{view:9} {facts:>11,} {share:>8.2%} {ours.seconds:8.1f} s {theirs.seconds:8.1f} s "
                f"{theirs.seconds / ours.seconds:7.2f} x {ours.cpu:8.2f} {theirs.cpu:8.2f} {theirs.cpu / ours.cpu:7.2f} x "
                f"{ours.jobs:5} {theirs.jobs:5} {ours.megabytes:9.1f} {theirs.megabytes:9.1f} {problem}",
                flush=True,
            )


def main() -> None:
    """Run the comparison for the chosen sizes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--facts", type=int, nargs="+", default=[1_000_000, 10_000_000, 30_000_000])
    parser.add_argument("--changes", type=float, nargs="+", default=[0.0001, 0.001, 0.01, 0.1])
    parser.add_argument("--views", nargs="+", choices=list(VIEWS), default=list(VIEWS))
    parser.add_argument("--memory", default="4g", help="of the driver")
    parser.add_argument("--folder", help="where source tables are made, or found from an earlier run")
    chosen = parser.parse_args()
    spark = spark_session(options={"spark.driver.memory": chosen.memory})
    print("view      facts          change   refresh  overwrite   ratio   CPU (theirs)  ratio  jobs (theirs)  MB read (theirs)")
    for facts in chosen.facts:
        with tempfile.TemporaryDirectory() as folder:
            sources = f"{chosen.folder}/{facts}" if chosen.folder else folder
            if not Path(sources, "shop").exists():
                make_sources(spark, sources, facts)
            for view in chosen.views:
                compare(spark, sources, folder, view, facts, chosen.changes)
    spark.stop()


if __name__ == "__main__":
    main()
