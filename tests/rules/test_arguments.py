"""What a function is called with: expressions over the condition's columns, and handles on both states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rederive
from rederive.commit.state_handles import StateHandle
from rederive.errors import ActionFailed, RederiveError

TABLES = """
    CREATE TABLE quantity (item STRING PRIMARY KEY, n INT NOT NULL);
    CREATE TABLE stock (item STRING PRIMARY KEY, low INT NOT NULL, most INT NOT NULL);
    CREATE VIEW scarce AS SELECT item FROM quantity WHERE n < 150;
    INSERT INTO stock VALUES ('bolt', 140, 5000), ('nut', 290, 7000);
    INSERT INTO quantity VALUES ('bolt', 5000), ('nut', 7500);
"""
CONDITION = "SELECT q.item, q.n, s.most FROM quantity q JOIN stock s ON q.item = s.item WHERE q.n < s.low"


def opened(**places: Any) -> tuple[rederive.Database, list[Any]]:
    db = rederive.open(**places)
    calls: list[Any] = []
    db.rules.register(lambda *rows: calls.append(rows), "order")
    return db, calls


def test_expressions_over_the_columns_of_the_condition() -> None:
    db, calls = opened()
    db.sql(TABLES)
    db.sql(f"CREATE RULE low WHEN {CONDITION} DO CALL order(item, most - n, upper(item) || '!') PRIORITY 3")
    db.sql("UPDATE quantity SET n = 100 + length(item)")
    assert calls == [([("bolt", 4896, "BOLT!"), ("nut", 6897, "NUT!")],)]


def test_both_signs_get_their_own_values() -> None:
    db, calls = opened()
    db.sql(TABLES)
    db.sql(f"CREATE RULE low WHEN {CONDITION} DO CALL order(most - n) ON BOTH")
    db.sql("UPDATE quantity SET n = 100 WHERE item = 'bolt'")
    db.sql("UPDATE quantity SET n = 200 WHERE item = 'bolt'; UPDATE quantity SET n = 200 WHERE item = 'nut'")
    assert calls == [([(4900,)], []), ([], [(4900,)]), ([(6800,)], [])]


def test_in_datalog_and_in_a_store_that_is_reopened(tmp_path: Path) -> None:
    db, calls = opened(path=tmp_path / "store")
    with db:
        db.define("""
            .decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.
            .rule notice(when=big, do="CALL order(x * 2, 'big')")
        """)
        with db.transaction() as tx:
            tx.insert("n", [(11,)])
    db, again = opened(path=tmp_path / "store")
    with db, db.transaction() as tx:
        tx.insert("n", [(7,), (20,)])
    assert (calls, again) == ([([(22, "big")],)], [([(40, "big")],)])


def test_an_expression_that_fails_rolls_the_transaction_back() -> None:
    db, calls = opened()
    db.sql(TABLES)
    db.sql(f"CREATE RULE low WHEN {CONDITION} DO CALL order(most / n)")
    version = db.version
    with pytest.raises(ActionFailed, match=r"its action failed: .*division by zero"):
        db.sql("UPDATE quantity SET n = 0 WHERE item = 'nut'")
    assert (calls, db.version, db.rows("quantity", item="nut")) == ([], version, [("nut", 7500)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("order(item, other + 1)", "unknown column 'other'"),
        ("order(*)", r"not supported: \* as an argument"),
        ("order(item FROM quantity)", "expected expressions over the columns of the condition"),
        ("order((SELECT most FROM stock))", "unknown table or view 'stock'"),
        ("order(item", "a parenthesis is missing"),
    ],
)
def test_arguments_that_are_refused(call: str, message: str) -> None:
    db, _ = opened()
    db.sql(TABLES)
    with pytest.raises(RederiveError, match=message):
        db.sql(f"CREATE RULE low WHEN SELECT item FROM scarce DO CALL {call}")


def test_a_function_reads_the_states_before_and_after() -> None:
    db = rederive.open()
    db.sql(TABLES)
    seen: list[Any] = []

    @db.rules.on("scarce")
    def look(rows: list[Any], new: StateHandle, old: StateHandle) -> None:
        for state in (old, new):
            counted = state.query("SELECT count(*) FROM quantity WHERE n < 150")
            seen.append((rows, state.rows("quantity", item="bolt"), state.rows("scarce"), counted))

    db.sql("UPDATE quantity SET n = 120 WHERE item = 'bolt'")
    assert seen == [
        ([("bolt",)], [("bolt", 5000)], [], [(0,)]),
        ([("bolt",)], [("bolt", 120)], [("bolt",)], [(1,)]),
    ]


def test_the_new_state_has_what_rules_changed() -> None:
    db = rederive.open()
    db.sql(TABLES + "CREATE TABLE ordered (item STRING PRIMARY KEY, n INT NOT NULL);")
    db.sql("CREATE RULE buy WHEN SELECT item FROM scarce DO INSERT INTO ordered SELECT item, 10 FROM firing PRIORITY 1")
    seen: list[Any] = []

    @db.rules.on("scarce")
    def look(_: list[Any], new: StateHandle) -> None:
        seen.append(new.rows("ordered"))

    db.sql("UPDATE quantity SET n = 120 WHERE item = 'bolt'")
    assert seen == [[("bolt", 10)]]


SWITCH = """
    CREATE TABLE lamp (name STRING PRIMARY KEY, lit BOOLEAN NOT NULL);
    CREATE TABLE step (n INT PRIMARY KEY);
    INSERT INTO lamp VALUES ('a', false);
    CREATE VIEW lit AS SELECT name FROM lamp WHERE lit;
"""


@pytest.mark.parametrize(("since", "fired"), [("SINCE TRANSACTION", 1), ("", 1), ("SINCE CHECK", 2)])
def test_since_the_last_check_a_row_that_comes_back_fires_again(since: str, fired: int) -> None:
    """The lamp is switched on, then off by the first rule, and on again by the second: true, false, true within one commit."""
    db = rederive.open()
    db.sql(SWITCH)
    db.sql(f"""
        CREATE RULE see WHEN SELECT name FROM lit DO INSERT INTO step SELECT 10 + count(*) FROM step {since} PRIORITY 9 RECURSIVE;
        CREATE RULE off WHEN SELECT n FROM step WHERE n = 10 DO UPDATE lamp SET lit = false PRIORITY 5 RECURSIVE;
        CREATE RULE again WHEN SELECT n FROM step, lamp WHERE n = 10 AND NOT lit DO UPDATE lamp SET lit = true RECURSIVE
    """)
    (result,) = db.sql("UPDATE lamp SET lit = true")
    assert [firing.rule for firing in result.firings].count("see") == fired
    assert db.rows("lit") == [("a",)]


def test_a_row_that_goes_back_before_the_rule_fires_does_not_fire() -> None:
    db = rederive.open()
    db.sql(SWITCH)
    db.sql("CREATE RULE off WHEN SELECT name FROM lit DO UPDATE lamp SET lit = false PRIORITY 5 RECURSIVE")
    db.sql("CREATE RULE see WHEN SELECT name FROM lit DO INSERT INTO step VALUES (1) SINCE CHECK PRIORITY 1")
    (result,) = db.sql("UPDATE lamp SET lit = true")
    assert [firing.rule for firing in result.firings] == ["off"]
