"""What runs by column equals what runs by row: over random rows of every type, with NULLs, repetitions, deletions and upserts."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.engines.resident.run.threshold import Threshold
from rederive.errors import DuplicateKey, EvaluationError, IllTypedRow
from tests.properties.programs import scenarios
from tests.properties.test_maintained_equals_recomputed import Scenario, Session, play
from tests.selection import examples
from tests.sql.test_tpch import test_a_query_is_maintained_over_refreshes as maintain_tpch

Row = tuple[Any, ...]

TABLES = """
CREATE TABLE fact (id BIGINT PRIMARY KEY, a BIGINT, b STRING NOT NULL, amount DECIMAL(9,2), ratio DOUBLE, n INT NOT NULL,
  day DATE);
CREATE TABLE dim (a BIGINT PRIMARY KEY, region STRING, factor DECIMAL(5,3) NOT NULL);
CREATE TABLE hidden (b STRING NOT NULL, reason STRING, PRIMARY KEY (b));
"""
VIEWS = {
    "star": "SELECT region, b, sum(amount) AS s, count(*) AS n, avg(amount) AS m"
    " FROM fact JOIN dim ON fact.a = dim.a GROUP BY region, b",
    "arithmetic": "SELECT b, sum(amount * factor) AS s, sum(n * 3 - 1) AS t, sum(amount * (1 - factor)) AS u"
    " FROM fact JOIN dim ON fact.a = dim.a WHERE day > DATE '2024-03-01' AND n <> 4 GROUP BY b",
    "floats": "SELECT b, sum(ratio) AS s, avg(ratio) AS m, count(ratio) AS n FROM fact GROUP BY b",
    "texts": "SELECT upper(b) AS b, sum(n) AS s FROM fact WHERE b LIKE '%a%' OR n > 5 GROUP BY upper(b)",
    "negated": "SELECT a, count(*) AS n FROM fact WHERE NOT EXISTS (SELECT 1 FROM hidden WHERE hidden.b = fact.b) GROUP BY a",
    "twice": "SELECT x.b, count(*) AS n, sum(y.n) AS s FROM fact x JOIN fact y ON x.a = y.a GROUP BY x.b",
    "whole": "SELECT count(*) AS n, sum(amount) AS s FROM fact",
    "extremes": "SELECT b, min(amount) AS least, max(day) AS last FROM fact GROUP BY b",
    "rows": "SELECT id, region, amount FROM fact JOIN dim ON fact.a = dim.a WHERE n > 2",
    "least": "SELECT n, min(b) AS b, max(region) AS r, min(ratio) AS x, max(n) AS m"
    " FROM fact JOIN dim ON fact.a = dim.a GROUP BY n",
    "largest": "SELECT max(amount) AS s, min(b) AS b, max(day) AS d FROM fact",
    "projected": "SELECT DISTINCT a, b, n, amount > 0 AS positive FROM fact",
    "few": "SELECT DISTINCT b, n FROM fact JOIN dim ON fact.a = dim.a",
    "outer": "SELECT id, b, region, factor FROM fact LEFT JOIN dim ON fact.a = dim.a AND n > 2",
    "both": "SELECT id, b, dim.a, region FROM fact FULL JOIN dim ON fact.a = dim.a",
    "anti": "SELECT id, b, n, day FROM fact WHERE b NOT IN (SELECT b FROM hidden) AND n < 7",
    "union": "SELECT id, b, n FROM fact WHERE n > 3 UNION SELECT a, region, 5 FROM dim",
    "copies": "SELECT b, n, region FROM fact JOIN dim ON fact.a = dim.a",
    "having": "SELECT b, n, count(*) AS c FROM fact GROUP BY b, n HAVING count(*) > 1",
    "above": "SELECT region, max(s) AS most, sum(n) AS n FROM (SELECT b, a, sum(n) AS s, count(*) AS n FROM fact GROUP BY b, a) t"
    " JOIN dim ON t.a = dim.a GROUP BY region",
}


@contextmanager
def by_column(bindings: float = 0) -> Iterator[None]:
    """Every change runs by column, however small; with infinity, none does."""
    before = Threshold.bindings, Threshold.requests, Threshold.groups
    Threshold.bindings, Threshold.requests, Threshold.groups = bindings, max(bindings, 1), bindings
    try:
        yield
    finally:
        Threshold.bindings, Threshold.requests, Threshold.groups = before


def random_fact(pick: random.Random, id: int) -> Row:
    return (
        id,
        pick.choice((None, 1, 2, 3, 4)),
        pick.choice(("a", "ab", "B", "ä")),
        pick.choice((None, Decimal(pick.randrange(-10_000, 10_000)) / 100)),
        pick.choice((None, 0.0, -0.0, 0.1, 1e300, -1e300, 5e-324, nan, inf, -inf, pick.uniform(-9, 9))),
        pick.randrange(9),
        pick.choice((None, datetime.date(2024, 1, 1) + datetime.timedelta(pick.randrange(150)))),
    )


def steps(seed: int) -> list[tuple[str, str, list[Row]]]:
    """Requests that oppose, repeat and replace each other, in three transactions."""
    pick = random.Random(seed)
    facts = [random_fact(pick, i) for i in range(pick.randrange(1, 40))]
    dims = [(a, pick.choice((None, "r", "s")), Decimal(pick.randrange(1000)) / 1000) for a in pick.sample(range(5), 4)]
    return [
        ("insert", "fact", facts),
        ("insert", "dim", dims),
        ("insert", "hidden", [("a", None)]),
        ("commit", "", []),
        ("delete", "fact", pick.sample(facts, len(facts) // 2)),
        ("insert", "fact", [random_fact(pick, i) for i in range(100, 100 + pick.randrange(30))] + facts[:3]),
        ("commit", "", []),
        ("upsert", "fact", [random_fact(pick, pick.randrange(60)) for _ in range(12)]),
        ("upsert", "dim", [(pick.randrange(5), "t", Decimal("0.5"))]),
        ("commit", "", []),
        ("delete", "hidden", [("a", None)]),
        ("delete", "dim", dims),
        ("commit", "", []),
    ]


def history(seed: int, view: str, strategy: str = "auto") -> list[Any]:
    """The changes and the rows of a view after each transaction; it is defined after the first one."""
    db = rederive.open(strategy=strategy)
    db.sql(TABLES)
    seen: list[Any] = []
    tx = db.transaction()
    for action, relation, rows in steps(seed):
        if action != "commit":
            getattr(tx, action)(relation, rows)
            continue
        with tx:
            pass
        if not seen:
            db.sql(f"CREATE VIEW v AS {VIEWS[view]}")
        seen.append([(c.view, list(c.plus), list(c.minus)) for c in tx.result.changes.values()])
        seen.append([db.rows(name) for name in ("v", "fact", "dim")])
        seen.append([db.rows("fact", a=3), db.rows("fact", id=101), db.rows("fact", b="ab", n=3)])
        tx = db.transaction()
    return seen


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("seed", range(2))
def test_by_column_equals_by_row(view: str, seed: int) -> None:
    with by_column(float("inf")):
        expected = history(seed, view)
    with by_column():
        assert history(seed, view) == expected
        Threshold.groups = 1000  # joined by column, and few groups changed one by one
        assert history(seed, view) == expected


def test_sums_beyond_64_bits_are_exact_by_column() -> None:
    """The totals of a group become numbers of Python, and come back with the rows that left."""
    db = rederive.open()
    db.sql("CREATE TABLE f (id BIGINT PRIMARY KEY, kind STRING NOT NULL, x DECIMAL(18,0) NOT NULL)")
    db.sql("CREATE VIEW v AS SELECT kind, sum(x) AS s, count(*) AS n FROM f GROUP BY kind")
    large = Decimal(10**18 - 1)
    rows = [(i, "a" if i % 2 else "b", large) for i in range(40)]
    with by_column():
        for action, n in (("insert", 20), ("delete", 19)):
            with db.transaction() as tx:
                getattr(tx, action)("f", rows)
            assert tx.result.by_column
            assert db.rows("v") == ([("a", 20 * large, 20), ("b", 20 * large, 20)] if n == 20 else [])


@examples(100)
@given(strategy=st.sampled_from(["materialized", "auto"]), scenario=scenarios())
def test_random_programs_by_column_are_those_of_the_oracle(strategy: str, scenario: Scenario) -> None:
    with by_column():
        play(strategy, scenario)


@pytest.mark.parametrize("number", [1, 3, 5, 18])
def test_queries_of_tpch_by_column_are_those_of_duckdb(number: int) -> None:
    with by_column():
        maintain_tpch(number)


@pytest.mark.parametrize("strategy", ["materialized", "auto", "counting"])
def test_totals_by_column_are_those_of_the_oracle(strategy: str) -> None:
    text = """
        .decl f(x: number, y: number, z: number, w: number)  .decl hidden(x: number)
        .decl many(y: number, n: number)  .decl total(y: number, s: number)
        many(y, n) :- f(_, y, _, _), n = count : { f(_, y, _, _) }.
        total(y, s) :- f(_, y, _, _), s = sum z * w : { f(x, y, z, w), !hidden(x) }.
    """
    pick = random.Random(5)
    with by_column():
        session = Session(text, strategy)
        for _ in range(6):
            rows = [tuple(pick.randrange(4) for _ in range(4)) for _ in range(8)]
            session.commit([("insert", "f", rows[:5]), ("delete", "f", rows[5:]), ("insert", "hidden", [(pick.randrange(4),)])])


def test_a_failure_counts_by_column_where_it_counts_by_row() -> None:
    """A product that overflows refuses the transaction, unless another literal rules the row out."""
    db = rederive.open()
    db.sql("CREATE TABLE f (id BIGINT PRIMARY KEY, x BIGINT NOT NULL, kind STRING NOT NULL)")
    db.sql("CREATE VIEW v AS SELECT kind, sum(x * x) AS s FROM f WHERE kind <> 'skip' GROUP BY kind")
    with by_column():
        with db.transaction() as tx:
            tx.insert("f", [(1, 2**40, "skip"), (2, 3, "a")])
        with pytest.raises(EvaluationError, match="overflow"), db.transaction() as tx:
            tx.insert("f", [(3, 2**40, "a")])
    assert db.rows("v") == [("a", 9)]
    assert len(db.rows("f")) == 2


def test_the_result_says_what_ran_by_column() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE f (id BIGINT PRIMARY KEY, x BIGINT NOT NULL, kind STRING NOT NULL)")
    db.sql("CREATE VIEW v AS SELECT kind, sum(x) AS s FROM f GROUP BY kind")
    with db.transaction() as few:
        few.insert("f", [(1, 2, "a")])
    with db.transaction() as many:
        many.insert("f", [(i, i, "b") for i in range(2, 2 + int(Threshold.bindings))])
    assert (few.result.by_column, many.result.by_column) == (0, 1)


def test_keys_collide_by_column_as_by_row() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE f (id BIGINT PRIMARY KEY, x BIGINT NOT NULL, y BIGINT NOT NULL)")
    with by_column():
        with db.transaction() as tx:
            tx.insert("f", [(1, 1, 1), (2, 2, 2)])
        for rows in ([(3, 1, 1), (3, 2, 2)], [(1, 5, 5)]):
            with pytest.raises(DuplicateKey), db.transaction() as tx:
                tx.insert("f", rows)
        with db.transaction() as tx:
            tx.delete("f", [(1, 1, 1)])
            tx.insert("f", [(1, 5, 5), (1, 5, 5)])
        with pytest.raises(DuplicateKey):
            db.load("f", [(2, 7, 7)])
    assert db.rows("f") == [(1, 5, 5), (2, 2, 2)]


def test_arrow_and_pandas_come_by_column() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE f (id BIGINT PRIMARY KEY, price DECIMAL(9,2), name STRING, day DATE, small SMALLINT NOT NULL)")
    leap = datetime.date(2024, 2, 29)
    table = pa.table({
        "name": ["x", None, "y"],
        "id": pa.array([1, 2, 3], pa.int32()),
        "price": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(9, 2)),
        "day": [None, leap, None],
        "small": [7, 8, 9],
    })  # fmt: skip
    rows = [
        (1, Decimal("1.50"), "x", None, 7),
        (2, None, None, datetime.date(2024, 2, 29), 8),
        (3, Decimal("-2.25"), "y", None, 9),
    ]
    db.load("f", table)
    assert db.rows("f") == rows
    with db.transaction() as tx:
        tx.delete("f", table.slice(1, 1))
    assert db.rows("f") == [rows[0], rows[2]]
    with db.transaction() as tx:
        tx.upsert("f", table.slice(1).combine_chunks().to_batches()[0])
    assert db.rows("f") == rows
    frame = pytest.importorskip("pandas").DataFrame({"id": [4], "price": [None], "name": ["z"], "day": [None], "small": [1]})
    with db.transaction() as tx:
        tx.insert("f", frame)
    assert db.rows("f", id=4) == [(4, None, "z", None, 1)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"small": [2**15]}, "out of range for an integer of 16 bits"),
        ({"small": [1.5]}, "double is not a number"),
        ({"small": [None]}, "null is not a number"),
        ({"price": [Decimal("1.234")]}, "price"),
    ],
)
def test_arrow_columns_of_other_types_are_refused(column: dict[str, list[Any]], message: str) -> None:
    db = rederive.open()
    db.sql("CREATE TABLE f (id BIGINT PRIMARY KEY, price DECIMAL(9,2), small SMALLINT NOT NULL)")
    with pytest.raises(IllTypedRow, match=message):
        db.load("f", pa.table({"id": [1], "price": pa.array([None], pa.decimal128(9, 2)), "small": [1]} | column))
    assert db.rows("f") == []
