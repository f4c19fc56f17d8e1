"""What a lake costs besides propagation: settling, with Spark's MERGE as the peer, and opening, with an evaluation as the peer.

    python -m benchmarks.lake --facts 1000000
    python -m benchmarks.lake --streamed 200000      # streams instead, with plain appends of the same rows as the peer

Wall time, best of the rounds; both sides run in this process, on the same data.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

import rederive
from rederive.lake.session import spark_session
from rederive.lake.tables import Lake
from rederive.sources import ChangeFeed, ChangeFiles, StreamSource
from rederive.store.checkpoint import FILE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROGRAM = """
CREATE TABLE product (id BIGINT PRIMARY KEY, category STRING);
CREATE TABLE sale (id BIGINT PRIMARY KEY, product BIGINT, day BIGINT, amount BIGINT);
CREATE VIEW star AS SELECT category, SUM(amount) AS total, COUNT(*) AS number
  FROM sale JOIN product ON sale.product = product.id GROUP BY category;
"""
PRODUCTS = 1000


def timed(work: Callable[[], object]) -> float:
    """The seconds that some work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Sales:
    """A database with a lake of so many sales, and transactions on it."""

    def __init__(self, folder: Path, facts: int, engine: str) -> None:
        self.facts, self.next = facts, facts
        self.random = random.Random(1)
        self.folder, self.engine = folder, engine
        self.spark = spark_session()
        self.open()
        self.db.sql(PROGRAM)
        self.db.load("product", [(i, f"c{i % 50}") for i in range(PRODUCTS)])
        columns = ("id", f"id % {PRODUCTS} AS product", "id % 365 AS day", "id % 97 AS amount")
        self.db.load("sale", self.spark.range(facts).selectExpr(*columns))
        self.db.settle()

    def open(self) -> None:
        """Open the database, again."""
        self.db = rederive.open(lake=self.folder, engine=self.engine, spark=self.spark)

    @property
    def lake(self) -> Lake:
        """The lake of the database."""
        store = self.db.pipeline.state.store
        assert store is not None
        assert store.lake is not None
        return store.lake.lake

    def commit_versions(self, number: int) -> None:
        """Versions of one row each: half of them enter, half leave."""
        for i in range(number):
            if i % 2:
                self.next += 1
                self.db.apply("sale", inserts=[(self.next, 1, 1, 1)])
            else:
                self.db.apply("sale", deletes=self.db.rows("sale", id=self.random.randrange(self.facts)))

    def commit_scattered(self, rows: int) -> None:
        """One version that updates rows all over the table."""
        with self.db.transaction() as tx:
            tx.upsert("sale", [(i, i % PRODUCTS, 7, 7) for i in self.random.sample(range(self.facts), rows)])

    def check(self) -> None:
        """Spark reads from the tables what the database has."""
        table = self.spark.read.format("delta").load(str(self.folder / "base" / "sale"))
        assert sorted(map(tuple, table.collect())) == self.db.rows("sale")
        star = self.spark.read.format("delta").load(str(self.folder / "views" / "star")).collect()
        assert sorted(map(tuple, star)) == self.db.rows("star")


def settles(sales: Sales, scattered: int, rounds: int) -> list[tuple[str, float, float]]:
    """Each change settled by this process and by Spark: seconds of both."""
    found = []
    changes: list[tuple[str, Callable[[], None]]] = [
        ("100 one-row versions", lambda: sales.commit_versions(99)),  # the hundredth would settle in the background
        (f"{scattered:,} scattered updates", lambda: sales.commit_scattered(scattered)),
    ]
    root = sales.lake.local_root
    for name, change in changes:
        times: dict[bool, float] = {}
        for is_local in (True, False):
            sales.lake.local_root = root if is_local else None
            for _ in range(rounds):
                change()
                times[is_local] = min(times.get(is_local, float("inf")), timed(sales.db.settle))
        sales.lake.local_root = root
        sales.check()
        found.append((name, times[True], times[False]))
    return found


def openings(sales: Sales) -> tuple[float, float]:
    """Seconds to open from a checkpoint, and by evaluating the views."""
    sales.db.close()
    store = sales.folder / "_store"
    saved = sales.folder.parent / "saved"
    shutil.copy(store / FILE, saved)
    times = []
    for has_checkpoint in (True, False):
        if not has_checkpoint:
            (store / FILE).unlink()
        times.append(timed(sales.open))
        sales.db.pipeline.close()
    shutil.copy(saved, store / FILE)
    return times[0], times[1]


