"""A load that tests kill: `python load.py FOLDER FIRST LAST SEED` applies transactions FIRST to LAST and says `ack N` after each.

Every tenth step changes a definition instead. A transaction's content follows from the seed and its number alone, so that the
test knows it too, and a client that repeats one repeats it exactly. The program is version 1 (the count of sinks begins at 0), so
step N is version N + 1.
"""

from __future__ import annotations

import random
import sys

import rederive

PROGRAM = """
.decl e(x: number, y: number)
.decl closure(x: number, y: number)
.decl sinks(n: number)
closure(x, y) :- e(x, y).
closure(x, y) :- e(x, z), closure(z, y).
sinks(n) :- n = count : { e(_, y), !e(y, _) }.
"""
EXTRA = "closure(x, x) :- e(x, _)."
Call = tuple[str, list[tuple[int, int]]]


def transaction(seed: int, number: int) -> list[Call]:
    chance = random.Random(seed * 100_003 + number)
    rows = [(chance.randrange(6), chance.randrange(6)) for _ in range(chance.randrange(1, 5))]
    return [("insert" if chance.random() < 0.6 else "delete", [row]) for row in rows]


def edits(number: int) -> bool:
    return number % 10 == 0


def edit(db: rederive.Database, number: int) -> None:
    """Add the rule, or take it away; a definition has no key, so a repetition looks first."""
    if db.version <= number:
        db.definitions.add_rule(EXTRA) if number % 20 else db.definitions.remove_rule(EXTRA)


def main(folder: str, first: int, last: int, seed: int) -> None:
    with rederive.open(folder) as db:
        db.migrate(".decl e(x: number, y: number)", whole=False)  # which makes no version
        db.migrate(PROGRAM if max(db.version - 1, 0) % 20 < 10 else f"{PROGRAM}{EXTRA}")
        print("open", db.version, flush=True)
        for number in range(first, last + 1):
            if edits(number):
                edit(db, number)
            else:
                with db.transaction(key=f"t{number}") as tx:
                    for call, rows in transaction(seed, number):
                        getattr(tx, call)("e", rows)
            print("ack", number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
