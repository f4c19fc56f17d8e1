"""Windows, folded aggregates, grouping sets and recursions with UNION ALL on the Spark engine: Spark's own rows, as stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import rederive
from tests.sql.analytics import SCHEMA, normal_form, queries, states
from tests.sql.test_analytics import apply_change, expected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHOSEN = (
    "windows: moving average of three rows",
    "windows: seven days by value",
    "windows: ignore nulls",
    "aggregates: median and percentiles",
    "aggregates: listagg in an order",
    "aggregates: rollup",
    "queries: scalar subquery of first rows",
    "queries: hierarchy with levels",
    "queries: except all",
)


@pytest.mark.slow
def test_views_on_the_spark_engine_equal_sparks_answers(spark: SparkSession) -> None:
    by_key = {query.key: query for query in queries()}
    want = expected()
    with rederive.open(engine="spark", spark=spark) as db:
        db.sql(SCHEMA)
        for step, (changes, _) in enumerate(states()):
            apply_change(db, changes)
            if step == 0:
                for number, key in enumerate(CHOSEN):
                    db.sql(f"CREATE VIEW v{number} AS {by_key[key].text}")
            for number, key in enumerate(CHOSEN):
                assert normal_form(db.rows(f"v{number}")) == want[key][step], (key, step)