def streams(folder: Path, rows: int) -> list[tuple[str, float, float]]:
    """Streams of so many rows into a lake with two views, each row a change: seconds, and those of an append of the same rows."""
    spark = spark_session()
    columns = ("id", f"id % {PRODUCTS} AS product", "id % 365 AS day", "id % 97 AS amount")
    sales, feed = spark.range(rows).selectExpr(*columns), str(folder / "feed")
    sales.write.format("delta").option("delta.enableChangeDataFeed", "true").save(feed)
    found = []
    for each in (rows // 8, 1):  # rows of a line: eight files in both cases
        name = f"change files, {each:,} rows a line"
        changes = folder / f"lines{each}"
        changes.mkdir()
        for part in range(8):
            given = [[i, i % PRODUCTS, i % 365, i % 97] for i in range(part * rows // 8, (part + 1) * rows // 8)]
            lines = (json.dumps({"insert": {"sale": given[i : i + each]}}) for i in range(0, len(given), each))
            (changes / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        schema = "insert STRUCT<sale: ARRAY<ARRAY<BIGINT>>>"
        parsed = spark.readStream.schema(schema).json(str(changes)).selectExpr("explode(insert.sale) AS r")
        peer = parsed.selectExpr("r[0] AS id", "r[1] AS product", "r[2] AS day", "r[3] AS amount")
        found.append((name, *_streamed(folder / f"of{each}", ChangeFiles(str(changes)), None, peer, rows)))
    peer = spark.readStream.format("delta").option("readChangeFeed", "true").load(feed).select(*sales.columns)
    return [*found, ("a change data feed", *_streamed(folder / "of_feed", ChangeFeed(feed), "sale", peer, rows))]


def _streamed(folder: Path, source: StreamSource, relation: str | None, peer: DataFrame, rows: int) -> tuple[float, float]:
    written = str(folder / "appended")

    def append() -> None:
        writer = peer.writeStream.format("delta").option("checkpointLocation", f"{folder}/mark")
        writer.trigger(availableNow=True).start(written).awaitTermination()

    with rederive.open(lake=folder / "lake", spark=peer.sparkSession) as db:
        db.sql(PROGRAM)
        db.load("product", [(i, f"c{i % 50}") for i in range(PRODUCTS)])
        db.settle()

        def ingest() -> None:
            db.ingest(source, relation=relation, checkpoint=f"{folder}/checkpoint").wait()
            db.settle()

        ours, theirs = timed(ingest), timed(append)
        spark = peer.sparkSession
        assert spark.read.format("delta").load(f"{folder}/lake/base/sale").count() == rows
        assert spark.read.format("delta").load(written).count() == rows
    return ours, theirs


def main(
    facts: Annotated[int, typer.Option(help="rows of the fact table")] = 1_000_000,
    scattered: Annotated[int, typer.Option(help="rows of a scattered update")] = 10_000,
    rounds: Annotated[int, typer.Option(help="repetitions, of which the best counts")] = 2,
    engine: Annotated[str, typer.Option(help="resident or spark")] = "resident",
    streamed: Annotated[int, typer.Option(help="rows of each stream; measures streams alone")] = 0,
) -> None:
    """Print the seconds of each, and the peer's."""
    with TemporaryDirectory() as folder:
        for name, ours, peers in streams(Path(folder), streamed) if streamed else ():
            print(f"{name}: {streamed / ours:,.0f} rows/s (appended: {streamed / peers:,.0f}), {peers / ours:.2f} of its rate")
        if streamed:
            return
        sales = Sales(Path(folder) / "lake", facts, engine)
        print(f"{facts:,} facts, engine {engine}: seconds, and the peer's")
        for name, ours, peers in settles(sales, scattered, rounds):
            print(f"settle {name}: {ours:.2f} (by Spark: {peers:.2f})")
        ours, peers = openings(sales)
        print(f"open: {ours:.2f} (by evaluating the views: {peers:.2f})")


if __name__ == "__main__":
    typer.run(main)
