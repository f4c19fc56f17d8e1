"""The benchmarks against plain Spark run at a small size, and their answers agree."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from benchmarks import spark as measured


@pytest.mark.slow
@pytest.mark.parametrize("query", [measured.STAR, measured.ANTI], ids=["star", "anti"])
def test_bulk_changes(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    monkeypatch.setattr(measured, "CUSTOMERS", 300)
    monkeypatch.setattr(measured, "ITEMS", 200)
    assert measured.one_bulk(spark, query, 4_000).same


@pytest.mark.slow
def test_small_transactions_and_the_stream(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "STREAMED", 2_000)
    for section in (measured.small(spark), measured.stream(spark)):
        assert all(check.ok for check in section.checks), section
