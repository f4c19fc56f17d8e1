"""Tables of bags: they hold each row as often as it occurs, as readers expect of a table without a key.

Copies of a row are equal, so a change says only how many enter or leave. Delta's MERGE cannot delete some of several equal rows;
so all copies of a row that loses some are deleted, and those that remain are inserted, in the same commit. Copies have numbers
only inside an engine, which knows sets alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from rederive.lake.names import quote

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

NET: Final = "_net"
_PRESENT: Final = "_present_copies"


def net_counts(changes: DataFrame, names: Sequence[str], plus: SparkColumn, count: str) -> DataFrame:
    """How many copies of each row enter by all changes together; below zero, how many leave. Rows with zero are left out."""
    signed = F.when(plus, F.col(count)).otherwise(-F.col(count))
    net = changes.groupBy(*map(_column, names)).agg(F.sum(signed).alias(NET))
    return net.where(F.col(NET) != 0)


def rows_to_delete(net: DataFrame) -> DataFrame:
    """The rows that lose copies. All their copies are deleted."""
    return net.where(F.col(NET) < 0).drop(NET)


def copies_to_insert(net: DataFrame, table: DataFrame, names: Sequence[str]) -> DataFrame:
    """The copies that enter, and those that remain of `rows_to_delete`: as many as were present, less those that leave."""
    present = table.groupBy(*(_column(name).alias(f"_{i}") for i, name in enumerate(names))).agg(F.count("*").alias(_PRESENT))
    # NULL matches NULL: rows are compared as values, not by SQL's `=`.
    same = reduce(and_, (_column(name).eqNullSafe(F.col(f"_{i}")) for i, name in enumerate(names)))
    remaining = net.where(F.col(NET) < 0).join(present, same).withColumn(NET, F.col(NET) + F.col(_PRESENT))
    columns = [*map(_column, names), F.col(NET)]
    return expand_copies(net.where(F.col(NET) > 0).select(*columns).unionByName(remaining.select(*columns)), NET)


def expand_copies(rows: DataFrame, count: str) -> DataFrame:
    """Each row as often as its column `count` says, without that column."""
    others = [_column(name) for name in rows.columns if name != count]
    # An array of n elements explodes to n rows.
    return rows.select(*others, F.explode(F.array_repeat(F.lit(0), F.col(count).cast("int")))).drop("col")


def number_copies(rows: DataFrame) -> DataFrame:
    """The rows with one more column, which numbers the copies of each row from 1."""
    # Copies are equal, so any order serves; row_number needs one.
    alike = Window.partitionBy(*map(_column, rows.columns)).orderBy(F.lit(0))
    return rows.withColumn("_copy", F.row_number().over(alike).cast("long"))


def _column(name: str) -> SparkColumn:
    return F.col(quote(name))
