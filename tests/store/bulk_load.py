"""A bulk transaction that tests kill: `python bulk_load.py LAKE ENGINE` applies data frames to a graph in a lake."""

from __future__ import annotations

import sys

import rederive
from rederive.lake.session import spark_session

EDGE = ".decl edge(x: number, y: number)"
CLOSURE = """
.decl closure(x: number, y: number)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
"""
DEGREE = """
.decl degree(x: number, n: number)
degree(x, n) :- edge(x, _), n = count : { edge(x, _) }.
"""
PROGRAM = EDGE + CLOSURE + DEGREE
BEFORE = [(1, 2), (2, 3), (3, 4)]
GONE = [(2, 3)]
CAME = [(3, 1), *((4, n) for n in range(100, 3_100))]  # more than the driver keeps
KEY = "bulk"


def main(lake: str, engine: str) -> None:
    spark = spark_session(master="local[1]", options={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"})
    with rederive.open(lake=lake, engine=engine, spark=spark) as db:
        db.migrate(PROGRAM)
        if not db.version and not db.rows("edge"):
            db.load("edge", BEFORE)
        came, gone = (spark.createDataFrame(rows, "x bigint, y bigint") for rows in (CAME, GONE))
        print("ack", db.apply("edge", inserts=came, deletes=gone, key=KEY).version, flush=True)
        db.settle()


if __name__ == "__main__":
    main(*sys.argv[1:])
