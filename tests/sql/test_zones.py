"""Time zones: what a view says of a timestamp is what Spark says in a session of that zone, around every kind of edge."""

from __future__ import annotations

import datetime
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

import rederive
from rederive.errors import Mismatch, SchemaMismatch, UnknownOption, Unsupported
from rederive.time_zones import offset_at, zone_name
from tests.selection import fast_only

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = datetime.datetime(1970, 1, 1)
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo", "-03:30")
YEARS = (1880, 1883, 1893, 1916, 1945, 1980, 2011, 2018, 2026, 2050)
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
PARTS = ("hour", "minute", "second", "year", "month", "day", "quarter", "dayofweek", "dayofyear", "weekofyear", "last_day")
EXPRESSIONS = (
    *(f"{part}(ts)" for part in PARTS),
    *(f"date_trunc('{unit}', ts)" for unit in UNITS),
    *(f"ts {sign} INTERVAL {n} {unit}" for sign in "+-" for n, unit in ((1, "DAY"), (1, "MONTH"), (7, "YEAR"), (25, "HOUR"))),
    "ts + INTERVAL 47 HOURS",
    "ts - INTERVAL 90 MINUTES",
    "ts + INTERVAL 1 WEEK",
    "CAST(ts AS STRING) + INTERVAL 1 DAY",
    "'2026-03-29 02:30:00' - INTERVAL 90 MINUTES",
    "'2026-03-29' + INTERVAL 1 WEEK",
    "trunc(ts, 'MM')",
    "extract(HOUR FROM ts)",
    "CAST(ts AS STRING)",
    "CAST(ts AS DATE)",
    "CAST(ts AS BIGINT)",
    "CAST(CAST(ts AS DATE) AS TIMESTAMP)",
    "CAST(CAST(ts AS STRING) AS TIMESTAMP)",
    "to_date(ts)",
    "datediff(ts, DATE'2026-03-29')",
    "add_months(ts, 1)",
    "date_add(ts, 1)",
    "ts >= '2026-03-29 02:30:00'",
    "ts < TIMESTAMP'2026-10-25 02:30:00'",
    "ts > DATE'2018-11-04'",
    "concat(ts, '!')",
    "coalesce(ts, TIMESTAMP'1893-03-31 23:59:00')",
    "TIMESTAMP'2018-11-04 00:00:00'",
    "CAST(DATE'2018-11-04' AS TIMESTAMP)",
    "ts + make_ym_interval(1, 1)",
    "ts - make_interval(0, 1, 0, 1, 1, 30, 0.5)",
    "to_csv(struct(ts))",
    "to_json(struct(ts))",
    "CAST(struct(ts) AS STRING)",
    "from_csv(CAST(ts AS STRING), 'a TIMESTAMP').a",
    "from_json(to_json(struct(CAST(ts AS STRING) AS a)), 'a TIMESTAMP').a",
)
TEXTS = (
    "2026", "2026-3", "2026-03-29", "2026-03-29 02:30:00", "2026-03-29T02:30", "2026-03-29 2", "2026-10-25 02:30:00.1234567",
    "2026-03-29 02:30:00Z", "2026-03-29 02:30:00+01:00", "2026-03-29 02:30:00+0530", "2026-03-29 02:30:00 UTC+3",
    "2026-03-29 02:30:00.5 Europe/Berlin", "2026-03-29 02:30:00 PST", "2026-03-29 02:30Z", "2026-03-29T", "2026-02-30",
    "26-01-01", "+2026-01-01", " 2026-01-01 1:2:3 ", "2026-01-01 24:00:00", "2026-01-01 00:00:00-3", "2026-01-01 00:00:00+19:00",
    "2026-01-01 00:00:00+1:5", "2018-11-04 00:00:00", "1893-03-31 23:59:59", "0001-01-03 00:00:00", "x", "",
    "2026-01-01 00:00:60", "2026-01-01 00:00:00.", "2026-01-01 00:00:00 ", "2026-1-1 00:00:00 Nowhere/City",
    "2026-01-01 00:00:00+01:00:30", "2026-01-01 00:00:00+100", "2026-01-01 00:00:00+010030", "2026-01-01 00:00:00 GMT-7",
)  # fmt: skip


