"""The oracle against an independent witness: DuckDB evaluates the same views, written in SQL, on random rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rederive.lang import compile_program
from tests.duck import empty_duckdb, insert_rows
from tests.oracle import evaluate
from tests.selection import examples

BASES = """
.decl e(x: symbol, y: symbol)
.decl w(x: symbol, n: number)
.decl f(x: symbol, v: float)
"""

REACH = "WITH RECURSIVE r(x, y) AS (SELECT x, y FROM e UNION SELECT e.x, r.y FROM e JOIN r ON e.y = r.x) "

WITNESSES = {
    "closure": (
        ".decl v(x: symbol, y: symbol)  v(x, y) :- e(x, y).  v(x, y) :- v(x, z), v(z, y).",
        REACH + "SELECT * FROM r",
    ),
    "unreachable": (
        """.decl node(x: symbol)  node(x) :- e(x, _) ; e(_, x).
        .decl r(x: symbol, y: symbol)  r(x, y) :- e(x, y).  r(x, y) :- e(x, z), r(z, y).
        .decl v(x: symbol, y: symbol)  v(x, y) :- node(x), node(y), !r(x, y).""",
        REACH.replace("WITH RECURSIVE", "WITH RECURSIVE node AS (SELECT x FROM e UNION SELECT y FROM e),")
        + """SELECT a.x, b.x FROM node a, node b WHERE NOT EXISTS (SELECT * FROM r WHERE r.x = a.x AND r.y = b.x)""",
    ),
    "join": (
        '.decl v(x: symbol, n: number)  v(x, n + m * 2) :- e(x, y), w(x, n), w(y, m), n < m, x != "a".',
        "SELECT DISTINCT e.x, a.n + b.n * 2 FROM e, w a, w b WHERE e.x = a.x AND e.y = b.x AND a.n < b.n AND e.x <> 'a'",
    ),
    "loops": (
        '.decl v(x: symbol)  v(x) :- e(x, x).  v(x) :- e("a", x), !e(x, _).',
        "SELECT x FROM e WHERE x = y UNION SELECT y FROM e WHERE x = 'a' AND y NOT IN (SELECT x FROM e)",
    ),
    "division": (
        ".decl v(n: number, q: number, r: number)  v(n, n / 2, n % 2) :- w(_, n).",
        "SELECT DISTINCT n, CAST(trunc(n / 2.0) AS BIGINT), n % 2 FROM w",
    ),
    "count_with_empty_groups": (
        ".decl v(x: symbol, n: number)  v(x, n) :- w(x, _), n = count : { e(x, _) }.",
        "SELECT DISTINCT w.x, (SELECT count(*) FROM e WHERE e.x = w.x) FROM w",
    ),
    "sum_with_empty_groups": (
        ".decl v(x: symbol, n: number)  v(x, n) :- e(x, _), n = sum m : { e(x, y), w(y, m) }.",
        "SELECT DISTINCT o.x, coalesce((SELECT sum(n) FROM e JOIN w ON e.y = w.x WHERE e.x = o.x), 0)::BIGINT FROM e o",
    ),
    "extremes": (
        ".decl v(x: symbol, a: number, b: number)  v(x, a, b) :- w(x, _), a = min m : { w(x, m) }, b = max m : { w(x, m) }.",
        "SELECT x, min(n), max(n) FROM w GROUP BY x",
    ),
    "mean": (
        ".decl v(x: symbol, m: float)  v(x, m) :- w(x, _), m = mean n : { w(x, n) }.",
        "SELECT x, avg(n) FROM w GROUP BY x",
    ),
    "grand_total": (
        ".decl v(n: number, s: number)  v(n, s) :- n = count : { w(_, _) }, s = sum m : { w(_, m) }.",
        "SELECT count(*), coalesce(sum(n), 0)::BIGINT FROM w",
    ),
    "largest_of_nothing": (
        ".decl v(m: float)  v(m) :- m = max n : { f(_, n) }.",
        "SELECT max(v) FROM f HAVING count(*) > 0",
    ),
    "aggregate_over_a_negation": (
        ".decl v(n: number)  v(n) :- n = sum m : { w(x, m), !e(x, _), m > 1 }, n > 2.",
        "SELECT sum(n)::BIGINT AS s FROM w WHERE n > 1 AND x NOT IN (SELECT x FROM e) HAVING s > 2",
    ),
    "float_sum": (
        ".decl v(x: symbol, s: float)  v(x, s) :- f(x, _), s = sum n : { f(x, n) }.",
        "SELECT x, sum(v) FROM f GROUP BY x",
    ),
    "text": (
        '.decl v(x: symbol, y: symbol)  v(cat(x, y), substr(y, 0, 1)) :- e(x, y), contains("b", cat(x, y)), !match("a.*", x).',
        "SELECT DISTINCT x || y, y[1:1] FROM e WHERE contains(x || y, 'b') AND NOT regexp_full_match(x, 'a.*')",
    ),
}

NAMES = st.sampled_from(["a", "b", "c", "d", "ab"])
ROWS: Any = st.fixed_dictionaries(
    {
        "e": st.sets(st.tuples(NAMES, NAMES), max_size=10),
        "w": st.sets(st.tuples(NAMES, st.integers(-3, 4)), max_size=8),
        "f": st.sets(st.tuples(NAMES, st.sampled_from([0.25, 0.5, 1.5, 3.0, -0.25])), max_size=8),
    }
)


@pytest.mark.parametrize("name", WITNESSES)
@examples(40)
@given(rows=ROWS)
def test_oracle_agrees_with_duckdb(name: str, rows: dict[str, set[tuple[Any, ...]]]) -> None:
    text, sql = WITNESSES[name]
    assert evaluate(compile_program(BASES + text), rows)["v"] == set(queried(sql, rows))


def queried(sql: str, rows: dict[str, set[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    with empty_duckdb() as connection:
        for name, kinds in (("e", "x VARCHAR, y VARCHAR"), ("w", "x VARCHAR, n BIGINT"), ("f", "x VARCHAR, v DOUBLE")):
            connection.execute(f"CREATE TABLE {name} ({kinds})")
            insert_rows(connection, name, list(rows[name]))
        return connection.execute(sql).fetchall()
