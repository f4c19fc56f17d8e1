"""Six views on the Spark engine under changes of growing size, beside plain Spark, which computes all six again and writes them.

    python benchmarks/spark_views.py [--facts 200000] [--changes 100,1000,10000] [--views star,allowed]

CPU seconds of this process and of Spark's, because the views of a version run at the same time; elapsed seconds and jobs next to
them. The median of three changes, after two to warm up. Half of the rows of a change leave, as many new ones enter.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that it runs as a script, from any folder

from pyspark.sql import SparkSession

import rederive
from benchmarks.report import Check, Figure, Section
from benchmarks.spark import BASES, STAR, dimension_frames, facts_of
from rederive.lake.session import spark_session

VIEWS = {
    "star": STAR,
    "large_sales": "SELECT id, amount, category FROM sale JOIN item USING (item) WHERE amount >= 500",
    "distinct_customers": "SELECT shop, count(DISTINCT customer) AS customers FROM sale GROUP BY shop",
    "top_sales": """
        SELECT shop, id, amount FROM
        (SELECT shop, id, amount, row_number() OVER (PARTITION BY shop ORDER BY amount DESC, id) AS place FROM sale)
        WHERE place <= 3
    """,
    "with_ban": "SELECT id, amount, b.item AS ban FROM sale s LEFT JOIN banned b ON s.item = b.item WHERE amount < 100",
    "allowed": "SELECT id, amount FROM sale LEFT ANTI JOIN banned USING (item)",
}
WARM, RUNS = 2, 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step took."""

    cpu: float
    seconds: float
    jobs: int


def run(facts: int, changes: tuple[int, ...], names: tuple[str, ...] = tuple(VIEWS)) -> Iterator[Section]:
    """One section: each size of change beside the six queries."""
    spark = spark_session(master="local[*]", options={"spark.driver.memory": "4g", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    ours, again, same = measure(spark, facts, changes, names)
    figures = [Figure(f"{rows:,} rows: CPU seconds, {cost.jobs} jobs", cost.cpu, again.cpu) for rows, cost in ours.items()]
    figures += [Figure(f"{rows:,} rows: elapsed", cost.seconds, again.seconds) for rows, cost in ours.items()]
    yield Section(
        f"Spark engine: {len(names)} views over {facts:,} facts",
        tuple(figures),
        (Check("every view equals its query's answer", same),),
        (f"The views: {', '.join(names)}. The peer computes all of them and writes them as Parquet: {again.jobs} jobs.",),
        peer="all queries again",
    )


def measure(
    spark: SparkSession, facts: int, changes: tuple[int, ...], names: tuple[str, ...]
) -> tuple[dict[int, Cost], Cost, bool]:
    """The cost of a change of each size, that of the queries over the changed table, and whether the answers agree."""
    dimensions = dimension_frames(spark)
    db = rederive.open(engine="spark", spark=spark)
    views = {name: VIEWS[name] for name in names}
    db.sql(f"{BASES} {' '.join(f'CREATE VIEW {name} AS {query};' for name, query in views.items())}")
    for name in names:
        db.subscribe(name, lambda event: None)
    for name, frame in (("sale", facts_of(spark, 0, facts)), *dimensions.items()):
        print(f"load {name}: {_cost(spark, lambda name=name, frame=frame: db.load(name, frame))}", file=sys.stderr)  # type: ignore[misc]
    after, first, ours = facts_of(spark, 0, facts), facts, {}
    for rows in changes:
        costs = []
        for n in range(WARM + RUNS):
            half, spread = rows // 2, facts // (rows // 2)
            gone = f"id % {spread} = {n} AND id < {facts}"
            left, entered = after.where(gone).localCheckpoint(), facts_of(spark, first, first + half).localCheckpoint()
            costs.append(_cost(spark, lambda left=left, entered=entered: db.apply("sale", inserts=entered, deletes=left)))  # type: ignore[misc]
            after = after.where(f"NOT ({gone})").union(entered).localCheckpoint()
            first += half
        print(f"{rows:,} rows: {costs}", file=sys.stderr)
        ours[rows] = Cost(*(median(getattr(c, f) for c in costs[WARM:]) for f in ("cpu", "seconds", "jobs")))
    with tempfile.TemporaryDirectory() as folder:
        after.write.parquet(f"{folder}/sale")
        spark.read.parquet(f"{folder}/sale").createOrReplaceTempView("sale")
        for name, frame in dimensions.items():
            frame.createOrReplaceTempView(name)
        again = [_cost(spark, lambda n=n: _write_all(spark, views, f"{folder}/{n}")) for n in range(WARM + RUNS)]  # type: ignore[misc]
        print(f"again: {again}", file=sys.stderr)
        same = all(Counter(db.rows(name)) == Counter(map(tuple, spark.sql(query).collect())) for name, query in views.items())
    return ours, Cost(*(median(getattr(c, f) for c in again[WARM:]) for f in ("cpu", "seconds", "jobs"))), same


def _write_all(spark: SparkSession, views: dict[str, str], folder: str) -> None:
    for name, query in views.items():
        spark.sql(query).write.parquet(f"{folder}/{name}")


def _cost(spark: SparkSession, step: Callable[[], object]) -> Cost:
    jobs, cpu, started = _jobs(spark), _cpu(), time.perf_counter()
    step()
    seconds = time.perf_counter() - started
    time.sleep(0.2)  # the listener that counts jobs is behind
    return Cost(round(_cpu() - cpu, 2), round(seconds, 2), _jobs(spark) - jobs)


def _jobs(spark: SparkSession) -> int:
    context = spark.sparkContext
    return int(context._jsc.sc().dagScheduler().nextJobId())


def _cpu() -> float:
    """The CPU seconds of this process and all processes below it."""
    parents, times = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended
            parents[int(entry.name)] = int(fields[1])
            times[int(entry.name)] = sum(map(int, fields[11:15]))  # with children that ended
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(times[pid] for pid in own) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the section."""
    from rich.console import Console

    from benchmarks.report import tables

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--facts", type=int, default=200_000)
    parser.add_argument("--changes", default="100,1000,10000")
    parser.add_argument("--views", default=",".join(VIEWS))
    options = parser.parse_args()
    changes, names = tuple(map(int, options.changes.split(","))), tuple(options.views.split(","))
    for section in run(options.facts, changes, names):
        Console().print(tables(section))


if __name__ == "__main__":
    main()
