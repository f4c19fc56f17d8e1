"""Functions that rules call: after the rules are quiet and the constraints are checked, and before the journal."""

from __future__ import annotations

from pathlib import Path

import pytest

import rederive
from rederive.commit.pending import TransactionRequest
from rederive.engines.protocol import Action, Operation
from rederive.errors import ActionFailed, DuplicateKey, NoStore, StoreError, UnknownFunction, Violated
from rederive.store.journal.writer import Journal

PROGRAM = """
.decl account(id: symbol, balance: number) key(id)
.decl overdrawn(id: symbol, balance: number)
overdrawn(x, b) :- account(x, b), b < 0.
.constraint overdrawn(mode=reject)
"""


def put(db: rederive.Database, *rows: tuple[str, int]) -> None:
    with db.transaction() as tx:
        tx.upsert("account", rows)


def guarded(path: Path | None, mode: str = "") -> tuple[rederive.Database, list[object]]:
    """A rule that calls a function for what a constraint may reject."""
    db = rederive.open(path)
    calls: list[object] = []
    db.migrate(PROGRAM)
    db.rules.register(lambda rows: calls.append(rows), "order")
    db.sql(f"CREATE RULE r WHEN SELECT id, balance FROM account DO CALL order {mode}")
    return db, calls


@pytest.mark.parametrize("durable", [False, True])
def test_a_transaction_that_a_constraint_refuses_calls_no_function(tmp_path: Path, durable: bool) -> None:
    db, calls = guarded(tmp_path if durable else None)
    with db:
        with pytest.raises(Violated):
            put(db, ("bob", -1))
        with pytest.raises(DuplicateKey), db.transaction() as tx:
            tx.insert("account", [("cid", 1), ("cid", 2)])
        assert (calls, db.rules.firings()) == ([], [])
        put(db, ("ada", 5))
        assert calls == [[("ada", 5)]]


def test_a_transaction_that_a_later_rule_breaks_calls_no_function() -> None:
    """The function's rule fires first, then one whose change of data violates a constraint, fails, or calls what is not there."""
    db, calls = guarded(None, "PRIORITY 9")
    db.sql("""
        CREATE RULE charge ON INSERT OF account
        WHEN SELECT id FROM account WHERE balance > 0 DO UPDATE account SET balance = -7 RECURSIVE
    """)
    with pytest.raises(Violated):
        put(db, ("ada", 5))
    db.rules.drop("charge")
    db.sql("CREATE RULE twice WHEN TABLE account DO INSERT INTO account SELECT id, balance + 1 FROM firing RECURSIVE")
    with pytest.raises(ActionFailed, match="two rows share it"):
        put(db, ("ada", 5))
    db.rules.drop("twice")
    db.rules.register(len, "gone")
    db.sql("CREATE RULE missing WHEN TABLE account DO CALL gone")
    del db.pipeline.runtime.functions["gone"]
    with pytest.raises(UnknownFunction):
        put(db, ("ada", 5))
    assert (calls, db.rows("account"), db.version) == ([], [], 0)


def test_functions_are_called_in_the_order_of_firing_with_the_state_before(tmp_path: Path) -> None:
    db, calls = guarded(tmp_path)
    db.sql("CREATE TABLE log (id STRING); CREATE RULE a WHEN TABLE account DO INSERT INTO log SELECT id FROM firing")
    db.rules.register(lambda rows: calls.append((db.version, db.rows("log"), rows)), "seen")
    db.sql("CREATE RULE z WHEN TABLE log DO CALL seen PRIORITY 5")
    with db:
        put(db, ("ada", 5))
        assert calls == [(0, [], [("ada",)]), [("ada", 5)]]
        assert [firing.rule for firing in db.rules.firings()] == ["a", "z", "r"]
        assert {firing.version for firing in db.rules.firings()} == {db.version}


def test_a_function_that_raises_refuses_the_transaction_and_calls_no_later_one(tmp_path: Path) -> None:
    db, calls = guarded(tmp_path)

    def fail(rows: object) -> None:
        raise OSError("no paper")

    db.rules.register(fail)
    db.sql("CREATE RULE print WHEN TABLE account DO CALL fail PRIORITY 5")
    with pytest.raises(ActionFailed, match="no paper"):
        put(db, ("ada", 5))
    assert (calls, db.version, db.rows("account"), db.rows("overdrawn")) == ([], 0, [], [])
    assert [(one.rule, one.outcome, one.version) for one in db.rules.firings()] == [("print", "failed", 1)]
    db.close()
    with rederive.open(tmp_path) as again:
        assert (again.version, again.rows("account")) == (0, [])


