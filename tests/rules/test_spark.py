"""Rules on the Spark engine: the same firings, from the same plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import rederive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = """
.decl employee(id: number, team: symbol, salary: number) key(id)
.decl budget(team: symbol, most: number) key(team)
.decl note(team: symbol)
.decl paid(id: number, team: symbol, salary: number)
.decl spent(team: symbol, total: number)
.decl over(team: symbol)
.decl anybody()
paid(i, t, s) :- employee(i, t, s), s > 0.
spent(t, n) :- budget(t, _), n = sum s : { paid(_, t, s) }.
over(t) :- spent(t, n), budget(t, m), n > m.
anybody() :- paid(_, _, _).
.output note
"""


def steps(db: rederive.Database) -> list[tuple[int, str, tuple[object, ...], tuple[object, ...]]]:
    db.define(PROGRAM)
    db.load("employee", [(i, "a" if i % 2 else "b", 10) for i in range(6)])
    db.load("budget", [("a", 35), ("b", 25)])
    db.rules.register(lambda *rows: None, "seen")
    db.sql("""
        CREATE RULE keep WHEN TABLE over DO INSERT INTO note SELECT team FROM firing PRIORITY 1;
        CREATE RULE watch WHEN TABLE over DO CALL seen ON BOTH;
        CREATE RULE gone WHEN TABLE anybody DO CALL seen ON MINUS;
        CREATE RULE noted WHEN TABLE note DO CALL seen IMMEDIATE;
    """)
    for call, rows in (
        ("upsert", [(1, "a", 30)]),
        ("upsert", [(1, "a", 31), (0, "b", 0)]),
        ("delete", [(1, "a", 31), *((i, "a" if i % 2 else "b", 10) for i in range(1, 6))]),
    ):
        with db.transaction() as tx:
            getattr(tx, call)("employee", rows)
    return [(f.version, f.rule, f.plus, f.minus) for f in db.rules.firings()]


EXPECTED = [  # two loads come before
    (3, "keep", (("a",),), ()),
    (3, "noted", (("a",),), ()),
    (3, "watch", (("a",),), ()),
    (4, "watch", (), (("b",),)),
    (5, "gone", (), ((),)),
    (5, "watch", (), (("a",),)),
]


def test_in_memory() -> None:
    assert steps(rederive.open()) == EXPECTED


@pytest.mark.slow
def test_on_spark(spark: SparkSession) -> None:
    assert steps(rederive.open(engine="spark", spark=spark)) == EXPECTED
