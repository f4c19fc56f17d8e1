"""A star join with sum and count, by row and by column, with DuckDB computing the whole query as the peer.

    python -m benchmarks.star --facts 1000000

Process CPU time on one thread, medians; the resident set grows in the same process, so the peer's tables come after ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from resource import getpagesize
from statistics import median
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import typer

import rederive

DIMENSION = 1000
TABLES = """
CREATE TABLE fact (id BIGINT PRIMARY KEY, a BIGINT NOT NULL, b BIGINT NOT NULL, c BIGINT NOT NULL, amount DECIMAL(12,2) NOT NULL,
  quantity BIGINT NOT NULL);
CREATE TABLE one (a BIGINT PRIMARY KEY, region {text} NOT NULL);
CREATE TABLE two (b BIGINT PRIMARY KEY, category {text} NOT NULL);
CREATE TABLE three (c BIGINT PRIMARY KEY, year BIGINT NOT NULL);
"""
QUERY = """SELECT region, category, year, sum(amount) AS total, count(*) AS n
FROM fact JOIN one ON fact.a = one.a JOIN two ON fact.b = two.b JOIN three ON fact.c = three.c GROUP BY region, category, year"""


class Facts:
    """Random facts, with new numbers in each batch."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.next = 0

    def batch(self, rows: int) -> pa.Table:
        words = np.zeros(2 * rows, np.int64)
        words[::2] = self.random.integers(0, 1_000_000, rows)
        amount: Any = pa.Array.from_buffers(pa.decimal128(12, 2), rows, [None, pa.py_buffer(words.tobytes())])
        start, self.next = self.next, self.next + rows
        codes = {name: self.random.integers(0, DIMENSION, rows) for name in "abc"}
        return pa.table(
            {"id": np.arange(start, self.next), **codes, "amount": amount, "quantity": self.random.integers(0, 50, rows)}
        )


def dimensions() -> dict[str, pa.Table]:
    numbers = range(DIMENSION)
    return {
        "one": pa.table({"a": numbers, "region": [f"r{i % 10}" for i in numbers]}),
        "two": pa.table({"b": numbers, "category": [f"c{i % 20}" for i in numbers]}),
        "three": pa.table({"c": numbers, "year": [1990 + i % 8 for i in numbers]}),
    }


def seconds(work: Callable[[], Any]) -> float:
    """The CPU time of this process."""
    started = time.process_time()
    work()
    return time.process_time() - started


def resident_set() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


class Ours:
    def __init__(self) -> None:
        self.db = rederive.open()
        self.db.sql(TABLES.format(text="STRING"))

    def insert(self, rows: Any) -> None:
        with self.db.transaction() as tx:
            tx.insert("fact", rows)

    def delete(self, rows: Any) -> None:
        with self.db.transaction() as tx:
            tx.delete("fact", rows)

    def move(self, number: int, region: str) -> None:
        with self.db.transaction() as tx:
            tx.upsert("one", [(number, region)])


def main(facts: Annotated[int, typer.Option()] = 1_000_000, seed: int = 1, repeats: int = 5) -> None:
    """Print each figure, and that of DuckDB's whole query."""
    made, ours = Facts(seed), Ours()
    first = made.batch(facts)
    for name, table in dimensions().items():
        ours.db.load(name, table)
    before = resident_set()
    show("load", seconds(lambda: ours.db.load("fact", first)))
    show("first evaluation", seconds(lambda: ours.db.sql(f"CREATE VIEW v AS {QUERY}")))
    print(f"memory: {(resident_set() - before) / 1e6:.0f} MB more than before the load, transient memory included")

    single = [[tuple(row.values()) for row in made.batch(1).to_pylist()] for _ in range(21)]
    times = [seconds(lambda row=row: ours.insert(row)) for row in single]  # type: ignore[misc]
    show("one row, the first", times[0])
    show("one row, inserted", *times[1:])
    show("one row, deleted", *(seconds(lambda row=row: ours.delete(row)) for row in single))  # type: ignore[misc]
    for rows in (1_000, 100_000):
        batches = [made.batch(rows) for _ in range(repeats)]
        show(f"{rows:,} rows, inserted", *(seconds(lambda b=b: ours.insert(b)) for b in batches))  # type: ignore[misc]
        show(f"{rows:,} rows, deleted", *(seconds(lambda b=b: ours.delete(b)) for b in batches))  # type: ignore[misc]
    show("a row of a dimension", *(seconds(lambda i=i: ours.move(i, "r0")) for i in range(1, 1 + repeats)))  # type: ignore[misc]

    duck = duckdb.connect(config={"threads": 1})
    duck.execute(TABLES.format(text="VARCHAR").replace(" PRIMARY KEY", ""))
    for name, table in {**dimensions(), "fact": first}.items():
        duck.register("given", table)
        took = seconds(lambda name=name: duck.execute(f"INSERT INTO {name} SELECT * FROM given"))  # type: ignore[misc]
    show("DuckDB: load", took)
    show("DuckDB: the whole query", *(seconds(lambda: duck.execute(QUERY).fetchall()) for _ in range(repeats)))
    duck.execute("DELETE FROM one WHERE a BETWEEN 1 AND ?", [repeats])
    duck.executemany("INSERT INTO one VALUES (?, 'r0')", [(i,) for i in range(1, 1 + repeats)])
    expected = sorted(duck.execute(QUERY).fetchall())
    assert sorted(ours.db.rows("v")) == expected, "the answers differ"
    print(f"{len(expected):,} groups, equal to DuckDB's")


def show(name: str, *times: float) -> None:
    spread = f" ({min(times) * 1e3:.2f} to {max(times) * 1e3:.2f})" if len(times) > 1 else ""
    print(f"{name}: {median(times) * 1e3:.2f} ms{spread}")


if __name__ == "__main__":
    typer.run(main)
