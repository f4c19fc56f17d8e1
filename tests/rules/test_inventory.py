"""SR's running example: an inventory, two items with thresholds 140 and 290, and the rule `monitor_items` that orders them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rederive

TABLES = """
CREATE TABLE quantity (i STRING PRIMARY KEY, n BIGINT NOT NULL);
CREATE TABLE max_stock (i STRING PRIMARY KEY, n BIGINT NOT NULL);
CREATE TABLE min_stock (i STRING PRIMARY KEY, n BIGINT NOT NULL);
CREATE TABLE consume_freq (i STRING PRIMARY KEY, n BIGINT NOT NULL);
CREATE TABLE supplies (s STRING PRIMARY KEY, i STRING NOT NULL);
CREATE TABLE delivery_time (i STRING, s STRING, n BIGINT NOT NULL, PRIMARY KEY (i, s));
CREATE TABLE orders (i STRING PRIMARY KEY, n BIGINT NOT NULL);
CREATE TEMPORARY VIEW threshold AS
    SELECT c.i, c.n * d.n + m.n AS n
    FROM consume_freq c JOIN delivery_time d ON c.i = d.i JOIN supplies s ON d.s = s.s AND s.i = c.i
    JOIN min_stock m ON m.i = c.i;
INSERT INTO quantity VALUES ('item1', 5000), ('item2', 7500);
INSERT INTO max_stock VALUES ('item1', 5000), ('item2', 7500);
INSERT INTO min_stock VALUES ('item1', 100), ('item2', 200);
INSERT INTO consume_freq VALUES ('item1', 20), ('item2', 30);
INSERT INTO supplies VALUES ('sup1', 'item1'), ('sup2', 'item2');
INSERT INTO delivery_time VALUES ('item1', 'sup1', 2), ('item2', 'sup2', 3);
"""
MONITOR = "CREATE RULE monitor_items WHEN SELECT q.i FROM quantity q JOIN threshold t ON q.i = t.i WHERE q.n < t.n DO "


class Inventory:
    """The database with the rule on it, and what was ordered."""

    def __init__(self, options: str = "") -> None:
        self.db = rederive.open()
        self.db.sql(TABLES)
        self.ordered: list[list[tuple[object, ...]]] = []
        self.db.rules.register(self.ordered.append, "order")
        self.db.sql(f"{MONITOR} CALL order(i) {options}")

    def set(self, table: str, item: str, n: int) -> rederive.Result:
        (result,) = self.db.sql(f"UPDATE {table} SET n = {n} WHERE i = '{item}'")
        return result

    def new(self) -> list[list[tuple[object, ...]]]:
        found = list(self.ordered)
        self.ordered.clear()
        return found


@pytest.fixture
def inventory() -> Inventory:
    return Inventory()


def test_thresholds(inventory: Inventory) -> None:
    assert inventory.db.rows("threshold") == [("item1", 140), ("item2", 290)]


def test_each_item_is_ordered_once_and_again_after_it_recovered(inventory: Inventory) -> None:
    inventory.set("quantity", "item1", 140)
    assert inventory.new() == []
    inventory.set("quantity", "item1", 139)
    assert inventory.new() == [[("item1",)]]
    for n in (120, 90, 10):
        inventory.set("quantity", "item1", n)
    assert inventory.new() == []
    inventory.set("quantity", "item1", 5000)
    inventory.set("quantity", "item1", 100)
    assert inventory.new() == [[("item1",)]]


def test_the_action_is_called_once_for_a_set_of_items(inventory: Inventory) -> None:
    inventory.db.sql("UPDATE quantity SET n = 1")
    assert inventory.new() == [[("item1",), ("item2",)]]


@pytest.mark.parametrize(("table", "item", "n"), [("delivery_time", "item2", 300), ("consume_freq", "item2", 10000)])
def test_every_influent_can_set_it_off(inventory: Inventory, table: str, item: str, n: int) -> None:
    inventory.set(table, item, n)
    assert inventory.new() == [[(item,)]]


def test_min_stock_set_to_150_and_back_in_one_transaction(inventory: Inventory) -> None:
    inventory.set("quantity", "item1", 145)
    (result,) = inventory.db.sql("""
        BEGIN; UPDATE min_stock SET n = 150 WHERE i = 'item1'; UPDATE min_stock SET n = 100 WHERE i = 'item1'; COMMIT
    """)
    assert (inventory.new(), result.firings, result.touched) == ([], (), 0)


def test_an_immediate_rule_sees_what_lies_between() -> None:
    inventory = Inventory("IMMEDIATE")
    inventory.set("quantity", "item1", 145)
    inventory.db.sql("""
        BEGIN; UPDATE min_stock SET n = 150 WHERE i = 'item1'; UPDATE min_stock SET n = 100 WHERE i = 'item1'; COMMIT
    """)
    assert inventory.new() == [[("item1",)]]


def test_a_nervous_rule_may_fire_again() -> None:
    inventory = Inventory("NERVOUS")
    for n in (139, 120):
        inventory.set("quantity", "item1", n)
    assert inventory.new() == [[("item1",)], [("item1",)]]
    inventory.set("quantity", "item1", 5000)
    assert inventory.new() == []


def test_an_order_can_be_a_change_of_data() -> None:
    """`order(i, max_stock(i) - quantity(i))`: worked out when the rule fires, in the state of that moment."""
    db = rederive.open()
    db.sql(TABLES)
    order = "INSERT INTO orders SELECT f.i, m.n - q.n FROM firing f JOIN max_stock m ON f.i = m.i JOIN quantity q ON q.i = f.i"
    db.sql(MONITOR + order)
    (result,) = db.sql("UPDATE quantity SET n = 100 WHERE i = 'item1'")
    assert db.rows("orders") == [("item1", 4900)]
    assert [(f.version, f.rule, f.plus) for f in result.firings] == [(db.version, "monitor_items", (("item1",),))]
    db.sql("UPDATE quantity SET n = 50 WHERE i = 'item1'")
    assert db.rows("orders") == [("item1", 4900)]


def test_the_dependency_network_of_figure_1_1(inventory: Inventory) -> None:
    network = json.loads(inventory.db.rules.explain("monitor_items", "json"))["network"]
    edges = {(edge["from"].removesuffix(".all"), edge["to"].removesuffix(".all")) for edge in network["edges"]}
    assert edges == {
        ("supplies", "threshold"),
        ("min_stock", "threshold"),
        ("delivery_time", "threshold"),
        ("consume_freq", "threshold"),
        ("quantity", "monitor_items.condition"),
        ("threshold", "monitor_items.condition"),
    }


def test_the_condition_is_not_stored(inventory: Inventory) -> None:
    sections = json.loads(inventory.db.rules.explain("monitor_items", "json"))["sections"]
    assert {(section["strategy"], section["stores"]) for section in sections} == {("differencing", "nothing")}


def test_path_analysis(inventory: Inventory) -> None:
    """ON PLUS leaves out what only rows that leave need; ON BOTH needs all of it."""
    skipped = {}
    for sign in ("PLUS", "MINUS", "BOTH"):
        inventory.db.sql(MONITOR.replace("CREATE", "CREATE OR REPLACE") + f"CALL order ON {sign}")
        sections = json.loads(inventory.db.rules.explain("monitor_items", "json"))["sections"]
        skipped[sign] = sum(section["skipped_paths"] for section in sections)
    assert skipped["PLUS"] == skipped["MINUS"] > skipped["BOTH"] == 0


def test_a_transaction_that_touches_no_influent_costs_nothing(inventory: Inventory) -> None:
    (result,) = inventory.db.sql("INSERT INTO orders VALUES ('item1', 3)")
    assert (result.touched, result.derived, result.firings) == (0, {}, ())


def test_in_a_store_rules_go_on_after_a_restart(tmp_path: Path) -> None:
    program = """
        .decl quantity(i: symbol, n: number) key(i)
        .decl low(i: symbol)
        low(i) :- quantity(i, n), n < 140.
        .rule monitor_items(when=low, do="CALL order(i)")
    """
    ordered: list[object] = []
    for n in (200, 139, 120, 300, 10):
        with rederive.open(tmp_path) as db:
            db.rules.register(ordered.extend, "order")
            db.migrate(program)
            with db.transaction() as tx:
                tx.upsert("quantity", [("item1", n)])
    assert ordered == [("item1",), ("item1",)]
    with rederive.open(tmp_path) as db:
        assert [(f.version, f.rule, f.plus, f.outcome) for f in db.rules.firings()] == [
            (2, "monitor_items", (("item1",),), "done"),
            (5, "monitor_items", (("item1",),), "done"),
        ]
