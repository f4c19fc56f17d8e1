"""Nothing in proportion to a relation or a large change comes to the driver: keys, joins, sums, distinct counts, top-k, bags."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.engines.spark.engine import SparkEngine
from tests.engines import scale

FEW = 20_000
# Each partition sends a row more than the limit; a union has those of its parts.
MOST_AT_ONCE = 10 * scale.SMALL.driver_rows


def test_few_rows_that_count_as_many(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small budgets, in this process: each side of each change has more rows than any call may bring."""
    monkeypatch.setattr(SparkEngine, "default_tuning", scale.SMALL)
    run = scale.Scale(rederive.open(engine="spark", spark=spark), spark, FEW)
    with scale.collected_rows() as collected:
        run.load()
        run.define()
        result = run.change()
    sizes = {view: (len(change.delta.plus), len(change.delta.minus)) for view, change in result.changes.items()}
    assert min(*sizes["priced"], *sizes["visits"]) > MOST_AT_ONCE, sizes
    assert collected.most <= MOST_AT_ONCE, [call for call in collected.calls if call[1] > MOST_AT_ONCE]
    assert run.check()["priced"] == FEW // 2
