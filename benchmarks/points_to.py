"""Andersen's points-to analysis with loads and stores: two relations that depend on each other. Statements leave and come back.

    python -m benchmarks.points_to --variables 1200

The peer is this engine evaluating both relations from scratch: when they are defined, and where a deletion is given up for it.
Process CPU time on one thread.
"""

from __future__ import annotations

from random import Random
from statistics import median
from typing import Annotated, Any

import typer

import rederive
from benchmarks.star import seconds, show

BASE = """
.decl new(v: number, o: number)
.decl assign(v: number, w: number)
.decl load(v: number, w: number)
.decl store(v: number, w: number)
"""
RULES = """
.decl points(v: number, o: number)
.decl heap(o: number, p: number)
points(v, o) :- new(v, o).
points(v, o) :- assign(v, w), points(w, o).
points(v, o) :- load(v, w), points(w, p), heap(p, o).
heap(p, o) :- store(v, w), points(v, p), points(w, o).
.output points
.output heap
"""
Pair = tuple[int, int]


def statements(variables: int, seed: int) -> dict[str, list[Pair]]:
    """A random program: each variable is assigned to about one other, and one in four is loaded or stored through."""
    random = Random(seed)

    def pairs(count: int, others: int) -> list[Pair]:
        return sorted({(random.randrange(variables), random.randrange(others)) for _ in range(count)})

    return {
        "new": pairs(variables // 2, variables // 2),
        "assign": pairs(variables, variables),
        "load": pairs(variables // 4, variables),
        "store": pairs(variables // 4, variables),
    }


class Analysis:
    """Both relations, stored."""

    def __init__(self, rows: dict[str, list[Pair]]) -> None:
        self.db = rederive.open()
        self.db.define(BASE)
        for name, pairs in rows.items():
            self.db.load(name, pairs)
        self.first = seconds(lambda: self.db.define(RULES))

    def size(self) -> int:
        return sum(map(self.db.pipeline.state.engine.size, ("points", "heap")))

    def change(self, action: str, name: str, row: Pair) -> tuple[float, Any]:
        tx = self.db.transaction()

        def commit() -> None:
            with tx:
                getattr(tx, action)(name, [row])

        return seconds(commit), tx.result


def main(variables: Annotated[int, typer.Option()] = 1200, seed: int = 1, changes: int = 60) -> None:
    """Print what deletions and insertions of single statements cost, and the evaluation from scratch."""
    rows = statements(variables, seed)
    analysis = Analysis(rows)
    size = analysis.size()
    chosen = Random(seed).sample([(name, row) for name, pairs in rows.items() for row in pairs], changes)
    deletes, inserts, given_up = [], [], []
    for name, row in chosen:
        took, result = analysis.change("delete", name, row)
        deletes.append(took)
        if result.recomputed:
            given_up.append(took)
        inserts.append(analysis.change("insert", name, row)[0])
        assert analysis.size() == size, "a deletion and its insertion do not cancel"
    show(f"from scratch, {size:,} rows", analysis.first)
    show("a statement deleted", *deletes)
    show("a statement inserted", *inserts)
    print(f"at the median a deletion is {analysis.first / median(deletes):,.0f} times faster than the evaluation from scratch")
    print(
        f"at worst it takes {max(deletes) / analysis.first:.2f} times as long; {len(given_up)} of {changes} were given up for it"
    )


if __name__ == "__main__":
    typer.run(main)
