"""Backups and restored stores: a history has an epoch, and nothing of a lost history is taken for one of the present one."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rederive
from rederive.errors import Mismatch, NotAStore, StoreError
from rederive.store.backup import back_up, restore
from rederive.store.journal.file import FILE
from rederive.store.journal.reader import JournalReader

PROGRAM = ".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.  .output big"


def opened(path: Path) -> rederive.Database:
    db = rederive.open(path)
    db.migrate(PROGRAM)
    return db


def put(db: rederive.Database, *numbers: int, key: str | None = None) -> rederive.Result:
    with db.transaction(key) as tx:
        tx.insert("n", [(number,) for number in numbers])
    return tx.result


def test_a_store_has_an_epoch_that_stays_until_it_is_restored(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as db:
        put(db, 11)
        epoch, position = db.pipeline.state.epoch, db.position
        assert position == f"{epoch}-1"
    with opened(tmp_path / "a") as db:
        assert db.pipeline.state.epoch == epoch
        rederive.backup(tmp_path / "a", tmp_path / "backup")
    with opened(tmp_path / "b") as other:
        assert other.pipeline.state.epoch != epoch
    assert rederive.open().pipeline.state.epoch != rederive.open().pipeline.state.epoch
    made = restore(tmp_path / "backup", tmp_path / "c")
    with opened(tmp_path / "c") as db:
        assert (db.pipeline.state.epoch, db.version, db.rows("big")) == (made.epoch, 1, [(11,)])
        assert db.pipeline.state.epoch != epoch
        with pytest.raises(Mismatch, match="is of another history"):
            list(db.changes("big", position))
        assert [change.plus for change in db.changes("big", f"{db.pipeline.state.epoch}-0")] == [[(11,)]]


def test_numbers_without_an_epoch_are_taken_up_to_the_restore(tmp_path: Path) -> None:
    """What a process has from the database is one of its versions; what somebody saved is one only where all histories agree."""
    with opened(tmp_path / "a") as db:
        put(db, 11)
        put(db, 12)
        assert db.pipeline.state.durable("a position").journal.version_at("2") == 2
        rederive.backup(tmp_path / "a", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "b")
    with opened(tmp_path / "b") as db:
        put(db, 13)
        assert (
            db.pipeline.state.durable("a position").journal.version_at("2"),
            db.pipeline.state.durable("a position").journal.version_at(3),
            db.pipeline.state.durable("a position").journal.version_at("0"),
        ) == (2, 3, 0)
        with pytest.raises(Mismatch, match="may be of another history: the store was restored at version 2"):
            db.pipeline.state.durable("a position").journal.version_at("3")
        assert [change.plus for change in db.changes("big", since=2)] == [[(13,)]]


def test_a_cursor_of_a_lost_history_is_refused_until_it_is_set_again(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as db:
        put(db, 11)
        db.cursor("mirror").acknowledge(1)
        rederive.backup(tmp_path / "a", tmp_path / "backup")
        put(db, 12)
        db.cursor("mirror").acknowledge(2)
    restore(tmp_path / "backup", tmp_path / "b")
    with opened(tmp_path / "b") as db:
        put(db, 13)
        with pytest.raises(Mismatch, match="'mirror' acknowledged version 1 or a later one before the store was restored"):
            _ = db.cursor("mirror").version
        assert db.cursor("another").version is None
        db.cursor("mirror").acknowledge(2)
        assert db.cursor("mirror").version == 2
        put(db, 14)
        assert [change.plus for change in db.changes("big", db.cursor("mirror").version or 0)] == [[(14,)]]


def test_a_key_is_known_as_far_as_the_backup_knows_it(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as db:
        put(db, 11, key="one")
        rederive.backup(tmp_path / "a", tmp_path / "backup")
        put(db, 12, key="two")
    restore(tmp_path / "backup", tmp_path / "b")
    with opened(tmp_path / "b") as db:
        assert put(db, 11, key="one").repeated
        assert not put(db, 12, key="two").repeated
        assert db.rows("big") == [(11,), (12,)]


def test_a_store_from_before_there_were_epochs_gets_one(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        put(db, 11)
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("DROP TABLE epoch")
        file.execute("DROP TABLE lost_cursor")
        file.execute("DROP TABLE parked")
    file.close()
    with JournalReader.read(tmp_path) as reader:
        assert (reader.epoch, reader.version_at("1")) == ("", 1)
    with opened(tmp_path) as db:
        assert len(db.pipeline.state.epoch) == 16
        assert [change.plus for change in db.changes("big", "0")] == [[(11,)]]
        first = db.pipeline.state.epoch
    with opened(tmp_path) as db:
        assert db.pipeline.state.epoch == first


def test_a_backup_while_the_store_is_written(tmp_path: Path) -> None:
    """Each backup is one committed version: the rows of exactly that many transactions."""
    with opened(tmp_path / "a") as db:
        put(db, 0)
        writer = Thread(target=lambda: [put(db, i) for i in range(1, 200)])
        writer.start()
        copied = [back_up(tmp_path / "a", tmp_path / f"backup{i}") for i in range(5)]
        writer.join()
    for i, one in enumerate(copied):
        restore(tmp_path / f"backup{i}", tmp_path / f"restored{i}")
        with opened(tmp_path / f"restored{i}") as db:
            assert (db.version, db.rows("n")) == (one.version, [(number,) for number in range(one.version)])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["insert", "delete", "backup", "restore", "save", "resume"]), max_size=25), st.randoms())
def test_a_replica_that_resumes_is_never_wrong(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], random: object
) -> None:
    """Restores at random points: with the changes after its position, or, where that is refused, with all rows."""
    folder = tmp_path_factory.mktemp("restores")
    choose = random.choice  # type: ignore[attr-defined]
    stores, backups, saved = [folder / "store0"], list[Path](), list[tuple[str, set[object]]]()
    db = opened(stores[-1])
    for i, step in enumerate([*steps, "resume"]):
        match step:
            case "insert" | "delete":
                with db.transaction() as tx:
                    getattr(tx, step)("n", [(choose(range(8, 16)),)])
            case "backup":
                backups.append(folder / f"backup{i}")
                rederive.backup(stores[-1], backups[-1])
            case "restore" if backups:
                db.close()
                stores.append(folder / f"store{i}")
                restore(choose(backups), stores[-1])
                db = opened(stores[-1])
            case "save":
                saved.append((db.position, set(db.rows("big"))))
            case "resume":
                for position, rows in saved:
                    replica = set(rows)
                    try:
                        for change in db.changes("big", position):
                            replica = (replica - set(change.minus)) | set(change.plus)
                    except Mismatch:
                        replica = set(db.rows("big"))
                    assert replica == set(db.rows("big"))
    db.close()


def test_what_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as db:
        put(db, 11)
        rederive.backup(tmp_path / "a", tmp_path / "backup")
        with pytest.raises(StoreError, match="the folder exists already and is not empty"):
            rederive.backup(tmp_path / "a", tmp_path / "backup")
    with pytest.raises(NotAStore, match="this is a backup"):
        rederive.open(tmp_path / "backup")
    with pytest.raises(StoreError, match="the folder exists already and is not empty"):
        restore(tmp_path / "backup", tmp_path / "a")
    with pytest.raises(NotAStore):
        restore(tmp_path / "nothing", tmp_path / "b")
    with pytest.raises(NotAStore):
        back_up(tmp_path / "nothing", tmp_path / "b")
    with pytest.raises(Mismatch, match="no lake"):
        restore(tmp_path / "backup", tmp_path / "b", lake="elsewhere")
    with pytest.raises(rederive.RederiveError):
        rederive.backup("s3a://bucket/store", tmp_path / "b")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "backup"]
    (tmp_path / "b").mkdir()
    restore(tmp_path / "backup", tmp_path / "b")  # an empty folder will do


def test_a_backup_that_was_cut_short_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets its name when it is complete. What a kill leaves has another name, and is in nobody's way."""
    with opened(tmp_path / "a") as db:
        put(db, 11)
        with monkeypatch.context() as patched:
            patched.setattr(shutil, "rmtree", lambda *_, **__: None)
            patched.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                rederive.backup(tmp_path / "a", tmp_path / "backup")
        assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "backup.partial"]
        rederive.backup(tmp_path / "a", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "b")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b", "backup"]


