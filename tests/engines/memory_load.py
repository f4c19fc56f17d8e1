"""A process that tests measure: `PYTHONMALLOC=malloc python memory_load.py SHAPE ROWS` prints its growth, and what `auto` says.

The growth is what is allocated and not freed: the resident set would also have the free places between the objects that the rows
were given as, which are gone.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import rederive
from benchmarks.memory import allocated
from rederive.engines.auto import AutoEngine
from rederive.engines.resident.engine import ResidentEngine

WIDE = """
    CREATE TABLE customer (id BIGINT, name STRING, region STRING, PRIMARY KEY (id));
    CREATE TABLE orders (id BIGINT, customer BIGINT, item STRING, price DECIMAL(10,2), day DATE, note STRING, PRIMARY KEY (id));
    CREATE VIEW large AS SELECT o.id, c.name, o.price FROM orders o JOIN customer c ON o.customer = c.id WHERE o.price > 50;
"""
EDGES = ".decl e(x: number, y: number)  .decl both(x: number)  both(x) :- e(x, y), e(y, x)."
CLOSURE = """
    .decl e(x: symbol, y: symbol)  .decl c(x: symbol, y: symbol)
    c(x, y) :- e(x, y).  c(x, y) :- e(x, z), c(z, y).
"""
STAR = """
    CREATE TABLE a (a BIGINT, x STRING, PRIMARY KEY (a));
    CREATE TABLE b (b BIGINT, y STRING, PRIMARY KEY (b));
    CREATE TABLE fact (a BIGINT, b BIGINT, c BIGINT, v BIGINT);
    CREATE VIEW sums AS
      SELECT x, y, count(*) AS n, sum(v) AS v FROM fact JOIN a ON fact.a = a.a JOIN b ON fact.b = b.b GROUP BY x, y;
    CREATE VIEW joined AS SELECT fact.c, x, y FROM fact JOIN a ON fact.a = a.a JOIN b ON fact.b = b.b;
"""
PROGRAMS = {"wide": WIDE, "edges": EDGES, "closure": CLOSURE, "star": STAR}
Rows = Iterable[tuple[Any, ...]]


def contents(shape: str, n: int) -> dict[str, Rows]:
    pick = random.Random(7).randrange
    match shape:
        case "wide":
            day = date(2020, 1, 1)
            orders = (
                (
                    i,
                    pick(n // 10),
                    f"item{pick(1000)}",
                    Decimal(pick(10_000)) / 100,
                    day + timedelta(pick(1000)),
                    f"note {i} text",
                )
                for i in range(n)
            )
            return {"customer": ((i, f"name{i}", f"r{i % 20}") for i in range(n // 10)), "orders": orders}
        case "edges":
            return {"e": ((pick(n), pick(n)) for _ in range(n))}
        case "closure":  # chains of fifty
            return {"e": ((f"n{i}", f"n{i + 1}") if i % 50 else (f"n{i}", f"m{i}") for i in range(n))}
        case _:
            facts = ((pick(1000), pick(100), pick(n), pick(10**6)) for _ in range(n))
            return {"a": ((i, f"x{i % 50}") for i in range(1000)), "b": ((i, f"y{i % 10}") for i in range(100)), "fact": facts}


def refuse() -> Any:
    raise AssertionError("it fits")


def main(shape: str, rows: str) -> None:
    engine = AutoEngine(rederive.Limits(), refuse)
    db = rederive.Database(engine, "auto")
    (db.sql if "CREATE" in PROGRAMS[shape] else db.define)(PROGRAMS[shape])
    before = allocated()
    for relation, given in contents(shape, int(rows)).items():
        db.load(relation, given)
    grown = allocated() - before
    assert isinstance(engine._current, ResidentEngine)
    print(json.dumps({"grown": grown, "estimated": engine._current.memory().total, "why": engine.reason}))


if __name__ == "__main__":
    main(*sys.argv[1:])
