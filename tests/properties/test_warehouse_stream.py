"""Streams of net changes, with rows replaced by key: what a warehouse maintains without a source equals recomputation."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

import rederive
from tests.selection import fast_only

PROGRAM = """
    .decl r(k: number, g: number, v: number) key(k)  .decl s(g: number, h: number) key(g)  .decl l(g: number)
    .remote r, s
    .decl copied(g: number, h: number)        copied(g, h) :- s(g, h).
    .decl groups(g: number)                   groups(g) :- r(_, g, _).
    .decl large(k: number, g: number)         large(k, g) :- r(k, g, v), v > 4.
    .decl double(k: number, d: number)        double(k, d) :- r(k, _, v), d = v * 2, v <= 7.
    .decl free(k: number, g: number)          free(k, g) :- r(k, g, _), !l(g).
    .decl seen(g: number)                     seen(g) :- r(_, g, _).  seen(g) :- s(g, _).
    .decl joined(k: number, h: number)        joined(k, h) :- r(k, g, _), s(g, h).
    .decl bodies(k: number, g: number, v: number)  bodies(k, g, v) :- r(k, g, v), s(g, _), v > 2, !l(g).
    .decl counts(g: number, n: number)        counts(g, n) :- r(_, g, _), n = count : { r(_, g, _) }.
    .decl sums(g: number, n: number, t: number)
    sums(g, n, t) :- bodies(_, g, _), n = count : { bodies(_, g, _) }, t = sum v : { bodies(_, g, v) }.
    .stored copied, groups, large, double, free, seen, joined, counts, sums
"""
Row = tuple[int, ...]
State = dict[str, set[Row]]


def views(state: State) -> dict[str, set[Row]]:
    r, s, hidden = state["r"], {row[0]: row[1] for row in state["s"]}, {g for (g,) in state["l"]}
    bodies = [(g, v) for _, g, v in r if g in s and v > 2 and g not in hidden]
    return {
        "copied": set(state["s"]),
        "groups": {(g,) for _, g, _ in r},
        "large": {(k, g) for k, g, v in r if v > 4},
        "double": {(k, v * 2) for k, _, v in r if v <= 7},
        "free": {(k, g) for k, g, _ in r if g not in hidden},
        "seen": {(g,) for _, g, _ in r} | {(g,) for g in s},
        "joined": {(k, s[g]) for k, g, _ in r if g in s},
        "counts": {(g, sum(g == other for _, other, _ in r)) for _, g, _ in r},
        "sums": {(g, sum(g == o for o, _ in bodies), sum(v for o, v in bodies if o == g)) for g, _ in bodies},
    }


def changes(random: Random, state: State) -> Iterator[tuple[str, Row, set[Row]]]:
    """A row that enters, with those that it replaces by key; or rows that leave."""
    for name, row in (
        ("r", (random.randrange(6), random.randrange(4), random.randrange(10))),
        ("s", (random.randrange(4), random.randrange(3))),
        ("l", (random.randrange(4),)),
    ):
        if random.random() < 0.4:
            yield name, row, {old for old in state[name] if old[0] == row[0]}


@pytest.mark.parametrize("seed", fast_only(range(100), 0, 1))
def test_a_view_that_does_not_wait_equals_recomputation(seed: int) -> None:
    random = Random(seed)
    state: State = {"r": set(), "s": set(), "l": set()}
    up = random.random() < 0.5
    readers = {name: (lambda name=name: [*state[name]]) for name in ("r", "s")} if up else {}
    warehouse = rederive.Warehouse(PROGRAM, readers, net=True)
    strict = 0
    for _ in range(20):
        insert: dict[str, list[Row]] = {}
        delete: dict[str, list[Row]] = {}
        for name, row, old in changes(random, state):
            leaves = random.random() < 0.4
            insert[name] = [row] if not leaves and row not in old else []
            delete[name] = [*(old if leaves else old - {row})]
            state[name] = (state[name] - set(delete[name])) | set(insert[name])
        report = warehouse.apply(insert=insert, delete=delete)
        expected = views(state)
        for name in set(expected) - set(warehouse.waiting()):
            assert set(warehouse.rows(name)) == expected[name], name
        assert not up or not report.waiting
        strict += sum(str(outcome) == "maintained without a source" for outcome in report.views.values())
    assert strict, "some views need no source"
