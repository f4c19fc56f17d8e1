"""Joins go by keys and by what is connected, and every index that a transaction reads is there before it."""

from __future__ import annotations

import pytest

import rederive
from rederive.analysis.bindings import join_order
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.resident.storage.table import Table
from rederive.ir.rules import Atom
from rederive.ir.terms import SYMBOL, Constant, Row, Variable

SHOP = """
    CREATE TABLE customer (c BIGINT NOT NULL, nation BIGINT NOT NULL, segment STRING NOT NULL, PRIMARY KEY (c));
    CREATE TABLE orders (o BIGINT NOT NULL, c BIGINT NOT NULL, d BIGINT NOT NULL, PRIMARY KEY (o));
    CREATE TABLE line (o BIGINT NOT NULL, n BIGINT NOT NULL, price BIGINT NOT NULL, PRIMARY KEY (o, n));
"""
VIEWS = """
    CREATE VIEW total AS SELECT line.o, d, sum(line.price) AS total FROM customer, orders, line
        WHERE segment = 'A' AND customer.c = orders.c AND orders.o = line.o GROUP BY line.o, d;
    CREATE VIEW dearest AS SELECT c, max(price) AS price FROM orders, line WHERE orders.o = line.o GROUP BY c;
"""


def engine_of(db: rederive.Database) -> ResidentEngine:
    engine = db.pipeline.state.engine
    assert isinstance(engine, ResidentEngine)
    return engine


def test_an_atom_that_constants_select_waits_for_a_connected_one() -> None:
    """Even where it matches fewer rows: it would be a product with what was joined before."""
    o, c = Variable("o"), Variable("c")
    orders, customer = Atom("orders", (o, c)), Atom("customer", (c, Constant("A", SYMBOL)))
    steps = join_order([customer, orders], frozenset({"o"}), lambda atom, _: 1.0 if atom is customer else 1000.0)
    assert [step.literal for step in steps] == [orders, customer]


def test_a_lookup_that_covers_a_key_finds_one_row() -> None:
    table = Table("orders", 5, key=(0,))
    table.load([(i, 1, 2, 3, 4) for i in range(1000)])
    assert table.fanout((0,)) == table.fanout((0, 3)) == 1.0
    assert table.fanout((1,)) > 1.0


@pytest.mark.parametrize("strategy", ["materialized", "auto", "counting"])
def test_no_transaction_builds_an_index(strategy: str) -> None:
    """Neither that of a key nor one that a rule or an extreme of a group reads; and none is remembered twice."""
    db = rederive.open(strategy=strategy)
    db.sql(SHOP + VIEWS)
    rows: dict[str, list[Row]] = {
        "customer": [(i, i % 25, "ABCDE"[i % 5]) for i in range(20)],
        "orders": [(i, i % 20, i) for i in range(40)],
        "line": [(i, n, i + n) for i in range(40) for n in range(3)],
    }
    db.pipeline.load(rows)
    held = [held_by(engine_of(db))]
    for i in range(3):
        with db.transaction() as tx:
            tx.delete("line", [(5 + i, 2, 7 + i)])
            tx.insert("line", [(7 + i, 3, 1)])
            tx.insert("orders", [(100 + i, 1, 1)])
        held.append(held_by(engine_of(db)))
    assert held[0] == held[1] == held[2] == held[3]


def held_by(engine: ResidentEngine) -> dict[str, tuple[list[tuple[int, ...]], int]]:
    return {table.name: (sorted(table._indexes), len(table.caches)) for table in engine.installed.tables.stored()}


def test_two_loaded_rows_that_share_a_key_are_named() -> None:
    db = rederive.open()
    db.define(".decl stock(item: symbol, place: symbol, n: number) key(place, item)")
    with pytest.raises(rederive.errors.DuplicateKey) as caught:
        db.load("stock", [("bolt", "a", 1), ("nut", "a", 2), ("bolt", "a", 3)])
    assert "bolt" in str(caught.value)
    assert db.rows("stock") == []
    db.load("stock", [("bolt", "a", 1), ("bolt", "b", 1)])
    assert len(db.rows("stock")) == 2
