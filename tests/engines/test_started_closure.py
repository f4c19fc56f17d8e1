"""The ends from one start, which is part of a transitive closure: searches from both sides find what the rules derive."""

from __future__ import annotations

from random import Random

import pytest

import rederive

PROGRAM = """
.decl edge(x: number, y: number)  .decl open(x: number)
.decl step(x: number, y: number)  step(x, y) :- edge(x, y), open(x), open(y).
.decl reach(x: number, y: number) reach(x, y) :- step(x, y).  reach(x, y) :- reach(x, z), {recursion}.
.decl from_0(y: number)           from_0(y) :- reach(0, y).
.decl near(y: number)             near(y) :- reach(0, y), edge(y, 1).
.decl apart(y: number)            apart(y) :- open(y), !reach(0, y).
.output from_0
.output near
.output apart
"""
NODES = 12


@pytest.mark.parametrize("recursion", ["step(z, y)", "reach(z, y)"])
@pytest.mark.parametrize("strategy", ["on_demand", "filtration"])
def test_random_changes_are_those_of_the_stored_view(strategy: str, recursion: str) -> None:
    random = Random(f"{strategy} {recursion}")
    text = PROGRAM.format(recursion=recursion)
    stored, derived = rederive.open(strategy="materialized"), rederive.open(strategy=strategy)
    for db in (stored, derived):
        db.define(text)
    edges = [(x, y) for x in range(NODES) for y in range(NODES)]
    for number in range(60):
        # Sparse and dense graphs by turns; the start itself is opened and closed, too.
        insert = random.sample(edges, 12 if number % 20 < 5 else 2)
        delete = random.sample(edges, 20 if number % 20 > 14 else 2)
        nodes = [(n,) for n in random.sample(range(NODES), 3)]
        results = []
        for db in (stored, derived):
            with db.transaction() as tx:
                tx.delete("edge", delete)
                tx.insert("edge", insert)
                (tx.delete if number % 4 == 3 else tx.insert)("open", nodes)
            results.append({view: (change.plus, change.minus) for view, change in tx.result.changes.items()})
        assert results[0] == results[1], number
        assert all(derived.rows(view) == stored.rows(view) for view in ("from_0", "near", "apart"))


def test_a_probe_does_not_derive_the_whole_closure() -> None:
    """A new edge whose ends are both reached changes nothing, and little is looked at to find that out."""
    db = rederive.open(strategy="on_demand")
    db.define(PROGRAM.format(recursion="step(z, y)"))
    layers = [(10 * i + j, 10 * (i + 1) + (j * k) % 10) for i in range(30) for j in range(10) for k in (1, 3, 7)]
    db.load("open", [(n,) for n in range(320)])
    db.load("edge", layers)
    with db.transaction() as tx:
        tx.insert("edge", [(21, 34), (22, 35)])
    assert tx.result.changes == {}
    assert tx.result.touched < 150
