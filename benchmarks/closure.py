"""The closure of Debian's dependency graph: 274,855 edges, 3,453,579 pairs.

Evaluated from scratch, then kept up to date while edges leave and come back, one at a time. DuckDB has one way to answer in each
case: it computes the closure again. Two engines in Rust maintain it, too, where `cargo` has built them (`benchmarks.peers.rust`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

import rederive
from benchmarks.peers import DuckDB, rust
from benchmarks.report import Check, Figure, Goal, Section
from benchmarks.rounds import Edge, Round, Spread, one_round, timed
from rederive.ingest.input_file import read_rows
from rederive.ir.terms import Row

DATA = Path(__file__).parent.parent / "examples" / "data" / "debian_bookworm_depends.csv.gz"
BASE = ".decl edge(x: symbol, y: symbol)"
RULES = """
    .decl closure(x: symbol, y: symbol)
    closure(x, y) :- edge(x, y).
    closure(x, y) :- edge(x, z), closure(z, y).
    .output closure
"""
NAMED: tuple[Edge, ...] = (("libssl3", "libc6"), ("python3", "python3.11"), ("perl", "libperl5.36"))


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Times from scratch, one for each repeat, ours and the peer's by turns."""

    ours: list[float]
    ours_from_file: list[float]
    peer: list[float]
    peer_from_file: list[float]
    peer_coded: list[float]
    sizes: set[int]


def run(edges: int, repeats: int, seed: int, engines: Sequence[str] = ()) -> Iterator[Section]:
    """Initial evaluation, random one-edge changes, the three named edges; all of it checked against DuckDB."""
    rows = read_edges()
    peer = DuckDB.of(rows)
    evaluations = evaluate(rows, peer, repeats)
    yield initial_section(evaluations)
    db = evaluated(loaded(rows))
    chosen = Random(seed).sample(rows, edges)
    rounds = [one_round(db, edge) for edge in chosen]
    yield changes_section(rounds, min(evaluations.peer))
    named = {edge: [one_round(db, edge) for _ in range(repeats)] for edge in NAMED}
    yield named_section(named, peer, repeats, peer.agrees(db.pipeline.state.engine.rows("closure", {})))
    changed = [*chosen, *(edge for edge in NAMED for _ in range(repeats))]
    operations = [(kind, edge) for edge in changed for kind in ("D", "I")]
    every_round = [*rounds, *(r for each in named.values() for r in each)]
    for name in filter(rust.is_built, engines):
        yield rust_section(rust.run(name, rows, operations), every_round, evaluations, edges, repeats)


# From scratch


def read_edges() -> list[Row]:
    return read_rows(DATA, based().pipeline.state.program.relations["edge"])


def based() -> rederive.Database:
    db = rederive.open()
    db.define(BASE)
    return db


def loaded(rows: Sequence[Row]) -> rederive.Database:
    """The base rows stored, no view yet."""
    db = based()
    db.pipeline.load({"edge": rows})
    return db


def evaluated(db: rederive.Database) -> rederive.Database:
    """Define the view over the rows that are there: compile its rules and evaluate it."""
    db.define(RULES)
    return db


def evaluate(rows: Sequence[Row], peer: DuckDB, repeats: int) -> Evaluations:
    coded = peer.coded()
    result = Evaluations([], [], [], [], [], set())
    for _ in range(repeats):
        db = loaded(rows)
        gc.collect()
        seconds, db = timed(lambda db=db: evaluated(db))  # type: ignore[misc]
        result.ours.append(seconds)
        result.sizes.add(db.pipeline.state.engine.size("closure"))
        del db
        result.ours_from_file.append(timed(lambda: evaluated(loaded(read_edges())))[0])
        for graph, times in ((peer, result.peer), (coded, result.peer_coded)):
            seconds, size = timed(graph.closure_size)
            times.append(seconds)
            result.sizes.add(size)
        result.peer_from_file.append(timed(lambda: DuckDB.of_csv(DATA).closure_size())[0])
    return result


def initial_section(times: Evaluations) -> Section:
    ours, peer = median(times.ours), median(times.peer)
    within, aim = Goal("≤ 2.5x", ours <= 2.5 * peer), Goal("aim < 1x", ours < peer)
    size = max(times.sizes)
    return Section(
        "Debian closure: initial evaluation",
        (
            Figure("base rows loaded, median", ours, peer, within),
            Figure("base rows loaded, best", min(times.ours), min(times.peer), aim),
            Figure("from the CSV file, median", median(times.ours_from_file), median(times.peer_from_file)),
            Figure("from the CSV file, best", min(times.ours_from_file), min(times.peer_from_file)),
            Figure("against integer codes, median", ours, median(times.peer_coded)),
        ),
        (Check(f"both find {size:,} pairs", times.sizes == {size}),),
        (
            f"Repeats: {len(times.ours)}, by turns. rederive stores and indexes the view; DuckDB only counts it.",
            "CPU time, one thread each. Goals are in multiples of DuckDB's time; integer codes are for information.",
        ),
    )


