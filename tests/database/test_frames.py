"""Rows, changes and queries as tables of Arrow, pandas and polars, and such tables as rows: every value survives both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas  # type: ignore[import-untyped]
import polars
import pyarrow as pa
import pytest

import rederive
from rederive.errors import IllTypedRow, Unsupported

TABLE = """
    CREATE TABLE t (k INT PRIMARY KEY, n BIGINT, s STRING, d DATE, b BOOLEAN, c DECIMAL(10, 2), at TIMESTAMP, f DOUBLE);
    CREATE VIEW v AS SELECT * FROM t;
    INSERT INTO t VALUES
      (1, 9007199254740993, 'é', DATE'2024-02-29', true, 1.50, TIMESTAMP'2024-01-01 10:00:00.000001', 0.1),
      (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
"""
Frame = Callable[[rederive.Database], Any]
FRAMES: dict[str, Frame] = {
    "arrow": lambda db: db.rows("v").to_arrow(),
    "record batch": lambda db: db.rows("v").to_arrow().to_batches()[0],
    "pandas": lambda db: db.rows("v").to_pandas(),
    "polars": lambda db: db.rows("v").to_polars(),
    "query": lambda db: db.query("SELECT * FROM v").to_polars(),
}


@pytest.fixture
def db() -> rederive.Database:
    opened = rederive.open()
    opened.sql(TABLE)
    return opened


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_a_frame_holds_every_value_and_becomes_the_same_rows(db: rederive.Database, make: Frame) -> None:
    frame, before = make(db), db.rows("v")
    with db.transaction() as tx:
        tx.delete("t", frame)
    assert (db.rows("v"), tx.result.changes["v"].minus) == ([], before)
    with db.transaction() as tx:
        tx.insert("t", frame)
    assert db.rows("v") == before
    assert before[0][1] == 9007199254740993, "53 bits would not hold it"


@pytest.mark.parametrize(
    "keys", [pa.table({"k": [1]}), polars.DataFrame({"k": [1]}), pandas.DataFrame({"k": [1]})], ids=["arrow", "polars", "pandas"]
)
def test_a_frame_of_keys_deletes(db: rederive.Database, keys: Any) -> None:
    with db.transaction() as tx:
        tx.delete("t", keys)
    assert [row[0] for row in db.rows("v")] == [2]


def test_a_change_has_the_columns_of_a_change_table(db: rederive.Database) -> None:
    db.sql("CREATE VIEW low AS SELECT s, count(*) AS n FROM t GROUP BY s")
    (result,) = db.sql("UPDATE t SET s = 'é' WHERE k = 2")
    expected = [
        {"_version": result.version, "_change": "minus", "_count": 1, "s": None, "n": 1},
        {"_version": result.version, "_change": "minus", "_count": 1, "s": "é", "n": 1},
        {"_version": result.version, "_change": "plus", "_count": 1, "s": "é", "n": 2},
    ]
    change = result.changes["low"]
    assert change.to_arrow().to_pylist() == expected
    assert change.to_polars().to_dicts() == expected
    assert change.to_pandas()["n"].tolist() == [1, 1, 2]


def test_a_change_of_a_bag_has_its_counts() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, s STRING); CREATE VIEW bag AS SELECT s FROM t")
    (result,) = db.sql("INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'b')")
    assert result.changes["bag"].to_arrow().to_pydict()["_count"] == [2, 1]


def test_past_changes_have_their_columns(tmp_path: Any) -> None:
    with rederive.open(tmp_path / "store") as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY); CREATE VIEW v AS SELECT k AS old FROM t; INSERT INTO t VALUES (1)")
        db.sql("CREATE OR REPLACE VIEW v AS SELECT k AS new, k + 1 AS more FROM t")
        first, second = db.changes("v", since=0)
        assert first.plus.columns == ("old",)
        assert (second.minus.columns, second.plus.columns) == (("old",), ("new", "more"))
        with pytest.raises(Unsupported, match=r"convert change\.plus and change\.minus"):
            second.to_arrow()
        assert second.plus.to_arrow().to_pylist() == [{"new": 1, "more": 2}]


def test_unsigned_integers_are_exact() -> None:
    db = rederive.open()
    db.define(".decl n(u: unsigned)")
    db.load("n", [(2**64 - 1,)])
    assert db.rows("n").to_arrow().schema.field("u").type == pa.uint64()
    with db.transaction() as tx:
        tx.delete("n", db.rows("n").to_polars())
    assert db.rows("n") == []


def test_what_no_frame_can_hold_is_refused(db: rederive.Database) -> None:
    assert db.query("SELECT k, k FROM t").to_polars().width == 2, "a query names its columns apart"
    db.define(".decl some()  some() :- t(_, _, _, _, _, _, _, _).")
    with pytest.raises(Unsupported, match="without columns"):
        db.rows("some").to_arrow()
    with pytest.raises(IllTypedRow, match="column 'k'"), db.transaction() as tx:
        tx.insert("t", db.rows("t").to_polars().with_columns(k=polars.lit("x")))


def test_a_notebook_shows_tables(db: rederive.Database) -> None:
    db.sql("CREATE TABLE text (s STRING PRIMARY KEY); CREATE VIEW shown AS SELECT s FROM text")
    (result,) = db.sql("INSERT INTO text VALUES ('<b>&')")
    (gone,) = db.sql("DELETE FROM text")
    assert "<td>+</td><td>&lt;b&gt;&amp;</td>" in result._repr_html_()
    assert "<td>−</td><td>&lt;b&gt;&amp;</td>" in gone.changes["shown"]._repr_html_()
    (asked,) = db.sql("SELECT k FROM t")
    assert asked._repr_html_() == db.query("SELECT k FROM t")._repr_html_()
    assert "<td>shown</td><td>view</td><td>s: symbol" in db._repr_html_()
    db.rules.on("shown", name="page")(lambda rows: None)
    assert "<td>page</td><td>s</td><td>call</td><td>deferred</td>" in db.rules._repr_html_()
    many = rederive.open()
    many.define(".decl n(x: number)")
    many.load("n", [(x,) for x in range(30)])
    assert many.rows("n")._repr_html_().endswith("<p>and 10 more</p>")
