"""Pipe syntax: each text means the query in clauses beside it, as a view over random changes."""

from __future__ import annotations

import random

import pytest

import rederive
from rederive.errors import SyntaxProblem

TABLES = "CREATE TABLE t (a INT, b STRING, c INT); CREATE TABLE u (b STRING, d INT);"
PAIRS = {
    "FROM t |> WHERE a > 1 |> SELECT b, c": "SELECT b, c FROM t WHERE a > 1",
    "FROM t |> EXTEND a * 2 AS d |> WHERE d > 2": "SELECT *, a * 2 AS d FROM t WHERE a * 2 > 2",
    "FROM t |> AGGREGATE sum(c) AS s, count(*) AS n GROUP BY b |> WHERE n > 1": (
        "SELECT b, sum(c) AS s, count(*) AS n FROM t GROUP BY b HAVING count(*) > 1"
    ),
    "FROM t |> AGGREGATE count(*) AS n": "SELECT count(*) AS n FROM t",
    "FROM t |> AGGREGATE GROUP BY b": "SELECT DISTINCT b FROM t",
    "FROM t |> AGGREGATE sum(c) s GROUP BY a % 2 AS odd": "SELECT a % 2 AS odd, sum(c) AS s FROM t GROUP BY a % 2",
    "FROM t |> JOIN u USING (b) |> SELECT a, d": "SELECT a, d FROM t JOIN u USING (b)",
    "FROM t x |> JOIN u y ON x.b = y.b |> WHERE y.d > 1 |> SELECT x.a": "SELECT x.a FROM t x JOIN u y ON x.b = y.b WHERE y.d > 1",
    "FROM t x |> WHERE x.a > 1 |> LEFT JOIN u y ON x.b = y.b |> SELECT x.a, y.d": (
        "SELECT x.a, y.d FROM (SELECT * FROM t WHERE a > 1) x LEFT JOIN u y ON x.b = y.b"
    ),
    # The condition comes before the join, so rows of u without a partner stay.
    "FROM t x |> WHERE x.a > 1 |> RIGHT JOIN u y ON x.b = y.b |> SELECT x.a, y.d": (
        "SELECT x.a, y.d FROM (SELECT * FROM t WHERE a > 1) x RIGHT JOIN u y ON x.b = y.b"
    ),
    "FROM t JOIN u ON t.b = u.b |> WHERE u.d > 1 |> JOIN u v ON v.b = t.b |> SELECT t.a, v.d": (
        "SELECT t.a, v.d FROM t JOIN u ON t.b = u.b JOIN u v ON v.b = t.b WHERE u.d > 1"
    ),
    "FROM t, u |> WHERE t.b = u.b |> SELECT t.a": "SELECT t.a FROM t, u WHERE t.b = u.b",
    # A pipe after a set operation reads all of it.
    "SELECT a FROM t UNION ALL SELECT d FROM u |> WHERE a > 1": (
        "SELECT a FROM (SELECT a FROM t UNION ALL SELECT d AS a FROM u) WHERE a > 1"
    ),
    "FROM t |> SELECT a |> UNION ALL (FROM u |> SELECT d |> WHERE d > 1) |> WHERE a < 3": (
        "SELECT a FROM (SELECT a FROM t UNION ALL SELECT d AS a FROM u WHERE d > 1) WHERE a < 3"
    ),
    "FROM t |> SELECT b |> EXCEPT (SELECT b FROM u)": "SELECT b FROM t EXCEPT SELECT b FROM u",
    "TABLE t |> ORDER BY c DESC, a, b |> LIMIT 2": "SELECT * FROM t ORDER BY c DESC, a, b LIMIT 2",
    # The rows after a LIMIT are filtered, not those before it.
    "TABLE t |> ORDER BY c DESC, a, b LIMIT 3 |> WHERE a < 3": (
        "SELECT * FROM (SELECT * FROM t ORDER BY c DESC, a, b LIMIT 3) WHERE a < 3"
    ),
    "TABLE t |> ORDER BY c DESC, a, b |> LIMIT 2 OFFSET 1 |> ORDER BY a, b, c |> LIMIT 1": (
        "SELECT * FROM (SELECT * FROM t ORDER BY c DESC, a, b LIMIT 2 OFFSET 1) ORDER BY a, b, c LIMIT 1"
    ),
    "FROM t |> AS q |> WHERE q.a = 1": "SELECT * FROM t WHERE a = 1",
    "FROM t |> DROP a, c |> EXTEND upper(b) AS b2": "SELECT b, upper(b) AS b2 FROM t",
    # An assignment reads the values of those before it.
    "FROM t |> WHERE a > 0 |> SET a = coalesce(a, 0) + 1, c = a * 2, b = b IS NULL |> EXTEND a + c AS d": (
        "SELECT a + 1 AS a, b IS NULL AS b, (a + 1) * 2 AS c, a + 1 + (a + 1) * 2 AS d FROM t WHERE a > 0"
    ),
    "FROM t |> SET c = sum(c) OVER (PARTITION BY b)": "SELECT a, b, sum(c) OVER (PARTITION BY b) AS c FROM t",
    "FROM t |> SELECT b, c |> PIVOT (sum(c) FOR b IN ('x', 'y'))": (
        "SELECT sum(c) FILTER (WHERE b = 'x') AS x, sum(c) FILTER (WHERE b = 'y') AS y FROM t"
    ),
    "FROM t |> EXTEND row_number() OVER (PARTITION BY b ORDER BY c, a) AS n |> WHERE n = 1": (
        "SELECT *, row_number() OVER (PARTITION BY b ORDER BY c, a) AS n FROM t "
        "QUALIFY row_number() OVER (PARTITION BY b ORDER BY c, a) = 1"
    ),
    "SELECT a, (FROM u |> AGGREGATE max(d)) AS m FROM t WHERE b IN (FROM u |> WHERE d > 1 |> SELECT b)": (
        "SELECT a, (SELECT max(d) FROM u) AS m FROM t WHERE b IN (SELECT b FROM u WHERE d > 1)"
    ),
    "WITH w AS (FROM t |> WHERE a = 1) FROM w |> SELECT DISTINCT b": "SELECT DISTINCT b FROM t WHERE a = 1",
}

