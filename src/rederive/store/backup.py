"""Backups: a copy of a store's journal as it was at one version, also while a process writes it; and a new store from one.

A store that is restored goes on from the version of its backup with another history than the one that was lost, so it has
another epoch: a saved position of the lost history is refused, and never taken for one of the new. A backup itself cannot be
opened to be written: it would go on under the epoch of its store.
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
from rederive.store.journal.file import BACKUP, FILE, LOCK, connect_to_read, guarded
from rederive.store.journal.reader import JournalReader
from rederive.store.journal.writer import Journal

PARTIAL: Final = ".partial"


@dataclass(frozen=True, slots=True)
class Copied:
    """A backup, or a store made from one. `lake`: where the base relations are if not in it, and `settled`: their version."""

    epoch: str
    version: int
    lake: str | None = None
    settled: int | None = None


def back_up(folder: Path, target: Path) -> Copied:
    """Copy the journal of a store into a folder that is not there yet."""
    with guarded(folder), closing(connect_to_read(folder)) as source, _made(target) as made:
        _copy_files(folder, made)
        with closing(sqlite3.connect(made / FILE, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, which can be read where nothing can be written
            copy.execute(f"CREATE TABLE {BACKUP} (at TEXT NOT NULL)")
            copy.execute(f"INSERT INTO {BACKUP} VALUES (?)", (datetime.now(UTC).isoformat(),))
        with JournalReader.read(made) as journal:
            found = _described(journal)
    return found


def restore(backup: Path, folder: Path, lake: str | None = None) -> Copied:
    """Make a store from a backup, in a folder that is not there yet. `lake`: where the lake is now, if it is not where it was."""
    with guarded(backup), closing(connect_to_read(backup)) as source, _made(folder) as made:
        _copy_files(backup, made)
        with closing(sqlite3.connect(made / FILE, isolation_level=None)) as copy:
            source.backup(copy)
            copy.execute(f"DROP TABLE IF EXISTS {BACKUP}")
            copy.execute("PRAGMA journal_mode = WAL")
        journal = Journal.open(made)
        try:
            journal.begin_epoch()
            if lake is not None:
                journal.move_lake(lake)
            found = _described(journal)
        finally:
            journal.close()
        (made / LOCK).unlink()
    return found


def _described(journal: JournalReader) -> Copied:
    settled = journal.settled if journal.lake is not None else None
    return Copied(journal.epoch, journal.version, journal.lake, settled)


def _copy_files(folder: Path, target: Path) -> None:
    """What else is in the folder of a store: which texts of a project were applied. Folders are not copied."""
    for file in folder.iterdir():
        if file.is_file() and file.name != LOCK and not file.name.startswith(FILE):
            shutil.copy2(file, target / file.name)


@contextmanager
def _made(target: Path) -> Iterator[Path]:
    """A folder that is there as a whole or not at all: it gets its name when everything in it is on disk."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError("there is something here already", hint="give a folder that does not exist").at(str(target))
    partial = target.with_name(target.name + PARTIAL)
    with guarded(target):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    try:
        yield partial
        with guarded(target):
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
