"""A lake in a folder of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rederive.lake.tables import Lake


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, str(tmp_path / "lake"))
