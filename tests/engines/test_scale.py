"""Nothing in proportion to a relation or a large change comes to the driver: keys, joins, sums, distinct counts, top-k, bags."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.tuning import Tuning
from tests.engines import scale

FEW, MANY = 20_000, int(os.environ.get("REDERIVE_SCALE_ROWS", "1_000_000"))
# Each partition sends a row more than the limit; a union has those of its parts.
MOST_AT_ONCE = 10 * scale.SMALL.driver_rows
MOST_PYTHON_MB = 1_500


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


@pytest.mark.slow
def test_many_rows_with_a_driver_of_one_gigabyte(tmp_path: Path) -> None:
    """A change of a tenth of the rows, a view of half of them, in a lake; each view equals Spark's answer.

    REDERIVE_SCALE_ROWS sets the number: with 20,000,000 it takes most of an hour on two cores.
    """
    command = [sys.executable, scale.__file__, str(MANY), str(tmp_path), "--lake"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=7_000)
    assert found.returncode == 0, found.stderr[-4_000:]
    report = json.loads(found.stdout.splitlines()[-1])
    assert report["heap_mb"] <= 1_024
    assert report["views"]["priced"] == MANY // 2
    for name, step in report["steps"].items():
        assert step["python_mb"] <= MOST_PYTHON_MB, (name, step)
        assert step["most"] <= Tuning().sent_rows, (name, step)