def transitions(zone: str) -> list[datetime.datetime]:
    """The instants at which clocks change in some years, found by looking at every half day."""
    found = []
    for year in YEARS:
        moment, end = datetime.datetime(year, 1, 1), datetime.datetime(year + 1, 1, 1)
        while moment < end:
            later = moment + datetime.timedelta(hours=12)
            if offset_at(moment, zone) != offset_at(later, zone):
                low, high = moment, later
                while high - low > datetime.timedelta(microseconds=1):
                    middle = low + (high - low) / 2
                    low, high = (low, middle) if offset_at(middle, zone) != offset_at(low, zone) else (middle, high)
                found.append(high)
            moment = later
    return found


def instants(zone: str) -> list[datetime.datetime]:
    """Around each change of clocks, and some others, the last and first years of our calendar among them."""
    steps = (-90, -60, -30, -15, 0, 15, 30, 60, 90, 24 * 60, -24 * 60)
    micro = datetime.timedelta(microseconds=1)
    near = [t + datetime.timedelta(minutes=m) for t in transitions(zone) for m in steps]
    fixed = [
        datetime.datetime(100, 3, 1, 7, 8, 9),
        datetime.datetime(1582, 10, 10, 3),
        datetime.datetime(2024, 2, 29, 23, 59, 59, 999999),
    ]
    fixed += [datetime.datetime(1969, 12, 31, 23, 59, 59, 5), datetime.datetime(9900, 7, 1, 12)]
    return sorted({*near, *(t - micro for t in transitions(zone)), *fixed})


def ours(zone: str, moments: list[datetime.datetime], **options: Any) -> dict[int, tuple[Any, ...]]:
    db = rederive.open(zone=zone, **options)
    chosen = ", ".join(f"{expression} AS x{number}" for number, expression in enumerate(EXPRESSIONS))
    db.sql(f"CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP); CREATE VIEW v AS SELECT k, {chosen} FROM t")
    db.load("t", list(enumerate(moments)))
    return {row[0]: tuple(map(plain, row[1:])) for row in db.rows("v")}  # type: ignore[misc]


def plain(value: Any) -> Any:
    """A timestamp as its microseconds."""
    return (value - EPOCH) // datetime.timedelta(microseconds=1) if isinstance(value, datetime.datetime) else value


def theirs(spark: SparkSession, zone: str, moments: list[datetime.datetime]) -> dict[int, tuple[Any, ...]]:
    from pyspark.sql import functions as F

    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    rows = [(k, plain(moment)) for k, moment in enumerate(moments)]
    given = session.createDataFrame(rows, "k int, micros bigint").select("k", F.timestamp_micros("micros").alias("ts"))
    found = given.selectExpr("k", *(f"{expression} AS x{number}" for number, expression in enumerate(EXPRESSIONS)))
    times = [name for name, kind in found.dtypes if kind == "timestamp"]
    return {row[0]: tuple(row[1:]) for row in found.withColumns({name: F.unix_micros(name) for name in times}).collect()}


@pytest.mark.parametrize("zone", fast_only(ZONES, "Europe/Berlin"))
def test_values_are_sparks(spark: SparkSession, zone: str) -> None:
    moments = instants(zone)
    mine, spark_says = ours(zone, moments), theirs(spark, zone, moments)
    for number, expression in enumerate(EXPRESSIONS):
        wrong = {
            str(moments[k]): (mine[k][number], spark_says[k][number]) for k in mine if mine[k][number] != spark_says[k][number]
        }
        assert not wrong, (zone, expression, wrong)


def test_the_spark_engine_agrees(spark: SparkSession) -> None:
    """Its workers evaluate in the database's zone, too."""
    zone = "Australia/Lord_Howe"
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    moments = instants(zone)[::7]
    assert ours(zone, moments, spark=session, engine="spark") == ours(zone, moments)


