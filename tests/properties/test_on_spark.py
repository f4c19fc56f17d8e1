"""The central law on the Spark engine: random programs and transactions, each rule as jobs of Spark, or over tables of Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from rederive import Limits
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.tuning import Tuning
from tests.properties.programs import Change, Sample, scenarios
from tests.properties.test_guards import CHANGES, SQL_ROWS, SQL_STRATEGIES, check, guarded, joins, run
from tests.properties.test_maintained_equals_recomputed import CHAIN, GENERAL, PLAIN, Scenario, Session, play
from tests.selection import fast_only

FEW = settings(max_examples=3, suppress_health_check=list(HealthCheck))
TWO = settings(max_examples=2, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=60, suppress_health_check=list(HealthCheck))


WAYS = ("jobs", "tables")


@pytest.fixture(params=WAYS)
def by(request: pytest.FixtureRequest) -> Iterator[None]:
    """No rule is run in the driver; or all rows are in tables, few as they are, until a rule needs Spark."""
    with pytest.MonkeyPatch.context() as patch:
        only_jobs, tables = Tuning(python_rows=-1, arrow_rows=-1), Tuning(python_rows=-1, driver_rows=0)
        patch.setattr(SparkEngine, "default_tuning", only_jobs if request.param == "jobs" else tables)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("by")
@FEW
@given(scenario=scenarios(), strategy=st.sampled_from(GENERAL))
def test_a_few_programs(spark: SparkSession, scenario: Scenario, strategy: str) -> None:
    play(strategy, scenario, engine="spark", spark=spark)


@pytest.mark.slow
@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("strategy", GENERAL)
@MANY
@given(scenario=scenarios())
def test_programs(spark: SparkSession, scenario: Scenario, strategy: str) -> None:
    play(strategy, scenario, engine="spark", spark=spark)


@pytest.mark.slow
@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("strategy", PLAIN)
@MANY
@given(scenario=scenarios(recursive=False))
def test_programs_without_recursion(spark: SparkSession, scenario: Scenario, strategy: str) -> None:
    play(strategy, scenario, engine="spark", spark=spark)


# -- guards and questions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", fast_only(["on_demand", "recompute"], "on_demand"))
def test_questions_about_computed_values_end(spark: SparkSession, strategy: str) -> None:
    session = Session(CHAIN, strategy, Limits(rounds=50, tuples=1000), engine="spark", spark=spark)
    session.commit([("insert", "e", [(1,), (2,), (3,)])])
    assert session.db.rows("s", i=3) == [(3,)]
    session.commit([("delete", "e", [(2,)])])


@pytest.mark.usefixtures("by")
@TWO
@given(guarded(recursive=True), st.lists(CHANGES, min_size=1, max_size=2), st.sampled_from(GENERAL))
def test_functors_wait_for_their_guards(
    spark: SparkSession, sample: Sample, transactions: list[list[Change]], strategy: str
) -> None:
    check(sample, transactions, strategy, asked=(2,), engine="spark", spark=spark)


@pytest.mark.parametrize("by", fast_only(WAYS, "jobs"), indirect=True)
@pytest.mark.usefixtures("by")
@TWO
@given(joins(), st.lists(SQL_ROWS, min_size=3, max_size=6), st.sampled_from(SQL_STRATEGIES))
def test_outer_joins_on_inequalities(spark: SparkSession, query: str, rows: list[Any], strategy: str) -> None:
    run(query, [rows[:2], rows[2:]], strategy, engine="spark", spark=spark)


@pytest.mark.slow
@pytest.mark.usefixtures("by")
@MANY
@given(guarded(recursive=True), st.lists(CHANGES, min_size=1, max_size=3), st.sampled_from(GENERAL))
def test_more_guards(spark: SparkSession, sample: Sample, transactions: list[list[Change]], strategy: str) -> None:
    check(sample, transactions, strategy, asked=(2,), engine="spark", spark=spark)
