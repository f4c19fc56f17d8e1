"""A session that is handed in, or that merely runs, is left as it is: settings, views, catalog, and which one is active."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.engines.spark.session.sessions import fresh_session, from_table, running_session
from rederive.ingest.change_data_source import register
from rederive.lake.session import spark_session
from rederive.sources import ChangeFiles

ZONE = "spark.sql.session.timeZone"
PROGRAM = "CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP); CREATE VIEW v AS SELECT k, hour(ts) AS h FROM t WHERE k > 0"


@pytest.fixture
def user(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that somebody works in, the active one, with settings and a view of its own."""
    found = spark.newSession()
    settings = {ZONE: "Europe/Berlin", "spark.sql.shuffle.partitions": "8", "spark.sql.ansi.enabled": "false"}
    settings["spark.sql.execution.arrow.pyspark.enabled"] = "false"
    for name, value in settings.items():
        found.conf.set(name, value)
    found.createDataFrame([(1, "a")], "k int, s string").createOrReplaceTempView("mine")
    found.sparkContext.setJobDescription("the user's")
    yield found
    found.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    spark.createDataFrame([(1,)], "x bigint")


def state(session: SparkSession) -> dict[str, Any]:
    default = running_session_by_default()
    return {
        "settings": dict(session.conf.getAll),
        "default's": dict(default.conf.getAll),
        "active": SparkSession.getActiveSession(),
        "in the JVM": str(session._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().get()),  # type: ignore[union-attr]
        "known": SparkSession._instantiatedSession,
        "place": (session.catalog.currentCatalog(), session.catalog.currentDatabase()),
        "views": [tuple(row) for row in session.sql("SHOW VIEWS").collect()],
        "job": session.sparkContext.getLocalProperty("spark.job.description"),
        "parts": session.sparkContext.defaultParallelism,
    }


def running_session_by_default() -> SparkSession:
    assert SparkSession._instantiatedSession is not None
    return SparkSession._instantiatedSession


class Watched:
    """Does things twice, and compares the session before and after each."""

    def __init__(self, user: SparkSession) -> None:
        self.user = user
        self.before = state(user)

    def __call__(self, what: str, step: Callable[[], Any]) -> Any:
        result = step()
        after = state(self.user)
        changed = {key: (self.before[key], after[key]) for key in after if after[key] != self.before[key]}
        for key, (old, new) in changed.items():
            more = set(new.items()) ^ set(old.items()) if isinstance(new, dict) else (old, new)
            raise AssertionError(f"{what} changed {key}: {more}")
        return result


class Work:
    """Every public operation, once."""

    def __init__(self, watched: Watched, folder: Path, options: dict[str, Any]) -> None:
        self.watched, self.folder, self.options = watched, folder, options

    def __call__(self, time: int) -> None:
        user, watched = self.watched.user, self.watched
        db = watched("open", self.open)
        assert db.pipeline.state.program.zone == "Europe/Berlin"
        watched("define", partial(db.migrate, PROGRAM))
        if time == 1:
            watched("load", partial(db.load, "t", user.sql("SELECT 7 AS k, TIMESTAMP'2026-07-01 12:00:00' AS ts")))
        rows = user.sql(f"SELECT {time} AS k, TIMESTAMP'2026-01-01 0{time}:00:00' AS ts")
        watched("apply", partial(db.apply, "t", inserts=rows))
        line = f'{{"insert": {{"t": [[{100 + time}, "2026-01-01T00:00:00"]]}}}}'
        (self.folder / "in" / f"{time}.jsonl").write_text(line)
        watched("ingest", lambda: db.ingest(ChangeFiles(str(self.folder / "in"))).wait())
        watched("sql", partial(db.sql, f"INSERT INTO t VALUES ({200 + time}, '2026-01-01 05:00:00')"))
        watched("settle in the background", partial(db.settle, wait=False))
        watched("settle", db.settle)
        watched("rows", partial(db.rows, "v"))
        watched("rows_at", partial(db.rows, "v", as_of=1))
        watched("changes", lambda: list(db.changes("v", 0)))
        watched("query", partial(db.query, "SELECT h, count(*) FROM v GROUP BY h"))
        watched("close", db.close)

    def open(self) -> rederive.Database:
        return rederive.open(self.folder / "store", lake=self.folder / "lake", **self.options)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "handed_in"), [("spark", True), ("resident", False)])
def test_no_operation_changes_the_users_session(user: SparkSession, tmp_path: Path, engine: str, handed_in: bool) -> None:
    """Each done twice; of a session that is handed in, and of one that merely runs. The hours are those of its zone."""
    (tmp_path / "in").mkdir()
    work = Work(Watched(user), tmp_path, {"engine": engine} | ({"spark": user} if handed_in else {}))
    for time in (1, 2):
        work(time)
    with work.open() as db:
        assert db.rows("v") == [(1, 1), (2, 2), (7, 12), (101, 1), (102, 1), (201, 5), (202, 5)]
    register(user)
    watched, source = Watched(user), user.read.format("rederive").options(store=str(tmp_path / "store"), view="v")
    for _ in range(2):
        assert watched("stream out", lambda: source.load().count())


def test_the_users_session_stays_the_active_one(spark: SparkSession) -> None:
    spark.createDataFrame([(1,)], "x bigint")  # the session that a user works in is the active one
    before = spark.conf.getAll
    db = rederive.open(engine="spark", spark=spark)
    db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
    db.load("n", [(x,) for x in range(3_000)])  # more than the driver keeps
    assert len(db.rows("odd")) == 1_500
    assert SparkSession.getActiveSession() is spark
    assert spark.conf.getAll == before


def test_where_none_is_active_none_becomes_so(spark: SparkSession) -> None:
    """And a session that runs without being active is still found, and used as it is."""
    import pyarrow

    assert spark._jvm is not None
    before = spark.conf.getAll
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    sessions.clearActiveSession()
    try:
        from_table(fresh_session(spark), pyarrow.table({"x": [1]}), "x bigint").collect()
        assert running_session() is spark
        assert spark_session(master="local[7]", options={"spark.sql.shuffle.partitions": "99"}) is spark
        assert SparkSession.getActiveSession() is None
        assert spark.conf.getAll == before
    finally:
        spark.createDataFrame([(1,)], "x bigint")


BARE = """
import warnings
warnings.simplefilter("ignore")
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from rederive.lake.session import settings
import rederive
context = SparkContext(conf=SparkConf().setAll({**settings("local[1]"), "spark.sql.session.timeZone": "Asia/Tokyo"}.items()))
before = dict(context.getConf().getAll())
for _ in range(2):
    with rederive.open(engine="spark") as db:
        db.define(".decl n(x: number)  .decl m(x: number)  m(x) :- n(x).")
        db.load("n", [(x,) for x in range(3_000)])
        assert len(db.rows("m")) == 3_000
    print(db.pipeline.state.program.zone, SparkSession._instantiatedSession, SparkSession.getActiveSession())
assert before.items() <= dict(context.getConf().getAll()).items()  # Spark adds where its warehouse is
print(context.parallelize([1, 2]).count(), SparkSession.builder.getOrCreate().conf.get("spark.sql.session.timeZone"))
"""


@pytest.mark.slow
def test_a_context_without_a_session_gets_none() -> None:
    run = subprocess.run([sys.executable, "-c", BARE], capture_output=True, text=True, check=False)
    assert run.stdout == "Asia/Tokyo None None\nAsia/Tokyo None None\n2 Asia/Tokyo\n", run.stderr
