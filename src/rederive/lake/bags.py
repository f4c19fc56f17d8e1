"""Tables that hold a row as often as it occurs, as any reader expects of a table without a key.

Copies are alike, so a change of a bag says how many enter or leave; the copies themselves are told apart only while they are
numbered for an engine, which knows sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

MOVED: Final = "_moved"
_THERE: Final = "_there"


def moved(changes: DataFrame, names: Sequence[str], plus: SparkColumn, count: str) -> DataFrame:
    """How many copies of each row enter by all these changes together, or leave, below zero; without rows that do neither."""
    signed = F.when(plus, F.col(count)).otherwise(-F.col(count))
    net = changes.groupBy(*map(_column, names)).agg(F.sum(signed).alias(MOVED))
    return net.where(F.col(MOVED) != 0)


def taken_out(net: DataFrame) -> DataFrame:
    """The rows of which copies leave: all their copies are taken out, and those that stay are put in again."""
    return net.where(F.col(MOVED) < 0).drop(MOVED)


def put_in(net: DataFrame, table: DataFrame, names: Sequence[str]) -> DataFrame:
    """The copies to add: those that enter, and those that stay of rows that were taken out."""
    there = table.groupBy(*(_column(name).alias(f"_{i}") for i, name in enumerate(names))).agg(F.count("*").alias(_THERE))
    same = reduce(and_, (_column(name).eqNullSafe(F.col(f"_{i}")) for i, name in enumerate(names)))
    left = net.where(F.col(MOVED) < 0).join(there, same).withColumn(MOVED, F.col(MOVED) + F.col(_THERE))
    columns = [*map(_column, names), F.col(MOVED)]
    return repeated(net.where(F.col(MOVED) > 0).select(*columns).unionByName(left.select(*columns)), MOVED)


def repeated(rows: DataFrame, count: str) -> DataFrame:
    """Each row as often as its count says, without the count."""
    others = [_column(name) for name in rows.columns if name != count]
    return rows.select(*others, F.explode(F.array_repeat(F.lit(0), F.col(count).cast("int")))).drop("col")


def numbered(rows: DataFrame) -> DataFrame:
    """The copies of each row numbered from 1, in a column behind the others."""
    alike = Window.partitionBy(*map(_column, rows.columns)).orderBy(F.lit(0))
    return rows.withColumn("_copy", F.row_number().over(alike).cast("long"))


def _column(name: str) -> SparkColumn:
    return F.col("`" + name.replace("`", "``") + "`")
