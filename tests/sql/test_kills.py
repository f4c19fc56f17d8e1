"""kill -9 under SQL: what was acknowledged is there, once, and is what a database in memory has; bags included."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import rederive
from rederive.ir.terms import Row
from tests.selection import fast_only
from tests.sql.load import PROGRAM, defines, operations
from tests.store.test_kills import loaded

LOAD = Path(__file__).with_name("load.py")
POINTS = ("journal.append:written", "journal.append:after", "commit:applied")
RELATIONS = ("sold", "item", "kinds", "total")


def in_memory(seed: int, version: int) -> rederive.Database:
    db = rederive.open()
    db.sql(PROGRAM)
    for number in range(1, version + 1):
        text = defines(number)
        db.pipeline.commit_operations(operations(seed, number)) if text is None else db.sql(text)
    return db


def run(folder: Path, first: int, last: int, seed: int, fault: str | None = None, kill_after: float | None = None) -> int:
    """The last step that was acknowledged."""
    _, acknowledged = loaded([LOAD, folder, first, last, seed], first - 1, fault, kill_after)
    check(folder, seed, acknowledged)
    return acknowledged


def check(folder: Path, seed: int, acknowledged: int) -> None:
    with rederive.open(folder) as db:
        assert acknowledged <= db.version <= acknowledged + 1
        if not db.pipeline.state.program.relations:
            assert db.version == 0
            return
        expected = in_memory(seed, db.version)
        assert {n: r.columns for n, r in db.pipeline.state.program.relations.items()} == {
            n: r.columns for n, r in expected.pipeline.state.program.relations.items()
        }
        for name in (name for name in RELATIONS if name in db.pipeline.state.program.relations):
            assert db.rows(name) == expected.rows(name)
        for view in ("kinds", "total") if "total" in db.pipeline.state.program.relations else ("kinds",):
            assert replayed(db, view) == Counter(db.rows(view))


def replayed(db: rederive.Database, view: str) -> Counter[Row]:
    """The changes from the beginning, copy by copy."""
    bag: Counter[Row] = Counter()
    for change in db.changes(view, since=0):
        counts = change.counts or {"plus": [1] * len(change.plus), "minus": [1] * len(change.minus)}
        for row, count in zip(change.minus, counts["minus"], strict=True):
            assert bag[row] >= count
            bag[row] -= count
        for row, count in zip(change.plus, counts["plus"], strict=True):
            bag[row] += count
    return +bag


@pytest.mark.parametrize("point", fast_only(POINTS, "journal.append:after"))
def test_killed_at_every_step_of_a_commit(tmp_path: Path, point: str) -> None:
    """At a transaction, and at a definition, which every fifth step is."""
    done = run(tmp_path / "store", 1, 60, 2, fault=f"{point}@3")
    for passing in (2, 7):
        done = run(tmp_path / "store", done + 1, done + 60, 2, fault=f"{point}@{passing}")
    assert run(tmp_path / "store", done + 1, done + 3, 2) == done + 3


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    chance, done = random.Random(5), 0
    for _ in range(10):
        done = run(tmp_path / "store", done + 1, 100_000, 5, kill_after=chance.random() * 0.2)
    assert run(tmp_path / "store", done + 1, done + 2, 5) == done + 2
