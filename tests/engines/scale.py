"""Relations and changes of any size, on Spark: what comes to the driver, and whether the views are what Spark answers.

`python scale.py ROWS FOLDER [--lake] [--small] [--master=URL]` runs it in a process of its own, whose JVM has 1 GB, and prints
what it found as JSON. `--lake`: with tables in a lake. `--small`: with so small a tuning that few rows count as many. `--master`:
on a cluster whose workers are on this machine, of which the share of CPU time is measured that executors have.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import functions as F
from pyspark.sql.pandas.conversion import SparkConversionMixin

import rederive
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.run.data_frames import DataFrameRows
from rederive.engines.spark.tuning import Tuning
from rederive.lake.bags import expand_copies
from rederive.lake.types import dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ITEMS: Final = 100
SMALL: Final = Tuning(
    driver_rows=20,
    arrow_rows=-1,
    python_rows=-1,
    collected_rows=20,
    python_totals=-1,
    broadcast_rows=200,
    broadcast_request_rows=200,
)
TABLES: Final = """
    CREATE TABLE item (id BIGINT PRIMARY KEY, kind STRING NOT NULL, price BIGINT NOT NULL);
    CREATE TABLE sale (id BIGINT PRIMARY KEY, item BIGINT NOT NULL, shop BIGINT NOT NULL, amount BIGINT NOT NULL);
    CREATE TABLE click (item BIGINT, page BIGINT);
"""
VIEWS: Final = {
    "star": "SELECT kind, shop, sum(amount) AS total, count(*) AS sales FROM sale JOIN item ON sale.item = item.id "
    "GROUP BY kind, shop",
    "buyers": "SELECT item, count(DISTINCT shop) AS shops FROM sale GROUP BY item",
    "best": "SELECT shop, id, amount FROM (SELECT shop, id, amount, row_number() OVER (PARTITION BY shop "
    "ORDER BY amount DESC, id) AS place FROM sale) AS numbered WHERE place <= 3",
    "priced": "SELECT sale.id, amount * price AS cents, kind FROM sale JOIN item ON sale.item = item.id WHERE amount >= 500",
    "visits": "SELECT click.item, page, kind FROM click JOIN item ON click.item = item.id WHERE page % 10 < 9",
    "pages": "SELECT page, count(*) AS clicks FROM click GROUP BY page",
}
"""`priced` has half of the rows of `sale`; `visits` is a bag with most of those of `click`."""


def sales(spark: SparkSession, start: int, end: int, step: int = 1) -> DataFrame:
    columns = "id", f"id * 7919 % {ITEMS} AS item", "id * 104729 % 500 AS shop", "id * 31 % 1000 AS amount"
    return spark.range(start, end, step).selectExpr(*columns)


def clicks(spark: SparkSession, start: int, end: int, step: int = 1) -> DataFrame:
    """Each row twice; some have no item."""
    return spark.range(start, end, step).selectExpr(f"nullif(id DIV 2 * 7919 % {ITEMS}, 7) AS item", "id DIV 2 AS page")


@dataclass
class Collected:
    """The rows that came to this process by each call, and those that it sent or wrote itself."""

    calls: list[tuple[str, int]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.calls)

    @property
    def most(self) -> int:
        return max((rows for _, rows in self.calls), default=0)


@contextmanager
def collected_rows() -> Iterator[Collected]:
    """Count the rows that any code takes out of Spark or files into this process, or hands over to Spark."""
    from pyspark.sql.classic.dataframe import DataFrame

    found = Collected()
    watched: list[tuple[Any, str, Any]] = [
        (DataFrame, name, getattr(DataFrame, name))
        for name in ("collect", "toArrow", "toPandas", "toLocalIterator", "take", "head")
    ]
    watched += [(SparkConversionMixin, "createDataFrame", SparkConversionMixin.createDataFrame)]
    watched += [(pyarrow.parquet, "read_table", pyarrow.parquet.read_table)]

    def counting(name: str, original: Any) -> Any:
        def counted(*given: Any, **options: Any) -> Any:
            result = original(*given, **options)
            one = given[1] if name == "createDataFrame" else result
            rows = one.num_rows if isinstance(one, pa.Table) else len(one) if isinstance(one, list | tuple) else 0
            found.calls.append((name, rows))
            return result

        return counted

    try:
        for owner, name, original in watched:
            setattr(owner, name, counting(name, original))
        yield found
    finally:
        for owner, name, original in watched:
            setattr(owner, name, original)


class Scale:
    """One run: base relations of `rows` sales and half as many clicks, and a change of a tenth of both."""

    def __init__(self, db: rederive.Database, spark: SparkSession, rows: int) -> None:
        self.db, self.spark, self.rows = db, spark, rows

    def load(self) -> None:
        """The tables, and then the views over them."""
        db, spark = self.db, self.spark
        db.sql(TABLES)
        db.load("item", spark.range(ITEMS).selectExpr("id", "concat('kind', id % 20) AS kind", "id % 97 + 1 AS price"))
        db.load("sale", sales(spark, 0, self.rows))
        db.load("click", clicks(spark, 0, self.rows // 2))

    def define(self) -> None:
        for view, query in VIEWS.items():
            self.db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}")

    def change(self) -> rederive.Result:
        """Every 20th sale and click leaves, and as many new ones enter."""
        spark, rows, few = self.spark, self.rows, self.rows // 2
        with self.db.transaction() as tx:
            tx.delete("sale", sales(spark, 0, rows, 20))
            tx.insert("sale", sales(spark, rows, rows + rows // 20))
            tx.delete("click", clicks(spark, 0, few, 20))
            tx.insert("click", clicks(spark, few, few + few // 20))
        return tx.result

    def bases(self) -> Mapping[str, DataFrame]:
        """The base relations after the change, worked out by Spark alone."""
        spark, rows, few = self.spark, self.rows, self.rows // 2
        kept = sales(spark, 0, rows).where("id % 20 <> 0").unionAll(sales(spark, rows, rows + rows // 20))
        clicked = clicks(spark, 0, few).exceptAll(clicks(spark, 0, few, 20)).unionAll(clicks(spark, few, few + few // 20))
        items = spark.range(ITEMS).selectExpr("id", "concat('kind', id % 20) AS kind", "id % 97 + 1 AS price")
        return {"sale": kept, "click": clicked, "item": items}

    def check(self) -> dict[str, int]:
        """The number of rows of each view, if it has the rows that Spark answers."""
        for name, frame in self.bases().items():
            frame.createOrReplaceTempView(name)
        counts = {}
        for view, query in VIEWS.items():
            ours, theirs = fingerprint(self.view(view)), fingerprint(self.spark.sql(query))
            assert ours == theirs, (view, ours, theirs)
            counts[view] = ours[0]
        return counts

    def view(self, name: str) -> DataFrame:
        """The rows of a view, of a bag each as often as it is there: from its table in the lake, or from the engine."""
        state = self.db.pipeline.state
        if state.lake is not None:
            return self.db.tables.frame(name)
        relation = state.program.relations[counting := state.program.counting_relation(name)]
        rows = state.engine.extent(counting)
        frame = rows.data if isinstance(rows, DataFrameRows) else dataframe(self.spark, relation, rows)
        return frame if counting == name else expand_copies(frame, frame.columns[-1])


def fingerprint(rows: DataFrame) -> tuple[int, int]:
    """The number of rows, and the sum of their hashes."""
    # As text: an INT here may be a BIGINT there, whose hash is another one.
    typed = (F.col(name).cast("string") for name in rows.columns)
    (found,) = rows.agg(F.count("*"), F.sum(F.xxhash64(*typed).cast("decimal(38,0)"))).collect()
    return found[0], int(found[1])


# A process of its own


def cpu_seconds(process: int) -> float:
    """The CPU time of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def executor_seconds(application: str) -> float:
    """The CPU time of an application's executors on this machine, and of their Python workers."""
    parents, executors = {}, set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            process, command = int(folder.name), (folder / "cmdline").read_bytes()
            parents[process] = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in command and application.encode() in command:
                executors.add(process)
    while more := {child for child, parent in parents.items() if parent in executors} - executors:
        executors |= more
    return sum(map(cpu_seconds, executors))


