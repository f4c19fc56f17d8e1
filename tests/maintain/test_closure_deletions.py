"""Deletions in stored closures: random graphs of every density against the closure computed from its definition."""

from __future__ import annotations

from random import Random

import pytest

import rederive
from rederive.engines.resident.run import closure_deletions
from rederive.engines.resident.run.closure_deletions import components_of

FORMS = {
    "right-linear": "p(x, y) :- e(x, y). p(x, y) :- e(x, z), p(z, y).",
    "left-linear": "p(x, y) :- e(x, y). p(x, y) :- p(x, z), e(z, y).",
    "non-linear": "p(x, y) :- e(x, y). p(x, y) :- p(x, z), p(z, y).",
}
Edge = tuple[int, int]


def opened(form: str, strategy: str = "materialized") -> rederive.Database:
    db = rederive.open(strategy=strategy)
    db.define(f".decl e(x: number, y: number) .decl p(x: number, y: number) .output p {FORMS[form]}")
    return db


def closure(edges: set[Edge]) -> set[Edge]:
    found = set(edges)
    while more := {(x, y) for x, z in edges for w, y in found if z == w} - found:
        found |= more
    return found


def change(db: rederive.Database, leave: set[Edge], enter: set[Edge]) -> rederive.Result:
    with db.transaction() as tx:
        tx.delete("e", leave)
        tx.insert("e", enter)
    return tx.result


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("degree", [0.7, 1.2, 2.0, 4.0])
def test_random_graphs_lose_what_their_definition_loses(form: str, degree: float) -> None:
    """Many transactions of one or several deletions, some with insertions: cycles break and close again."""
    random = Random(f"{form} {degree}")
    for nodes in (3, 6, 12):
        db = opened(form)
        pairs = [(x, y) for x in range(nodes) for y in range(nodes)]
        edges = set(random.sample(pairs, min(int(nodes * degree), len(pairs))))
        change(db, set(), edges)
        for _ in range(12):
            leave = set(random.sample(sorted(edges), min(len(edges), random.choice([1, 1, 1, 2, 4]))))
            enter = set(random.sample(pairs, random.choice([0, 0, 1, 3]))) - leave
            after = (edges - leave) | enter
            result = change(db, leave, enter)
            before, expected = closure(edges), closure(after)
            found = result.changes.get("p")
            assert set(found.minus if found else ()) == before - expected
            assert set(found.plus if found else ()) == expected - before
            edges = after
        assert set(db.query("p(x, y)")) == closure(edges)


@pytest.mark.parametrize("worth", [1, 1000])
@pytest.mark.parametrize("degree", [0.7, 1.2, 2.0])
def test_random_graphs_lose_the_same_end_by_end(degree: float, worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first place on, within a bound that is too small at times, and within one that never is."""
    monkeypatch.setattr(closure_deletions, "BY_END_FROM", 1)
    monkeypatch.setattr(closure_deletions, "WORTH", worth)
    test_random_graphs_lose_what_their_definition_loses("right-linear", degree)


def test_many_places_that_lose_one_end_are_found_from_the_end() -> None:
    """A chain of 200 places leads to the deleted step; some of them reach the second of the lost ends another way."""
    db = opened("right-linear")
    chain = {(i, i + 1) for i in range(200)}
    fans = {(i, 1000 * i + k) for i in range(1, 200) for k in range(5)}
    edges = chain | fans | {(200, 300), (300, 301), (3, 301)}
    change(db, set(), edges)
    result = change(db, {(200, 300)}, set())
    assert set(result.changes["p"].minus) == {(i, 300) for i in range(201)} | {(i, 301) for i in range(4, 201)}


def test_a_chord_of_a_component_costs_a_search() -> None:
    """40 places that reach one another: a step whose end is reached another way changes nothing, and next to nothing is read."""
    db = opened("right-linear")
    ring = {(i, (i + 1) % 40) for i in range(40)}
    chords = {(i, (i * 7 + 3) % 40) for i in range(40)}
    change(db, set(), ring | chords)
    result = change(db, {sorted(chords - ring)[5]}, set())
    assert not result.changes
    assert result.touched < 40


def test_a_supported_row_spreads_nothing() -> None:
    """A thousand places lead to a; a -> b is doubled by a -> c -> b, so its deletion looks at no place before a."""
    db = opened("right-linear")
    change(db, set(), {(1000 + i, 1) for i in range(1000)} | {(1, 2), (1, 3), (3, 2), (2, 4)})
    result = change(db, {(1, 2)}, set())
    assert not result.changes
    assert result.touched < 10


def test_components_come_after_those_that_they_lead_to() -> None:
    follow = {0: [1], 1: [2, 4], 2: [1, 3], 3: [3], 4: [], 5: [0]}
    found = [set(part) for part in components_of(follow, follow.__getitem__)]
    assert sorted(map(sorted, found)) == [[0], [1, 2], [3], [4], [5]]
    position = {v: i for i, part in enumerate(found) for v in part}
    assert all(position[z] <= position[v] for v, following in follow.items() for z in following)
