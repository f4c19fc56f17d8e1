"""`make demo`: exact changes of a recursive view, on a paper's graph, and on Debian's dependency graph in a lake, by a stream.

Ends with an independent check: DuckDB computes the final view from scratch, and every row must be the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb
import pyarrow
from rich.console import Console
from rich.markup import escape

import rederive
from rederive.ingest.ingestion import MicroBatch
from rederive.ir.printing import show_rule
from rederive.ir.terms import Row
from rederive.lake.session import spark_session
from rederive.sources import ChangeFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
DATA = HERE / "data" / "debian_bookworm_depends.csv.gz"

EDGES: list[Row] = [("f", "e"), ("e", "d"), ("e", "a"), ("a", "b"), ("d", "c"), ("b", "c"), ("c", "g")]

NEEDS = """
    .decl depends(package: symbol, on: symbol)
    .decl needs(package: symbol, on: symbol)
    needs(p, q) :- depends(p, q).
    needs(p, q) :- depends(p, r), needs(r, q).
    .output needs
"""

# What to delete and what to insert, one transaction each. The last one stays.
TRANSACTIONS: list[tuple[list[Row], list[Row]]] = [
    ([("git", "libc6")], []),
    ([], [("git", "libc6")]),
    ([("libssl3", "libc6")], []),
    ([], [("libssl3", "libc6")]),
    ([("python3", "python3.11")], []),
    ([], [("python3", "python3.11")]),
    ([("perl", "libperl5.36")], []),
    ([], [("perl", "libperl5.36")]),
    ([("python3", "python3.11")], [("python3", "python3.13"), ("python3.13", "libc6")]),
]

CLOSURE = """
    WITH RECURSIVE needs(package, dependency) AS (
        FROM depends UNION SELECT depends.package, needs.dependency FROM depends JOIN needs ON depends.dependency = needs.package)
