"""Typical analytics queries, the tables that they read, and random changes of these: `fixtures/analytics/<area>.sql`."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from rederive.ir.nested import Map

FOLDER = Path(__file__).parent / "fixtures" / "analytics"
EXPECTED = FOLDER / "expected.json"
SCHEMA = """
CREATE TABLE sale (id INT PRIMARY KEY, customer INT NOT NULL, product STRING NOT NULL, region STRING, amount DECIMAL(10,2),
  qty INT, price DOUBLE, sold_on DATE NOT NULL, ts TIMESTAMP NOT NULL);
CREATE TABLE customer (id INT PRIMARY KEY, name STRING NOT NULL, city STRING, parent INT);
CREATE TABLE product (code STRING PRIMARY KEY, category STRING, cost INT);
CREATE TABLE event (user_id INT, kind STRING, at TIMESTAMP, value INT);
"""
TABLES = ("sale", "customer", "product", "event")
DAY, MOMENT = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)

Row = tuple[Any, ...]


class AnalyticsQuery(NamedTuple):
    """A query of the list: its area, its title and its text."""

    area: str
    title: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.area}: {self.title}"


def queries() -> list[AnalyticsQuery]:
    """The queries of all areas."""
    return [query for path in sorted(FOLDER.glob("*.sql")) for query in _queries(path)]


def _queries(path: Path) -> Iterator[AnalyticsQuery]:
    for part in path.read_text().split(";\n"):
        if part.strip():
            title, text = part.strip().split("\n", 1)
            yield AnalyticsQuery(path.stem, title.removeprefix("-- "), text)


def states(seed: int = 20, steps: int = 2) -> Iterator[tuple[dict[str, Counter[Row]], dict[str, Counter[Row]]]]:
    """The changes of each step, as signed counts, and the tables after it."""
    rng = random.Random(seed)
    tables: dict[str, Counter[Row]] = {name: Counter() for name in TABLES}
    for step in range(steps):
        before = {name: Counter(rows) for name, rows in tables.items()}
        for name in TABLES:
            tables[name] = _changed(name, tables[name], rng, 16 if step == 0 else 6)
        changes = {}
        for name in TABLES:
            change = Counter(tables[name])
            change.subtract(before[name])
            changes[name] = Counter({row: n for row, n in change.items() if n})
        yield changes, tables


def _changed(name: str, rows: Counter[Row], rng: random.Random, count: int) -> Counter[Row]:
    kept = Counter(rows)
    for row in sorted(kept, key=repr):
        if rng.random() < 0.25:
            kept[row] -= 1
    kept = +kept
    keys = {row[0] for row in kept}
    for row in (_row(name, rng) for _ in range(count)):
        if name == "event" or row[0] not in keys:
            kept[row] += 1
            keys.add(row[0])
    return kept


def _row(name: str, rng: random.Random) -> Row:
    pick = rng.choice
    match name:
        case "sale":
            amount = Decimal(rng.randrange(1, 9999)).scaleb(-2)
            day = DAY + datetime.timedelta(days=rng.randrange(40) + pick((0, 366)))
            moment = MOMENT + datetime.timedelta(minutes=rng.randrange(5000))
            number, price = rng.randrange(30), rng.randrange(1, 40) / 4
            region, qty = pick(("north", "south", None)), pick((1, 2, 3, 5, 5, 8, None))
            return (number, rng.randrange(5), pick("abc"), region, amount, qty, price, day, moment)
        case "customer":
            number = rng.randrange(6)
            return (number, pick(("ann", "ben", "Ada", "dan")), pick(("north", "south", None)), number - 1 if number else None)
        case "product":
            return (pick("abcd"), pick(("north", "fruit", None)), rng.randrange(9))
        case _:
            at = MOMENT + datetime.timedelta(minutes=rng.randrange(40) * 10)
            return (rng.randrange(5), pick(("view", "cart", "buy")), at, rng.randrange(4))


def normal_form(rows: Iterable[Sequence[Any]]) -> list[str]:
    """The rows of an answer as texts, so that answers of two engines can be compared; floats have nine digits."""
    return sorted(json.dumps([_text(value) for value in row]) for row in rows)


def _text(value: Any) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return f"{value + 0.0:.9g}"
        case dict() | Map():
            return [[_text(part) for part in pair] for pair in dict(value).items()]
        case tuple() | list():
            return [_text(part) for part in value]
        case _:
            return str(value)
