"""Debian's closure, kept up to date by us and by the peers in Rust: edges that much depends on, and random ones.

    python -m benchmarks.closure_peers --edges 300

Process CPU time on one thread. Every engine loses the same number of rows with each edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

import rederive
from benchmarks import rust_peers
from benchmarks.closure import NAMED, evaluated, loaded, read_edges
from benchmarks.star import resident_set, seconds, show
from rederive.ir.terms import Row

Measured = list[tuple[float, float, int]]
"""Seconds to delete and to insert, and the rows that were lost."""


def main(edges: Annotated[int, typer.Option()] = 300, seed: int = 1) -> None:
    """Print each figure for each engine."""
    rows = read_edges()
    changes = [*NAMED, *Random(seed).sample(rows, edges)]
    ours = our_changes(rows, changes)
    report("rederive", ours)
    for peer in rust_peers.peers():
        theirs = peer_changes(peer, rows, changes)
        report(peer, theirs)
        same = [lost for *_, lost in ours] == [lost for *_, lost in theirs]
        print(f"{peer} loses the same rows: {'yes' if same else 'no'}")


def our_changes(rows: Sequence[Row], changes: Sequence[Row]) -> Measured:
    before = resident_set()
    db = loaded(rows)
    show("rederive: initial", seconds(lambda: evaluated(db)))
    print(f"rederive: memory: {(resident_set() - before) / 1e6:.0f} MB")
    return [one_change(db, edge) for edge in changes]


def one_change(db: rederive.Database, edge: Row) -> tuple[float, float, int]:
    transactions = [db.transaction(), db.transaction()]

    def commit(number: int, action: str) -> None:
        with transactions[number] as tx:
            getattr(tx, action)("edge", [edge])

    deleted, inserted = seconds(lambda: commit(0, "delete")), seconds(lambda: commit(1, "insert"))
    change = transactions[0].result.changes.get("closure")
    return deleted, inserted, len(change.minus) if change is not None else 0


def peer_changes(peer: str, rows: Sequence[Row], changes: Sequence[Row]) -> Measured:
    numbers: dict[object, int] = {}
    with TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("edges", "changes")]
        for file, pairs in zip(files, (rows, changes), strict=True):
            codes = ((numbers.setdefault(x, len(numbers)), numbers.setdefault(y, len(numbers))) for x, y in pairs)
            file.write_text("".join(f"{x} {y}\n" for x, y in codes))
        (_, initial, _, memory), *lines = rust_peers.run(peer, "closure", *files)
    show(f"{peer}: initial", float(initial))
    print(f"{peer}: memory: {int(memory) / 1e6:.0f} MB")
    return [(float(deleted), float(inserted), int(lost)) for deleted, inserted, lost in lines]


def report(name: str, measured: Measured) -> None:
    for (x, y), (deleted, inserted, _) in zip(NAMED, measured, strict=False):
        show(f"{name}: {x} -> {y}, delete", deleted)
        show(f"{name}: {x} -> {y}, insert", inserted)
    show(f"{name}: random edge, delete", *(deleted for deleted, *_ in measured[len(NAMED) :]))
    show(f"{name}: random edge, insert", *(inserted for _, inserted, _ in measured[len(NAMED) :]))


if __name__ == "__main__":
    typer.run(main)
