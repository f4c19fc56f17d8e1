"""A view that gets another definition: whatever it was and becomes, what is reported leads from its old rows to its new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise, permutations
from pathlib import Path

import pytest

import rederive
from rederive.ir.terms import Row
from rederive.maintain.plan import STRATEGIES
from rederive.result import Change

DATA = "CREATE TABLE t (a INT, b INT); INSERT INTO t VALUES (1, 2), (1, 3), (1, 3), (2, 2)"
QUERIES = {
    "set": "SELECT DISTINCT a FROM t",
    "empty set": "SELECT DISTINCT a FROM t WHERE b = 9",
    "bag": "SELECT a FROM t",
    "other bag": "SELECT a FROM t WHERE b = 3 UNION ALL SELECT 7",
    "empty bag": "SELECT a FROM t WHERE b = 9",
    "other type": "SELECT DISTINCT CAST(a AS DOUBLE) AS a FROM t",
    "other columns": "SELECT a, b FROM t",
}


def typed(rows: Iterable[Row]) -> list[str]:
    """Rows as texts: 1 and 1.0 are equal in Python."""
    return [repr(row) for row in rows]


def apply(change: Change, rows: Counter[str]) -> None:
    """Take a change to accumulated rows: what leaves was there, and no row leaves and enters at once."""
    counts = change.counts or {"plus": [1] * len(change.plus), "minus": [1] * len(change.minus)}
    came, gone = typed(change.plus), typed(change.minus)
    rows.subtract(dict(zip(gone, counts["minus"], strict=True)))
    assert min(rows.values(), default=0) >= 0, change
    assert not set(came) & set(gone), change
    rows.update(dict(zip(came, counts["plus"], strict=True)))


def tour() -> list[str]:
    """A way through the definitions that goes from each to each other one."""
    ways, at, path = set(permutations(QUERIES, 2)), next(iter(QUERIES)), [next(iter(QUERIES))]
    while ways:
        near = sorted(way for way in ways if way[0] == at)
        step = near[0] if near else min(ways)
        path += [step[1]] if near else [step[0], step[1]]
        ways.discard(step)
        at = step[1]
    return path


def test_the_tour_has_every_pair() -> None:
    assert set(permutations(QUERIES, 2)) <= set(pairwise(tour()))


IN_MEMORY = [pytest.param(strategy, False, id=f"in memory-{strategy}") for strategy in STRATEGIES]
QUICKLY_REOPENED = ("auto", "counting")  # strategies; the others are slow
REOPENED = [
    pytest.param(strategy, True, marks=() if strategy in QUICKLY_REOPENED else pytest.mark.slow, id=f"reopened-{strategy}")
    for strategy in STRATEGIES
]


@pytest.mark.parametrize(("strategy", "kept"), IN_MEMORY + REOPENED)
def test_every_pair_of_definitions(tmp_path: Path, strategy: str, kept: bool) -> None:
    folder = tmp_path / "store" if kept else None
    db = rederive.open(folder, strategy=strategy)
    db.sql(DATA)
    rows: Counter[str] = Counter()
    sizes = []
    for kind in tour():
        results = db.sql(f"CREATE OR REPLACE VIEW v AS {QUERIES[kind]}")
        for change in (result.changes["v"] for result in results if "v" in result.changes):
            apply(change, rows)
        assert sorted(rows.elements()) == sorted(typed(db.rows("v"))), kind
        sizes.append((db.version, sorted(typed(db.rows("v")))))
        if folder is not None:
            db.close()
            db = rederive.open(folder)
    if folder is not None:
        accumulated: Counter[str] = Counter()
        for change in db.changes("v", since=0):
            apply(change, accumulated)
            assert sorted(accumulated.elements()) == dict(sizes)[change.version]
        assert sorted(accumulated.elements()) == sorted(typed(db.rows("v")))
    db.close()
