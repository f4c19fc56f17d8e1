"""Pages of rows in order: at every version, in every order and with every filter they are what sorting would give."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cmp_to_key
from pathlib import Path

import pytest

import rederive
from rederive.errors import Expired, Mismatch, UnknownColumn
from rederive.ir.terms import Row
from rederive.service.row_pages import RowFilter, RowPage, RowPages, SortedRows, order_by

PROGRAM = """
CREATE TABLE bag (x STRING, y INT);
CREATE TABLE t (x STRING, y INT, PRIMARY KEY (x, y));
CREATE VIEW v AS SELECT x, y FROM t WHERE y < 9;
CREATE VIEW b AS SELECT x, y + 1 AS y FROM bag;
"""
FILTERS = (RowFilter(), RowFilter({0: "a"}), RowFilter({1: 3}), RowFilter({}, {0: "A"}), RowFilter({0: "nowhere"}))


def page(db: rederive.Database, pages: RowPages, name: str, order: str | None = None, **options: int) -> RowPage:
    state = db.pipeline.state
    relation = state.relation(name)
    by = order_by(relation, order)
    if (extent := pages.extent_to_sort(state, relation, by)) is not None:
        pages.keep(relation, SortedRows(extent[0], extent[1], by))
    wanted = FILTERS[options.pop("wanted", 0)]
    at, since = options.pop("version", None), options.pop("since", None)
    return pages.page(state, relation, by, wanted, options.get("offset", 0), options.get("limit", 50), version=at, since=since)


@pytest.mark.parametrize("seed", range(3))
def test_a_page_is_what_sorting_gives(tmp_path: Path, seed: int) -> None:
    rng, names = random.Random(seed), ("bag", "t", "v", "b")
    with rederive.open(tmp_path / "store") as db:
        db.sql(PROGRAM)
        pages, truth = RowPages(), {name: [db.rows(name)] for name in names}
        for step in range(10):
            with db.transaction() as tx:
                for _ in range(8):
                    table = rng.choice(("bag", "t"))
                    # NULL, values that the sorted rows have, and values that are new
                    text = rng.choice(["a", "b", "ab", None if table == "bag" else "c"])
                    row = (text, rng.choice([None, 1, 3]) if table == "bag" else rng.randrange(6 + step))
                    (tx.insert if rng.random() < 0.7 else tx.delete)(table, [row])
            for name in names:
                truth[name].append(db.rows(name))
            for name in rng.sample(names, 2):
                for order in (None, "x", "-x", "y", "-y"):
                    check(db, pages, name, order, truth[name], rng)


def check(
    db: rederive.Database, pages: RowPages, name: str, order: str | None, truth: Sequence[Sequence[Row]], rng: random.Random
) -> None:
    by = order_by(db.pipeline.state.relation(name), order)
    for version in {db.version, rng.randrange(len(truth))}:
        for number, wanted in enumerate(FILTERS):
            offset = rng.randrange(6)
            expected = sorted(filter(wanted.accepts, truth[version]), key=cmp_to_key(by.compare))
            found = page(db, pages, name, order, wanted=number, version=version, offset=offset, limit=5)
            assert (found.rows, found.total) == (expected[offset : offset + 5], len(expected))


def test_what_entered_and_left_since_a_version(tmp_path: Path) -> None:
    with rederive.open(tmp_path / "store") as db:
        db.sql(PROGRAM)
        pages = RowPages()
        for statement in (
            "INSERT INTO t VALUES ('a', 1), ('b', 2)",
            "INSERT INTO t VALUES ('c', 3)",
            "DELETE FROM t WHERE x = 'a'",
        ):
            db.sql(statement)
        found = page(db, pages, "v", since=1)
        assert found.entered == {("c", 3): 2}
        assert list(found.left) == [(("a", 1), 3)]
        assert not page(db, pages, "v", since=3).left


def test_rows_that_many_versions_changed_are_sorted_from_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rederive.service.row_pages.MOST_CHANGED", 3)
    with rederive.open(tmp_path / "store") as db:
        db.sql(PROGRAM)
        pages = RowPages()
        assert page(db, pages, "v").total == 0
        for i in range(6):
            db.sql(f"INSERT INTO t VALUES ('a', {i})")
            assert page(db, pages, "v").total == i + 1


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    with rederive.open(tmp_path / "store", retention=2) as db:
        db.define(".decl n(x: number)  .decl v(x: number)  .decl w(x: number)  v(x) :- n(x).  w(x) :- v(x).  .output w")
        for i in range(5):
            with db.transaction() as tx:
                tx.insert("n", [(i,)])
        pages = RowPages()
        assert page(db, pages, "w", version=3).rows == [(0,), (1,), (2,)]
        with pytest.raises(Expired):
            page(db, pages, "n", version=1)
        with pytest.raises(Mismatch, match="not monitored"):
            page(db, pages, "v", version=4)
        assert page(db, pages, "v").total == 5
        with pytest.raises(UnknownColumn):
            page(db, pages, "w", "z")
