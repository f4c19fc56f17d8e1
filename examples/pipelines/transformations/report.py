"""Tables downstream of a view that rederive maintains: one from its rows, one from the stream of its changes."""

import os

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

MART = os.environ["REDERIVE_LAKE"]


def session() -> SparkSession:
    """The session of the pipeline."""
    found = SparkSession.active()
    assert found is not None
    return found


@pipelines.materialized_view
def large_kinds() -> DataFrame:
    """Kinds with a total above 10: computed from the table of the view, which is small, not from the facts."""
    return session().read.format("delta").load(f"{MART}/views/by_kind").where("total > 10")


@pipelines.table
def entered() -> DataFrame:
    """Every row that ever entered the view, with its version. A change table only grows, so it is a stream."""
    changes = session().readStream.format("delta").load(f"{MART}/changes/by_kind")
    return changes.where("_change = 'plus'").select("_version", "kind", "total")
