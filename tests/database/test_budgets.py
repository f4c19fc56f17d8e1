"""Definitions, transactions and questions have budgets: beyond them they are refused whole, and what was there is there still."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rederive
from rederive import Limits
from rederive.errors import LimitExceeded

CROSS = "SELECT x.a AS a, y.a AS b, z.a AS c FROM t x, t y, t z"
RULE = ".decl p(x: number, y: number, z: number)  p(x, y, z) :- n(x), n(y), n(z)."
SHORT = Limits(seconds=0.3)


def filled(limits: Limits, folder: Path | None = None) -> rederive.Database:
    """A database with 400 rows in two relations, and from then on with these limits: a busy machine may be slow to fill it."""
    db = rederive.open(folder)
    db.sql("CREATE TABLE t (a INT); CREATE VIEW low AS SELECT a FROM t WHERE a < 2")
    db.define(".decl n(x: number)")
    with db.transaction() as tx:
        tx.insert("t", [(i,) for i in range(400)])
        tx.insert("n", [(i,) for i in range(400)])
    db.pipeline.state.limits = limits
    return db


WORK: list[Callable[[rederive.Database], object]] = [
    lambda db: db.sql(f"CREATE VIEW v AS {CROSS}"),
    lambda db: db.define(RULE),
    lambda db: db.query(CROSS),
    lambda db: db.query("SELECT count(*) FROM t x, t y, t z"),
    lambda db: db.sql("INSERT INTO t SELECT x.a + y.a + z.a FROM t x, t y, t z"),
    lambda db: db.sql("DELETE FROM t WHERE a IN (SELECT x.a + y.a + z.a FROM t x, t y, t z)"),
]


@pytest.mark.parametrize("work", WORK)
def test_work_over_its_seconds_is_refused_whole(work: Callable[[rederive.Database], object], tmp_path: Path) -> None:
    db = filled(SHORT, tmp_path / "store")
    version, relations = db.version, set(db.pipeline.state.program.relations)
    started = time.perf_counter()
    with pytest.raises(LimitExceeded, match=r"stopped after 0\.3 s") as refused:
        work(db)
    assert time.perf_counter() - started < 5  # the machine may be busy; alone it is about 0.4
    assert "budgets" in str(refused.value.hint)
    assert (db.version, set(db.pipeline.state.program.relations)) == (version, relations)
    db.pipeline.state.limits = Limits()
    assert db.rows("low") == [(0,), (1,)]
    with db.transaction() as tx:
        tx.insert("t", [(-1,)])
    assert tx.result.changes["low"].plus == [(-1,)]
    db.close()
    with rederive.open(tmp_path / "store") as again:
        assert (again.version, again.rows("low")) == (version + 1, [(-1,), (0,), (1,)])


@pytest.mark.parametrize("strategy", ["auto", "materialized", "counting", "differencing", "on_demand", "recompute", "filtration"])
def test_a_transaction_over_its_seconds_is_refused_under_every_strategy(strategy: str) -> None:
    db = rederive.open(limits=SHORT, strategy=strategy)
    db.define(f".decl n(x: number) {RULE} .output p")
    with pytest.raises(LimitExceeded, match="stopped"), db.transaction() as tx:
        tx.insert("n", [(i,) for i in range(500)])
    assert (db.version, db.rows("n"), db.rows("p")) == (0, [], [])
    with db.transaction() as tx:
        tx.insert("n", [(7,)])
    assert tx.result.changes["p"].plus == [(7, 7, 7)]


def test_a_definition_over_its_rows_leaves_the_other_views_alone() -> None:
    db = filled(Limits(rows=1000))
    with pytest.raises(LimitExceeded, match="stopped after 1,000 rows"):
        db.define(f"{RULE} .output p")
    assert db.pipeline.state.parked is None
    assert db.rows("low") == [(0,), (1,)]


def test_a_recursion_over_its_seconds_is_refused() -> None:
    db = rederive.open(limits=Limits(rounds=10**9, tuples=10**9, seconds=0.3))
    with pytest.raises(LimitExceeded, match=r"stopped after 0\.3 s"):
        db.define(".decl n(x: number)  n(0).  n(x + 1) :- n(x).")
    assert not db.pipeline.state.program.relations


def test_a_question_over_its_seconds_is_refused_and_answered_with_a_larger_budget() -> None:
    db = rederive.open(strategy="on_demand")
    db.define(f".decl n(x: number) {RULE}")
    db.load("n", [(i,) for i in range(60)])
    db.pipeline.state.limits = Limits(seconds=0.05, rows=100)
    with pytest.raises(LimitExceeded, match="stopped after"):
        db.rows("p")
    db.pipeline.state.limits = None
    assert len(db.rows("p")) == 60**3


def test_rows_and_memory_have_budgets() -> None:
    db = filled(Limits(rows=1000))
    with pytest.raises(LimitExceeded, match="stopped after 1,000 rows"):
        db.sql(f"CREATE VIEW v AS {CROSS.replace(', t z', '').replace(', z.a AS c', '')}")
    db = filled(Limits(growth=2**25))
    with pytest.raises(LimitExceeded, match="stopped after 32 MiB of memory"):
        db.query("SELECT repeat(cast(a AS STRING), 1000000) AS s FROM t")


@pytest.mark.parametrize(
    "expression",
    ["repeat('x', 2000000000)", "lpad('x', 2000000000, 'y')", "rpad('x', 2000000000, 'y')", "repeat(repeat('x', 5000), 5000)",
     "replace(repeat('x', 10000000), 'x', 'yy')", "repeat('x', 10000000) || repeat('x', 10000000)",
     "concat_ws(repeat('x', 10000000), 'a', 'b', 'c')"],
)  # fmt: skip
def test_a_text_that_is_too_long_is_not_made(expression: str) -> None:
    db = filled(Limits())
    started = time.perf_counter()
    for run in (
        lambda: db.query(f"SELECT {expression} AS s FROM t"),
        lambda: db.sql(f"INSERT INTO t VALUES (length({expression}))"),
    ):
        with pytest.raises(LimitExceeded, match="at most 16,777,216"):
            run()
    assert time.perf_counter() - started < 5


def test_a_text_doubled_by_a_rule_ends_at_the_limit() -> None:
    db = rederive.open()
    with pytest.raises(LimitExceeded, match="at most 16,777,216"):
        db.define('.decl s(x: symbol)  s("x").  s(cat(x, x)) :- s(x).')


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_function_takes_time_that_no_budget_counts(is_stored: bool, tmp_path: Path) -> None:
    """A transaction is not refused for its time once a function was called; what the function reads has a budget of its own."""
    db = rederive.open(tmp_path / "store" if is_stored else None, strategy="on_demand")
    db.define(".decl n(x: number) .decl v(x: number, y: number) v(x, y) :- n(x), n(y). .decl w(x: number) w(x) :- n(x), x > 5.")
    seen = []

    @db.rules.on("w")
    def first(rows: object) -> None:
        time.sleep(0.5)
        seen.append(len(db.rows("v")))

    @db.rules.on("w")
    def second(rows: object) -> None:
        seen.append(len(db.rows("v")))

    db.pipeline.state.limits = Limits(seconds=0.3)
    with db.transaction() as tx:
        tx.insert("n", [(i,) for i in range(30)])
    assert (tx.result.version, seen) == (1, [0, 0])
    assert len(db.rows("n")) == 30
