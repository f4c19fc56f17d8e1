"""The same text, read by Spark and by us: the same rows in the same order of columns, or ours is refused by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import rederive
from rederive.errors import RederiveError
from tests.sql.test_spark_values import in_utc
from tests.sql.texts import LITERALS, MORE_QUERIES, OPERATORS, QUERIES, TABLES, operator_pairs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = Counter[tuple[tuple[type, Any], ...]]


@pytest.fixture(scope="module")
def both(spark: SparkSession) -> Iterator[tuple[rederive.Database, SparkSession]]:
    """A database and a session with Spark's defaults, with the same tables."""
    session, db = spark.newSession(), rederive.open()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    for name, (columns, rows) in TABLES.items():
        db.sql(f"CREATE TABLE {name} ({columns})")
        with db.transaction() as tx:
            tx.insert(name, rows)
        session.createDataFrame(rows, columns).createOrReplaceTempView(name)
    yield db, session
    for name in TABLES:
        session.catalog.dropTempView(name)


def ours(db: rederive.Database, text: str) -> Rows | None:
    try:
        return Counter(tuple((type(value), value) for value in row) for row in db.query(text))
    except RederiveError:
        return None


def theirs(session: SparkSession, text: str) -> Rows | None:
    from pyspark.errors import PySparkException

    try:
        rows = session.sql(text).collect()
    except PySparkException:
        return None
    return Counter(tuple((type(value), value) for value in map(in_utc, row)) for row in rows)


def check(both: tuple[rederive.Database, SparkSession], texts: list[str]) -> None:
    """What we answer, Spark answers; what Spark refuses, we refuse."""
    db, session = both
    for text in texts:
        found = ours(db, text)
        assert found is None or found == theirs(session, text), text


def check_expressions(both: tuple[rederive.Database, SparkSession], expressions: list[str], answered: int) -> None:
    """The same for expressions: those that we answer, in one query; `answered` is how many they are."""
    db, session = both
    found = {text: rows for text in expressions if (rows := ours(db, f"SELECT {text}")) is not None}
    chosen = ", ".join(f"{text} AS x{number}" for number, text in enumerate(found))
    (row,) = session.sql(f"SELECT {chosen}").collect()
    for (text, rows), value in zip(found.items(), map(in_utc, row), strict=True):
        assert rows == Counter([((type(value), value),)]), text
    assert len(found) == answered


def test_literals(both: tuple[rederive.Database, SparkSession]) -> None:
    check_expressions(both, LITERALS, 186)


def test_operators(both: tuple[rederive.Database, SparkSession]) -> None:
    """Which operands an operator takes: Spark's precedence."""
    check_expressions(both, OPERATORS, 34)


@pytest.mark.slow
def test_all_pairs_of_operators(both: tuple[rederive.Database, SparkSession]) -> None:
    check(both, [f"SELECT {text}" for text in operator_pairs()])


def test_stars_and_joins(both: tuple[rederive.Database, SparkSession]) -> None:
    check(both, QUERIES)


@pytest.mark.slow
def test_more_stars_and_joins(both: tuple[rederive.Database, SparkSession]) -> None:
    check(both, MORE_QUERIES)
