"""Does the cost of a one-edge change follow the change or the database?

Random graphs with the same local structure at every size: blocks of 20 nodes, 40 edges inside each block, forward. The closure
is as local as the edges, so a change should cost the same however many blocks there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from statistics import median

import rederive
from benchmarks.memory import resident
from benchmarks.peers import DuckDB
from benchmarks.report import Check, Figure, Goal, Section, Unit
from benchmarks.rounds import Round, one_round, timed

NODES, EDGES = 20, 40
COMPARED = 1_000_000  # edges up to which DuckDB computes the closure too: that of ten times as many takes it gigabytes
PROGRAM = """
    .decl edge(x: number, y: number)
    .decl closure(x: number, y: number)
    closure(x, y) :- edge(x, y).
    closure(x, y) :- edge(x, z), closure(z, y).
    .output closure
"""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of one size, in a database and in the peer, and the edges that will leave and come back."""

    size: int
    chosen: list[tuple[int, int]]
    db: rederive.Database
    peer: DuckDB | None
    memory: int

    @classmethod
    def of(cls, size: int, changes: int, seed: int) -> Graph:
        before = resident()
        edges = random_edges(size, seed)
        chosen, number = Random(seed).sample(edges, changes), len(edges)
        peer = DuckDB.of(edges) if number <= COMPARED else None
        db = rederive.open()
        db.define(PROGRAM)
        db.pipeline.load({"edge": edges})
        del edges
        return cls(number, chosen, db, peer, resident() - before)

    def recompute(self, repeats: int) -> float | None:
        """The seconds in which the peer computes the closure again."""
        return None if self.peer is None else median(timed(self.peer.closure_size)[0] for _ in range(repeats))

    def agrees(self) -> bool:
        """Whether the view is the peer's."""
        return self.peer is None or self.peer.agrees(self.db.pipeline.state.engine.rows("closure", {}))


def random_edges(size: int, seed: int) -> list[tuple[int, int]]:
    """At least `size` edges, in whole blocks.

    >>> edges = random_edges(1000, seed=1)
    >>> len(edges), all(x < y and x // 20 == y // 20 for x, y in edges)
    (1000, True)
    """
    pairs, random = tuple(combinations(range(NODES), 2)), Random(seed)
    starts = range(0, -(-size // EDGES) * NODES, NODES)
    return [(start + x, start + y) for start in starts for x, y in random.sample(pairs, EDGES)]


def run(sizes: Sequence[int], changes: int, repeats: int, seed: int) -> Iterator[Section]:
    graphs = [Graph.of(size, changes, seed) for size in sorted(sizes)]
    rounds = by_turns(graphs, changes)
    recomputes = [graph.recompute(repeats) for graph in graphs]
    yield Section(
        f"Growth: one edge deleted and inserted, {changes} random edges of each graph",
        tuple(_figures("delete", graphs, [median(r.delete for r in each) for each in rounds], recomputes))
        + tuple(_figures("insert", graphs, [median(r.insert for r in each) for each in rounds], recomputes))
        + tuple(Figure(f"resident set, {graph.size:,} edges", graph.memory, unit=Unit.BYTES) for graph in graphs),
        (
            Check("each delete loses exactly the rows that its insert wins", all(r.verified for each in rounds for r in each)),
            Check(f"every view of up to {COMPARED:,} edges equals DuckDB's", all(graph.agrees() for graph in graphs)),
        ),
        (
            f"Blocks of {NODES} nodes with {EDGES} edges each; medians of CPU time. The graphs take turns, edge by edge.",
            "The resident set is what loading and evaluating added, with DuckDB's table where it is compared.",
        ),
    )


def by_turns(graphs: Sequence[Graph], changes: int) -> list[list[Round]]:
    """One change of each graph, then the next of each: what else the machine does falls on all of them alike."""
    rounds: list[list[Round]] = [[] for _ in graphs]
    for i in range(changes):
        for graph, done in zip(graphs, rounds, strict=True):
            done.append(one_round(graph.db, graph.chosen[i]))
    return rounds


def _figures(name: str, graphs: Sequence[Graph], ours: Sequence[float], peers: Sequence[float | None]) -> Iterator[Figure]:
    for graph, mine, peer in zip(graphs, ours, peers, strict=True):
        yield Figure(f"{name}, {graph.size:,} edges", mine, peer)
    ratio = ours[-1] / ours[0]
    yield Figure(f"{name}, largest to smallest", ratio, goal=Goal("< 2x", ratio < 2), unit=Unit.RATIO)
