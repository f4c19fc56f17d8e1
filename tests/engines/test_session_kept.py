"""A session that is handed in stays the active one, and as it is configured, whatever the engine does in its own."""

from __future__ import annotations

from pyspark.sql import SparkSession

import rederive
from rederive.engines.spark.sessions import unnoticed


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
    assert spark._jvm is not None
    spark._jvm.SparkSession.clearActiveSession()
    try:
        with unnoticed():
            spark.newSession().createDataFrame([(1,)], "x bigint")
        assert SparkSession.getActiveSession() is None
    finally:
        spark.createDataFrame([(1,)], "x bigint")
