"""What a driver does on a cluster: `python on_cluster.py MASTER LAKE`.

Plays a few programs of the conformance suite, then applies a bulk transaction to a closure in a lake. It says when the
propagation is in its second round, so that the test can kill a worker then, and at the end what came of it as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import rederive
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.run.queries import Queries
from rederive.engines.spark.tuning import Tuning
from rederive.lake.session import spark_session
from tests.engines.cases import FOLDERS, load
from tests.engines.test_conformance import played

CLOSURE = """
.decl edge(x: number, y: number)
.decl closure(x: number, y: number)
closure(x, y) :- edge(x, y).
closure(x, y) :- closure(x, z), edge(z, y).
"""
CORE = ("aggregates", "negation", "non_linear_closure")
CHAINS, LENGTH = 1_000, 5


def main(master: str, lake: str) -> None:
    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.ui.enabled": "false",
    }
    spark = spark_session(master=master, options=options)
    SparkEngine.default_tuning = Tuning(python_rows=-1, arrow_rows=-1)  # few as the rows are, executors derive them all
    report: dict[str, Any] = {"played": 0, "expected": 0}
    for folder in (folder for folder in FOLDERS if folder.name in CORE):
        case = load(folder)
        report["expected"] += 1
        report["played"] += played(case, rederive.open(engine="spark", spark=spark, strategy="materialized")) == case.expected
    with rederive.open(lake=lake, engine="spark", spark=spark, strategy="materialized") as db:
        db.define(CLOSURE)
        edges = spark.range(CHAINS * LENGTH).selectExpr(
            f"id DIV {LENGTH} * 100 + id % {LENGTH} AS x", f"id DIV {LENGTH} * 100 + id % {LENGTH} + 1 AS y"
        )
        _tell_of_rounds()
        report["version"] = db.apply("edge", inserts=edges, key="bulk").version
        pairs = {(c * 100 + i, c * 100 + j) for c in range(CHAINS) for i in range(LENGTH) for j in range(i + 1, LENGTH + 1)}
        report["same"] = set(db.rows("closure")) == pairs
        report["again"] = db.apply("edge", inserts=edges, key="bulk").version
    print(json.dumps(report), flush=True)


def _tell_of_rounds() -> None:
    """From the second round on, say so once and give the test the time to act."""
    describe = Queries.describe
    told: list[str] = []

    def telling(self: Queries, what: str) -> Any:
        if "round 2" in what and not told:
            told.append(what)
            print(f"round: {what}", flush=True)
            time.sleep(1)
        return describe(self, what)

    Queries.describe = telling  # type: ignore[method-assign]


if __name__ == "__main__":
    main(*sys.argv[1:])