@pytest.mark.parametrize("zone", fast_only(["UTC", "America/Sao_Paulo"], "America/Sao_Paulo"))
def test_texts_are_read_as_spark_does(spark: SparkSession, zone: str) -> None:
    """As values of a column, and as literals."""
    db = rederive.open(zone=zone)
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, s STRING); CREATE VIEW v AS SELECT k, try_cast(s AS TIMESTAMP) AS ts FROM t")
    db.load("t", list(enumerate(TEXTS)))
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    given = session.createDataFrame(list(enumerate(TEXTS)), "k int, s string")
    expected = {row[0]: row[1] for row in given.selectExpr("k", "unix_micros(try_cast(s AS TIMESTAMP))").collect()}
    assert {TEXTS[k]: plain(ts) for k, ts in db.rows("v")} == {TEXTS[k]: micros for k, micros in expected.items()}  # type: ignore[index]
    readable = [k for k in expected if expected[k] is not None]
    literals = ", ".join(f"TIMESTAMP'{TEXTS[k]}' AS x{k}" for k in readable)
    ((*found,),) = db.query(f"SELECT {literals}")
    assert [plain(ts) for ts in found] == [expected[k] for k in readable]


# The zone of a database


def test_a_zone_belongs_to_its_store(tmp_path: Path) -> None:
    program = "CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP); CREATE VIEW v AS SELECT k, hour(ts) AS h FROM t"
    with rederive.open(tmp_path, zone="Europe/Berlin") as db:
        db.migrate(program)
        db.sql("INSERT INTO t VALUES (1, '2026-07-01 00:30:00')")
        assert db.rows("t") == [(1, datetime.datetime(2026, 6, 30, 22, 30))]
        assert db.rows("v") == [(1, 0)]
    with rederive.open(tmp_path) as db:
        assert (db.pipeline.state.program.zone, db.rows("v")) == ("Europe/Berlin", [(1, 0)])
        db.sql("CREATE OR REPLACE VIEW v AS SELECT k, day(ts) AS h FROM t")
        assert db.rows("v") == [(1, 1)]
        db.sql("CREATE VIEW w AS SELECT k FROM t; DROP VIEW w; CREATE VIEW w AS SELECT date_trunc('DAY', ts) AS d FROM t")
        assert db.query("SELECT CAST(d AS STRING) FROM w") == [("2026-07-01 00:00:00",)]
        assert db.explain("w").startswith("time zone: Europe/Berlin\n")
        assert '"zone": "Europe/Berlin"' in db.explain("w", "json")
    with pytest.raises(Mismatch, match="the store has zone 'Europe/Berlin', not 'UTC'"):
        rederive.open(tmp_path, zone="UTC")


def test_an_old_store_is_in_utc(tmp_path: Path) -> None:
    rederive.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.sqlite") as journal:
        journal.execute("DELETE FROM option WHERE name = 'zone'")
    with rederive.open(tmp_path, zone="Etc/UTC") as db:
        assert db.pipeline.state.program.zone == "UTC"
    with pytest.raises(Mismatch, match="zone 'UTC', not 'Asia/Tokyo'"):
        rederive.open(tmp_path, zone="Asia/Tokyo")


def test_zones_that_there_are_not() -> None:
    for name in ("Europe/Berln", "+19:00", "", "../etc/passwd", "europe/berlin"):
        with pytest.raises(UnknownOption, match="unknown time zone"):
            rederive.open(zone=name)
    assert [zone_name(name) for name in ("Z", "GMT", "UTC+00:00", "+1", "UTC-3:30", "PST")] == [
        "UTC", "UTC", "UTC", "+01:00", "-03:30", "America/Los_Angeles",
    ]  # fmt: skip