# One edge at a time


def changes_section(rounds: Sequence[Round], recompute: float) -> Section:
    figures = []
    for name, times in (("delete", [r.delete for r in rounds]), ("insert", [r.insert for r in rounds])):
        spread = Spread.of(times)
        goal = Goal("1,000x", 1000 * spread.median <= recompute)
        figures.append(Figure(f"{name}, median", spread.median, recompute, goal))
        figures.append(Figure(f"{name}, 95th percentile", spread.p95, recompute))
        figures.append(Figure(f"{name}, largest", spread.largest, recompute))
    decode = Spread.of([r.decode for r in rounds])
    figures.append(Figure("decoding the rows, median", decode.median))
    figures.append(Figure("decoding the rows, largest", decode.largest))
    most = max(len(r.rows) for r in rounds)
    return Section(
        f"Debian closure: one edge deleted and inserted, {len(rounds)} random edges",
        tuple(figures),
        (Check("each delete loses exactly the rows that its insert wins", all(r.verified for r in rounds)),),
        (
            f"Rows of a change: {median(len(r.rows) for r in rounds):,.0f} at the median, {most:,} at most. Decoding sorts, too.",
            "Times are of whole transactions and end with the exact change in hand, coded.",
            "DuckDB computes the closure again; its best time stands here.",
        ),
    )


def named_section(named: dict[Edge, list[Round]], peer: DuckDB, repeats: int, same: bool) -> Section:
    figures, checks = [], []
    for (x, y), rounds in named.items():
        lost = peer.lost((x, y))
        peer.delete((x, y))
        recompute = min(timed(peer.closure_size)[0] for _ in range(repeats))
        peer.insert((x, y))
        for name, times in (("delete", [r.delete for r in rounds]), ("insert", [r.insert for r in rounds])):
            goal = Goal("≤ 1x", median(times) <= recompute)
            figures.append(Figure(f"{x} -> {y}, {name}", median(times), recompute, goal))
        checks.append(Check(f"the {len(lost):,} rows of {x} -> {y} are DuckDB's", all(list(r.rows) == lost for r in rounds)))
    notes = (f"Repeats: {repeats}; our median, DuckDB's best, which computes the closure without the edge.",)
    verified = all(r.verified for rounds in named.values() for r in rounds)
    checks.append(Check("each delete loses exactly the rows that its insert wins", verified))
    checks.append(Check("after all these changes, every row of the view is DuckDB's", same))
    return Section("Debian closure: edges that much depends on", tuple(figures), tuple(checks), notes)


# The engines in Rust


def rust_section(theirs: rust.RustRun, rounds: Sequence[Round], evaluations: Evaluations, edges: int, repeats: int) -> Section:
    """The same changes in the same order: the random edges first, then each named one as often as it was repeated."""
    figures = [Figure("initial evaluation", median(evaluations.ours), theirs.initial)]
    for name, ours, peer in (
        ("delete", [r.delete for r in rounds], theirs.seconds[::2]),
        ("insert", [r.insert for r in rounds], theirs.seconds[1::2]),
    ):
        figures.append(_compare(f"{edges} random edges, {name}, median", ours[:edges], peer[:edges]))
        for i, (x, y) in enumerate(NAMED):
            part = slice(edges + i * repeats, edges + (i + 1) * repeats)
            figures.append(_compare(f"{x} -> {y}, {name}", ours[part], peer[part], has_goal=name == "delete"))
    ours_changed = [{tuple(row) for row in r.rows} for r in rounds for _ in range(2)]
    return Section(
        f"Debian closure: beside {theirs.name}",
        tuple(figures),
        (
            Check(f"both find {theirs.pairs:,} pairs", evaluations.sizes == {theirs.pairs}),
            Check(f"all {len(ours_changed):,} changes are the same rows", ours_changed == theirs.changes),
        ),
        (
            "CPU time of each process; medians. The right-linear program, one thread, all of its rows handed over.",
            f"Its resident set after the evaluation: {theirs.memory / 1e6:,.0f} MB; for ours see the benchmark memory.",
        ),
        theirs.name.split(" ")[0],
    )


def _compare(name: str, ours: Sequence[float], peer: Sequence[float], *, has_goal: bool = False) -> Figure:
    goal = Goal("≤ 1x", median(ours) <= median(peer)) if has_goal else None
    return Figure(name, median(ours), median(peer), goal)
