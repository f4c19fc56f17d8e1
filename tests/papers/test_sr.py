"""The examples of SR (Sköld, Risch: Partial differencing), section 1.5 and its running example, with their exact Δ-sets."""

from __future__ import annotations

import pytest

import rederive
from rederive.engines.protocol import Action, FilterStep, Operation

STRATEGIES = ("recompute", "counting", "materialized", "on_demand", "filtration", "differencing", "auto")
JOIN = ".decl q(x: number, y: number) .decl r(y: number, z: number) .decl p(x: number, z: number) p(x, z) :- q(x, y), r(y, z)."


def old_state(strategy: str, precision: str = "exact") -> rederive.Database:
    db = rederive.open(strategy=strategy, precision=precision)
    db.define(JOIN)
    db.load("q", [(1, 1)])
    db.load("r", [(1, 2), (2, 3)])
    assert db.rows("p") == [(1, 2)]
    return db


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_positive_partial_differentials(strategy: str) -> None:
    db = old_state(strategy)
    with db.transaction() as tx:
        tx.insert("q", [(1, 2)])
        tx.insert("r", [(1, 4)])
    assert db.rows("p") == [(1, 2), (1, 3), (1, 4)]
    assert (tx.result.changes["p"].plus, tx.result.changes["p"].minus) == ([(1, 3), (1, 4)], [])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_negative_partial_differentials_are_taken_in_the_old_state(strategy: str) -> None:
    """Both rows of a derivation leave at once: only the old state, by logical rollback, still joins them."""
    db = old_state(strategy)
    with db.transaction() as tx:
        tx.delete("q", [(1, 1)])
        tx.delete("r", [(1, 2)])
        tx.insert("q", [(1, 2)])
    assert (tx.result.changes["p"].plus, tx.result.changes["p"].minus) == ([(1, 3)], [(1, 2)])


def test_each_partial_differential_by_itself() -> None:
    """Δp/Δ+q = <{<1,3>},{}> and Δp/Δ+r = <{<1,4>},{}>."""
    db = old_state("differencing")
    calls: list[FilterStep] = []
    db.pipeline.state.trace(calls.append)
    with db.transaction() as tx:
        tx.insert("q", [(1, 2)])
        tx.insert("r", [(1, 4)])
    assert [(c.updated, c.updates, c.actual) for c in calls] == [("q", ((1, 2),), ((1, 3),)), ("r", ((1, 4),), ((1, 4),))]


STOCK = """
.decl item(i: symbol)
.decl quantity(i: symbol, n: number) key(i)
.decl min_stock(i: symbol, n: number) key(i)
.decl consume_freq(i: symbol, n: number) key(i)
.decl supplies(s: symbol, i: symbol) key(s)
.decl delivery_time(i: symbol, s: symbol, n: number) key(i, s)
.decl threshold(i: symbol, n: number)
.decl cnd_monitor_items(i: symbol)
threshold(i, c * d + m) :- consume_freq(i, c), delivery_time(i, s, d), supplies(s, i), min_stock(i, m).
cnd_monitor_items(i) :- quantity(i, n), threshold(i, m), n < m.
.output cnd_monitor_items
"""


@pytest.fixture
def stock(request: pytest.FixtureRequest) -> rederive.Database:
    db = rederive.open(strategy=getattr(request, "param", "differencing"))
    db.define(STOCK)
    db.load("quantity", [("item1", 5000), ("item2", 7500)])
    db.load("min_stock", [("item1", 100), ("item2", 200)])
    db.load("consume_freq", [("item1", 20), ("item2", 30)])
    db.load("supplies", [("sup1", "item1"), ("sup2", "item2")])
    db.load("delivery_time", [("item1", "sup1", 2), ("item2", "sup2", 3)])
    return db


def test_the_delta_set_of_min_stock_step_by_step(stock: rederive.Database) -> None:
    """The physical update events of `set min_stock(:item1) = 150; set min_stock(:item1) = 100;`, added with delta-union."""
    steps = [(Action.DELETE, 100), (Action.INSERT, 150), (Action.DELETE, 150), (Action.INSERT, 100)]
    operations = [Operation(action, "min_stock", (("item1", n),)) for action, n in steps]
    found = []
    for done in range(1, len(operations) + 1):
        delta = stock.pipeline.state.engine.net_effect(operations[:done]).get("min_stock")
        found.append((delta.plus, delta.minus) if delta else ((), ()))
    was, other = ("item1", 100), ("item1", 150)
    assert found == [((), (was,)), ((other,), (was,)), ((), (was,)), ((), ())]


@pytest.mark.parametrize("stock", STRATEGIES, indirect=True)
def test_min_stock_set_twice_has_no_net_effect(stock: rederive.Database) -> None:
    seen: list[rederive.Change] = []
    stock.subscribe("cnd_monitor_items", seen.append)
    with stock.transaction() as tx:
        tx.upsert("min_stock", [("item1", 150)])
        tx.upsert("min_stock", [("item1", 100)])
    assert (tx.result.version, tx.result.changes, seen) == (6, {}, [])  # five loads came before
    assert tx.result.touched == 0
    assert tx.result.derived == {}


@pytest.mark.parametrize("stock", STRATEGIES, indirect=True)
def test_monitor_items(stock: rederive.Database) -> None:
    """threshold(item1) = 20 * 2 + 100, threshold(item2) = 30 * 3 + 200."""
    assert stock.rows("threshold") == [("item1", 140), ("item2", 290)]
    for quantity, plus, minus in ((140, [], []), (139, [("item1",)], []), (120, [], []), (5000, [], [("item1",)])):
        with stock.transaction() as tx:
            tx.upsert("quantity", [("item1", quantity)])
        change = tx.result.changes.get("cnd_monitor_items")
        assert (change.plus if change else [], change.minus if change else []) == (plus, minus)
    with stock.transaction() as tx:
        tx.upsert("delivery_time", [("item2", "sup2", 300)])
    assert tx.result.changes["cnd_monitor_items"].plus == [("item2",)]


@pytest.mark.parametrize("stock", ["differencing", "on_demand", "filtration", "counting", "materialized"], indirect=True)
def test_a_relation_that_influences_no_condition(stock: rederive.Database) -> None:
    """ "a simple check is made if the base relation that was updated is influencing some activated rule condition"."""
    with stock.transaction() as tx:
        tx.insert("item", [("item3",), ("item4",)])
    assert (tx.result.version, tx.result.touched, tx.result.changes) == (6, 0, {})
    assert stock.rows("item") == [("item3",), ("item4",)]
