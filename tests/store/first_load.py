"""The first versions of a lake, which tests kill: `python first_load.py LAKE [FOLDER]` inserts rows, or takes in a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import rederive
from rederive.lake.session import spark_session
from rederive.sources import ChangeFiles

PROGRAM = ".decl log(x: number, y: number)  .decl two(x: number, z: number)  two(x, z) :- log(x, y), log(y, z)."
ROWS = [(1, 2), (2, 3)]


def main(lake: str, folder: str | None = None) -> None:
    options = {"spark.driver.memory": "512m", "spark.local.dir": str(Path(lake).parent), "spark.sql.shuffle.partitions": "1"}
    spark = spark_session(master="local[1]", options=options)
    with rederive.open(lake=lake, engine="resident", spark=spark) as db:
        db.migrate(PROGRAM)
        if folder is not None:
            db.ingest(ChangeFiles(folder, {"maxFilesPerTrigger": "1"})).wait()
        elif not db.version:
            with db.transaction() as tx:
                tx.insert("log", ROWS)
        db.settle()


if __name__ == "__main__":
    main(*sys.argv[1:])
