"""A load of SQL that tests kill: `python load.py FOLDER FIRST LAST SEED` runs steps FIRST to LAST and says `ack N` after each.

Every step is one version. What it does follows from the seed and its number alone, so that the test knows it too.
"""

from __future__ import annotations

import random
import sys
from decimal import Decimal

import rederive
from rederive.engines.protocol import Action, Operation

PROGRAM = """
CREATE TABLE sold (item STRING NOT NULL, n INT, price DECIMAL(10, 2));
CREATE TABLE item (name STRING PRIMARY KEY, kind STRING);
CREATE VIEW kinds AS SELECT kind, price FROM sold JOIN item ON name = item;
"""
VIEWS = (
    "CREATE OR REPLACE VIEW total AS SELECT item, sum(n) AS n, sum(price) AS price FROM sold GROUP BY item",
    "CREATE OR REPLACE VIEW total AS SELECT n FROM sold",
    "CREATE OR REPLACE VIEW total AS SELECT DISTINCT n FROM sold",
    "DROP VIEW total",
)


def defines(number: int) -> str | None:
    return VIEWS[number // 5 % len(VIEWS)] if number % 5 == 0 else None


def operations(seed: int, number: int) -> list[Operation]:
    chance = random.Random(seed * 100_003 + number)
    sold = [
        (chance.choice("ab"), chance.choice([1, None]), chance.choice([Decimal("1.50"), None]))
        for _ in range(chance.randrange(1, 4))
    ]
    action = Action.INSERT if chance.random() < 0.6 else Action.DELETE
    item = Operation(chance.choice([Action.UPSERT, Action.DELETE]), "item", ((chance.choice("ab"), chance.choice(["x", None])),))
    return [Operation(action, "sold", tuple(sold)), item]


def main(folder: str, first: int, last: int, seed: int) -> None:
    with rederive.open(folder) as db:
        if not db.pipeline.state.program.relations:
            db.migrate(PROGRAM)
        print("open", db.version, flush=True)
        for number in range(first, last + 1):
            if (text := defines(number)) is None:
                db.pipeline.commit_operations(operations(seed, number), key=f"t{number}")
            elif db.version < number:
                db.sql(text)
            print("ack", number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
