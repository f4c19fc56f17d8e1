"""A view as it was at an earlier version: by undoing what changed since, and by the time travel of a lake."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rederive
from rederive.errors import Expired, Mismatch, NoStore, UnknownColumn, UnknownRelation, VersionGone
from rederive.ir.terms import Row
from rederive.store import time_travel as past

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOSURE = """
    .decl edge(x: number, y: number)  .decl closure(x: number, y: number)  .output closure
    closure(x, y) :- edge(x, y).  closure(x, y) :- closure(x, z), edge(z, y).
    .decl twice(x: number)  twice(2 * x) :- edge(x, _).
"""
BAG = "CREATE TABLE pair (x BIGINT, y BIGINT); CREATE VIEW ends AS SELECT y FROM pair;"
VIEWS = ("closure", "ends")


def define(db: rederive.Database) -> None:
    """A set and a bag."""
    db.define(CLOSURE)
    db.sql(BAG)


def change(db: rederive.Database, chance: random.Random) -> None:
    with db.transaction() as tx:
        for action in ("insert", "delete"):
            for relation in ("edge", "pair"):
                getattr(tx, action)(relation, [(chance.randint(0, 4), chance.randint(0, 4)) for _ in range(2)])


def grown(db: rederive.Database, versions: int, chance: random.Random) -> list[list[Row]]:
    while db.version < versions:
        change(db, chance)
    return [db.rows(view) for view in VIEWS]


def at(db: rederive.Database, version: int, **bindings: int) -> list[list[Row]]:
    return [db.rows(view, as_of=version, **bindings) for view in VIEWS]


def test_every_version_is_what_it_was(tmp_path: Path) -> None:
    chance = random.Random(1)
    with rederive.open(tmp_path / "store") as db:
        define(db)
        states = {db.version: grown(db, 0, chance)}
        for number in range(db.version + 1, 20):
            states[number] = grown(db, number, chance)
        assert len({repr(state) for state in states.values()}) > 15
        assert {version: at(db, version) for version in states} == states
    with rederive.open(tmp_path / "store") as db:
        assert {version: at(db, version) for version in states} == states
        for version, state in states.items():
            assert at(db, version, y=2) == [[row for row in rows if row[-1] == 2] for rows in state]


def record_travels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by each version that is read from the lake."""
    travelled, lake_for = list[int](), past._lake_for

    def recorded(store: Any, relation: Any, version: int) -> Any:
        found = lake_for(store, relation, version)
        travelled.extend([version] if found is not None else [])
        return found

    monkeypatch.setattr(past, "_lake_for", recorded)
    return travelled


@pytest.mark.slow
def test_time_travel(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions at which the lake was settled, between these, and after the last; also where the journal forgot the changes."""
    chance, travelled = random.Random(3), record_travels(monkeypatch)
    with rederive.open(lake=tmp_path / "lake", spark=spark, engine="resident", strategy="materialized") as db:
        define(db)
        first = db.version
        states = [grown(db, first, chance)]
        for number in range(1, 6):
            states.append(grown(db, first + number, chance))
            if number in (2, 4):
                db.settle()
        assert [at(db, first + number) for number in range(6)] == states
        assert not travelled
        monkeypatch.setattr(past, "MOST_UNDONE", 0)
        assert [at(db, first + number) for number in (2, 5)] == [states[number] for number in (2, 5)]
        assert at(db, first + 3, y=2) == [[row for row in rows if row[-1] == 2] for rows in states[3]]
        assert travelled == [first + number for number in (2, 2, 3, 3)]
    monkeypatch.setattr(past, "MOST_UNDONE", 1_000)
    travelled.clear()
    with rederive.open(lake=tmp_path / "lake", spark=spark, engine="resident", retention=2) as db:
        grown(db, first + 7, chance)
        db.settle()
        assert [at(db, first + number) for number in (3, 5)] == [states[number] for number in (3, 5)]
        assert travelled == [first + 3, first + 3]
        for file in (tmp_path / "lake" / "views" / "closure").glob("*.parquet"):
            file.unlink()
        with pytest.raises(VersionGone, match=f"version {first + 3} "):
            db.rows("closure", as_of=first + 3)
        monkeypatch.setattr(past, "MOST_UNDONE", 0)
        assert db.rows("closure", as_of=first + 5) == states[5][0]


def test_a_version_is_read_from_the_lake(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest case of `test_time_travel`: no change may be undone, so an earlier version is read from the lake.

    Without the files of that version, the journal leads back as long as it reaches.
    """
    travelled = record_travels(monkeypatch)
    with rederive.open(lake=tmp_path / "lake", spark=spark, engine="resident", strategy="materialized") as db:
        db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        for number in (11, 12):
            with db.transaction() as tx:
                tx.insert("n", [(number,)])
            if number == 11:
                db.settle()
        monkeypatch.setattr(past, "MOST_UNDONE", 0)
        assert (db.rows("big", as_of=1), db.rows("big", as_of=2)) == ([(11,)], [(11,), (12,)])
        for file in (tmp_path / "lake" / "views" / "big").glob("*.parquet"):
            file.unlink()
        assert travelled == [1]
        assert db.rows("big", as_of=1) == [(11,)]


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoStore):
        rederive.open().rows("closure", as_of=0)
    with rederive.open(tmp_path / "store", retention=2) as db:
        db.migrate(CLOSURE)
        for number in range(4):
            with db.transaction() as tx:
                tx.insert("edge", [(number, number + 1)])
        assert db.rows("closure", as_of=3) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
        for error, view, version, bindings in (
            (UnknownRelation, "closer", 1, {}),
            (UnknownColumn, "closure", 3, {"z": 1}),
            (Mismatch, "twice", 3, {}),  # nobody records its changes
            (Mismatch, "closure", 5, {}),
            (Mismatch, "closure", -1, {}),
            (Expired, "closure", 0, {}),
        ):
            with pytest.raises(error):
                db.rows(view, as_of=version, **bindings)
