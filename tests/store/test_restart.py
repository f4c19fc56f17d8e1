"""A store is opened from a checkpoint of its engine's state, or by evaluating its views: only the time differs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rederive
from rederive.commit import pipeline, restart
from rederive.errors import DuplicateKey
from rederive.store.checkpoint import FILE
from tests.engines.cases import FOLDERS, load
from tests.engines.test_conformance import STRATEGIES, lines_of, refused
from tests.selection import fast_only

PROGRAM = """
CREATE TABLE item (id BIGINT PRIMARY KEY, kind STRING, price DECIMAL(9, 2), day DATE, at TIMESTAMP, weight DOUBLE);
CREATE TABLE link (x INT, y INT);
CREATE TABLE mark (word STRING);
CREATE VIEW priced AS SELECT kind, SUM(price) AS total, COUNT(*) AS number, MAX(weight) AS most FROM item GROUP BY kind;
CREATE VIEW days AS SELECT DISTINCT day, at FROM item;
CREATE VIEW first AS SELECT id, kind, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY price, id) AS place FROM item;
CREATE VIEW words AS SELECT word, COUNT(*) AS number FROM mark GROUP BY word;
CREATE VIEW marked AS SELECT word, kind FROM mark JOIN item ON word = kind;
CREATE VIEW reach AS WITH RECURSIVE r(x, y) AS
    (SELECT x, y FROM link UNION SELECT r.x, link.y FROM r JOIN link ON r.y = link.x) SELECT x, y FROM r;
