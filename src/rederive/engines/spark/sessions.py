"""Sessions of our own beside the one that the user works in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


@contextmanager
def unnoticed() -> Iterator[None]:
    """Whatever is done inside, the active session stays the same: making a data frame would put its session in that place."""
    before = SparkSession.getActiveSession()
    try:
        yield
    finally:
        SparkSession._activeSession = before
        sessions = getattr(SparkContext._jvm, "SparkSession", None)
        if sessions is not None and before is not None:
            sessions.setActiveSession(before._jsparkSession)
        elif sessions is not None:
            sessions.clearActiveSession()


def from_table(session: SparkSession, table: pa.Table, schema: StructType | str, file: str | None = None) -> DataFrame:
    """The rows of a table, by way of a Parquet file that every worker sees where one is named.

    Else in one piece: Spark 4.2 reads a table up to the first of its chunks that is empty.
    """
    if file is not None:
        pyarrow.parquet.write_table(table, file)
        return session.read.schema(schema).parquet(f"file://{file}")  # else Spark looks in its default file system
    with unnoticed():
        return session.createDataFrame(table.combine_chunks(), schema=schema)


def at_most(rows: int, data: DataFrame) -> DataFrame:
    """The same data, no more than so many rows of each of its partitions."""
    session = data.sparkSession
    jvm: Any = session._jvm
    sql = jvm.org.apache.spark.sql
    number = sql.catalyst.expressions.Literal.create(rows, sql.types.DataTypes.IntegerType)
    limited = sql.catalyst.plans.logical.LocalLimit(number, data._jdf.logicalPlan())
    return DataFrame(sql.classic.Dataset.ofRows(session._jsparkSession, limited), session)


def partitions(data: DataFrame) -> int | None:
    """How many partitions data is in; None where rows move on their way there."""
    execution = data._jdf.queryExecution()
    return None if "Exchange" in execution.executedPlan().toString() else int(execution.toRdd().getNumPartitions())


def in_session(session: SparkSession, data: DataFrame) -> DataFrame:
    """The same data in another session of its context."""
    jvm: Any = session._jvm
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(session._jsparkSession, data._jdf.logicalPlan()), session)
