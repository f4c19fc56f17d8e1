"""What a store is not: each a clear error with a stable code, and nothing changed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import rederive
from rederive.errors import CorruptStore, Mismatch, NewerStore, NotAStore, RederiveError, StoreError, StoreLocked, UnknownOption
from rederive.store.journal.file import FILE, FORMAT
from rederive.store.journal.reader import JournalReader
from rederive.store.journal.writer import Journal
from tests.database.conftest import CLOSURE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store at version 1."""
    made = tmp_path / "store"
    with rederive.open(made) as db:
        db.define(CLOSURE)
        with db.transaction() as tx:
            tx.insert("edge", [(str(i), str(i + 1)) for i in range(40)])
    return made


def refused(error: type[RederiveError], code: str, path: Path, *says: str) -> None:
    with pytest.raises(error) as caught:
        rederive.open(path)
    assert type(caught.value) is error
    assert caught.value.code == code
    for text in (str(path), *says):
        assert text in str(caught.value)
    assert caught.value.hint


def test_the_path_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(NotAStore, "not_a_store", tmp_path / "file", "a store is a folder")
    refused(NotAStore, "not_a_store", tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """In a process without privileges, as permissions mean nothing to root."""
    code = """
import os, sys
from rederive import open
from rederive.errors import StoreError
open().close()  # imports what the process without privileges may not read
if os.geteuid() == 0:
    os.setuid(65534)
for path in ("closed", "closed/below"):
    try:
        open(path)
    except StoreError as error:
        assert (type(error) is StoreError, error.code) == (True, "store"), error
        assert "Permission denied" in str(error) and path in str(error), error
    else:
        sys.exit("not refused")
"""
    closed = tmp_path / "closed"
    closed.mkdir()
    tmp_path.chmod(0o755)
    closed.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(closed.iterdir()) == []


def test_not_a_journal(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("this is a letter, and not a database, however long it may get" * 20)
    refused(NotAStore, "not_a_store", tmp_path)
    assert (tmp_path / FILE).read_text().startswith("this is a letter")


def test_an_sqlite_file_of_something_else(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = (tmp_path / FILE).read_bytes()
    refused(NotAStore, "not_a_store", tmp_path, "another application")
    assert (tmp_path / FILE).read_bytes() == before


def test_a_newer_format(folder: Path) -> None:
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    refused(NewerStore, "newer_store", folder, f"format {FORMAT + 1}", "newer rederive")
    with pytest.raises(NewerStore):
        JournalReader.read(folder)


def test_a_file_damaged_in_its_middle(folder: Path) -> None:
    data = bytearray((folder / FILE).read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    (folder / FILE).write_bytes(data)
    refused(CorruptStore, "corrupt", folder, "damaged", "backup")


def test_a_file_cut_short(folder: Path) -> None:
    data = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(data[: len(data) // 2])
    refused(CorruptStore, "corrupt", folder, "damaged")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("UPDATE base SET row = '[1, 2]' WHERE row = '[\"3\",\"4\"]'", "edge"),
        ('UPDATE base SET row = \'["3"\' WHERE row = \'["3","4"]\'', "edge"),
        ("UPDATE text SET text = '.decl edge('", "cannot be read"),
        ("UPDATE text SET kept = '[[99, 1]]'", "cannot be read"),
        ("UPDATE relation SET columns = '{}'", "cannot be read"),
        ("DELETE FROM text", "not a base relation"),
    ],
)
def test_content_that_nobody_wrote(folder: Path, sql: str, says: str) -> None:
    with sqlite3.connect(folder / FILE) as connection:
        assert connection.execute(sql).rowcount
    connection.close()
    refused(CorruptStore, "corrupt", folder, says)


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """A kill at the very beginning leaves one."""
    (tmp_path / FILE).touch()
    with rederive.open(tmp_path) as db:
        assert db.version == 0


def test_two_at_once(folder: Path) -> None:
    with rederive.open(folder) as db:
        refused(StoreLocked, "locked", folder, f"process {os.getpid()}")
        db.rows("edge")
    rederive.open(folder).close()


def test_another_process_has_it_and_its_death_frees_it(folder: Path) -> None:
    code = "import rederive, sys; db = rederive.open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        refused(StoreLocked, "locked", folder, f"process {child.pid}")
        with JournalReader.read(folder) as journal:
            assert [entry.number for entry in journal.since(0)] == [1]
        child.send_signal(signal.SIGKILL)
    with rederive.open(folder) as db:
        assert db.version == 1


def test_reading_what_is_no_store(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotAStore):
            JournalReader.read(path)
    assert list(tmp_path.iterdir()) == []


def test_options_that_the_record_depends_on_cannot_change(tmp_path: Path) -> None:
    rederive.open(tmp_path, strategy="differencing", precision="nervous", only="plus").close()
    for option in ({"only": "minus"}, {"precision": "exact"}):
        with pytest.raises(Mismatch, match="the store has") as caught:
            rederive.open(tmp_path, **option)  # type: ignore[arg-type]
        assert caught.value.code == "mismatch"
    with rederive.open(tmp_path) as db:
        assert (
            db.pipeline.state.settings.strategy,
            db.pipeline.state.settings.precision,
            [sign.value for sign in db.pipeline.state.settings.signs],
        ) == ("differencing", "nervous", ["plus"])


def test_the_strategy_can_change_and_is_remembered(folder: Path) -> None:
    for given, expected in ((None, "auto"), ("on_demand", "on_demand"), (None, "on_demand")):
        with rederive.open(folder, strategy=given) as db:
            assert db.pipeline.state.settings.strategy == expected
            assert len(db.rows("closure")) == 40 * 41 // 2


def test_a_strategy_that_the_stored_precision_does_not_go_with(tmp_path: Path) -> None:
    rederive.open(tmp_path, strategy="differencing", precision="nervous").close()
    with pytest.raises(RederiveError):
        rederive.open(tmp_path, strategy="materialized")
    with rederive.open(tmp_path) as db:
        assert db.pipeline.state.settings.strategy == "differencing"


@pytest.mark.parametrize("options", [{"retention": 0}, {"retention": -1}, {"only": "plsu"}, {"strategy": "countin"}])
def test_options_that_there_are_not(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(UnknownOption):
        rederive.open(tmp_path / "store", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "store").exists()


def test_a_store_in_a_lake_is_not_opened_without_it(folder: Path) -> None:
    journal = Journal.open(folder)
    journal.attach_lake("/lake")
    journal.close()
    refused(Mismatch, "mismatch", folder, "/lake")


def test_a_failed_opening_lets_go_of_the_lock(folder: Path) -> None:
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute("UPDATE text SET text = 'x' || text")
    connection.close()
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            rederive.open(folder)
        assert caught.value.code == "corrupt"