"""

INDENT = " " * 12  # as wide as the time that a step prints
console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    graph_example()
    return 0 if debian() else 1


# The example of the paper


def graph_example() -> None:
    """SJ96: Staudt, Jarke, Incremental Maintenance of Externally Materialized Views."""
    title("1. A graph and its transitive closure")
    db = rederive.open()
    program = (HERE / "closure.dl").read_text(encoding="utf-8")
    db.define(program)
    db.load("edge", EDGES)
    say("The view:")
    for line in program.splitlines():
        if line.startswith("closure("):
            say(f"  {line}")
    say(f"The edges: {arrows(EDGES)}")
    say(f"The view has {len(db.rows('closure'))} rows. Now one transaction: delete b -> c, insert h -> d.")
    with db.transaction() as tx:
        tx.delete("edge", [("b", "c")])
        tx.insert("edge", [("h", "d")])
    change = tx.result.changes["closure"]
    say(f"  plus   {arrows(change.plus)}", "green")
    say(f"  minus  {arrows(change.minus)}", "red")
    say("Exactly these: e and f lost the way through b, but still reach c and g through d, so those rows stay.")
    say("")
    say("The rules that found it were made from the two rules of the view: overestimate the deletions, put back what another")
    say("path supports, add what is new. edge^new and closure^new are the states after the transaction, read without a copy.")
    for phase in db.pipeline.state.maintenance.sections[0].phases:
        say(f"  {phase.name}")
        for rule in phase.rules:
            say(f"    {show_rule(rule.rule)}", "dim")


def arrows(rows: Iterable[Row]) -> str:
    return ", ".join(" -> ".join(map(str, row)) for row in rows)


# Debian


def debian() -> bool:
    """The dependency graph of Debian 12 in a lake, changed by a stream: what each package needs, directly or not."""
    title("2. The pipeline: what every package of Debian 12 needs, directly or not")
    with TemporaryDirectory(prefix="rederive-demo-") as folder:
        with step("starting Spark") as done:
            spark = spark_session(options={"spark.driver.memory": "4g"})
            done.append(f"Spark {spark.version} is running")
        with rederive.open(lake=Path(folder, "lake"), spark=spark) as db:
            return stream_changes(db, spark, Path(folder, "changes"))


def stream_changes(db: rederive.Database, spark: SparkSession, changes: Path) -> bool:
    """Spark loads the graph, a Structured Streaming query replays a folder of change files, each a transaction."""
    db.migrate(NEEDS)
    with step("loading the package graph into the lake, and evaluating the closure") as done:
        edges = spark.read.option("header", True).csv(str(DATA)).toDF("package", "on").distinct()
        db.load("depends", edges)
        done.append(f"{db.pipeline.state.engine.size('depends'):,} direct dependencies loaded into the lake as a Delta table")
    say(f"{INDENT}{db.pipeline.state.engine.size('needs'):,} dependencies found, direct or not")
    final = set(db.rows("depends"))
    for number, (deleted, inserted) in enumerate(TRANSACTIONS, 1):
        write_change(changes / f"{number:03}.jsonl", deleted, inserted)
        final = (final - set(deleted)) | set(inserted)
    say(f"A folder of {len(TRANSACTIONS)} change files is read as a stream, file by file. Each is a transaction, applied once:")
    source = ChangeFiles(str(changes), {"maxFilesPerTrigger": "1"})
    stream = db.ingest(source, checkpoint=changes.with_name("checkpoint"), on_batch=tell)
    progress = stream.wait()
    say(f"{INDENT}the stream is at its end: {progress.batches} batches, version {db.version}")
    with step("settling into the lake") as done:
        version = db.settle()
        done.append(f"base relation, view and changes are in the lake as of version {version}")
    table = spark.read.format("delta").load(f"{db.pipeline.state.lake}/changes/needs").groupBy("_version", "_change").count()
    rows = sorted(table.collect())
    say(f"{INDENT}the change table: {', '.join(f'v{v} {sign} {count:,}' for v, sign, count in rows)}")
    return check(db, final)


def write_change(path: Path, deleted: Sequence[Row], inserted: Sequence[Row]) -> None:
    """One transaction in the format of `rederive run --changes`."""
    path.parent.mkdir(exist_ok=True)
    transaction = {"delete": {"depends": deleted}, "insert": {"depends": inserted}}
    path.write_text(json.dumps(transaction) + "\n", encoding="utf-8")


def tell(batch: MicroBatch) -> None:
    """What a micro-batch did, in words."""
    result = batch.result
    if result is None:
        return
    deleted, inserted = TRANSACTIONS[result.version - 2]  # version 1 is the load
    say(f"{result.seconds * 1000:8.1f} ms  version {result.version}, {result.engine} engine: {words(deleted, inserted)}")
    change = result.changes.get("needs")
    if change is None:
        say(f"{INDENT}nothing changes: another path leads there, too")
        return
    for rows, verb, style in ((change.minus, "disappear", "red"), (change.plus, "appear", "green")):
        if rows:
            say(f"{INDENT}{len(rows):,} dependencies {verb}, such as {examples(rows)}", style)


def words(deleted: Sequence[Row], inserted: Sequence[Row]) -> str:
    """A transaction in words.

    >>> words([("perl", "libperl5.36")], [])
    'without perl -> libperl5.36'
    """
    return ", ".join(f"{word} {arrows(rows)}" for word, rows in (("without", deleted), ("with", inserted)) if rows)


def examples(rows: Sequence[Row], most: int = 3) -> str:
    """A few rows from all over the change.

    >>> examples([("git", "libc6"), ("perl", "libc6")])
    'git needs libc6, perl needs libc6'
    """
    chosen = rows[:: max(len(rows) // most, 1)][:most]
    return ", ".join(" needs ".join(map(str, row)) for row in chosen)


# The check


def check(db: rederive.Database, depends: Collection[Row]) -> bool:
    """Compare the maintained view with DuckDB's recursive SQL over the final graph, row by row."""
    connection = duckdb.connect()
    connection.register("given", columns(depends))
    connection.execute("CREATE TABLE depends AS FROM given")
    with step("DuckDB computes the final view from scratch") as done:
        connection.execute(f"CREATE TABLE expected AS {CLOSURE} FROM needs")
        done.append("DuckDB computed the final view from scratch")
    with step("comparing row by row") as done:
        connection.register("maintained", columns(db.pipeline.state.engine.rows("needs", {})))
        missing = count(connection, "FROM expected EXCEPT FROM maintained")
        wrong = count(connection, "FROM maintained EXCEPT FROM expected")
        done.append("every row compared")
    if missing or wrong:
        say(
            f"DIFFERENT. Rows missing from the maintained view: {missing:,}; rows that should not be there: {wrong:,}.",
            "bold red",
        )
        return False
    rows = count(connection, "FROM expected")
    say(f"The view is right: at version {db.version} it has the same {rows:,} rows as DuckDB's.", "bold green")
    return True


def columns(rows: Collection[Row]) -> pyarrow.Table:
    return pyarrow.table({"package": [package for package, _ in rows], "dependency": [dependency for _, dependency in rows]})


def count(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    [(number,)] = connection.execute(f"SELECT count(*) FROM ({query})").fetchall()
    return int(number)


# Output: progress on a terminal, plain lines elsewhere


def title(text: str) -> None:
    say(f"\n{text}\n", "bold")


def say(text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False)


@contextmanager
def step(doing: str) -> Iterator[list[str]]:
    """Show what is going on, then how long it took and what the block put into the list."""
    done: list[str] = []
    started = time.perf_counter()
    with console.status(escape(doing)):
        yield done
    seconds = time.perf_counter() - started
    shown = f"{seconds:7.2f} s " if seconds >= 1 else f"{seconds * 1e3:7.2f} ms"
    say(f"{shown}  {' '.join(done)}")


if __name__ == "__main__":
    sys.exit(main())
