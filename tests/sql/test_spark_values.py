"""Where engines for SQL differ, Spark is right: the same expressions over the same rows, as a view of ours and by Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

import rederive
from rederive.errors import EvaluationError
from rederive.ir.terms import Kind, Type, Value
from tests.sql.expressions import AGGREGATES, GROUPS, ORDERS, ROWS, TABLE, listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

TYPES = {
    Kind.SYMBOL: ("string",),
    Kind.NUMBER: ("tinyint", "smallint", "int", "bigint"),
    Kind.FLOAT: ("double",),
    Kind.BOOLEAN: ("boolean",),
    Kind.DATE: ("date",),
    Kind.TIMESTAMP: ("timestamp",),
}


@pytest.fixture(scope="module")
def own(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with Spark's defaults, in UTC, that has the rows as a view."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    columns = TABLE[TABLE.index("(") + 1 : -1].replace(" PRIMARY KEY", "").replace("TIMESTAMP", "TIMESTAMP_NTZ")
    session.createDataFrame(ROWS, columns).createOrReplaceTempView("given")
    session.sql("SELECT * EXCEPT (at), CAST(at AS TIMESTAMP) AS at FROM given").createOrReplaceTempView("r")
    yield session
    session.catalog.dropTempView("given")
    session.catalog.dropTempView("r")


def ours(expression: str) -> tuple[Type, dict[int, Value], list[int]]:
    """The type of an expression, its values by key, and the keys of rows that it rejects."""
    db = rederive.open()
    db.sql(f"{TABLE}; CREATE VIEW v AS SELECT k, {expression} AS x FROM r")
    values: dict[int, Value] = {}
    rejected = []
    for row in ROWS:
        key = row[0]
        assert isinstance(key, int)
        try:
            with db.transaction() as tx:
                tx.insert("r", [row])
            ((_, values[key]),) = tx.result.changes["v"].plus
        except EvaluationError:
            rejected.append(key)
    return db.pipeline.state.program.relations["v"].columns[1].type, values, rejected


def same_type(type: Type, theirs: DataType) -> bool:
    return str(type) == theirs.simpleString() if type.kind is Kind.DECIMAL else theirs.simpleString() in TYPES[type.kind]


def in_utc(value: Any) -> Any:
    """PySpark gives a timestamp in the machine's zone."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


@pytest.mark.parametrize("group", GROUPS)
def test_values_and_types(own: SparkSession, group: str) -> None:
    """Rows that an expression of ours rejects are left out here; CASE keeps Spark from evaluating it for them."""
    expressions = listed(GROUPS[group])
    found = {expression: ours(expression) for expression in expressions}
    chosen = []
    for number, (expression, (_, values, _)) in enumerate(found.items()):
        keys = ", ".join(map(str, values)) or "NULL"
        chosen.append(f"CASE WHEN k IN ({keys}) THEN {expression} END AS x{number}")
    frame = own.sql(f"SELECT k, {', '.join(chosen)} FROM r")
    theirs = {row[0]: row[1:] for row in frame.collect()}
    for number, (expression, (type_, values, _)) in enumerate(found.items()):
        assert same_type(type_, frame.schema.fields[number + 1].dataType), (expression, type_)
        expected = {key: in_utc(theirs[key][number]) for key in values}
        assert {key: (type(v), v) for key, v in values.items()} == {key: (type(v), v) for key, v in expected.items()}, expression


def refused() -> list[tuple[str, int]]:
    """For each expression that rejects rows, the first of them."""
    found = [(expression, ours(expression)[2]) for group in GROUPS.values() for expression in listed(group)]
    return [(expression, rejected[0]) for expression, rejected in found if rejected]


@pytest.mark.slow
def test_errors(own: SparkSession) -> None:
    """What ours rejects, Spark rejects too."""
    for expression, key in refused():
        check_error(own, expression, key)


@pytest.mark.parametrize(("expression", "key"), [("i + 1", 5), ("7 / i", 3), ("CAST(s AS INT)", 1), ("e * e * e", 5)])
def test_chosen_errors(own: SparkSession, expression: str, key: int) -> None:
    assert key in ours(expression)[2]
    check_error(own, expression, key)


def check_error(own: SparkSession, expression: str, key: int) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException):
        own.sql(f"SELECT {expression} FROM r WHERE k = {key}").collect()


def test_aggregates(own: SparkSession) -> None:
    """Over all rows, and over each half of them."""
    expressions = listed(AGGREGATES)
    chosen = ", ".join(f"{expression} AS x{number}" for number, expression in enumerate(expressions))
    db = rederive.open()
    db.sql(f"{TABLE}; CREATE VIEW v AS SELECT k % 2 AS g, {chosen} FROM r WHERE k NOT IN (2, 5) GROUP BY k % 2")
    db.load("r", ROWS)
    frame = own.sql(f"SELECT k % 2 AS g, {chosen} FROM r WHERE k NOT IN (2, 5) GROUP BY k % 2 ORDER BY g")
    theirs = [tuple(map(in_utc, row)) for row in frame.collect()]
    for number, expression in enumerate(("g", *expressions)):
        mine = [(type(row[number]), row[number]) for row in db.rows("v")]
        assert mine == [(type(row[number]), row[number]) for row in theirs], expression
        assert same_type(db.pipeline.state.program.relations["v"].columns[number].type, frame.schema.fields[number].dataType), (
            expression
        )


def test_orders(own: SparkSession) -> None:
    """NULL comes first upwards and last downwards, unless it is said."""
    chosen = ", ".join(f"row_number() OVER (ORDER BY {order}, k) AS x{number}" for number, order in enumerate(listed(ORDERS)))
    db = rederive.open()
    db.sql(f"{TABLE}; CREATE VIEW v AS SELECT k, {chosen} FROM r")
    db.load("r", ROWS)
    assert db.rows("v") == sorted(tuple(row) for row in own.sql(f"SELECT k, {chosen} FROM r").collect())


def test_groupings_of_no_rows_and_sessions_exactly_a_gap_apart(own: SparkSession) -> None:
    """Of no rows, Spark has a grand total only where the empty grouping set is the only one."""
    times = ", ".join(f"(TIMESTAMP '2026-01-01 {time}')" for time in ("10:00:00", "10:10:00", "10:20:00.000001"))
    events = f"(VALUES {times}) AS e(ts)"
    groupings = ("ROLLUP (k)", "CUBE (k)", "GROUPING SETS ((k), ())", "GROUPING SETS (())")
    queries = [f"SELECT count(*) AS n, max(i) AS m FROM r WHERE k < 0 GROUP BY {grouping}" for grouping in groupings]
    queries.append(f"SELECT session_window.end, count(*) AS n FROM {events} GROUP BY session_window(ts, '10 minutes')")
    db = rederive.open()
    db.sql(TABLE)
    for query in queries:
        assert db.query(query) == sorted(tuple(map(in_utc, row)) for row in own.sql(query).collect()), query
