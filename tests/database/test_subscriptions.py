"""Subscriptions: every change from now on, in the order of versions, after the commit, until cancelled."""

from __future__ import annotations

import pytest

import rederive
from rederive.errors import StrategyError, UnknownRelation


def insert(db: rederive.Database, *edges: str) -> None:
    with db.transaction() as tx:
        tx.insert("edge", [tuple(edge) for edge in edges])


def test_every_change_in_order(graph: rederive.Database) -> None:
    seen: list[tuple[int, str, int, int]] = []
    graph.subscribe("closure", lambda c: seen.append((c.version, c.view, len(c.plus), len(c.minus))))
    insert(graph, "cd")
    insert(graph)  # a version without a change
    with graph.transaction() as tx:
        tx.delete("edge", [("a", "b")])
    assert seen == [(2, "closure", 3, 0), (4, "closure", 0, 3)]


def test_a_subscriber_hears_from_now_on(graph: rederive.Database) -> None:
    insert(graph, "cd")
    seen: list[int] = []
    graph.subscribe("closure", lambda c: seen.append(c.version))
    assert seen == []
    insert(graph, "de")
    assert seen == [3]


def test_subscribers_are_called_in_the_order_they_came(graph: rederive.Database) -> None:
    seen: list[str] = []
    for name in "pqr":
        graph.subscribe("closure", lambda _, name=name: seen.append(name))  # type: ignore[misc]
    insert(graph, "cd")
    assert seen == ["p", "q", "r"]


def test_the_callback_sees_the_committed_state(graph: rederive.Database) -> None:
    seen: list[object] = []
    graph.subscribe("closure", lambda c: seen.append((graph.version, graph.rows("closure", x="c"))))
    insert(graph, "cd")
    assert seen == [(2, [("c", "d")])]


def test_cancel(graph: rederive.Database) -> None:
    one: list[int] = []
    two: list[int] = []
    first = graph.subscribe("closure", lambda c: one.append(c.version))
    graph.subscribe("closure", lambda c: two.append(c.version))
    insert(graph, "cd")
    first.cancel()
    insert(graph, "de")
    assert (one, two) == ([2], [2, 3])


def test_cancel_twice_is_as_good_as_once(graph: rederive.Database) -> None:
    subscription = graph.subscribe("closure", lambda _: None)
    subscription.cancel()
    subscription.cancel()


def test_a_callback_may_cancel_itself(graph: rederive.Database) -> None:
    seen: list[int] = []

    def once(change: rederive.Change) -> None:
        seen.append(change.version)
        subscription.cancel()

    subscription = graph.subscribe("closure", once)
    insert(graph, "cd")
    insert(graph, "de")
    assert seen == [2]


def test_after_cancel_nothing_more_comes(graph: rederive.Database) -> None:
    """Not even the change that is just being told."""
    seen: list[int] = []
    later: list[rederive.Subscription] = []
    graph.subscribe("closure", lambda _: later[0].cancel() if graph.version == 2 else None)
    later.append(graph.subscribe("closure", lambda c: seen.append(c.version)))
    insert(graph, "cd")
    assert seen == []


def test_a_failing_callback_neither_undoes_the_commit_nor_silences_others(graph: rederive.Database) -> None:
    def fail(_: rederive.Change) -> None:
        raise LookupError("mine")

    seen: list[int] = []
    graph.subscribe("closure", fail)
    graph.subscribe("closure", lambda c: seen.append(c.version))
    with pytest.raises(LookupError, match="mine"):
        insert(graph, "cd")
    assert (graph.version, graph.rows("edge", x="c"), seen) == (2, [("c", "d")], [2])
    with pytest.raises(LookupError):
        insert(graph, "de")
    assert (graph.version, seen) == (3, [2, 3])


def test_a_failing_callback_leaves_the_result_of_the_transaction(graph: rederive.Database) -> None:
    def fail(_: rederive.Change) -> None:
        raise LookupError("mine")

    graph.subscribe("closure", fail)
    tx = graph.transaction()
    with pytest.raises(LookupError), tx:
        tx.insert("edge", [("c", "d")])
    assert tx.result.version == 2


