"""Long lists and chains are answered; what nests deeper than it may is refused by name. No text ends in a RecursionError."""

from __future__ import annotations

import time

import pytest

import rederive
from rederive.errors import ProgramError, TooDeep

ROWS = [(1, 10), (2999, 20), (5000, 30), (None, 40)]


def database() -> rederive.Database:
    db = rederive.open()
    db.sql("CREATE TABLE t (a INT, b INT NOT NULL)")
    with db.transaction() as tx:
        tx.insert("t", ROWS)
    return db


def listed(n: int) -> str:
    return ", ".join(map(str, range(n)))


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        pytest.param(f"a IN ({listed(3000)})", [10, 20], id="in"),
        pytest.param(f"a NOT IN ({listed(3000)})", [30], id="not in"),
        pytest.param(f"a IN ({listed(3000)}, NULL)", [10, 20], id="in with null"),
        pytest.param(f"a NOT IN ({listed(3000)}, NULL)", [], id="not in with null"),
        pytest.param(f"(a IN ({listed(20)}, NULL)) IS NULL", [20, 30, 40], id="in is null"),
        pytest.param(f"(a IN ({listed(20)})) IS NULL", [40], id="in is null of null"),
        pytest.param(f"a IN ({', '.join(f'{i}.0' for i in range(3000))})", [10, 20], id="decimals"),
        pytest.param(f"a IN ({', '.join(f'{i}e0' for i in range(3000))})", [10, 20], id="doubles"),
        pytest.param(f"CAST(a AS STRING) IN ({', '.join(map(repr, map(str, range(3000))))})", [10, 20], id="texts"),
        pytest.param(" OR ".join(f"a = {i}" for i in range(1500)), [10], id="or"),
        pytest.param(" AND ".join(f"a <> {i}" for i in range(1500)), [20, 30], id="and"),
        pytest.param("NOT (" + " OR ".join(f"a = {i}" for i in range(300)) + ")", [20, 30], id="not or"),
        pytest.param("length(" + " || ".join(["'x'"] * 1000) + ") = 1000", [10, 20, 30, 40], id="concat"),
        pytest.param(f"CASE {' '.join(f'WHEN a = {i} THEN {i}' for i in range(500))} ELSE -1 END = -1", [20, 30, 40], id="case"),
        pytest.param(f"coalesce({', '.join(['a'] * 500)}, -1) = -1", [40], id="coalesce"),
    ],
)
def test_a_long_condition(condition: str, found: list[int]) -> None:
    db = database()
    assert db.query(f"SELECT b FROM t WHERE {condition}") == [(b,) for b in found]


def test_a_view_over_ten_thousand_constants_is_defined_and_maintained_quickly() -> None:
    db = database()
    started = time.process_time()  # seconds of this process: the bound must not depend on what else the machine does
    db.sql(f"CREATE VIEW v AS SELECT b FROM t WHERE a IN ({listed(10_000)})")
    with db.transaction() as tx:
        tx.insert("t", [(i, i) for i in range(20_000)])
    assert len(tx.result.changes["v"].plus) == 10_000
    assert db.sql(f"DELETE FROM t WHERE b IN ({listed(5000)})")[0].changes["v"].minus[:1] == [(0,)]
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["a"] * 1000),
        "(" * 1000 + "a" + ")" * 1000,
        "abs(" * 200 + "a" + ")" * 200,
        "- " * 500 + "a",
        "NOT " * 500 + "d",
    ],
)
def test_deep_sql_is_refused(expression: str) -> None:
    db = database()
    with pytest.raises(TooDeep, match="more than 80 levels") as refused:
        db.sql(f"CREATE VIEW v AS SELECT {expression} AS x FROM t")
    assert refused.value.span is not None


@pytest.mark.parametrize("expression", [" + ".join(["a"] * 60), "abs(" * 30 + "a" + ")" * 30, "- " * 40 + "a"])
def test_what_nests_less_is_answered(expression: str) -> None:
    assert len(database().query(f"SELECT {expression} AS x FROM t WHERE a = 1")) == 1


DECLARED = ".decl e(x: number) .decl v(x: number) "


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param("e(x), " + ", ".join(f"x != {i}" for i in range(500)), [2999], id="and"),
        pytest.param("e(x), (" + " ; ".join(f"x = {i}" for i in range(200)) + ")", [1], id="or"),
        pytest.param("e(y), x = " + " + ".join(["y"] * 60), [60, 179940], id="sum"),
    ],
)
def test_a_long_rule(body: str, found: list[int]) -> None:
    db = rederive.open()
    db.define(f"{DECLARED} v(x) :- {body}.")
    with db.transaction() as tx:
        tx.insert("e", [(1,), (2999,)])
    assert db.rows("v") == [(x,) for x in found]


@pytest.mark.parametrize("term", ["(" * 2000 + "y" + ")" * 2000, "-" * 2000 + "y", " + ".join(["y"] * 2000)])
def test_deep_datalog_is_refused(term: str) -> None:
    with pytest.raises(ProgramError, match="deep"):
        rederive.open().define(f"{DECLARED} v(x) :- e(y), x = {term}.")