def test_a_backup_can_be_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as db:
        put(db, 11)
        rederive.backup(tmp_path / "a", tmp_path / "backup")
    assert [file.name for file in (tmp_path / "backup").iterdir()] == [FILE]
    with JournalReader.read(tmp_path / "backup") as reader:
        assert reader.version == 1


def test_on_the_command_line(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as db:
        put(db, 11)

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "rederive.cli.main", *arguments]
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

        copied = run("backup", str(tmp_path / "a"), str(tmp_path / "backup"))
        assert (copied.returncode, copied.stdout) == (0, f'{{"version": 1, "epoch": "{db.pipeline.state.epoch}"}}\n')
        epoch = db.pipeline.state.epoch
    made = run("restore", str(tmp_path / "backup"), str(tmp_path / "b"))
    assert made.returncode == 0
    assert epoch not in made.stdout
    again = run("restore", str(tmp_path / "backup"), str(tmp_path / "b"))
    assert (again.returncode, "the folder exists already and is not empty" in again.stderr, again.stdout) == (2, True, "")
    logged = run("log", str(tmp_path / "b"), "--since", f"{epoch}-1")
    assert (logged.returncode, "error[mismatch]" in logged.stderr) == (2, True)
    assert run("log", str(tmp_path / "b"), "--since", "0").stdout.count("\n") == 1


def test_a_copied_folder_has_the_same_epoch(tmp_path: Path) -> None:
    """Only `restore` tells that the history begins anew; a position ahead of the copy is refused all the same."""
    with opened(tmp_path / "a") as db:
        put(db, 11)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with opened(tmp_path / "a") as db:
        put(db, 12)
        position = db.position
    with opened(tmp_path / "b") as db, pytest.raises(Mismatch, match="there is no version 2"):
        list(db.changes("big", position))