"""
VIEWS = ("priced", "days", "first", "words", "marked", "reach")


@pytest.fixture(autouse=True)
def _every_store_is_worth_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "WORTH_SAVING", 0)


def filled(folder: Path, **options: Any) -> rederive.Database:
    db = rederive.open(folder, **options)
    db.sql(PROGRAM)
    db.sql("INSERT INTO item VALUES (1, 'a', 1.50, DATE '2024-02-29', TIMESTAMP '2024-02-29 12:00:00', -0.0)")
    db.sql("INSERT INTO item VALUES (2, 'a', NULL, NULL, NULL, NULL), (3, NULL, 2.25, DATE '0001-01-01', NULL, 1e300)")
    db.sql("INSERT INTO link VALUES (1, 2), (2, 3), (3, 1)")
    db.sql("INSERT INTO mark VALUES ('a'), ('a'), (NULL), ('b')")
    return db


def change(db: rederive.Database) -> list[rederive.Result]:
    """Rows enter and leave each table."""
    return [
        *db.sql("UPDATE item SET price = price + 1, weight = 0.0 WHERE id < 3"),
        *db.sql("DELETE FROM link WHERE x = 3; DELETE FROM mark WHERE word = 'a'"),
        *db.sql("INSERT INTO mark VALUES ('a'); INSERT INTO link VALUES (3, 4)"),
    ]


def deltas(results: list[rederive.Result]) -> list[dict[str, Any]]:
    return [{view: (change.plus, change.minus) for view, change in result.changes.items()} for result in results]


def rows(db: rederive.Database) -> dict[str, list[Any]]:
    return {view: db.rows(view) for view in (*VIEWS, "item", "link", "mark")}


def is_restored(db: rederive.Database) -> bool:
    store = db.pipeline.state.store
    assert store is not None
    return store.saved > 0


@pytest.mark.parametrize("strategy", fast_only(STRATEGIES, "auto"))
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_transaction_in_a_process_of_its_own(folder: Path, strategy: str, tmp_path: Path) -> None:
    case = load(folder)
    if refused(case, strategy):
        pytest.skip("the strategy refuses this program")
    views = case.program.monitored
    with rederive.open(tmp_path, strategy=strategy) as db, db.setup() as setup:
        db.define(case.text)
        for name, given in case.facts.items():
            db.load(name, given)
    assert setup.result is not None
    output = lines_of(setup.result, views)
    for number, line in enumerate(case.changes, 2):
        with rederive.open(tmp_path) as db:
            assert is_restored(db)
            assert db.version == number - 1
            with db.transaction() as tx:
                for action in (tx.delete, tx.insert, tx.upsert):
                    for name, listed in line.get(action.__name__, {}).items():
                        action(name, listed)
        output += lines_of(tx.result, views)
    assert output == case.expected


@pytest.mark.parametrize("strategy", ["auto", "materialized"])
def test_values_of_all_types_bags_and_aggregates(strategy: str, tmp_path: Path) -> None:
    db = filled(tmp_path / "store", strategy=strategy)
    expected = rows(db)
    db.close()
    shutil.copytree(tmp_path / "store", tmp_path / "evaluated", ignore=shutil.ignore_patterns(FILE))
    with rederive.open(tmp_path / "store") as one, rederive.open(tmp_path / "evaluated") as two:
        assert is_restored(one)
        assert not is_restored(two)
        assert rows(one) == rows(two) == expected
        assert deltas(change(one)) == deltas(change(two))
        assert rows(one) == rows(two) != expected


def test_what_was_committed_after_the_checkpoint_is_propagated(tmp_path: Path) -> None:
    filled(tmp_path / "store").close()
    with rederive.open(tmp_path / "store") as db:
        change(db)
        shutil.copytree(tmp_path / "store", tmp_path / "killed")  # as a kill would leave it
        with rederive.open(tmp_path / "killed") as killed:
            assert is_restored(killed)
            assert killed.version == db.version
            assert rows(killed) == rows(db)
            assert deltas(change(killed)) == deltas(change(db))
            assert rows(killed) == rows(db)


def damage(folder: Path) -> None:
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def cut(folder: Path) -> None:
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:-10])


def replace_history(folder: Path) -> None:
    """An old copy of the journal was put back, and another version was committed over it."""
    checkpoint = (folder / FILE).read_bytes()
    (folder / FILE).unlink()
    shutil.copy(folder.parent / "old.sqlite", folder / "journal.sqlite")
    with rederive.open(folder) as db:
        db.sql("INSERT INTO mark VALUES ('other')")
    (folder / FILE).write_bytes(checkpoint)


@pytest.mark.parametrize("spoil", [damage, cut, replace_history])
def test_a_checkpoint_that_does_not_fit_is_ignored(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "store"
    filled(folder).close()
    shutil.copy(folder / "journal.sqlite", tmp_path / "old.sqlite")
    with rederive.open(folder) as db:
        db.sql("INSERT INTO mark VALUES ('lost')")
    spoil(folder)
    words = {"damage": "lost", "cut": "lost", "replace_history": "other"}
    with rederive.open(folder) as db:
        assert not is_restored(db)
        assert (words[spoil.__name__], 1) in db.rows("words")


def test_another_strategy_or_definition_evaluates(tmp_path: Path) -> None:
    db = filled(tmp_path)
    expected = rows(db)
    db.close()
    with rederive.open(tmp_path, strategy="recompute") as db:
        assert not is_restored(db)
        assert rows(db) == expected
        db.sql("CREATE OR REPLACE VIEW words AS SELECT word, COUNT(*) + 1 AS number FROM mark GROUP BY word")
    with rederive.open(tmp_path) as db:
        assert is_restored(db)
        assert ("b", 2) in db.rows("words")


def test_rules_fire_as_before(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.sql("CREATE TABLE seen (word STRING PRIMARY KEY)")
        db.sql("CREATE TABLE mark (word STRING PRIMARY KEY)")
        db.sql("CREATE VIEW long AS SELECT word FROM mark WHERE length(word) > 3")
        db.sql("CREATE RULE note WHEN TABLE long DO INSERT INTO seen SELECT word FROM firing")
        db.sql("INSERT INTO mark VALUES ('abcd'), ('ab')")
    with rederive.open(tmp_path) as db:
        assert is_restored(db)
        assert db.rows("seen") == [("abcd",)]
        db.sql("INSERT INTO mark VALUES ('vwxyz')")
        assert db.rows("seen") == [("abcd",), ("vwxyz",)]


def test_many_changes_are_saved_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MANY_CHANGES", 20)
    monkeypatch.setattr(restart, "MANY_CHANGES", 20)
    with filled(tmp_path / "store") as db:
        assert not (tmp_path / "store" / FILE).exists()
        db.load("link", [(n, n + 1) for n in range(5, 40)])
        db.sql("INSERT INTO link SELECT x + 100, y FROM link")
        shutil.copytree(tmp_path / "store", tmp_path / "killed")
        with rederive.open(tmp_path / "killed") as killed:
            assert is_restored(killed)
            assert rows(killed) == rows(db)


def test_a_small_store_has_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    filled(tmp_path).close()
    assert not (tmp_path / FILE).exists()


def test_a_backup_has_none(tmp_path: Path) -> None:
    filled(tmp_path / "store").close()
    with rederive.open(tmp_path / "store"):
        rederive.backup(tmp_path / "store", tmp_path / "backup")
    assert (tmp_path / "store" / FILE).exists()
    assert not (tmp_path / "backup" / FILE).exists()


def test_a_value_with_two_entries_keeps_its_code(tmp_path: Path) -> None:
    """Rows by column give a value that is known a second entry, if most others are new; its code stays the first one."""
    db = rederive.open(tmp_path / "s")
    db.sql("CREATE TABLE f (id BIGINT PRIMARY KEY, x BIGINT NOT NULL, kind STRING NOT NULL)")
    db.sql("CREATE VIEW v AS SELECT kind, sum(x) AS s FROM f GROUP BY kind")
    db.load("f", pa.table({"id": [7], "x": [1], "kind": ["a"]}))
    db.load("f", pa.table({"id": range(10, 400), "x": [7, *range(1000, 1389)], "kind": ["a"] * 390}))
    total = 1 + 7 + sum(range(1000, 1389))
    assert db.rows("v") == [("a", total)]
    db.close()
    db = rederive.open(tmp_path / "s")
    with pytest.raises(DuplicateKey), db.transaction() as tx:
        tx.insert("f", [(7, 2, "a")])
    with db.transaction() as tx:
        tx.delete("f", [(10, 7, "a")])
    assert db.rows("v") == [("a", total - 7)]