def peak_megabytes(process: int) -> int:
    """The most memory that a process had at once."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) >> 10


def main(rows: int, folder: str, *flags: str) -> None:
    from rederive.lake.session import spark_session

    options = {"spark.driver.memory": "1g", "spark.ui.enabled": "false", "spark.local.dir": folder}
    options |= {"spark.sql.warehouse.dir": f"{folder}/warehouse"}
    master = next((flag.removeprefix("--master=") for flag in flags if flag.startswith("--master=")), "local[2]")
    options |= {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "1g", "spark.executor.cores": "1"}
    spark = spark_session(master=master, options=options)
    application = spark.sparkContext.applicationId
    machine: Any = spark.sparkContext._jvm
    jvm = int(machine.java.lang.ProcessHandle.current().pid())
    report: dict[str, Any] = {"rows": rows, "heap_mb": int(machine.java.lang.Runtime.getRuntime().maxMemory()) >> 20, "steps": {}}

    def cpu() -> tuple[float, float, float]:
        return time.process_time(), cpu_seconds(jvm), executor_seconds(application)

    @contextmanager
    def step(name: str) -> Iterator[None]:
        before, started = cpu(), time.monotonic()
        with collected_rows() as collected:
            yield
        python, driver, executors = (round(now - then, 1) for now, then in zip(cpu(), before, strict=True))
        report["steps"][name] = {
            "seconds": round(time.monotonic() - started, 1),
            "python_cpu": python,
            "jvm_cpu": driver,
            "executor_cpu": executors,
            "executor_share": round(executors / (python + driver + executors), 2),
            "python_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
            "jvm_mb": peak_megabytes(jvm),
            "collected": collected.rows,
            "most": collected.most,
        }
        print(name, report["steps"][name], file=sys.stderr, flush=True)

    if "--small" in flags:
        SparkEngine.default_tuning = SMALL
    with rederive.open(lake=f"{folder}/lake" if "--lake" in flags else None, engine="spark", spark=spark) as db:
        run = Scale(db, spark, rows)
        for name in ("load", "define", "change"):
            with step(name):
                result = getattr(run, name)()
        report["changed"] = {view: [len(c.delta.plus), len(c.delta.minus)] for view, c in result.changes.items()}
        with step("check"):
            report["views"] = run.check()
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
