"""Dense recursive programs under many deletions: every strategy finds what the oracle finds, and rows follow from older ones."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random

import pytest

import rederive
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.resident.run import aged_deletions, ages, patience, phases
from rederive.engines.resident.run.ages import Ages
from rederive.engines.resident.run.patience import Patience
from rederive.ir.rules import Program, defines
from rederive.ir.terms import Row
from rederive.lang import compile_program
from tests.oracle import consequences, evaluate
from tests.properties.test_maintained_equals_recomputed import apply, changed

PROGRAMS = {
    "points-to": """
        .decl new(v: number, o: number) .decl assign(v: number, w: number)
        .decl load(v: number, b: number) .decl store(b: number, w: number)
        .decl points(v: number, o: number) .decl heap(o: number, p: number) .output points .output heap
        points(v, o) :- new(v, o).
        points(v, o) :- assign(v, w), points(w, o).
        points(v, p) :- load(v, b), points(b, o), heap(o, p).
        heap(o, p) :- store(b, w), points(b, o), points(w, p).
    """,
    "mutual recursion under negation": """
        .decl e(x: number, y: number) .decl f(x: number, y: number)
        .decl odd(x: number, y: number) .decl even(x: number, y: number) .decl apart(x: number, y: number)
        .output apart .output odd
        odd(x, y) :- e(x, y). odd(x, y) :- even(x, z), e(z, y).
        even(x, y) :- odd(x, z), e(z, y). even(x, y) :- f(x, y), odd(y, x).
        apart(x, y) :- odd(x, y), !even(x, y).
        .decl far(x: number) .output far
        far(x) :- apart(x, x). far(x) :- far(y), e(y, x), !f(x, y).
    """,
    "same generation, not linear": """
        .decl up(x: number, y: number) .decl flat(x: number, y: number)
        .decl sg(x: number, y: number) .output sg .decl all(x: number, y: number) .output all
        sg(x, y) :- flat(x, y). sg(x, y) :- up(x, a), sg(a, b), up(y, b).
        all(x, y) :- sg(x, y). all(x, y) :- all(x, z), all(z, y), flat(y, x).
        all(x, y) :- all(y, x), up(x, y).
    """,
    "three columns and arithmetic": """
        .decl e(x: number, y: number) .decl n(x: number)
        .decl walk(x: number, y: number, k: number) .output walk
        walk(x, y, 1) :- e(x, y). walk(x, y, k + 1) :- walk(x, z, k), e(z, y), k < 3.
        walk(x, y, k) :- walk(y, x, k), n(k). walk(x, x, 0) :- n(x). walk(0, 0, 0).
    """,
    "closures of pairs and of several steps": """
        .decl g(a: number, b: number, c: number, d: number) .decl e(x: number, y: number)
        .decl w(a: number, b: number, c: number, d: number) .output w .decl c(x: number, y: number) .output c
        w(a, b, c, d) :- g(a, b, c, d). w(a, b, c, d) :- g(a, b, x, y), w(x, y, c, d).
        c(x, y) :- e(x, y). c(x, y) :- w(x, _, y, _). c(x, y) :- e(x, z), c(z, y). c(x, y) :- w(x, _, z, _), c(z, y).
    """,
}


STRATEGIES = ("materialized", "auto", "on_demand", "filtration")


def random_rows(random: Random, arity: int, values: int, many: int) -> set[Row]:
    return {tuple(random.randrange(values) for _ in range(arity)) for _ in range(many)}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_deletions_are_exact(name: str, strategy: str) -> None:
    play(name, strategy)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("closures")])
def test_rows_that_are_tried_again_become_younger(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one moment, then after two more and so on: here a first evaluation has fewer moments than the first window."""
    monkeypatch.setattr(aged_deletions, "SOON", 1)
    monkeypatch.setattr(aged_deletions, "LATER", 2)
    play(name, "materialized")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["points-to", "mutual recursion under negation"])
