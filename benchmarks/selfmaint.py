"""HU97: deciding whether views are self-maintainable, and maintaining them, as the stored views grow.

The views are those of the paper's Example 1.1. A row is inserted into R, which joins with what the views prove to be in S and T.
The compiled test and the maintenance queries run over the stored views; the peer evaluates the view from the sources.

The second section has views with projections and unions, whose rows hide facts: a decision for each class and size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import median

import duckdb

from benchmarks.report import Check, Figure, Section
from benchmarks.rounds import timed
from rederive import Warehouse
from rederive.ir.terms import Row

PROGRAM = """
    .decl r(x: number, y: number)  .decl s(y: number, z: number)  .decl t(z: number)  .remote r, s, t
    .decl v1(x: number, y: number, z: number)  v1(x, y, z) :- r(x, y), s(y, z), t(z).
    .decl v2(y: number, z: number)             v2(y, z) :- s(y, z).
"""
JOIN = "SELECT r.x, r.y, s.z FROM r, s, t WHERE r.y = s.y AND s.z = t.z"


@dataclass(frozen=True, slots=True)
class Sized:
    """One size, measured: medians in seconds, and whether every answer was right."""

    rows: int
    strict: float
    bulk: float
    open: float
    recompute: float
    right: bool


def sources(rows: int) -> dict[str, list[Row]]:
    """R with as many rows as V1 is to have; ten of them for each y of S, twenty for each z of T.

    >>> {name: len(found) for name, found in sources(1000).items()}
    {'r': 1000, 's': 100, 't': 50}
    """
    groups = max(2, rows // 10)
    s: list[Row] = [(y, y % (groups // 2)) for y in range(groups)]
    return {"r": [(x, x % groups) for x in range(rows)], "s": s, "t": [(z,) for z in range(groups // 2)]}


class Peer:
    """The sources themselves, on DuckDB."""

    def __init__(self, found: dict[str, list[Row]]) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        columns = {"r": ("x", "y"), "s": ("y", "z"), "t": ("z",)}
        for name, rows in found.items():
            typed = ", ".join(f"{column} BIGINT" for column in columns[name])
            self._connection.execute(f"CREATE TABLE {name} ({typed})")
            values = ", ".join(f"unnest(?) AS {column}" for column in columns[name])
            self._connection.execute(
                f"INSERT INTO {name} SELECT {values}", [[row[i] for row in rows] for i in range(len(rows[0]))]
            )

    def insert(self, row: Row) -> None:
        self._connection.execute("INSERT INTO r VALUES (?, ?)", row)

    def recompute(self) -> int:
        """Evaluate the view from its sources into a table; the number of its rows."""
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE v1 AS {JOIN}")
        return int(self._connection.execute("SELECT count(*) FROM v1").fetchall()[0][0])

    def rows_of(self, x: int) -> set[Row]:
        return set(self._connection.execute(f"SELECT * FROM ({JOIN}) WHERE x = ?", [x]).fetchall())


def measured(rows: int, changes: int, repeats: int) -> Sized:
    found = sources(rows)
    peer = Peer(found)
    warehouse = Warehouse(PROGRAM)
    by_y = {row[0]: row[1] for row in found["s"]}
    warehouse.load_typed({"v1": [(x, y, by_y[y]) for x, y in found["r"]], "v2": found["s"]})
    warehouse.apply(insert={"r": [(-1, 0)]})  # rules are compiled at their first use
    strict, right = [], True
    for i in range(changes):
        row = (rows + i, (i * 7919) % len(found["s"]))
        peer.insert(row)
        seconds, report = timed(lambda row=row: warehouse.apply(insert={"r": [row]}))  # type: ignore[misc]
        strict.append(seconds)
        right &= not report.reads and set(report.views["v1"].plus) == peer.rows_of(rows + i)
    times, sizes = zip(*(timed(peer.recompute) for _ in range(repeats)), strict=True)
    right &= sizes[0] == rows + changes
    many = [(2 * rows + i, i % len(found["s"])) for i in range(rows // 100)]
    bulk, report = timed(lambda: warehouse.apply(insert={"r": many}))
    right &= not report.reads and len(report.views["v1"].plus) == len(many)
    waiting = []
    for i in range(12):
        seconds, report = timed(lambda i=i: warehouse.apply(insert={"s": [(i, -1)]}))  # type: ignore[misc]
        waiting.append(seconds)
        right &= report.waiting == ("v1",)  # nothing tells whether t(-1) holds, and there is no source
    # From the second one on, v1 is behind v2 and is decided alone: the rules for that are compiled once.
    return Sized(rows, median(strict), bulk, median(waiting[2:]), median(times), right)


def run(sizes: Sequence[int], changes: int, repeats: int) -> Iterator[Section]:
    found = [measured(rows, changes, repeats) for rows in sorted(sizes)]
    figures = [Figure(f"decide and maintain, {one.rows:,} rows stored", one.strict, one.recompute) for one in found]
    figures += [
        Figure(f"the same for {one.rows // 100:,} inserted rows, {one.rows:,} stored", one.bulk, one.recompute) for one in found
    ]
    figures += [Figure(f"decide that it takes a source, {one.rows:,} rows stored", one.open) for one in found]
    yield Section(
        "Self-maintenance: the compiled test as the stored views grow (HU97, Example 1.1)",
        tuple(figures),
        tuple(Check(f"{one.rows:,} rows: no source needed, the change is DuckDB's", one.right) for one in found),
        (
            "Ours: one row inserted into R; test, maintenance and application. Peer: the view evaluated from its sources.",
            *(_growth(one, other) for one, other in pairwise(found)),
        ),
    )
    yield from run_classes(sizes, min(changes, 30))


@dataclass(frozen=True, slots=True)
class Decided:
    """A class of views and updates: the program, the stored rows, the updates, and whether they need a source."""

    title: str
    program: str
    rows: Callable[[int], dict[str, list[Row]]]
    update: Callable[[int, int], dict[str, dict[str, list[Row]]]]
    waits: bool = False


_R = ".decl r(x: number, y: number)  .remote r  "
_RS = ".decl r(x: number, y: number)  .decl s(y: number, z: number)  .remote r, s  "
_PATH = ".decl v(x: number, z: number)  v(x, z) :- r(x, y), s(y, z).  "


def _one(n: int) -> list[Row]:
    return [(i,) for i in range(n)]


def _two(n: int) -> list[Row]:
    return [(i, i % 50) for i in range(n)]


CLASSES: Sequence[Decided] = (
    Decided(
        "projection, row inserted",
        _R + ".decl v(x: number)  v(x) :- r(x, _).",
        lambda n: {"v": _one(n)},
        lambda i, n: {"insert": {"r": [(n + i, 1)]}},
    ),
    Decided(
        "projection, row deleted; another view copies r, ten rows a group",
        _R + ".decl v(x: number)  v(x) :- r(x, _).  .decl w(x: number, y: number)  w(x, y) :- r(x, y).",
        lambda n: {"v": _one(n // 10), "w": [(i // 10, i) for i in range(n)]},
        lambda i, n: {"delete": {"r": [(i // 10, i)]}},
    ),
    Decided(
        "union, row deleted; another view copies the other disjunct",
        ".decl r(x: number)  .decl s(x: number)  .remote r, s  "
        ".decl v(x: number)  v(x) :- r(x).  v(x) :- s(x).  .decl w(x: number)  w(x) :- s(x).",
        lambda n: {"v": _one(n), "w": _one(n)[::2]},
        lambda i, n: {"delete": {"r": [(i,)]}},
    ),
    Decided(
        "join with projection, row inserted; another view copies s",
        _RS + _PATH + ".decl w(y: number, z: number)  w(y, z) :- s(y, z).",
        lambda n: {"v": _two(n), "w": _two(n)},
        lambda i, n: {"insert": {"r": [(n + i, i)]}},
    ),
    # The rows of all transactions so far are decided together, because the view waits for each.
    Decided(
        "join with projection, row inserted; nothing tells about s, so a source is needed",
        _RS + _PATH,
        lambda n: {"v": _two(n)},
        lambda i, n: {"insert": {"r": [(n + i, i)]}},
        waits=True,
    ),
)


def decide_class(one: Decided, rows: int, changes: int) -> tuple[float, bool]:
    """Return the median time of a transaction in seconds, and whether every answer was the expected one.

    >>> decide_class(CLASSES[0], 100, 3)[1]
    True
    """
    # A view that waits takes its later transactions together with the first.
    warehouse = Warehouse(one.program, net=True)
    warehouse.load_typed(one.rows(rows))
    times, right = [], True
    for i in range(changes + 1):
        seconds, report = timed(lambda i=i: warehouse.apply(**one.update(i, rows)))  # type: ignore[misc]
        times.append(seconds)
        right &= (report.waiting == ("v",)) is one.waits and not report.reads
    # The first transaction compiles the rules.
    return median(times[1:]), right


def run_classes(sizes: Sequence[int], changes: int) -> Iterator[Section]:
    found = [(one, rows, *decide_class(one, rows, changes)) for one in CLASSES for rows in sorted(sizes)]
    yield Section(
        "Self-maintenance of views with projections and unions: one transaction, by class and size",
        tuple(Figure(f"{one.title}, {rows:,} rows stored", seconds) for one, rows, seconds, _ in found),
        tuple(Check(f"{one.title}, {rows:,} rows: the answer is right", right) for one, rows, _, right in found),
        ("One row changes. Decision, maintenance and application together; the median. Rules are compiled by the first one.",),
    )


def _growth(one: Sized, other: Sized) -> str:
    """The powers of the number of rows that the times grew by.

    >>> _growth(Sized(10, 1.0, 1.0, 1.0, 0, True), Sized(1000, 10.0, 100.0, 1.0, 0, True))
    'growth from 10 to 1,000 rows: one row inserted, time ~ rows^0.50; a hundredth inserted, time ~ rows^1.00'
    """
    single, bulk = (
        log(after / before) / log(other.rows / one.rows) for before, after in ((one.strict, other.strict), (one.bulk, other.bulk))
    )
    sizes = f"growth from {one.rows:,} to {other.rows:,} rows"
    return f"{sizes}: one row inserted, time ~ rows^{single:.2f}; a hundredth inserted, time ~ rows^{bulk:.2f}"
