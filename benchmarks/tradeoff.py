"""Time against memory: what a one-row transaction costs under each strategy, and what the strategy keeps between transactions.

SJ96, section 6: "there is a space-time trade-off between the solutions presented in sections 3 and 4 which needs to be
investigated quantitatively". Each pair of program and strategy runs in a process of its own, and once more, for its memory, in
one that counts every byte allocated and not freed: a resident set also counts what was freed in small pieces.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import median

import rederive
from benchmarks.closure import BASE as GRAPH
from benchmarks.closure import RULES as CLOSURE
from benchmarks.closure import read_edges
from benchmarks.memory import allocated, in_process
from benchmarks.report import Check, Figure, Machine, Section, Unit, shown
from benchmarks.rounds import Edge, one_round
from rederive.engines.resident.engine import ResidentEngine
from rederive.ir.terms import Row

NOTHING_STORED = ("recompute", "on_demand", "filtration")
RECURSIVE = (*NOTHING_STORED, "materialized")
FLAT = (*NOTHING_STORED, "differencing", "counting", "materialized")
RECOMPUTED = 5  # rounds under `recompute`, which takes long and varies little
WEIGHED = 2  # rounds in the process that counts its bytes

RIGHTS_BASE = """
    .decl member(x: symbol, g: symbol)
    .decl grant(g: symbol, r: symbol)
    .decl denied(u: symbol, r: symbol)
    .decl user(u: symbol)
"""
RIGHTS = """
    .decl within(x: symbol, g: symbol)
    within(x, g) :- member(x, g).
    within(x, g) :- member(x, h), within(h, g).
    .decl may(u: symbol, r: symbol)
    may(u, r) :- user(u), within(u, g), grant(g, r), !denied(u, r).
    .output may
"""
STAR_BASE = """
    .decl sale(id: number, product: number, store: number, price: number)
    .decl product(product: number, category: symbol)
    .decl store(store: number, region: symbol)