def test_a_transaction_inside_a_callback_is_told_after_the_one_that_caused_it(graph: rederive.Database) -> None:
    def react(change: rederive.Change) -> None:
        if change.version == 2:
            insert(graph, "de")

    seen: list[int] = []
    graph.subscribe("closure", react)
    graph.subscribe("closure", lambda c: seen.append(c.version))
    insert(graph, "cd")
    assert graph.version == 3
    assert seen == [2, 3]


def test_rows_that_a_definition_or_a_load_gives_a_view() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (a INT); CREATE VIEW n AS SELECT count(*) AS n FROM t; CREATE VIEW v AS SELECT a FROM t")
    assert db.version == 1  # n has a row
    seen: list[tuple[int, str, object, object]] = []
    for view in ("n", "v"):
        db.subscribe(view, lambda c: seen.append((c.version, c.view, c.plus, c.minus)))
    db.load("t", [(7,)])
    db.load("t", [])
    db.sql("CREATE OR REPLACE VIEW v AS SELECT a FROM t UNION ALL SELECT 99")
    assert seen == [(2, "n", [(1,)], [(0,)]), (2, "v", [(7,)], []), (3, "v", [(99,)], [])]


# Which views


@pytest.mark.parametrize("strategy", ["recompute", "counting", "materialized", "auto"])
def test_a_view_that_is_no_output(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(
        ".decl e(x: number) .decl small(x: number) .decl big(x: number)\n"
        "small(x) :- e(x), x < 10. big(x) :- e(x), x > 5. .output big"
    )
    db.load("e", [(1,), (7,)])
    seen: list[tuple[object, object]] = []
    db.subscribe("small", lambda c: seen.append((c.plus, c.minus)))
    with db.transaction() as tx:
        tx.insert("e", [(2,), (8,), (20,)])
        tx.delete("e", [(1,)])
    assert seen == [([(2,), (8,)], [(1,)])]
    assert tx.result.changes["big"].plus == [(8,), (20,)]


def test_one_view_of_many(graph: rederive.Database) -> None:
    graph.define(".decl loop(x: symbol) loop(x) :- closure(x, x).")
    seen: list[str] = []
    graph.subscribe("loop", lambda c: seen.append(c.view))
    insert(graph, "cd")
    assert seen == []
    insert(graph, "da")
    assert seen == ["loop"]


def test_a_subscription_survives_a_later_output(graph: rederive.Database) -> None:
    """Without `.output` all views are monitored; with it the others are not, unless somebody subscribed."""
    seen: list[int] = []
    graph.subscribe("closure", lambda c: seen.append(len(c.plus)))
    graph.define(".decl start(x: symbol) start(x) :- edge(x, _). .output start")
    insert(graph, "cd")
    assert seen == [3]


@pytest.mark.parametrize("view", ["closur", "closure.1"])
def test_an_unknown_view(graph: rederive.Database, view: str) -> None:
    with pytest.raises(UnknownRelation) as caught:
        graph.subscribe(view, lambda _: None)
    assert caught.value.code == "unknown_relation"
    assert caught.value.hint is not None
    assert "closure" in caught.value.hint


def test_a_view_that_the_strategy_cannot_maintain_is_refused_and_changes_nothing() -> None:
    db = rederive.open(strategy="counting")
    db.define(
        ".decl edge(x: symbol, y: symbol) .decl closure(x: symbol, y: symbol) .decl v(x: symbol) v(x) :- edge(x, _).\n"
        "closure(x, y) :- edge(x, y) ; edge(x, z), closure(z, y).\n.output v"
    )
    with pytest.raises(StrategyError):
        db.subscribe("closure", lambda _: None)
    insert(db, "ab", "bc")
    assert (db.pipeline.state.monitored, db.rows("v")) == (("v",), [("a",), ("b",)])
    assert db.rows("closure") == [("a", "b"), ("a", "c"), ("b", "c")]
