"""Every predicate splits a table in three: the rows for which it is true, those for which it is false, and the unknown ones."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.errors import NotABase
from rederive.ir.terms import Row
from tests.selection import examples
from tests.sql.predicates import FLAGS, OTHERS, ROWS, TABLE, predicate, predicates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRATEGIES = ("auto", "materialized", "counting", "on_demand", "filtration", "differencing", "recompute")
PLACES = {
    "where": "SELECT o.id FROM o WHERE {p}",
    "exists": "SELECT o.id FROM o WHERE EXISTS (SELECT 1 FROM one WHERE {p})",
    "not exists": "SELECT o.id FROM o WHERE NOT EXISTS (SELECT 1 FROM one WHERE NOT coalesce({p}, false))",
}
FLAT_PLACES = {  # where a predicate holds no query
    **PLACES,
    "on": "SELECT o.id FROM o JOIN one ON {p}",
    "left join": "SELECT o.id FROM o LEFT JOIN one ON {p} WHERE one.z IS NOT NULL",
    "right join": "SELECT o.id FROM one RIGHT JOIN o ON {p} WHERE one.z IS NOT NULL",
    "semi join": "SELECT o.id FROM o LEFT SEMI JOIN one ON {p}",
    "having": "SELECT o.id FROM o GROUP BY o.id, o.a, o.b, o.d, o.e, o.s HAVING {p}",
    "filter": "SELECT q.id FROM (SELECT o.id, count(*) FILTER (WHERE {p}) AS n FROM o GROUP BY o.id) AS q WHERE q.n = 1",
    "case": "SELECT o.id FROM o WHERE CASE WHEN {p} THEN 1 ELSE 0 END = 1",
    "count": "SELECT q.id FROM (SELECT o.id, count_if({p}) AS n FROM o GROUP BY o.id) AS q WHERE q.n = 1",
}


def answers(predicate: str) -> set[int]:
    """The rows for which DuckDB finds the predicate true."""
    found = _duck().execute(f"SELECT o.id FROM o WHERE {as_duck(predicate)}").fetchall()
    return {id for (id,) in found}


def as_duck(predicate: str) -> str:
    return predicate.replace("<=>", "IS NOT DISTINCT FROM")


_known: list[duckdb.DuckDBPyConnection] = []


def _duck() -> duckdb.DuckDBPyConnection:
    if not _known:
        duck = duckdb.connect()
        duck.execute(TABLE.format(text="VARCHAR") + ";" + OTHERS)
        duck.executemany("INSERT INTO o VALUES (?, ?, ?, ?, ?, ?)", ROWS)
        duck.executemany("INSERT INTO f VALUES (?, ?)", FLAGS)
        duck.execute("INSERT INTO one VALUES (1)")
        _known.append(duck)
    return _known[0]


def filled(strategy: str = "auto", views: str = "") -> rederive.Database:
    db = rederive.open(strategy=strategy)
    db.sql(f"{TABLE.format(text='STRING')}; {OTHERS}; {views}")
    with db.transaction() as tx:
        tx.insert("o", ROWS)
    with db.transaction() as tx:
        tx.insert("f", FLAGS)
        tx.insert("one", [(1,)])
    return db


def ids(rows: Iterable[Row]) -> list[int]:
    return [id for (id, *_) in rows if isinstance(id, int)]


def thirds(predicate: str) -> dict[str, str]:
    return {"yes": f"({predicate})", "no": f"(NOT ({predicate}))", "unknown": f"(({predicate}) IS NULL)"}


def check_partition(predicate: str, place: str, strategy: str) -> None:
    """As views that are maintained, and as the rows that a DELETE takes out."""
    parts = thirds(predicate)
    views = [f"CREATE VIEW {name} AS {FLAT_PLACES[place].format(p=part)}" for name, part in parts.items()]
    db = filled(strategy, "; ".join(views))
    found = {name: ids(db.rows(name)) for name in parts}
    assert sorted(id for rows in found.values() for id in rows) == [row[0] for row in ROWS], parts
    for name, part in parts.items():
        assert set(found[name]) == answers(part), part
        assert sorted(ids(db.query(FLAT_PLACES[place].format(p=part)))) == sorted(found[name])
    db.sql(f"DELETE FROM o WHERE {parts['no']}")
    assert db.rows("no") == []
    assert set(ids(db.rows("o"))) == {*found["yes"], *found["unknown"]}


@examples(60)
@given(predicates(), st.sampled_from(tuple(PLACES)), st.sampled_from(STRATEGIES))
def test_a_predicate_its_negation_and_the_unknown_partition_the_table(found: str, place: str, strategy: str) -> None:
    check_partition(found, place, strategy)


@examples(60)
@given(predicates(subqueries=False), st.sampled_from(tuple(FLAT_PLACES)), st.sampled_from(STRATEGIES))
def test_a_predicate_without_queries_partitions_wherever_it_stands(found: str, place: str, strategy: str) -> None:
    check_partition(found, place, strategy)


CHOSEN = (
    "o.d = false",
    "false = o.d",
    "o.d <> false",
    "(o.id = 1) = false",
    "false = (o.id = 1)",
    "coalesce(o.d, false) = false",
    "o.d = (1 = 0)",
    "false = false",
    "(false = o.d) = false",
    "o.d IN (false)",
    "o.d BETWEEN false AND false",
    "1 = 0",
    "false",
    "true",
    "CAST(NULL AS BOOLEAN)",
    "NULL",
    "NULL = NULL",
    "1 < NULL",
    "NULL > 1",
    "o.a = NULL",
    "o.a < NULL",
    "o.b = 1 AND o.b = 2",
    "o.b IS NULL",
)


@pytest.mark.parametrize("found", CHOSEN)
def test_comparison_with_false_and_constant_filters(found: str) -> None:
    """A test whose left side is the constant false was taken for a contradiction."""
    check_partition(found, "where", "auto")
    check_elsewhere(found, 0)


@pytest.mark.slow
@pytest.mark.parametrize("found", CHOSEN)
def test_comparison_with_false_and_constant_filters_in_more_places(found: str) -> None:
    check_elsewhere(found, 1)
    check_elsewhere(found, 2)


def check_elsewhere(found: str, number: int) -> None:
    """Each predicate in three places, each place with many predicates and strategies."""
    number += CHOSEN.index(found)
    check_partition(found, tuple(FLAT_PLACES)[number * 3 % len(FLAT_PLACES)], STRATEGIES[number % len(STRATEGIES)])


EMPTY = (
    "SELECT * FROM o WHERE 1 = 0",
    "SELECT * FROM f WHERE false",
    "SELECT 1 AS n WHERE false",
    "SELECT x FROM f WHERE NULL",
    "SELECT DISTINCT g FROM f WHERE 1 = 0",
    "SELECT g, count(*) AS n FROM f GROUP BY g HAVING false",
    "SELECT g, count(*) AS n FROM f WHERE NULL GROUP BY g",
    "SELECT id FROM o WHERE false UNION ALL SELECT x FROM f WHERE 1 = 0",
    "SELECT id FROM o INTERSECT SELECT x FROM f WHERE 1 = 0",
    "SELECT id FROM o WHERE false EXCEPT SELECT x FROM f",
    "SELECT id FROM o JOIN f ON false",
    "SELECT id FROM o LEFT SEMI JOIN f ON 1 = 0",
    "SELECT id FROM o WHERE EXISTS (SELECT 1 FROM f WHERE false)",
    "SELECT id FROM o WHERE id IN (SELECT x FROM f WHERE NULL)",
    "SELECT row_number() OVER (ORDER BY id) AS n FROM o WHERE false",
    "SELECT id FROM o WHERE false ORDER BY id LIMIT 3",
    "WITH q AS (SELECT * FROM o WHERE false) SELECT id FROM q",
    "SELECT 1 div 0 AS n FROM o WHERE false",
    "SELECT id FROM o WHERE false AND 1 div b = 1",
)


@pytest.mark.parametrize("query", EMPTY)
def test_a_constant_filter_leaves_a_view_that_is_empty_and_no_table(query: str) -> None:
    """What no rule defined was a base relation: queries of it failed with a KeyError, and INSERT INTO it was possible."""
    for strategy in STRATEGIES:
        db = filled(strategy, f"CREATE VIEW v AS {query}")
        assert db.query(query) == db.rows("v") == []
        with pytest.raises(NotABase):
            db.sql("INSERT INTO v VALUES (1)")


def test_changes_of_data_by_constant_filters() -> None:
    db = filled()
    for statement in (
        "INSERT INTO f SELECT id, d FROM o WHERE 1 = 0",
        "INSERT INTO f SELECT id, d FROM o WHERE NULL",
        "DELETE FROM o WHERE id IN (SELECT x FROM f WHERE 1 = 0)",
        "DELETE FROM o WHERE id NOT IN (SELECT id FROM o WHERE 1 = 1)",
        "DELETE FROM o WHERE false",
        "DELETE FROM o WHERE NULL",
        "UPDATE o SET a = (SELECT max(x) FROM f) WHERE false",
        "UPDATE o SET a = 7 WHERE b = 1 AND b = 2",
    ):
        db.sql(statement)
        assert db.rows("o") == db.query("SELECT * FROM o WHERE true")
        assert (ids(db.rows("o")), len(db.rows("f"))) == (ids(ROWS), len(FLAGS)), statement
        assert 7 not in [row[1] for row in db.rows("o")]
    db.sql("UPDATE o SET a = (SELECT max(x) FROM f WHERE false) WHERE 1 = 1")
    assert {row[1] for row in db.rows("o")} == {None}
    db.sql("DELETE FROM o WHERE id NOT IN (SELECT x FROM f WHERE false)")
    assert db.rows("o") == []


# Beside Spark


@pytest.fixture(scope="module")
def own(spark: SparkSession) -> SparkSession:
    """A session that has the rows as views."""
    session = spark.newSession()
    columns = "id INT, a INT, b INT NOT NULL, d BOOLEAN, e BOOLEAN NOT NULL, s STRING"
    session.createDataFrame(ROWS, columns).createOrReplaceTempView("o")
    session.createDataFrame(FLAGS, "x INT, g BOOLEAN").createOrReplaceTempView("f")
    return session


def test_a_sample_of_predicates_is_true_where_spark_finds_it_true(own: SparkSession) -> None:
    """In the SELECT list: true, false or NULL for each row."""
    pick = random.Random(7).choice
    found = [*CHOSEN, *(predicate(pick, subqueries=False) for _ in range(150))]
    listed = ", ".join(f"({one}) AS p{i}" for i, one in enumerate(found))
    mine = filled().query(f"SELECT o.id, {listed} FROM o")
    assert sorted(mine, key=str) == sorted((tuple(row) for row in own.sql(f"SELECT o.id, {listed} FROM o").collect()), key=str)


def test_constant_filters_on_the_spark_engine(spark: SparkSession) -> None:
    places = [*EMPTY[:3], "SELECT o.id, f.x FROM o LEFT JOIN f ON false", "SELECT count(*) AS n FROM f WHERE 1 = 0"]
    places += ["SELECT id FROM o WHERE d = false", "SELECT id FROM o WHERE id NOT IN (SELECT x FROM f WHERE false)"]
    views = "; ".join(f"CREATE VIEW v{i} AS {query}" for i, query in enumerate(places))
    resident, other = filled(views=views), rederive.open(engine="spark", spark=spark)
    other.sql(f"{TABLE.format(text='STRING')}; {OTHERS}; {views}")
    with other.transaction() as tx:
        tx.insert("o", ROWS)
        tx.insert("f", FLAGS)
    for i in range(len(places)):
        assert other.rows(f"v{i}") == resident.rows(f"v{i}"), places[i]
