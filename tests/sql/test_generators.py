"""explode and posexplode: a row for each element of an array, maintained; DuckDB is the witness."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pytest

import rederive
from rederive.errors import TypeClash, Unsupported
from rederive.maintain.program import Strategy

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, s STRING)"
QUERIES = (  # ours, and DuckDB's
    (
        "SELECT k, x FROM t LATERAL VIEW explode(split(s, ',')) e AS x",
        "SELECT k, x FROM (SELECT k, unnest(string_split(s, ',')) AS x FROM t)",
    ),
    (
        "SELECT x, count(*) AS n, min(p) AS p FROM t LATERAL VIEW posexplode(split(s, ',')) e AS p, x WHERE x <> '' GROUP BY x",
        "SELECT x, count(*), min(p) FROM (SELECT unnest(string_split(s, ',')) AS x, "
        "unnest(range(len(string_split(s, ',')))) AS p FROM t) WHERE x <> '' GROUP BY x",
    ),
    (
        "SELECT k, p, x FROM t LATERAL VIEW OUTER posexplode(split(s, ',')) e AS p, x",
        "SELECT k, p, x FROM (SELECT k, unnest(string_split(s, ',')) AS x, unnest(range(len(string_split(s, ',')))) AS p FROM t) "
        "UNION ALL SELECT k, NULL, NULL FROM t WHERE s IS NULL",
    ),
    ("SELECT explode(split(s, ',')) AS x FROM t WHERE k > 1", "SELECT unnest(string_split(s, ',')) FROM t WHERE k > 1"),
    (
        "SELECT k, size(split(s, ',')) AS n, element_at(split(s, ','), 1) AS f FROM t WHERE array_contains(split(s, ','), 'a')",
        "SELECT k, len(string_split(s, ',')), string_split(s, ',')[1] FROM t WHERE list_contains(string_split(s, ','), 'a')",
    ),
)


@pytest.mark.parametrize("strategy", [Strategy.MATERIALIZED, Strategy.ON_DEMAND, Strategy.RECOMPUTE], ids=lambda s: s.value)
def test_views_are_what_duckdb_answers(strategy: Strategy) -> None:
    chosen = random.Random(strategy.value)
    db, other = rederive.open(strategy=strategy.value), duckdb.connect()
    db.sql(TABLE)
    other.execute(TABLE.replace("STRING", "VARCHAR"))
    for i, (ours, _) in enumerate(QUERIES):
        db.sql(f"CREATE VIEW v{i} AS {ours}")
    seen = [Counter[object]() for _ in QUERIES]
    for _ in range(20):
        k = chosen.randrange(5)
        text = chosen.choice([None, "", "a", "a,b", "b,a,b", ",", "a,,a"])
        (result,) = db.sql(f"DELETE FROM t WHERE k = {k}")
        other.execute(f"DELETE FROM t WHERE k = {k}")
        results = [result]
        if chosen.random() < 0.7:
            literal = "NULL" if text is None else f"'{text}'"
            results += db.sql(f"INSERT INTO t VALUES ({k}, {literal})")
            other.execute(f"INSERT INTO t VALUES ({k}, {literal})")
        for i, (ours, theirs) in enumerate(QUERIES):
            for change in (result.changes.get(f"v{i}") for result in results):
                if change is not None:
                    counts = change.counts or {"plus": [1] * len(change.plus), "minus": [1] * len(change.minus)}
                    seen[i].update(dict(zip(change.plus, counts["plus"], strict=True)))
                    seen[i].subtract(dict(zip(change.minus, counts["minus"], strict=True)))
            assert +seen[i] == Counter(other.execute(theirs).fetchall()), ours
            assert db.query(ours) == sorted(seen[i].elements(), key=lambda row: [(v is not None, v) for v in row])  # type: ignore[attr-defined]


def test_a_generator_without_a_table() -> None:
    db = rederive.open()
    assert db.query("SELECT explode(sequence(1, 7, 3)) AS x") == [(1,), (4,), (7,)]
    assert db.query("SELECT posexplode(array('b', 'a')) AS (p, x)") == [(0, "b"), (1, "a")]


@pytest.mark.parametrize(
    ("query", "error", "what"),
    [
        ("SELECT explode(s) AS x FROM t", TypeClash, "expected an array, not STRING"),
        ("SELECT k, x FROM t LATERAL VIEW inline(s) e AS x", TypeClash, "inline takes an array of structs"),
        ("SELECT k, x FROM t LATERAL VIEW upper(s) e AS x", Unsupported, "as a generator"),
        ("SELECT explode(split(s, ',')), explode(split(s, ',')) FROM t", Unsupported, "two generators"),
        ("SELECT get_json_object(s, '$[a]') AS x FROM t", Unsupported, "this path"),
    ],
)
def test_what_is_refused(query: str, error: type[Exception], what: str) -> None:
    db = rederive.open()
    db.sql(TABLE)
    with pytest.raises(error, match=what):
        db.query(query)
