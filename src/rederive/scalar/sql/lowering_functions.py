"""Functions that lowering puts into rules and that no user can call."""

from __future__ import annotations

from typing import Any, Final

from rederive.scalar.failures import ScalarError, join_texts
from rederive.scalar.sql.built_in import Implementation

MOST_LEVELS: Final = 100
"""Levels of a recursion with UNION ALL: Spark's default of `spark.sql.cteRecursionLevelLimit`."""


def only_value(value: Any, number: int) -> Any:
    """The value of a scalar subquery with so many rows.

    >>> only_value(7, 1)
    7
    """
    if number > 1:
        raise ScalarError(f"a subquery used as an expression has {number} rows; it must have at most one")
    return value


def row_path(path: str, *identity: Any) -> str:
    """The identity of a row of a recursion: that of the row before it, and what tells its own derivation apart.

    >>> row_path("1", 7, None)
    '1/1:7-'
    """
    texts = ("-" if value is None else f"{len(text := str(value))}:{text}" for value in identity)
    return join_texts(path, "/", *texts)


def next_level(level: int) -> int:
    """The level of a row that a recursion derives from a row of this level."""
    if level >= MOST_LEVELS:
        raise ScalarError(f"the recursion has more than {MOST_LEVELS} levels")
    return level + 1


OF_LOWERING: Final[dict[str, Implementation]] = {"only value": only_value, "row path": row_path, "next level": next_level}