def test_an_interrupt_inside_a_function_leaves_everything_as_it_was(tmp_path: Path) -> None:
    db, _ = guarded(tmp_path)

    def interrupt(rows: object) -> None:
        raise KeyboardInterrupt

    db.rules.register(interrupt, "order")
    with pytest.raises(KeyboardInterrupt):
        put(db, ("ada", 5))
    db.rules.register(len, "order")
    put(db, ("bob", 5))
    assert (db.version, db.rows("account")) == (1, [("bob", 5)])
    db.close()


@pytest.mark.parametrize("mode", ["DEFERRED", "IMMEDIATE"])
def test_in_a_group_each_function_is_called_once_and_only_for_what_is_kept(tmp_path: Path, mode: str) -> None:
    db, calls = guarded(tmp_path, mode)
    rows: list[tuple[str, int]] = [("ada", 5), ("ada", 6), ("cid", 7)]
    writes = [[TransactionRequest((Operation(Action.INSERT, "account", (row,)),), key=row[0] + str(row[1]))] for row in rows]
    with db:
        outcomes = db.pipeline.commit_together([*writes, writes[0]])
        assert [type(outcome.error).__name__ for outcome in outcomes] == ["NoneType", "DuplicateKey", "NoneType", "NoneType"]
        assert [[(r.version, r.repeated) for r in outcome.results] for outcome in outcomes] == [
            [(1, False)],
            [],
            [(2, False)],
            [(1, True)],
        ]
        assert calls == [[("ada", 5)], [("cid", 7)]]
        assert not any(outcome.error for outcome in db.pipeline.commit_together([writes[2]]))
        assert len(calls) == 2


def test_a_function_runs_when_the_group_before_it_is_on_disk(tmp_path: Path) -> None:
    """Only the sync of its own version may fail after a function was called."""
    db = rederive.open(tmp_path)
    db.migrate(PROGRAM)
    on_disk: list[int] = []
    db.rules.register(lambda rows: on_disk.append(db.pipeline.state.durable("test").journal.version), "order")
    db.sql("CREATE RULE r WHEN SELECT id FROM account WHERE balance > 9 DO CALL order")
    balances = [1, 2, 10, 3, 11]
    writes = [[TransactionRequest((Operation(Action.INSERT, "account", ((f"a{n}", n),)),))] for n in balances]
    with db:
        assert all(outcome.error is None for outcome in db.pipeline.commit_together(writes))
        assert (on_disk, db.version) == ([2, 4], 5)


def test_a_key_without_a_store_is_refused_before_an_immediate_function_is_called() -> None:
    db, calls = guarded(None, "IMMEDIATE")
    with pytest.raises(NoStore), db.transaction(key="k") as tx:
        tx.insert("account", [("ada", 5)])
    assert calls == []


def test_firings_have_the_version_that_their_transaction_made(tmp_path: Path) -> None:
    db, calls = guarded(tmp_path, "IMMEDIATE")
    with db:
        with db.transaction() as outer:
            outer.insert("account", [("ada", 5)])
            put(db, ("bob", 5))
        assert [(firing.version, firing.plus) for firing in db.rules.firings()] == [(1, (("bob", 5),)), (2, (("ada", 5),))]
        assert (outer.result.version, len(calls)) == (2, 2)


def test_a_journal_that_cannot_be_written_refuses_after_the_function_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one failure that is left: a function is called at least once for a transaction that is committed."""
    db, calls = guarded(tmp_path)

    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    with db:
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "append", fail)
            with pytest.raises(StoreError, match="the disk is full"):
                put(db, ("ada", 5))
        assert (calls, db.version, db.rows("account"), db.rules.firings()) == ([[("ada", 5)]], 0, [], [])
        put(db, ("ada", 5))
        assert (len(calls), db.version, [firing.version for firing in db.rules.firings()]) == (2, 1, [1])
