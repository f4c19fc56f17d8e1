"""Active rules and constraints: what monitoring costs a transaction, as the data grows and as conditions are added.

*Salaries*: SR's introduction. A rule on the sum of all salaries; the peer adds them up again after each update.
*Constraints*: many constraint views over one closure and one count of it; the ratio is to one such view alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from random import Random
from statistics import median

import duckdb

import rederive
from benchmarks.report import Check, Figure, Goal, Section, Unit
from benchmarks.rounds import timed
from rederive.errors import Violated

RULE = """
    CREATE RULE overspent WHEN SELECT b.most FROM (SELECT sum(salary) AS total FROM employee) s JOIN budget b ON s.total > b.most
    DO CALL alarm
"""
GRAPH = """
    .decl edge(x: number, y: number)  .decl path(x: number, y: number)  .decl reach(x: number, n: number)
    path(x, y) :- edge(x, y).  path(x, y) :- path(x, z), edge(z, y).
    reach(x, n) :- edge(x, _), n = count : { path(x, _) }.
"""
LAYERS, WIDTH = 6, 60  # of the graph under the constraints
WORST = LAYERS * WIDTH + 1000


# Salaries


def employed(employees: int, alarms: list[object]) -> rederive.Database:
    """A database of so many employees, 1,000 each, and a budget that two of them may exceed by little."""
    db = rederive.open()
    db.sql("CREATE TABLE employee (id BIGINT PRIMARY KEY, salary BIGINT NOT NULL); CREATE TABLE budget (most BIGINT PRIMARY KEY)")
    db.load("employee", ((i, 1000) for i in range(employees)))
    db.load("budget", [(1000 * employees + 500,)])
    db.rules.register(alarms.append, "alarm")
    db.sql(RULE)
    return db


def salaries(employees: int, changes: int) -> tuple[float, float, set[int], bool]:
    """Medians of an update with the rule and of the peer's sum, the tuples touched, and whether the alarms were right."""
    alarms: list[object] = []
    db = employed(employees, alarms)
    peer = duckdb.connect(config={"threads": 1})
    peer.execute("CREATE TABLE employee AS SELECT range AS id, 1000 AS salary FROM range(?)", [employees])
    ours, theirs, touched, over = [], [], set(), []
    for step in range(changes):
        salary = 2000 if step % 2 == 0 else 1000
        seconds, result = timed(_raise(db, salary))
        ours.append(seconds)
        touched.add(result.touched)
        peer.execute("UPDATE employee SET salary = ? WHERE id = 7", [salary])
        seconds, found = timed(lambda: peer.execute("SELECT sum(salary) FROM employee").fetchall())
        theirs.append(seconds)
        over.append(found[0][0] > 1000 * employees + 500)
    entered = sum(now and not before for before, now in zip([False, *over], over, strict=False))
    return median(ours), median(theirs), touched, len(alarms) == entered


def _raise(db: rederive.Database, salary: int) -> Callable[[], rederive.Result]:
    def step() -> rederive.Result:
        with db.transaction() as tx:
            tx.upsert("employee", [(7, salary)])
        return tx.result

    return step


# Constraints


def graph(seed: int) -> list[tuple[int, int]]:
    """Edges from each node to three of the next layer.

    >>> len(graph(1)) == len(set(graph(1))) == (LAYERS - 1) * WIDTH * 3
    True
    """
    random = Random(seed)
    layers = [[layer * WIDTH + i for i in range(WIDTH)] for layer in range(LAYERS)]
    return [(x, y) for upper, lower in pairwise(layers) for x in upper for y in random.sample(lower, 3)]


def constrained(views: int, edges: Sequence[tuple[int, int]]) -> rederive.Database:
    db = rederive.open()
    limits = (f".decl c{i}(x: number)  c{i}(x) :- reach(x, n), n > {WORST + i}.  .constraint c{i}" for i in range(views))
    db.define("\n".join([GRAPH, *limits, *(f".output c{i}" for i in range(views))]))
    db.load("edge", edges)
    return db


def changing(db: rederive.Database, edges: Sequence[tuple[int, int]], changes: int, seed: int) -> float:
    """The median of transactions that take an edge out or put it back."""
    random, found = Random(seed), []
    for edge in random.sample(list(edges), changes // 2):
        for call in ("delete", "insert"):

            def step(call: str = call, edge: tuple[int, int] = edge) -> None:
                with db.transaction() as tx:
                    getattr(tx, call)("edge", [edge])

            found.append(timed(step)[0])
    return median(found)


def refuses(db: rederive.Database) -> bool:
    """Whether a transaction that violates a constraint is refused whole."""
    before = db.version
    try:
        with db.transaction() as tx:
            tx.insert("edge", [(-1, y) for y in range(-2, -WORST - 200, -1)])
    except Violated:
        return db.version == before and db.rows("edge", x=-1) == []
    return False


# What is reported


def run(sizes: Sequence[int], views: int, changes: int, seed: int) -> Iterator[Section]:
    yield _salaries(sorted(sizes), changes)
    yield _constraints(views, changes, seed)


def _salaries(sizes: Sequence[int], changes: int) -> Section:
    figures, checks, touched = [], [], []
    for size in sizes:
        ours, theirs, tuples, right = salaries(size, changes)
        figures.append(Figure(f"one update, {size:,} employees", ours, theirs))
        checks.append(Check(f"{size:,} employees: alarms as the peer's sums", right))
        touched.append(tuples)
    same = all(tuples == touched[0] for tuples in touched)
    checks.append(Check(f"tuples touched by an update: {sorted(touched[0])}, whatever the number of employees", same))
    return Section("A rule on the sum of all salaries", tuple(figures), tuple(checks), ("The peer adds up all salaries again.",))


def _constraints(views: int, changes: int, seed: int) -> Section:
    edges = graph(seed)
    databases = {count: constrained(count, edges) for count in (1, views)}
    times = {count: changing(db, edges, changes, seed) for count, db in databases.items()}
    ratio = times[views] / times[1]
    goal = Goal(f"less than {views} times one", ratio < views)
    figures = (
        *(Figure(f"one changed edge, {count} constraint views", seconds) for count, seconds in times.items()),
        Figure(f"{views} constraint views, times one", ratio, None, goal, Unit.RATIO),
    )
    checks = tuple(Check(f"{count} constraint views: a violation is refused", refuses(db)) for count, db in databases.items())
    note = f"A closure over {len(edges)} edges and the count of it by node are maintained once for all of them."
    return Section("Many constraints over common views", figures, checks, (note,))
