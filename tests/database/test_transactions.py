"""Transactions: applied as a whole, in the order of their calls, as one version."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

import rederive
from rederive.errors import DuplicateKey, EvaluationError, RederiveError, Violated
from rederive.ir.terms import Row

STRATEGIES = ["recompute", "counting", "materialized", "auto"]


def test_version_and_exact_changes(graph: rederive.Database) -> None:
    assert graph.version == 1
    with graph.transaction() as tx:
        tx.insert("edge", [("c", "d")])
    assert tx.result.version == graph.version == 2
    assert tx.result.changes["closure"].plus == [("a", "d"), ("b", "d"), ("c", "d")]
    assert tx.result.changes["closure"].minus == []
    assert tx.result.changes["closure"].version == 2
    assert tx.result.changes["closure"].view == "closure"


def test_result_says_what_it_took(graph: rederive.Database) -> None:
    with graph.transaction() as tx:
        tx.insert("edge", [("c", "d")])
    assert (tx.result.engine, tx.result.strategy) == ("resident", "auto")
    assert tx.result.seconds >= 0
    assert tx.result.touched >= 3


def test_changes_stay_as_they_were_when_later_ones_come(graph: rederive.Database) -> None:
    with graph.transaction() as first:
        first.insert("edge", [("c", "d")])
    with graph.transaction() as second:
        second.delete("edge", [("a", "b"), ("c", "d")])
    assert first.result.changes["closure"].plus == [("a", "d"), ("b", "d"), ("c", "d")]
    assert second.result.changes["closure"].minus == [("a", "b"), ("a", "c"), ("a", "d"), ("b", "d"), ("c", "d")]


def test_a_version_that_changes_nothing(graph: rederive.Database) -> None:
    with graph.transaction() as empty:
        pass
    with graph.transaction() as idle:
        idle.insert("edge", [("a", "b")])
        idle.delete("edge", [("x", "y")])
    assert (empty.result.version, idle.result.version) == (2, 3)
    assert not empty.result.changes
    assert not idle.result.changes


def test_a_view_that_does_not_change_is_not_among_the_changes(graph: rederive.Database) -> None:
    with graph.transaction() as tx:
        tx.insert("edge", [("a", "c")])  # the closure has it already
    assert not tx.result.changes
    assert graph.rows("edge") == [("a", "b"), ("a", "c"), ("b", "c")]


# The later call wins


def test_insert_then_delete_leaves_out(graph: rederive.Database) -> None:
    with graph.transaction() as tx:
        tx.insert("edge", [("c", "d"), ("a", "b")])
        tx.delete("edge", [("c", "d"), ("a", "b")])
    assert graph.rows("edge") == [("b", "c")]
    assert tx.result.changes["closure"].minus == [("a", "b"), ("a", "c")]


def test_delete_then_insert_keeps(graph: rederive.Database) -> None:
    with graph.transaction() as tx:
        tx.delete("edge", [("c", "d"), ("a", "b")])
        tx.insert("edge", [("c", "d"), ("a", "b")])
    assert graph.rows("edge") == [("a", "b"), ("b", "c"), ("c", "d")]
    assert tx.result.changes["closure"].minus == []


def test_nothing_is_seen_before_the_end(graph: rederive.Database) -> None:
    with graph.transaction() as tx:
        tx.insert("edge", [("c", "d")])
        assert graph.rows("edge", x="c") == []
        assert graph.version == 1
        with pytest.raises(RuntimeError):
            _ = tx.result
    assert graph.rows("edge", x="c") == [("c", "d")]


def test_an_exception_inside_the_block_discards(graph: rederive.Database) -> None:
    with pytest.raises(ZeroDivisionError), graph.transaction() as tx:
        tx.insert("edge", [("c", "d")])
        _ = 1 // 0
    assert (graph.version, graph.rows("edge")) == (1, [("a", "b"), ("b", "c")])
    with pytest.raises(RuntimeError):
        _ = tx.result
    with graph.transaction() as after:
        after.insert("edge", [("x", "y")])
    assert (after.result.version, after.result.changes["closure"].plus) == (2, [("x", "y")])


def test_a_refused_call_that_is_caught_leaves_the_others(graph: rederive.Database) -> None:
    with graph.transaction() as tx:
        tx.insert("edge", [("c", "d")])
        with pytest.raises(RederiveError):
            tx.insert("edge", [("d", "e"), ("e",)])
    assert graph.rows("edge") == [("a", "b"), ("b", "c"), ("c", "d")]


# Rows


def test_rows_by_name_as_lists_and_from_a_generator(graph: rederive.Database) -> None:
    with graph.transaction() as tx:
        tx.insert("edge", [{"y": "d", "x": "c"}])
        tx.insert("edge", [["d", "e"]])
        tx.insert("edge", ((x, x) for x in "z"))
        tx.delete("edge", [{"x": "a", "y": "b"}])
    assert graph.rows("edge") == [("b", "c"), ("c", "d"), ("d", "e"), ("z", "z")]


def test_every_type_comes_back_as_it_went_in() -> None:
    db = rederive.open()
    types = "s: symbol, n: number, u: unsigned, f: float, b: boolean, d: date, t: timestamp, a: decimal(10,2)"
    db.define(f".decl t({types}) .decl v({types}) v(s, n, u, f, b, d, t, a) :- t(s, n, u, f, b, d, t, a).")
    day, moment = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30, 0, 250)
    row: Row = ("é\n", -(2**63), 2**64 - 1, 0.1, True, day, moment, Decimal("1.50"))
    with db.transaction() as tx:
        tx.insert("t", [row])
    (found,) = tx.result.changes["v"].plus
    assert found == row
    assert list(map(type, found)) == list(map(type, row))
    for name, value in zip("snufbdta", row, strict=True):
        assert db.rows("v", {name: value}) == [row]


# Keys


def test_upsert_takes_the_place_of_the_row_with_its_key(store: rederive.Database) -> None:
    with store.transaction() as tx:
        tx.upsert("stock", [("bolt", 7), {"item": "cog", "n": 1}, ("nut", 50)])
    assert store.rows("stock") == [("bolt", 7), ("cog", 1), ("nut", 50)]
    assert tx.result.changes["low"].plus == [("bolt", 7), ("cog", 1)]
    assert tx.result.changes["low"].minus == [("bolt", 5)]


def test_the_last_upsert_of_a_key_wins(store: rederive.Database) -> None:
    with store.transaction() as tx:
        tx.upsert("stock", [("bolt", 7), ("bolt", 8)])
        tx.upsert("stock", [("bolt", 9)])
    assert store.rows("stock", item="bolt") == [("bolt", 9)]
    assert tx.result.changes["low"].minus == [("bolt", 5)]


def test_upsert_back_to_what_was_there_changes_nothing(store: rederive.Database) -> None:
    with store.transaction() as tx:
        tx.upsert("stock", [("bolt", 7)])
        tx.upsert("stock", [("bolt", 5)])
    assert not tx.result.changes
    assert store.rows("stock") == [("bolt", 5), ("nut", 50)]


def test_upsert_of_an_inserted_and_of_a_deleted_row(store: rederive.Database) -> None:
    with store.transaction() as tx:
        tx.insert("stock", [("cog", 1)])
        tx.upsert("stock", [("cog", 2)])
        tx.delete("stock", [("nut", 50)])
        tx.upsert("stock", [("nut", 3)])
    assert store.rows("stock") == [("bolt", 5), ("cog", 2), ("nut", 3)]
    assert tx.result.changes["low"].plus == [("cog", 2), ("nut", 3)]


def test_delete_after_upsert_takes_the_new_row_out(store: rederive.Database) -> None:
    with store.transaction() as tx:
        tx.upsert("stock", [("bolt", 7)])
        tx.delete("stock", [("bolt", 7)])
    assert store.rows("stock") == [("nut", 50)]


def test_without_a_key_upsert_is_insert(graph: rederive.Database) -> None:
    with graph.transaction() as tx:
        tx.upsert("edge", [("a", "c"), ("a", "d")])
    assert graph.rows("edge", x="a") == [("a", "b"), ("a", "c"), ("a", "d")]


@pytest.mark.parametrize("deleted_first", [True, False])
def test_delete_and_insert_of_a_key_in_any_order(store: rederive.Database, deleted_first: bool) -> None:
    with store.transaction() as tx:
        if deleted_first:
            tx.delete("stock", [("bolt", 5)])
        tx.insert("stock", [("bolt", 6)])
        if not deleted_first:
            tx.delete("stock", [("bolt", 5)])
    assert store.rows("stock", item="bolt") == [("bolt", 6)]
    assert (tx.result.changes["low"].plus, tx.result.changes["low"].minus) == ([("bolt", 6)], [("bolt", 5)])


def test_delete_of_a_key_with_another_value_deletes_nothing(store: rederive.Database) -> None:
    with pytest.raises(DuplicateKey), store.transaction() as tx:
        tx.delete("stock", [("bolt", 4)])
        tx.insert("stock", [("bolt", 6)])
    assert store.rows("stock", item="bolt") == [("bolt", 5)]


def test_a_key_of_several_columns() -> None:
    db = rederive.open()
    db.define(
        ".decl seat(row: number, place: number, who: symbol) key(row, place)\n.decl taken(who: symbol) taken(w) :- seat(_, _, w)."
    )
    with db.transaction() as tx:
        tx.insert("seat", [(1, 1, "ann"), (1, 2, "bob"), (2, 1, "ann")])
    with db.transaction() as tx:
        tx.upsert("seat", [(1, 2, "eve")])
    assert (tx.result.changes["taken"].plus, tx.result.changes["taken"].minus) == ([("eve",)], [("bob",)])
    with pytest.raises(DuplicateKey), db.transaction() as tx:
        tx.insert("seat", [(2, 1, "bob")])


def test_a_key_that_is_not_the_first_column() -> None:
    db = rederive.open()
    db.define(".decl s(n: number, item: symbol, m: number) key(item) .decl v(n: number) v(n) :- s(n, _, _).")
    with db.transaction() as tx:
        tx.insert("s", [(1, "a", 10), (2, "b", 20)])
    with db.transaction() as tx:
        tx.upsert("s", [(3, "a", 30)])
    assert db.rows("s") == [(2, "b", 20), (3, "a", 30)]


# A rule that fails on the data


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_failed_rule_leaves_everything_as_it_was(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(
        ".decl s(i: symbol, n: number) .decl all(i: symbol) .decl v(i: symbol, n: number) .decl sum_of(n: number)\n"
        "all(i) :- s(i, _).\nv(i, 12 / n) :- s(i, n), all(i).\nsum_of(k) :- k = sum n : { v(_, n) }."
    )
    with db.transaction() as tx:
        tx.insert("s", [("a", 2), ("b", 3)])
    views = ("s", "all", "v", "sum_of")
    before = {name: db.rows(name) for name in views}
    told: list[rederive.Change] = []
    db.subscribe("all", told.append)
    with pytest.raises(EvaluationError) as caught, db.transaction() as tx:
        tx.delete("s", [("a", 2)])
        tx.insert("s", [("c", 0), ("d", 4)])
    assert caught.value.code == "evaluation"
    assert {name: db.rows(name) for name in views} == before
    assert (db.version, told) == (2, [])  # sum_of has a row from the start
    with db.transaction() as tx:
        tx.insert("s", [("d", 4)])
    changes = {view: (change.plus, change.minus) for view, change in tx.result.changes.items()}
    assert changes == {"all": ([("d",)], []), "v": ([("d", 3)], []), "sum_of": ([(13,)], [(10,)])}
    assert tx.result.version == 3


# Initial rows


def test_a_load_is_a_version_with_the_rows_that_were_not_there(graph: rederive.Database) -> None:
    told: list[rederive.Change] = []
    graph.subscribe("closure", told.append)
    loaded = graph.load("edge", [("c", "d"), {"x": "d", "y": "e"}, ("a", "b")])
    assert loaded is not None
    assert loaded.changes["closure"].plus == [(x, y) for x, y in graph.rows("closure") if y in ("d", "e")]
    assert (graph.version, loaded.version, [change.plus for change in told]) == (2, 2, [loaded.changes["closure"].plus])
    assert graph.rows("closure", x="c") == [("c", "d"), ("c", "e")]
    assert graph.load("edge", [("c", "d")]) is None
    assert graph.version == 2
    with graph.transaction() as tx:
        tx.delete("edge", [("d", "e")])
    assert tx.result.changes["closure"].minus == [("a", "e"), ("b", "e"), ("c", "e"), ("d", "e")]


def test_a_dry_run_changes_nothing_and_says_what_a_commit_would_do() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (a INT, b INT); CREATE VIEW v AS SELECT a FROM t")
    db.sql("CREATE CONSTRAINT REJECT VIEW bad AS SELECT a FROM t WHERE b < 0")
    tx = db.transaction()
    tx.insert("t", [(1, 2), (1, 3)])
    found = tx.preview()
    assert (found.changes["v"].plus, found.changes["v"].counts) == ([(1,)], {"plus": [2], "minus": []})
    assert (db.rows("t"), db.rows("v")) == ([], [])
    version = db.version
    with tx:
        tx.insert("t", [(5, 5)])
    assert (tx.result.version, db.rows("v")) == (version + 1, [(1,), (1,), (5,)])
    refused = db.transaction()
    refused.insert("t", [(9, -1)])
    with pytest.raises(Violated):
        refused.preview()
    assert db.rows("v", a=9) == []
