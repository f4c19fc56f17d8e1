"""Nested columns on the Spark engine, in data frames and in the Delta tables of a lake, whose types are Spark's."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rederive
from rederive.errors import SchemaMismatch
from rederive.ir.floats import NAN
from tests.lake import witness
from tests.sql.test_nested import ROWS, TABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = {
    "mapped": "SELECT k, transform(a, (x, i) -> x + i) AS f, map_filter(m, (n, v) -> v > 0) AS p, s.x, b, i FROM t",
    "exploded": "SELECT k, p, x FROM t LATERAL VIEW OUTER posexplode(a) e AS p, x",
    "grouped": "SELECT s.x, collect_list(a) AS l, count(*) AS n FROM t GROUP BY s.x",
    "texts": "SELECT k, to_csv(struct(k, s.x, i)) AS w, from_csv(concat(k, ',', s.x), 'a INT, b STRING, c DATE') AS c FROM t",
    "alike": "SELECT t.k, o.k AS j FROM t JOIN t AS o ON t.s = o.s AND t.k <= o.k WHERE t.b <> X'01'",
}
MORE: list[tuple[Any, ...]] = [
    (5, [1, 2, None], {"x": 1, "y": []}, {"z": 2.0}, b"q", timedelta(hours=5)),
    (6, [9], None, None, None, None),
]


def rows(db: rederive.Database, view: str) -> Counter[Any]:
    return Counter(db.query(f"SELECT * FROM {view}"))


def test_the_engines_agree(spark: SparkSession) -> None:
    found = []
    for engine in ("spark", "resident"):
        db = rederive.open(engine=engine, spark=spark if engine == "spark" else None)
        db.sql(TABLE)
        for name, query in VIEWS.items():
            db.sql(f"CREATE VIEW {name} AS {query}")
        with db.transaction() as tx:
            tx.insert("t", ROWS)
        with db.transaction() as tx:
            tx.delete("t", ROWS[:1])
            tx.insert("t", MORE)
        found.append([rows(db, name) for name in ("t", *VIEWS)])
    assert found[0] == found[1]


def test_data_frames(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT CAST(1 AS INT) AS k, array(1, NULL) AS a, named_struct('x', 7, 'y', array('q')) AS s, "
        "map('b', 1D, 'a', NULL) AS m, "
        "X'00' AS b, INTERVAL '1 02:00:00' DAY TO SECOND AS i"
    )
    db = rederive.open(spark=spark)
    db.sql(TABLE)
    with db.transaction() as tx:
        tx.insert("t", frame)
    assert db.rows("t") == [(1, (1, None), (7, ("q",)), (("b", 1.0), ("a", None)), b"\x00", timedelta(1, 7200))]
    with pytest.raises(SchemaMismatch, match="'a' is array<bigint>"), db.transaction() as tx:
        tx.insert("t", frame.selectExpr("k + 1 AS k", "array(1L) AS a", "s", "m", "b", "i"))
    with db.transaction() as tx:
        tx.insert("t", frame.selectExpr("k + 1 AS k", "a", "s", "map('x', double('nan')) AS m", "b", "i"))
    assert [row[3] for row in db.rows("t") if row[0] == 2] == [(("x", NAN),)]


def test_times_inside_are_in_utc(spark: SparkSession) -> None:
    db = rederive.open(spark=spark)
    db.sql("CREATE TABLE e (k INT PRIMARY KEY, at ARRAY<TIMESTAMP>)")
    with db.transaction() as tx:
        tx.insert("e", spark.sql("SELECT CAST(1 AS INT) AS k, array(TIMESTAMP '2026-07-01 00:30:00Z') AS at"))
    assert db.rows("e") == [(1, (datetime(2026, 7, 1, 0, 30),))]


@pytest.mark.slow
def test_the_tables_of_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    db = rederive.open(lake=tmp_path / "lake", spark=spark)
    db.sql(TABLE)
    db.sql("CREATE VIEW v AS SELECT k, map_filter(m, (n, x) -> x IS NOT NULL) AS p, s FROM t")
    with db.transaction() as tx:
        tx.insert("t", ROWS)
    db.settle()
    with db.transaction() as tx:
        tx.delete("t", ROWS[:1])
        tx.insert("t", MORE)
    db.settle()
    known, shown = db.rows("t"), db.rows("v")
    paths = {path.parent.name: path.parent for path in (tmp_path / "lake").rglob("_delta_log")}
    table = DeltaTable(paths["t"]) if "t" in paths else None
    assert table is not None, paths
    types = {field.name: field.type for field in table.schema().fields}
    assert types["a"].element_type.type == "integer"  # type: ignore[union-attr]
    assert (types["m"].key_type.type, types["m"].value_type.type) == ("string", "double")  # type: ignore[union-attr]
    assert [field.name for field in types["s"].fields] == ["x", "y"]  # type: ignore[union-attr]
    (read,) = (found for row in witness.rows(str(paths["t"])) if (found := dict(zip(types, row, strict=True)))["k"] == 4)
    assert read["m"] == [("q", 0.0)]
    assert read["s"] == {"x": 1, "y": []}
    db.close()
    db = rederive.open(lake=tmp_path / "lake", spark=spark)
    assert (db.rows("t"), db.rows("v")) == (known, shown)
    db.close()