def test_a_type_without_a_zone_is_refused_outside_utc() -> None:
    with pytest.raises(Unsupported, match="TIMESTAMP_NTZ in a database whose time zone is Asia/Tokyo"):
        rederive.open(zone="Asia/Tokyo").sql("CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP_NTZ)")
    rederive.open(zone="UTC").sql("CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP_NTZ)")


@pytest.mark.parametrize("value", ["CAST(s AS TIMESTAMP_NTZ)", "TIMESTAMP_NTZ '2020-01-01 12:00:00+02:00'",
                                   "TRY_CAST('2020-01-01 12:00:00Z' AS TIMESTAMP_NTZ)"])  # fmt: skip
def test_a_text_whose_zone_spark_drops_is_refused(value: str) -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (s STRING PRIMARY KEY)")
    with pytest.raises(Unsupported, match="TIMESTAMP_NTZ"):
        db.query(f"SELECT {value} FROM t")
    assert db.query("SELECT TIMESTAMP_NTZ '2020-01-01 12:00:00'") == [(datetime.datetime(2020, 1, 1, 12),)]


def test_a_session_in_another_zone_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    tokyo = spark.newSession()
    tokyo.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert rederive.open(spark=tokyo).pipeline.state.program.zone == "Asia/Tokyo"
    with pytest.raises(Mismatch, match=r"zone 'Asia/Tokyo', and the database in 'UTC'\n  help: set it in the session"):
        rederive.open(spark=tokyo, zone="UTC")
    rederive.open(tmp_path, zone="Europe/Berlin").close()
    with pytest.raises(Mismatch, match="and the database in 'Europe/Berlin'"):
        rederive.open(tmp_path, spark=tokyo)
    tokyo.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with rederive.open(tmp_path, spark=tokyo) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP); CREATE VIEW v AS SELECT k, hour(ts) AS h FROM t")
        summer = "SELECT 1 AS k, TIMESTAMP'2026-07-01 12:00:00' AS ts"
        db.apply("t", inserts=tokyo.sql(summer))
        assert db.rows("v") == [(1, 12)]
        with pytest.raises(Mismatch, match="the Spark session is in the time zone 'UTC'"):
            db.apply("t", inserts=spark.sql(summer))
        with pytest.raises(SchemaMismatch, match=r"timestamp_ntz, which has no time zone.*\n  help: cast it to timestamp"):
            db.apply("t", inserts=tokyo.sql("SELECT 2 AS k, TIMESTAMP_NTZ'2026-07-01 12:00:00' AS ts"))


def test_rules_and_constraints_are_in_the_zone() -> None:
    """Conditions and actions of active rules in SQL, updates, deletes and a constraint."""
    db = rederive.open(zone="Europe/Berlin")
    db.sql("""
        CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP);
        CREATE TABLE late (k INT PRIMARY KEY, at STRING);
        CREATE RULE note WHEN SELECT k, ts FROM t WHERE hour(ts) >= 22
            DO INSERT INTO late SELECT k, CAST(ts AS STRING) FROM firing;
    """)
    db.sql("INSERT INTO t VALUES (1, '2026-07-01 21:30:00'), (2, '2026-07-01 22:30:00')")
    assert db.rows("late") == [(2, "2026-07-01 22:30:00")]
    db.sql("UPDATE t SET ts = date_trunc('DAY', ts) WHERE hour(ts) = 21; DELETE FROM t WHERE ts > '2026-07-01 22:00:00'")
    assert db.query("SELECT k, CAST(ts AS STRING) FROM t") == [(1, "2026-07-01 00:00:00")]


def test_python_knows_the_same_offsets() -> None:
    """What we compute by is what zoneinfo says, also at the ends of the calendar, where it overflows."""
    for zone in ("Europe/Berlin", "America/New_York"):
        now = datetime.datetime(2026, 7, 1, tzinfo=datetime.UTC)
        assert offset_at(now.replace(tzinfo=None), zone) == now.astimezone(ZoneInfo(zone)).utcoffset()
        for end in (datetime.datetime.min, datetime.datetime.max):
            assert abs(offset_at(end, zone)) < datetime.timedelta(hours=12)
