"""Typical analytics queries as views: on every strategy, over random changes, each equals the rows that Spark itself answers.

The rows of Spark are stored in `fixtures/analytics/expected.json`; the slow test computes them again.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

import rederive
from tests.sql.analytics import EXPECTED, SCHEMA, AnalyticsQuery, Row, normal_form, queries, states
from tests.sql.test_spark_values import in_utc
from tools.sql_support import PAGE, page

# Counting and differencing refuse recursion, which generators and windows that overlap are, and a rule of counting joins at most
# 20 relations.
GENERATED = ("explode(", "inline(", "stack(", "json_tuple(")
_RECURSIVE = ("recursion", "hierarchy", "sliding", "overlapping windows")
REFUSED = {"counting": (*_RECURSIVE, "many joins"), "differencing": _RECURSIVE}
STRATEGIES = ("auto", "materialized", "recompute", "counting", "on_demand", "filtration", "differencing")
QUERIES = queries()


def expected() -> dict[str, list[list[str]]]:
    """Spark's rows of each query after each step."""
    found: dict[str, list[list[str]]] = json.loads(EXPECTED.read_text())
    return found


def is_supported(query: AnalyticsQuery, strategy: str) -> bool:
    words = REFUSED.get(strategy, ())
    if "recursion" in words and any(name in query.text.lower() for name in GENERATED):
        return False
    return not any(word in query.title for word in words)


def apply_change(db: Any, changes: dict[str, Counter[Row]]) -> None:
    with db.transaction() as tx:
        for name, change in changes.items():
            for row, count in change.items():
                for _ in range(abs(count)):
                    (tx.insert if count > 0 else tx.delete)(name, [row])


def answers(query: AnalyticsQuery, strategy: str) -> list[list[str]]:
    """The rows of the view after each step; the view is defined over the tables of the first step."""
    with rederive.open(strategy=strategy) as db:
        db.sql(SCHEMA)
        found = []
        for step, (changes, _) in enumerate(states()):
            apply_change(db, changes)
            if step == 0:
                db.sql(f"CREATE VIEW v AS {query.text}")
            found.append(normal_form(db.rows("v")))
        return found


def test_the_page_lists_the_queries() -> None:
    """`python tools/sql_support.py` writes it."""
    assert PAGE.read_text() == page()


def test_every_query_has_its_rows() -> None:
    assert [query.key for query in QUERIES] == list(expected())
    assert any(rows for steps in expected().values() for rows in steps)


AREAS = sorted({query.area for query in QUERIES})


@pytest.mark.parametrize("number", range(len(AREAS)), ids=lambda n: AREAS[n])
def test_views_equal_sparks_answers(number: int) -> None:
    """The queries of an area as views of one database, on strategy auto, and on one of the others in turn."""
    want = expected()
    for strategy in ("auto", STRATEGIES[1 + number % (len(STRATEGIES) - 1)]):
        chosen = [query for query in QUERIES if query.area == AREAS[number] and is_supported(query, strategy)]
        found = answers_together(chosen, strategy)
        assert not [query.key for query in chosen if found[query.key] != want[query.key]], strategy


def answers_together(chosen: list[AnalyticsQuery], strategy: str) -> dict[str, list[list[str]]]:
    """The rows of the views of one database after each step; half of the views are defined over empty tables."""
    found: dict[str, list[list[str]]] = {query.key: [] for query in chosen}
    with rederive.open(strategy=strategy) as db:
        db.sql(SCHEMA)
        for step, (changes, _) in enumerate(states()):
            for i, query in enumerate(chosen):
                if step == 0 and i % 2 == 0:
                    db.sql(f"CREATE VIEW v{i} AS {query.text}")
            apply_change(db, changes)
            for i, query in enumerate(chosen):
                if step == 0 and i % 2 == 1:
                    db.sql(f"CREATE VIEW v{i} AS {query.text}")
                found[query.key].append(normal_form(db.rows(f"v{i}")))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_views_equal_sparks_answers_on_every_strategy(strategy: str) -> None:
    want = expected()
    chosen = [query for query in QUERIES if is_supported(query, strategy)]
    wrong = [query.key for query in chosen if answers(query, strategy) != want[query.key]]
    assert not wrong


@pytest.mark.slow
def test_the_stored_rows_are_sparks(spark: Any, request: pytest.FixtureRequest) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    found: dict[str, list[list[str]]] = {query.key: [] for query in QUERIES}
    columns = {statement.split()[2]: statement.split("(", 1)[1] for statement in SCHEMA.split(";") if statement.strip()}
    for _, tables in states():
        for name, rows in tables.items():
            declared = columns[name].strip()[:-1].replace("PRIMARY KEY", "").replace("NOT NULL", "")
            session.createDataFrame(list(rows.elements()), declared.replace("\n", " ")).createOrReplaceTempView(name)
        for query in QUERIES:
            found[query.key].append(normal_form(tuple(map(in_utc, row)) for row in session.sql(query.text).collect()))
    if request.config.getoption("--update-golden"):
        EXPECTED.write_text(json.dumps(found, indent=0) + "\n")
    assert found == expected()
