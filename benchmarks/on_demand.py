"""The closure of Debian's dependency graph, of which nothing is stored: exact changes from the base relation alone.

Each strategy runs in a process of its own, which tells how long its transactions take, how many rows are left in its tables after
each of them, and how much larger it is at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from statistics import median

import rederive
from benchmarks.closure import BASE, RULES, evaluated, loaded, read_edges
from benchmarks.memory import in_process, resident
from benchmarks.peers import DuckDB
from benchmarks.report import Check, Figure, Goal, Section, Unit
from benchmarks.rounds import Edge, Round, Spread, one_round, timed
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.resident.run.closure_search import ClosureAnswers
from rederive.engines.resident.run.derived_views import Answers, GroupAnswers, RuleAnswers
from rederive.engines.resident.run.filtration import FilterPhase

STRATEGIES = ("on_demand", "filtration")


@dataclass(frozen=True, slots=True)
class Run:
    """All rounds under one strategy. `left`: the rows beyond the base relation, after each transaction.

    `start`, `base`, `defined`, `end`: the resident set before the file was read, with the base relation loaded, with the view
    defined, and after the last transaction.
    """

    rounds: list[Round]
    left: list[int]
    start: int
    base: int
    defined: int
    end: int


def run(edges: int, repeats: int, seed: int) -> Iterator[Section]:
    """Random one-edge changes under each strategy, compared with the view that is stored and with DuckDB's recomputation."""
    rows = read_edges()
    chosen = Random(seed).sample(rows, edges)
    peer = DuckDB.of(rows)
    recompute = min(timed(peer.closure_size)[0] for _ in range(repeats))
    stored = evaluated(loaded(rows))
    expected = [one_round(stored, edge).rows for edge in chosen]
    for strategy in STRATEGIES:
        yield section(strategy, measured(strategy, edges, seed), recompute, expected)


def section(strategy: str, done: Run, recompute: float, expected: Sequence[tuple[Edge, ...]]) -> Section:
    figures = []
    for i, name in enumerate(("delete", "insert")):
        spread = Spread.of([getattr(r, name) for r in done.rounds])
        goal = Goal("50x", 50 * spread.median <= recompute)
        figures.append(Figure(f"{name}, median", spread.median, recompute, goal))
        figures.append(Figure(f"{name}, 95th percentile", spread.p95, recompute))
        figures.append(Figure(f"{name}, largest", spread.largest, recompute))
        figures.append(Figure(f"{name}, tuples touched, median", median(r.touched[i] for r in done.rounds), unit=Unit.COUNT))
    left = max(done.left)
    figures.append(Figure("rows left after a transaction, at most", left, goal=Goal("0", left == 0), unit=Unit.COUNT))
    figures.append(Figure("the base relation", done.base - done.start, unit=Unit.BYTES))
    figures.append(Figure("defining the view", done.defined - done.base, unit=Unit.BYTES))
    figures.append(Figure(f"growth over the {len(done.left)} transactions", done.end - done.defined, unit=Unit.BYTES))
    return Section(
        f"Debian closure under {strategy}: one edge deleted and inserted, {len(done.rounds)} random edges",
        tuple(figures),
        (
            Check("each delete loses exactly the rows that its insert wins", all(r.verified for r in done.rounds)),
            Check("every change is that of the stored view, row by row", [r.rows for r in done.rounds] == list(expected)),
        ),
        (
            "DuckDB computes the closure again; its best time stands here.",
            "Rows left: in every table but the base relation's, in magic tables, memo tables, caches and whatever is pending.",
            "Bytes: the resident set of a process of its own, after garbage collection.",
        ),
    )


def measured(strategy: str, edges: int, seed: int) -> Run:
    done = in_process("benchmarks.on_demand", strategy, edges, seed)
    rounds = [Round(**{**r, "rows": tuple(map(tuple, r["rows"])), "touched": tuple(r["touched"])}) for r in done.pop("rounds")]
    return Run(rounds, **done)


def measure(strategy: str, edges: int, seed: int) -> Run:
    """The rounds in this process."""
    start = resident()
    db = rederive.open(strategy=strategy)
    db.define(BASE)
    rows = read_edges()
    db.pipeline.load({"edge": rows})
    chosen = Random(seed).sample(rows, edges)
    del rows
    db.define("")  # installed anew, without what only loading needed
    base = resident()
    db.define(RULES)
    defined = resident()
    left: list[int] = []
    rounds = [one_round(db, edge, after=lambda: left.append(rows_left(db))) for edge in chosen]
    return Run(rounds, left, start, base, defined, resident())


# What is left of a transaction


def rows_left(db: rederive.Database) -> int:
    """The rows that the engine holds beyond the base relations, wherever they are.

    >>> graph = ".decl edge(x: number, y: number)  .decl loop(x: number)  loop(x) :- edge(x, x).  .output loop  edge(1, 1)."
    >>> kept, derived = rederive.open(strategy="materialized"), rederive.open(strategy="on_demand")
    >>> _ = kept.define(graph)
    >>> _ = derived.define(graph)
    >>> rows_left(kept), rows_left(derived)
    (1, 0)
    """
    assert isinstance(db.pipeline.state.engine, ResidentEngine)
    present = db.pipeline.state.engine.installed
    views = sum(len(present.tables.table(name)) for name in present.program.views)
    variants = sum(len(table) + sum(map(len, table.caches)) for table in present.tables.transient)
    derived = sum(map(answer_rows, (*present.tables.answers.values(), *present.queries.answers.values())))
    memo = sum(memo_rows(phase) for linked in present.sections for phase in linked.phases if isinstance(phase, FilterPhase))
    return views + variants + derived + memo


def answer_rows(answers: Answers | ClosureAnswers) -> int:
    """What was derived on demand."""
    match answers:
        case ClosureAnswers():
            return answers.size(answers.relation) + answer_rows(answers.rules)
        case RuleAnswers():
            return sum(len(target.table) + len(target.pending) for target in answers.targets.values())
        case GroupAnswers():
            return len(answers.view) + len(answers.requested)
        case _:
            raise AssertionError(f"unknown answers: {answers}")


def memo_rows(phase: FilterPhase) -> int:
    return sum(len(view.disqualified) + len(view.target.pending) for view in phase.views.values())


if __name__ == "__main__":
    name, number, seed = sys.argv[1:]
    print(json.dumps(asdict(measure(name, int(number), int(seed)))))
