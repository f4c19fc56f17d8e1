"""Constraint views: violations are told of, or the transaction is refused with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import rederive
from rederive.errors import ProgramError, StrategyError, Violated

ACCOUNTS = """
.decl account(id: symbol, balance: number) key(id)
.decl overdrawn(id: symbol, balance: number)
overdrawn(x, b) :- account(x, b), b < 0.
"""


def put(db: rederive.Database, **balances: int) -> rederive.Result:
    with db.transaction() as tx:
        tx.upsert("account", list(balances.items()))
    return tx.result


def test_a_transaction_that_violates_is_refused_with_the_rows(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.migrate(f"{ACCOUNTS} .constraint overdrawn(mode=reject)")
        put(db, ada=5)
        with pytest.raises(Violated) as caught:
            put(db, ada=-1, bob=-2, eve=7)
        assert (caught.value.code, caught.value.view, caught.value.rows) == ("violated", "overdrawn", (("ada", -1), ("bob", -2)))
        assert (db.version, db.rows("account")) == (1, [("ada", 5)])
    with rederive.open(tmp_path) as db, pytest.raises(Violated):
        put(db, ada=-1)


def test_rejecting_is_the_default_and_about_what_a_transaction_adds() -> None:
    db = rederive.open()
    db.define(ACCOUNTS)
    put(db, ada=-1)
    db.define(".decl negative(id: symbol)  negative(x) :- account(x, b), b < 0.  .constraint negative")
    put(db, ada=-2)
    put(db, bob=1)
    with pytest.raises(Violated):
        put(db, bob=-1)
    assert put(db, ada=3).changes["negative"].minus == [("ada",)]


def test_monitored_violations_are_pushed() -> None:
    db = rederive.open()
    db.define(f"{ACCOUNTS} .decl other(x: symbol) other(x) :- account(x, _). .output other .constraint overdrawn(mode=monitor)")
    told: list[object] = []
    db.subscribe("overdrawn", lambda change: told.append((change.version, change.plus, change.minus)))
    assert "overdrawn" in put(db, ada=-1).changes
    put(db, ada=1)
    assert told == [(1, [("ada", -1)], []), (2, [], [("ada", -1)])]


def test_in_sql_with_bags() -> None:
    db = rederive.open()
    db.sql("""
        CREATE TABLE line (item STRING NOT NULL, n INT NOT NULL);
        CREATE CONSTRAINT REJECT VIEW negative AS SELECT item FROM line WHERE n < 0;
        CREATE OR REPLACE CONSTRAINT MONITOR VIEW large AS SELECT item FROM line WHERE n > 100;
        INSERT INTO line VALUES ('a', 3), ('a', 3), ('b', 200);
    """)
    assert db.rows("large") == [("b",)]
    with pytest.raises(Violated, match="the transaction violates 'negative': \\('a'\\)"):
        db.sql("INSERT INTO line VALUES ('a', -3), ('a', -3)")
    assert len(db.rows("line")) == 3
    db.definitions.drop_view("negative")
    db.sql("INSERT INTO line VALUES ('a', -3)")


def test_a_rule_may_mend_what_a_constraint_would_reject() -> None:
    db = rederive.open()
    db.define(f"{ACCOUNTS} .constraint overdrawn")
    db.sql(
        "CREATE RULE mend WHEN TABLE overdrawn DO UPDATE account SET balance = 0 WHERE id IN (SELECT id FROM firing) RECURSIVE"
    )
    put(db, ada=-5)
    assert db.rows("account") == [("ada", 0)]


@pytest.mark.parametrize("strategy", ["auto", "filtration", "differencing", "on_demand", "counting"])
def test_where_only_rows_that_leave_are_told(strategy: str) -> None:
    db = rederive.open(strategy=strategy, only="minus")
    db.define(f"{ACCOUNTS} .constraint overdrawn")
    with pytest.raises(Violated):
        put(db, ada=-1)
    assert put(db, ada=1).changes == {}


def test_a_nervous_database_cannot_reject() -> None:
    db = rederive.open(strategy="differencing", precision="nervous")
    with pytest.raises(StrategyError, match="the constraint 'overdrawn' rejects, and this database is nervous"):
        db.define(f"{ACCOUNTS} .constraint overdrawn")
    db.define(ACCOUNTS)
    with pytest.raises(StrategyError, match="the rule 'r' is strict"):
        db.rules.on("overdrawn", name="r")(print)
    db.rules.on("overdrawn", name="r", precision="nervous")(print)


def test_the_place_of_the_statement_is_told() -> None:
    db = rederive.open()
    db.define(f"{ACCOUNTS} .constraint overdrawn")
    with pytest.raises(Violated, match="<text>:1:1: error"):
        db.sql("INSERT INTO account VALUES ('ada', -1)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (".constraint account", "the base relation 'account' as a constraint"),
        (".constraint nothing", "unknown relation 'nothing'"),
        (".constraint overdrawn(mode=ignore)", "unknown mode 'ignore'"),
        (".constraint overdrawn(made=reject)", "did you mean 'mode'?"),
        (".constraint overdrawn .constraint overdrawn", "is a constraint already"),
    ],
)
def test_bad_constraints(text: str, reason: str) -> None:
    db = rederive.open()
    db.define(ACCOUNTS)
    with pytest.raises(ProgramError) as caught:
        db.define(text)
    assert reason in str(caught.value)
    assert caught.value.span is not None


def test_bad_constraints_in_sql() -> None:
    db = rederive.open()
    with pytest.raises(ProgramError, match=r"<text>:1:19.*expected VIEW"):
        db.sql("CREATE CONSTRAINT TABLE t (x INT)")
