"""The rows of a Spark data frame, where an operation or a delta has rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, lit, sum_distinct, xxhash64

from rederive.engines.protocol import Bulk
from rederive.engines.spark.plan.sources import Distributed, Types
from rederive.engines.spark.session.types import columns, from_arrow
from rederive.errors import NullInKey
from rederive.ir.rules import Relation
from rederive.ir.terms import Row


def missing_value(relation: Relation, position: int) -> NullInKey:
    """The error of a row that has NULL in a column that must have a value."""
    what = "which belongs to its key" if position in relation.key else "which must not be NULL"
    return NullInKey(f"relation '{relation.name}': a row has no value in column '{relation.columns[position].name}', {what}")


class DataFrameRows(Bulk):
    """The rows of a data frame, whose columns are in the relation's order.

    `check` raises an error for rows with NULL where the relation must have a value. It is a query of its own; a query that finds
    such rows by itself reads the data as `unchecked`.
    """

    def __init__(self, data: DataFrame | Distributed, types: Types, check: Callable[[], None] | None = None) -> None:
        self._given = data
        self.types = types
        self._check = check
        self.owner: object = None
        self._number: int | None = None

    @classmethod
    def of(cls, frame: Distributed, owner: object) -> Self:
        """What a query of the owner's session found: distinct rows that stay as they are."""
        found = cls(frame, frame.types)
        found.owner, found._number = owner, len(frame)
        return found

    @property
    def evaluated(self) -> Distributed | None:
        """The frame that a query found, where these are its rows."""
        return self._given if isinstance(self._given, Distributed) else None

    @property
    def table(self) -> pa.Table | None:
        """The rows in the driver, where they are there."""
        return self.evaluated.table if self.evaluated is not None else None

    @property
    def as_given(self) -> DataFrame:
        """The rows, not checked yet, under the names that their columns have."""
        return self._given.data if isinstance(self._given, Distributed) else self._given

    @cached_property
    def unchecked(self) -> DataFrame:
        """The rows, not checked yet, in columns named by position."""
        data = self.as_given
        return data.toDF(*columns(self.types)) if self.types else data.select(lit(True).alias("c0"))

    @property
    def data(self) -> DataFrame:
        """The rows, checked for NULL once."""
        if self._check is not None:
            self._check()
            # Once: the check is a query over all rows.
            self._check = None
        return self.unchecked

    def __len__(self) -> int:
        if self._number is None:
            self._number = self.data.count()
        return self._number

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @cached_property
    def _rows(self) -> list[Row]:
        return from_arrow(self.table if self.table is not None else self.data.toArrow(), self.types)

    def digest(self) -> str:
        """A text that is the same for the same rows, and almost surely for no others."""
        # Independent of the order of rows and of their partitions; as decimals, because a sum of 64-bit hashes overflows.
        hashes = self.data.select(xxhash64(*map(col, columns(self.types))).cast("decimal(38,0)").alias("h"))
        (found,) = hashes.agg(count("h"), sum_distinct("h")).collect()
        return f"{found[0]}:{found[1]}"
