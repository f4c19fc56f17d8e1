"""Backups: a copy of a store's journal at one version, even while a process writes it; and a new store from such a copy.

A restored store continues from the version of its backup with another history than the lost one, so it gets another epoch: a
saved position of the lost history is refused, and never taken for one of the new. Nobody can write to a backup itself: it would
continue under the epoch of its store.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rederive.errors import StoreError
from rederive.store.checkpoint import FILE as CHECKPOINT
from rederive.store.journal.file import BACKUP, FILE, LOCK, connect_read_only, name_errors
from rederive.store.journal.reader import JournalReader
from rederive.store.journal.writer import Journal

PARTIAL: Final = ".partial"


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A backup, or a restored store. `lake`: the root of the lake, if it has one; `settled`: the version of the lake."""

    epoch: str
    version: int
    lake: str | None = None
    settled: int | None = None


def back_up(folder: Path, target: Path) -> StoreCopy:
    """Copy the journal of a store into a new folder."""
    with name_errors(folder), closing(connect_read_only(folder)) as source, _new_folder(target) as made:
        _copy_files(folder, made)
        # SQLite's online backup copies one committed state while the writer goes on.
        # The table BACKUP is the mark by which `connect` refuses to write to the copy.
        with closing(sqlite3.connect(made / FILE, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file without a WAL, which is readable on a read-only medium
            copy.execute(f"CREATE TABLE {BACKUP} (at TEXT NOT NULL)")
            copy.execute(f"INSERT INTO {BACKUP} VALUES (?)", (datetime.now(UTC).isoformat(),))
        with JournalReader.read(made) as journal:
            found = _describe(journal)
    return found


def restore(backup: Path, folder: Path, lake: str | None = None) -> StoreCopy:
    """Make a store from a backup, in a new folder. `lake`: the root of the lake, if it has moved since the backup."""
    with name_errors(backup), closing(connect_read_only(backup)) as source, _new_folder(folder) as made:
        _copy_files(backup, made)
        with closing(sqlite3.connect(made / FILE, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute(f"DROP TABLE IF EXISTS {BACKUP}")
            copy.execute("PRAGMA journal_mode = WAL")
        journal = Journal.open(made)
        try:
            # Before the folder gets its name: no store with a final name can continue the history of its backup.
            journal.begin_epoch()
            if lake is not None:
                journal.move_lake(lake)
            found = _describe(journal)
        finally:
            journal.close()
        # Nobody else knows the folder by its partial name, so nobody waits for this lock.
        (made / LOCK).unlink()
    return found


def _describe(journal: JournalReader) -> StoreCopy:
    settled = journal.settled if journal.lake is not None else None
    return StoreCopy(journal.epoch, journal.version, journal.lake, settled)


def _copy_files(folder: Path, target: Path) -> None:
    """Copy the other files of a store's folder, such as a project's list of applied texts. Folders are not copied."""
    for file in folder.iterdir():
        # A checkpoint is of the epoch of its store, and a restored store has another.
        if file.is_file() and file.name != LOCK and not file.name.startswith((FILE, CHECKPOINT)):
            shutil.copy2(file, target / file.name)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder that exists completely or not at all: it gets its name after everything in it has been synced."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError("the folder exists already and is not empty", hint="give a folder that does not exist").at(str(target))
    partial = target.with_name(target.name + PARTIAL)
    with name_errors(target):
        # A killed attempt leaves its partial folder, which the next one removes.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    try:
        yield partial
        with name_errors(target):
            # Files, their folder, the new name, the parent: after a power
            # failure the name leads to a whole copy or does not exist.
            for file in partial.iterdir():
                _sync(file)
            _sync(partial)
            partial.rename(target)
            _sync(target.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