def test_work_that_is_given_up_is_done_from_scratch(name: str, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No patience at all: whatever the phases have filled when they are stopped leaves no trace."""
    monkeypatch.setattr(phases, "FIRST", 1)
    monkeypatch.setattr(patience, "STEP", 3)
    monkeypatch.setattr(Patience, "seconds", property(lambda _: -1.0))
    monkeypatch.setattr(Patience, "seconds_from_scratch", property(lambda _: inf))
    assert play(name, strategy) > 0


def play(name: str, strategy: str) -> int:
    """Random transactions, each compared with the oracle; how many views were evaluated from scratch."""
    recomputed = 0
    program, random = compile_program(PROGRAMS[name]), Random(f"{name} {strategy}")
    for density in (1, 2):
        db = rederive.open(strategy=strategy)
        db.define(PROGRAMS[name])
        base: dict[str, set[Row]] = {relation: set() for relation in program.bases}
        rows = evaluate(program, base)
        values = 4 if name.startswith("closures") else 5
        start = {n: random_rows(random, program.relations[n].arity, values, 4 + 3 * density) for n in program.bases}
        for step in range(7):
            change = (
                [("insert", n, sorted(rows)) for n, rows in start.items()] if not step else next_change(random, program, base)
            )
            base = changed(base, change)
            with db.transaction() as tx:
                apply(tx, change)
            recomputed += tx.result.recomputed
            before, rows = rows, evaluate(program, base)
            for view in program.monitored:
                found = tx.result.changes.get(view)
                plus, minus = (found.plus, found.minus) if found else ([], [])
                assert (set(plus), set(minus)) == (rows[view] - before[view], before[view] - rows[view]), (view, step)
            check_ages(db)
        for view in program.monitored:
            assert set(db.rows(view)) == rows[view]
    return recomputed


@pytest.mark.parametrize("name", ["points-to", "mutual recursion under negation"])
def test_keys_are_found_by_moment_after_many_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of arrivals is made from scratch all the time, and each window of moments has few keys."""
    monkeypatch.setattr(ages, "FEW_ARRIVALS", 1)
    monkeypatch.setattr(aged_deletions, "SOON", 1)
    play(name, "materialized")


def next_change(random: Random, program: Program, base: dict[str, set[Row]]) -> list[tuple[str, str, list[Row]]]:
    """Mostly deletions of rows that are there; sometimes an insertion with them."""
    change = []
    for _ in range(random.choice([1, 1, 2])):
        name = random.choice([name for name, rows in sorted(base.items()) if rows] or sorted(base))
        leaving = random.sample(sorted(base[name]), min(len(base[name]), random.choice([1, 1, 1, 3])))
        change.append(("delete", name, leaving))
    if random.random() < 0.4:
        name = random.choice(sorted(base))
        change.append(("insert", name, sorted(random_rows(random, program.relations[name].arity, 5, 2))))
    return change


def check_ages(db: rederive.Database) -> None:
    """Every row of a view with ages has one, and follows from base rows, lower views and rows that are older."""
    engine = db.pipeline.state.engine
    assert isinstance(engine, ResidentEngine)
    views = engine.installed.linker._ages
    program = engine.program
    known = {name: set(engine.rows(name, {})) for name in program.relations if name not in views}
    for timeline in {id(held.timeline): held.timeline for held in views.values()}.values():
        rows = known | {name: set() if held.timeline is timeline else set(engine.rows(name, {})) for name, held in views.items()}
        for _, name, came in sorted(arrival for held in timeline.ages for arrival in arrivals(held, engine)):
            assert came <= set().union(*(consequences(d, rows) for d in program.definitions if defines(d) == name))
            rows[name] |= came


def arrivals(held: Ages, engine: ResidentEngine) -> Iterator[tuple[int, str, set[Row]]]:
    """The moments of a view with the rows that came at each; the rows under a key are all there, once."""
    assert held.moments.keys() == held.table.primary.keys()
    for key, entry in held.moments.items():
        leaf = held.table.primary[key]
        parts = [(entry, leaf)] if isinstance(entry, int) else entry
        assert sum(len(rows) for _, rows in parts) == len(leaf)
        assert [moment for moment, _ in parts] == sorted({moment for moment, _ in parts})
        for moment, rows in parts:
            assert rows <= leaf
            assert key in held.arrivals.between(moment - 1, moment)
            coded = [(*(key if isinstance(key, tuple) else (key,)), last) for last in rows]
            yield moment, held.table.name, set(engine.codes.decode_rows(engine.program.relations[held.table.name].types, coded))
