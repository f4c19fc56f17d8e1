"""The central law on the Spark engine: random programs and transactions, each rule as jobs of Spark, or over tables of Arrow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from rederive.engines.spark import here, tables
from tests.properties.programs import scenarios
from tests.properties.test_maintained_equals_recomputed import GENERAL, PLAIN, Scenario, play

FEW = settings(max_examples=3, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=["jobs", "tables"])
def by(request: pytest.FixtureRequest) -> Iterator[None]:
    """No rule is run in the driver; or all rows are in tables, few as they are, until a rule needs Spark."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here, "MOST", -1)
        patch.setattr(tables, *(("MOST", -1) if request.param == "jobs" else ("SMALL", 0)))
        yield


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
