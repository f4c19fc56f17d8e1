"""A stream of transactions against examples/warehouse.dl: exact at the end, with less reading than the views' sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from rederive import Reading, Warehouse
from rederive.engines.resident.engine import ResidentEngine
from rederive.ir.terms import Row
from rederive.warehouse.view_storage import evaluate_view

TEXT = (Path(__file__).parents[2] / "examples" / "warehouse.dl").read_text(encoding="utf-8")


class Shop:
    """The remote relations, and changes of them as a shop makes them. Readings show every transaction so far."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rows: dict[str, set[Row]] = {
            "customer": {(f"c{i}", self.random.choice(("DE", "FR", "IT"))) for i in range(40)},
            "item": {(f"i{i}", f"s{i % 7}") for i in range(30)},
            "placed_order": set(),
            "line": set(),
        }
        for i in range(100):
            self.rows["placed_order"].add((f"o{i}", f"c{self.random.randrange(40)}"))
            self.rows["line"].add((f"o{i}", f"i{self.random.randrange(30)}"))
        self.taken = 0

    def reader(self, name: str) -> Callable[[], Reading]:
        return lambda: Reading(frozenset(self.rows[name]), self.taken)

    def transaction(self, number: int) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """An order, a line more, a line less, a customer, or an item."""
        kind = self.random.choices(("order", "line", "cancel", "customer", "item"), (30, 35, 30, 3, 2))[0]
        insert: dict[str, list[Row]] = {}
        delete: dict[str, list[Row]] = {}
        item = f"i{self.random.randrange(30)}"
        match kind:
            case "order":
                insert = {"placed_order": [(f"n{number}", f"c{self.random.randrange(40)}")]}
            case "line":
                insert = {"line": [(self.random.choice(sorted(self.rows["placed_order"]))[0], item)]}
            case "cancel":
                delete = {"line": [self.random.choice(sorted(self.rows["line"]))]}
            case "customer":
                insert = {"customer": [(f"k{number}", "FR")]}
            case "item":
                insert = {"item": [(f"j{number}", "s1")]}
        insert = {name: [row for row in rows if row not in self.rows[name]] for name, rows in insert.items()}
        for name, rows in insert.items():
            self.rows[name].update(rows)
        for name, rows in delete.items():
            self.rows[name].difference_update(rows)
        self.taken += 1
        return insert, delete


@pytest.mark.parametrize(("transactions", "strict"), [(100, 87), pytest.param(1000, 846, marks=pytest.mark.slow)])
def test_stream(transactions: int, strict: int) -> None:
    shop = Shop(seed=1)
    warehouse = Warehouse(TEXT, {name: shop.reader(name) for name in shop.rows}, net=True)
    warehouse.refresh()
    needed: Counter[str] = Counter()
    avoided = 0
    for number in range(transactions):
        report = warehouse.apply(*shop.transaction(number))
        avoided += report.avoided
        needed["none" if not report.reads else "all" if len(report.reads) == len(shop.rows) else "some"] += 1
    assert not warehouse.waiting()
    for view in warehouse.views:
        assert set(warehouse.rows(view.name)) == evaluate_view(warehouse.program, view.name, shop.rows, ResidentEngine()), (
            view.name
        )
    assert needed == {"none": strict, "some": transactions - strict}
    assert avoided > transactions
