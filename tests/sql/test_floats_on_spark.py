"""NaN, infinities and FLOAT on the Spark engine, in a lake and in tables that others write."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rederive
from rederive.ir.floats import NAN
from tests.sql.test_floats import LEAVING, QUERIES, ROWS, TABLE, rederive_rows, shown, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(spark: SparkSession, numbers: list[int]) -> None:
    """Rows that are not finite enter and leave; the views are what Spark answers from scratch."""
    db = rederive.open(engine="spark", spark=spark)
    db.sql(TABLE)
    db.apply("t", inserts=ROWS[:8])
    for i in numbers:
        db.sql(f"CREATE VIEW v{i} AS {QUERIES[i]}")
    db.apply("t", inserts=[*ROWS[8:], *LEAVING])
    db.apply("t", deletes=LEAVING)
    for i in numbers:
        assert shown(rederive_rows(db, f"v{i}")) == stored()[QUERIES[i]][1], QUERIES[i]


def test_views_on_the_spark_engine(spark: SparkSession) -> None:
    check(spark, [0, 7])


@pytest.mark.slow
def test_every_view_on_the_spark_engine(spark: SparkSession) -> None:
    check(spark, [i for i, query in enumerate(QUERIES) if "collect_" not in query])


def test_a_data_frame(spark: SparkSession) -> None:
    db = rederive.open(spark=spark)
    db.sql(TABLE)
    rows = "VALUES (1, 'a', double('nan'), float(0.1)), (2, 'b', -0.0D, float('inf'))"
    db.apply("t", inserts=spark.sql(f"SELECT CAST(k AS INT) AS k, g, x, f FROM {rows} r(k, g, x, f)"))
    assert sorted(db.rows("t")) == [(1, "a", NAN, 0.10000000149011612), (2, "b", 0.0, inf)]
    db.apply("t", inserts=spark.sql("SELECT 3 AS k, 'c' AS g, 0.1D AS x, 0.1D AS f"))
    assert (3, "c", 0.1, 0.10000000149011612) in db.rows("t")


def test_tables_of_a_lake_have_float(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:
        db.sql(f"{TABLE}; CREATE MATERIALIZED VIEW m AS SELECT k, f, array(f) AS a FROM t WHERE k < 6")
        db.apply("t", inserts=ROWS)
        db.apply("t", deletes=[ROWS[2]])
        db.apply("t", deletes=[(5, "nan", nan, 16777216.0)])
    with rederive.open(lake=tmp_path, engine="resident", spark=spark) as db:  # settled on opening
        assert sorted(db.rows("m"))[0] == (1, 0.10000000149011612, (0.10000000149011612,))
        expected = sorted(db.rows("t"))
    base, changes = (spark.read.format("delta").load(str(tmp_path / name)) for name in ("base/t", "changes/m"))
    assert [field.dataType.simpleString() for field in base.schema.fields] == ["int", "string", "double", "float"]
    assert [field.dataType.simpleString() for field in changes.schema.fields][-3:] == ["int", "float", "array<float>"]
    assert sorted(map(tuple, base.collect())) == expected


def test_a_float_column_in_place_is_float(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "source"
    rows = "VALUES (1, float(0.1), double('nan')), (2, float('nan'), -0.0D)"
    spark.sql(f"SELECT * FROM {rows} r(k, f, x)").write.format("delta").save(str(place))
    db = rederive.open(spark=spark)
    db.sql(f"CREATE TABLE s (PRIMARY KEY (k)) USING DELTA LOCATION '{place}'")
    db.sql("CREATE VIEW v AS SELECT k, f + f AS d, string(f) AS s, x FROM s")
    assert sorted(db.rows("v")) == [(1, 0.20000000298023224, "0.1", NAN), (2, NAN, "NaN", 0.0)]
    spark.sql(f"DELETE FROM delta.`{place}` WHERE k = 2")
    db.sql("REFRESH TABLE s")
    assert db.rows("v") == [(1, 0.20000000298023224, "0.1", NAN)]
