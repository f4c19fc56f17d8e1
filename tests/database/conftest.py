"""A database with SJ96's closure, and one with keys."""

from __future__ import annotations

import pytest

import rederive

CLOSURE = """
.decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
"""
STOCK = """
.decl stock(item: symbol, n: number) key(item)
.decl low(item: symbol, n: number)
low(item, n) :- stock(item, n), n < 10.
"""


@pytest.fixture
def graph() -> rederive.Database:
    """edge = {(a, b), (b, c)}, at version 1."""
    db = rederive.open()
    db.define(CLOSURE)
    db.load("edge", [("a", "b"), ("b", "c")])
    return db


@pytest.fixture
def store() -> rederive.Database:
    """stock = {(bolt, 5), (nut, 50)}, at version 1."""
    db = rederive.open()
    db.define(STOCK)
    db.load("stock", [("bolt", 5), ("nut", 50)])
    return db
