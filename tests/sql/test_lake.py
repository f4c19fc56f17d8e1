"""SQL in a lake: an independent reader finds tables, views and changes, bags with each row as often as it occurs."""

from __future__ import annotations

import datetime
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rederive
from rederive.errors import SchemaMismatch
from tests.lake import witness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOLD = "CREATE TABLE sold (item STRING NOT NULL, n SMALLINT, price DECIMAL(10, 2), on_day DATE);"
PROGRAM = f"""
{SOLD}
CREATE TABLE item (name STRING PRIMARY KEY, kind STRING);
CREATE VIEW kinds AS SELECT kind, price FROM sold JOIN item ON name = item;
CREATE VIEW total AS SELECT item, sum(n) AS n, sum(price) AS price FROM sold GROUP BY item;
"""
BOLT = ("bolt", 1, Decimal("0.50"), datetime.date(2024, 2, 29))
NUT = ("nut", None, None, None)
STEPS = (
    "INSERT INTO item VALUES ('bolt', 'metal'), ('nut', NULL)",
    "INSERT INTO sold VALUES ('bolt', 1, 0.50, DATE'2024-02-29'), ('bolt', 1, 0.50, DATE'2024-02-29'), ('nut', NULL, NULL, NULL)",
    "INSERT INTO sold VALUES ('bolt', 1, 0.50, DATE'2024-02-29'), ('nut', NULL, NULL, NULL)",
    "UPDATE sold SET n = 2 WHERE item = 'bolt'; DELETE FROM item WHERE kind IS NULL",
)


def table(lake: Path, folder: str) -> Counter[tuple[Any, ...]]:
    return Counter(witness.rows(str(lake / folder)))


def check(db: rederive.Database, lake: Path) -> None:
    """Base tables and views are the database's, and the changes add up to the views."""
    db.settle()
    for name in db.pipeline.state.program.tables:
        assert table(lake, f"base/{name}") == Counter(db.rows(name))
    for name in db.pipeline.state.monitored:
        assert table(lake, f"views/{name}") == Counter(db.rows(name))
        bag: Counter[tuple[Any, ...]] = Counter()
        for _, sign, count, *row in sorted(witness.rows(str(lake / f"changes/{name}")), key=lambda row: row[0]):
            bag[tuple(row)] += count if sign == "plus" else -count
        assert +bag == Counter(db.rows(name))
        assert not -bag


def test_a_table_without_a_key_holds_each_row_as_often_as_it_occurs(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        db.sql(SOLD)
        db.sql(STEPS[1])
        db.settle()
        assert table(tmp_path, "base/sold") == Counter([BOLT, BOLT, NUT])
        with db.transaction() as tx:
            tx.delete("sold", [BOLT])
            tx.insert("sold", [NUT])
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:  # settled on opening
        assert table(tmp_path, "base/sold") == Counter([BOLT, NUT, NUT]) == Counter(db.rows("sold"))


@pytest.mark.slow
def test_tables_views_and_changes_are_there_for_any_reader(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        db.sql(f"{SOLD} CREATE VIEW prices AS SELECT item, price FROM sold")
        db.sql(STEPS[1])
        check(db, tmp_path)
        assert table(tmp_path, "base/sold") == Counter([BOLT, BOLT, NUT])
        db.sql(STEPS[2])
        db.sql("DELETE FROM sold WHERE n IS NULL; INSERT INTO sold VALUES ('nut', NULL, NULL, NULL)")
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:  # settled on opening, the view too
        assert db.rows("sold") == [BOLT, BOLT, BOLT, NUT]
        check(db, tmp_path)
        counts = [change.counts for change in db.changes("prices", since=0)]
        assert counts == [{"plus": [2, 1], "minus": []}, None, {"plus": [], "minus": [2]}, None]


@pytest.mark.slow
def test_several_tables(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        db.sql(PROGRAM)
        for text in STEPS:
            db.sql(text)
            check(db, tmp_path)


@pytest.mark.slow
def test_initial_rows_and_definitions(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(tmp_path / "store") as db:  # it moves to a lake below
        db.sql(PROGRAM)
        db.load("sold", [BOLT, BOLT])
    with rederive.open(tmp_path / "store", lake=tmp_path / "lake", engine="resident", spark=spark) as db:
        assert table(tmp_path / "lake", "base/sold") == Counter([BOLT, BOLT])
        db.load("sold", [BOLT, NUT])
        db.settle()
        assert table(tmp_path / "lake", "base/sold") == Counter([BOLT, BOLT, BOLT, NUT]) == Counter(db.rows("sold"))
        db.sql(STEPS[0])
        db.sql("CREATE OR REPLACE VIEW kinds AS SELECT DISTINCT kind, price FROM sold JOIN item ON name = item")
        assert db.rows("kinds") == [(None, None), ("metal", Decimal("0.50"))]
        db.settle()
        assert table(tmp_path / "lake", "views/kinds") == Counter(db.rows("kinds"))
        db.sql("DROP VIEW kinds")
        db.settle()
        assert table(tmp_path / "lake", "views/kinds") == Counter()
        db.sql("CREATE VIEW kinds AS SELECT kind, price FROM sold JOIN item ON name = item")
        db.settle()
        assert table(tmp_path / "lake", "views/kinds") == Counter(db.rows("kinds"))


def test_a_view_with_other_columns_gets_other_tables(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        db.sql("CREATE TABLE n (x INT PRIMARY KEY); CREATE VIEW v AS SELECT x FROM n; INSERT INTO n VALUES (1), (2)")
        db.settle()
        db.sql("INSERT INTO n VALUES (3)")
        for text in ("SELECT x, 2 * x AS y FROM n", "SELECT CAST(x AS STRING) AS y FROM n"):
            version = db.sql(f"CREATE OR REPLACE VIEW v AS {text}")[-1].version
            db.sql("DELETE FROM n WHERE x = (SELECT MAX(x) FROM n)")
            db.settle()
            assert table(tmp_path, "views/v") == Counter(db.rows("v"))
            # Its changes begin with the version of the definition, and add up to its rows.
            changes = table(tmp_path, "changes/v")
            assert min(change[0] for change in changes) == version
            added = Counter(row for _, sign, _, *values in changes for row in [tuple(values)] if sign == "plus")
            added.subtract(Counter(tuple(values) for _, sign, _, *values in changes if sign == "minus"))
            assert +added == Counter(db.rows("v"))
        # Dropped, and back with other columns.
        db.sql("DROP VIEW v")
        db.sql("CREATE VIEW v AS SELECT x, x AS z FROM n")
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        db.settle()
        assert table(tmp_path, "views/v") == Counter(db.rows("v")) == Counter([(1, 1)])


@pytest.mark.slow
def test_a_table_that_was_declared_otherwise_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(tmp_path / "one", lake=tmp_path / "lake", engine="resident", spark=spark) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, NULL)")
        db.settle()
    with rederive.open(tmp_path / "two") as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, a INT NOT NULL)")
    with pytest.raises(SchemaMismatch, match="a: number, 32 bits, may be NULL"):
        rederive.open(tmp_path / "two", lake=tmp_path / "lake", engine="resident", spark=spark)