"""
STAR = """
    .decl revenue(region: symbol, category: symbol, total: number)
    revenue(region, category, total) :- product(_, category), store(_, region),
        total = sum price : { sale(_, p, s, price), product(p, category), store(s, region) }.
    .output revenue
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A program, its rows, and the relation of which one row leaves and comes back."""

    title: str
    base: str
    rules: str
    rows: Callable[[int], Mapping[str, Sequence[Row]]]
    relation: str
    view: str
    strategies: tuple[str, ...]
    monotone: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """One strategy on one program: the median transaction, what is kept between transactions, the rows that each delete lost."""

    seconds: float
    kept_bytes: int
    kept_rows: int
    verified: bool
    changes: list[list[Edge]]


# What the table and the picture show, in words.
SHOWN = (
    "Use this page to choose a strategy: how long a transaction takes, and how much memory the strategy needs.",
    "",
    "- A stored view has the fastest transactions. It takes memory for every row of the view and of the views below it.",
    "- A view that is derived on demand stores no row and answers in milliseconds: slower than the stored view, much faster",
    "  than recomputing.",
    "- Every strategy stores indexes of the base relations, and these can be large: in the star join they are about half of",
    "  what the stored strategies take.",
)


# The rows of the three programs, each from a seed


def packages(seed: int, roots: int = 1500) -> Mapping[str, Sequence[Row]]:
    """The dependencies of some Debian packages, direct and indirect."""
    edges: dict[object, list[Row]] = {}
    for row in read_edges():
        edges.setdefault(row[0], []).append(row)
    found = set(waiting := Random(seed).sample(sorted(map(str, edges)), roots))
    kept: list[Row] = []
    while waiting:
        for row in edges.get(waiting.pop(), ()):
            kept.append(row)
            if row[1] not in found:
                found.add(str(row[1]))
                waiting.append(str(row[1]))
    return {"edge": kept}


def accounts(seed: int, users: int = 5000, groups: int = 500, resources: int = 1000) -> Mapping[str, Sequence[Row]]:
    """Users in groups, groups in groups, rights of groups, and users from whom a right is withheld.

    >>> {name: len(rows) for name, rows in accounts(1, users=10, groups=4, resources=5).items()}["user"]
    10
    """
    random = Random(seed)
    nested = [(f"g{i}", f"g{random.randrange(i)}") for i in range(1, groups) for _ in range(random.randint(1, 2))]
    joined = [(f"u{i}", f"g{random.randrange(groups)}") for i in range(users) for _ in range(2)]
    granted = [(f"g{random.randrange(groups)}", f"r{i}") for i in range(resources) for _ in range(3)]
    denied = [(f"u{random.randrange(users)}", f"r{random.randrange(resources)}") for _ in range(users)]
    unique = {"member": {*nested, *joined}, "grant": set(granted), "denied": set(denied)}
    return {"user": [(f"u{i}",) for i in range(users)], **{name: sorted(rows) for name, rows in unique.items()}}


def sales(seed: int, number: int = 50_000, products: int = 500, stores: int = 100) -> Mapping[str, Sequence[Row]]:
    """Sales of products in stores.

    >>> {name: len(rows) for name, rows in sales(1, number=20).items()}
    {'sale': 20, 'product': 500, 'store': 100}
    """
    random = Random(seed)
    return {
        "sale": [(i, random.randrange(products), random.randrange(stores), random.randint(1, 500)) for i in range(number)],
        "product": [(i, f"category {i % 20}") for i in range(products)],
        "store": [(i, f"region {i % 10}") for i in range(stores)],
    }


CASES = {
    "closure": Case("Closure of a part of Debian", GRAPH, CLOSURE, packages, "edge", "closure", RECURSIVE, monotone=True),
    "rights": Case("Access rights with negation", RIGHTS_BASE, RIGHTS, accounts, "member", "may", RECURSIVE),
    "star": Case("Star join with a sum", STAR_BASE, STAR, sales, "sale", "revenue", FLAT),
}


# The measurements

Points = Mapping[str, Mapping[str, Point]]


def run(rounds: int, seed: int, docs: Path | None = None) -> Iterator[Section]:
    """One section for each program; with a folder, also the page and the picture."""
    points: dict[str, dict[str, Point]] = {}
    for name, case in CASES.items():
        points[name] = {strategy: measured(name, strategy, rounds, seed) for strategy in case.strategies}
        yield section(case, points[name], rounds)
    if docs is not None:
        write(points, docs)


def measured(name: str, strategy: str, rounds: int, seed: int) -> Point:
    arguments = ("benchmarks.tradeoff", name, strategy)
    weighed = Point(**in_process(*arguments, min(rounds, WEIGHED), seed, PYTHONMALLOC="malloc"))
    return replace(Point(**in_process(*arguments, rounds, seed)), kept_bytes=weighed.kept_bytes)


def measure(case: Case, strategy: str, rounds: int, seed: int) -> Point:
    """The rounds in this process, which has allocated more afterwards: what the strategy keeps."""
    rows = case.rows(seed)
    number = min(rounds, RECOMPUTED) if strategy == "recompute" else rounds
    chosen = Random(seed).sample(rows[case.relation], rounds)[:number]
    db = rederive.open(strategy=strategy)
    db.define(case.base)
    db.pipeline.load(rows)
    del rows
    db.define("")  # installed anew, without what only loading needed
    before = allocated()
    db.define(case.rules)
    one_round(db, chosen[0], case.view, case.relation, monotone=case.monotone)  # what is compiled at first use is kept, too
    kept = allocated() - before
    done = [one_round(db, row, case.view, case.relation, monotone=case.monotone) for row in chosen]
    seconds = median([seconds for r in done for seconds in (r.delete, r.insert)])
    return Point(seconds, kept, kept_rows(db), all(r.verified for r in done), [list(r.rows) for r in done])


def kept_rows(db: rederive.Database) -> int:
    """The rows of all views that the database stores, those between the base relations and the monitored views too."""
    assert isinstance(db.pipeline.state.engine, ResidentEngine)
    present = db.pipeline.state.engine.installed
    return sum(len(present.tables.stored_table(name)) for name in present.stored_views)


def section(case: Case, points: Mapping[str, Point], rounds: int) -> Section:
    recompute = points["recompute"]
    figures = []
    for strategy, point in points.items():
        peer = None if strategy == "recompute" else recompute.seconds
        figures.append(Figure(f"{strategy}, median transaction", point.seconds, peer))
        figures.append(Figure(f"{strategy}, kept", point.kept_bytes, unit=Unit.BYTES))
        figures.append(Figure(f"{strategy}, rows kept", point.kept_rows, unit=Unit.COUNT))
    return Section(
        f"Trade-off, {case.title}: one row deleted and inserted, {rounds} random rows",
        tuple(figures),
        (
            Check("each insert takes back exactly what its delete did", all(point.verified for point in points.values())),
            Check("all strategies lose the same rows", agree(points.values())),
        ),
        (f"Kept: bytes allocated since the base rows were loaded, indexes too. At most {RECOMPUTED} rows under recompute.",),
        peer="recompute",
    )


def agree(points: Iterable[Point]) -> bool:
    """Whether all found the same changes, as far as each of them went."""
    first, *others = (point.changes for point in points)
    return all(mine == yours for other in others for mine, yours in zip(first, other, strict=False))


# The page


def write(points: Points, docs: Path) -> None:
    """`tradeoff.png` and `tradeoff.md`."""
    from benchmarks.chart import draw  # here, so that the processes that measure do not load matplotlib

    docs.mkdir(exist_ok=True)
    panels = {
        CASES[name].title: {strategy: (point.kept_bytes / 1e6, point.seconds) for strategy, point in of.items()}
        for name, of in points.items()
    }
    draw(panels, docs / "tradeoff.png")
    (docs / "tradeoff.md").write_text("\n".join(page(points, Machine.this())), encoding="utf-8")


def page(points: Points, machine: Machine) -> Iterator[str]:
    yield from ("# Time against memory", "", *SHOWN, "", "![Time against memory, by strategy](tradeoff.png)", "")
    yield from ("| program | strategy | median transaction | memory | stored rows |", "|---|---|--:|--:|--:|")
    for name, of in points.items():
        for strategy, point in of.items():
            time, kept = shown(point.seconds, Unit.SECONDS), shown(point.kept_bytes, Unit.BYTES)
            yield f"| {CASES[name].title} | {strategy} | {time} | {kept} | {point.kept_rows:,} |"
    yield from ("", "Written by `.venv/bin/python benchmarks/run.py tradeoff --write`.", "", f"{machine}", "")


if __name__ == "__main__":
    program, name, number, seed = sys.argv[1:]
    print(json.dumps(asdict(measure(CASES[program], name, int(number), int(seed)))))
