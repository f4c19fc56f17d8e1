"""A load that tests kill: `python warehouse_load.py FOLDER LAST` applies transactions 1 to LAST to a warehouse, under keys."""

from __future__ import annotations

import sys
from pathlib import Path

import rederive
from rederive.commit.pending import TransactionRequest
from rederive.engines.protocol import Action, Operation
from rederive.lang import compile_program
from rederive.warehouse.bridge import WarehouseBridge, bridge_program_text

PROGRAM = """
.decl r(x: number)  .decl s(x: number, y: number)
.remote r(source=parquet, path="{folder}/r.parquet")
.remote s(source=parquet, path="{folder}/s.parquet")
.decl copy(x: number)           copy(x) :- r(x).
.decl both(x: number, y: number)  both(x, y) :- r(x), s(x, y).
.stored copy, both
"""


def opened(folder: Path) -> rederive.Database:
    text = PROGRAM.format(folder=folder)
    db = rederive.open(folder / "store")
    if not db.pipeline.state.program.relations:
        db.define(bridge_program_text(compile_program(text)))
    db.pipeline.state.bridge = WarehouseBridge(db.pipeline, compile_program(text), net=True)
    return db


def operation(number: int) -> Operation:
    """Rows of r and of s by turns; every two of them join."""
    return Operation(Action.INSERT, *(("r", ((number,),)) if number % 2 else ("s", ((number - 1, number),))))


def main(folder: Path, last: int) -> None:
    with opened(folder) as db:
        for number in range(1, last + 1):
            (outcome,) = db.pipeline.commit_together([[TransactionRequest((operation(number),), f"t{number}")]])
            assert outcome.error is None, outcome.error


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
