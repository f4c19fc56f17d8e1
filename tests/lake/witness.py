"""The rows of a Delta table as the `deltalake` package reads them: no JVM, and none of our code."""

from __future__ import annotations

from typing import Any

import pyarrow
from deltalake import DeltaTable, QueryBuilder


def rows(path: str) -> list[tuple[Any, ...]]:
    """All rows, in an order of their own, as deltalake has their values; instants in UTC, without a zone."""
    result = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    table = pyarrow.table(result.read_all())
    columns = (c.cast(pyarrow.timestamp("us")) if pyarrow.types.is_timestamp(c.type) else c for c in table.columns)
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=repr)