_LIMIT = "not SQL: LIMIT that does not follow its ORDER BY: write ORDER BY again"


def test_pipes_mean_the_same_as_clauses() -> None:
    rng = random.Random(5)
    with rederive.open() as db:
        db.sql(TABLES)
        for number, (piped, clauses) in enumerate(PAIRS.items()):
            db.sql(f"CREATE VIEW piped{number} AS {piped}; CREATE VIEW clauses{number} AS {clauses}")
        for _ in range(6):
            with db.transaction() as tx:
                for row in rng.sample(db.rows("t"), len(db.rows("t")) // 3):
                    tx.delete("t", [row])
                for _ in range(4):
                    tx.insert("t", [(rng.randrange(4), rng.choice(("x", "y", None)), rng.choice((1, 2, 3, None)))])
                    tx.insert("u", [(rng.choice(("x", "z", None)), rng.randrange(4))])
            for number, piped in enumerate(PAIRS):
                assert db.rows(f"piped{number}") == db.rows(f"clauses{number}"), piped
        assert all(db.rows(f"piped{number}") for number in range(len(PAIRS)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM t |> SET a = 1, A = 2", "not SQL: |> SET assigns a column twice"),
        ("FROM t |> SET a", "not SQL: '=' is missing after the column"),
        ("FROM t |> SELECT a FROM u", "not SQL: |> SELECT takes no other clause: write it after another |>"),
        ("FROM t |> AGGREGATE count(*) GROUP BY 1", "not SQL: |> AGGREGATE groups by names and expressions, not by positions"),
        ("FROM t |> ", "not SQL: expected an operator after |>"),
        ("FROM t |> FOO", "not SQL: expected an operator after |>"),
        ("FROM t |> WHERE", "not SQL: an expression is missing at 'WHERE'"),
        # Between an ORDER BY and its LIMIT, Spark's rows keep their order, and those of a view do not.
        ("TABLE t |> ORDER BY c |> WHERE a < 4 |> LIMIT 1", _LIMIT),
        ("TABLE t |> ORDER BY c LIMIT 3 |> LIMIT 1", _LIMIT),
    ],
)
def test_operators_that_are_refused(text: str, message: str) -> None:
    with rederive.open() as db:
        db.sql(TABLES)
        with pytest.raises(SyntaxProblem) as refused:
            db.sql(f"CREATE VIEW v AS {text}")
        assert refused.value.message == message
