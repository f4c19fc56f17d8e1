"""The tables of views have the column types that Spark gives the same query, so that a consumer can swap one for the other."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, TIMESTAMP, Row
from rederive.lake import local_writes
from rederive.lake.declaration import table_properties
from rederive.lake.local_log import LocalLog
from rederive.lake.tables import Area, Lake, table_schema
from rederive.lake.types import arrow_table, collect, dataframe
from tests.lake.test_local_writes import changes
from tests.lake.test_tables import net_changes
from tests.selection import fast_only

QUERY = """
    SELECT k, ts, wall, wall + INTERVAL '1' HOUR AS later, ts + INTERVAL '1' HOUR AS later_instant, wall + INTERVAL '1' DAY AS b,
        date_trunc('DAY', wall) AS day, coalesce(wall, ts) AS either, coalesce(wall, NULL) AS a, CAST(ts AS TIMESTAMP_NTZ) AS c,
        CASE WHEN k = 1 THEN wall ELSE TIMESTAMP_NTZ '2020-01-01 00:00:00' END AS chosen, CAST(wall AS DATE) AS d,
        row_number() OVER (ORDER BY k) AS place, CAST(k AS SMALLINT) AS small, k + 1L AS big, named_struct('at', ts) AS nested
    FROM t
"""
GROUPED = "SELECT max(wall) AS last, min(ts) AS first, count(*) AS n, sum(k) AS total FROM t GROUP BY k % 2"
ROWS = "INSERT INTO t VALUES (1, TIMESTAMP'2026-07-01 12:00:00.000001', TIMESTAMP_NTZ'2026-07-01 12:00:00'), (2, NULL, NULL)"


def types(frame: object) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]  # type: ignore[attr-defined]


def test_tables_of_views_have_the_types_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    with rederive.open(lake=str(tmp_path / "lake"), spark=spark, zone="UTC") as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP, wall TIMESTAMP_NTZ)")
        db.sql(f"CREATE MATERIALIZED VIEW v AS {QUERY}; CREATE MATERIALIZED VIEW g AS {GROUPED}")
        db.sql(ROWS)
        db.tables.settle()
        spark.read.format("delta").load(f"{tmp_path}/lake/base/t").createOrReplaceTempView("t")
        assert types(spark.table("t")) == [("k", "int"), ("ts", "timestamp"), ("wall", "timestamp_ntz")]
        for view, query in (("v", QUERY), ("g", GROUPED)):
            own, expected = db.tables.frame(view), spark.sql(query)
            assert types(own) == types(expected)
            assert types(db.tables.changes_frame(view))[3:] == types(expected)
            assert sorted(own.collect(), key=repr) == sorted(expected.collect(), key=repr)
        assert [field.nullable for field in db.tables.frame("g").schema.fields] == [True, True, False, False]
        properties = spark.sql(f"SHOW TBLPROPERTIES delta.`{tmp_path}/lake/base/t`").collect()
        assert ("rederive.key", "k") in {(row["key"], row["value"]) for row in properties}


@pytest.mark.parametrize("by_spark", fast_only([False, True], False), ids=["local", "spark"])
def test_a_timestamp_is_an_instant_in_any_zone(spark: SparkSession, tmp_path: Path, by_spark: bool) -> None:
    """Around the end of summer time, where a wall clock time has two meanings."""
    berlin = spark.newSession()
    berlin.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    instants: list[Row] = [(i, datetime(2026, 10, 25, 0, 30 * (i % 2), 0, i)) for i in (1, 2)]
    instants += [(3, datetime(2026, 10, 25, 1, 30)), (4, datetime.min), (5, datetime.max), (6, None)]
    relation = Relation("moment", (Column("k", NUMBER, bits=32), Column("ts", TIMESTAMP, nullable=True)), (0,))
    lake = Lake(berlin, str(tmp_path), "Europe/Berlin")
    if by_spark:
        lake.replace(Area.BASE, relation, dataframe(lake.spark, relation, instants), 1)
    else:
        lake.local_table(Area.BASE, relation, arrow_table(relation, instants), 1)
    stored = lake.table(Area.BASE, relation, spark)
    assert types(stored) == [("k", "int"), ("ts", "timestamp")]
    assert [field.nullable for field in stored.schema.fields] == [False, True]
    seconds = stored.where("k <= 3").selectExpr("unix_micros(ts)").orderBy("k").collect()
    moments = [row[1].replace(tzinfo=UTC) for row in instants[:3] if isinstance(row[1], datetime)]
    assert [row[0] for row in seconds] == [round(moment.timestamp()) * 10**6 + moment.microsecond for moment in moments]
    assert sorted(collect(lake.read(Area.BASE, relation), relation)) == instants
    # Rows are found again to leave, by this process and by Spark.
    lake.apply_changes(Area.BASE, relation, net_changes(lake, relation, [instants[3]], [], 2), 2)
    log = lake.local_table(Area.BASE, relation)
    assert log is not None
    local_writes.apply_changes(relation, log, changes(relation, (3, instants[4], -1), (3, instants[0], -1)), 3)
    assert sorted(collect(lake.read(Area.BASE, relation), relation)) == [*instants[1:3], instants[5]]


@pytest.mark.parametrize("bits", [32, 64], ids=["narrow", "wide"])
def test_a_table_of_the_first_format_keeps_its_types(spark: SparkSession, tmp_path: Path, bits: int) -> None:
    """Its timestamps are TIMESTAMP_NTZ in UTC; tables of the first releases have every integer as BIGINT, too."""
    relation = Relation("moment", (Column("k", NUMBER, bits=32), Column("ts", TIMESTAMP)), (0,))
    lake = Lake(spark, str(tmp_path))
    old = Relation("moment", (Column("k", NUMBER, bits=bits), Column("ts", TIMESTAMP, without_zone=True)), (0,))
    log = LocalLog(Path(lake.path(Area.BASE, "moment")))
    log.create(table_schema(Area.BASE, old), {**table_properties(relation, "UTC"), "rederive.format": "1"})
    one, two, three = ((i, datetime(2026, 1, i)) for i in (1, 2, 3))
    lake.apply_changes(Area.BASE, relation, net_changes(lake, relation, [], [one, two], 1), 1)
    local = lake.local_table(Area.BASE, relation)
    assert local is not None
    local_writes.apply_changes(relation, local, changes(relation, (2, one, -1), (2, three, 1)), 2)
    assert sorted(collect(lake.read(Area.BASE, relation), relation)) == [two, three]
    assert types(lake.table(Area.BASE, relation, spark))[1] == ("ts", "timestamp_ntz")
    assert not lake.has_other_columns(Area.BASE, relation)
