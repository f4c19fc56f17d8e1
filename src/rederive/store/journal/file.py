"""The journal's file: it is created, opened, checked and locked here. `writer` and `reader` know what is in it.

SQLite holds it in WAL mode and syncs it at every commit. A lock file next to it admits one writer; the operating system releases
the lock when its holder ends, however it ends. Readers need no lock.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rederive import failpoints
from rederive.errors import CorruptStore, NewerStore, NotAStore, StoreError, StoreLocked

FILE: Final = "journal.sqlite"
LOCK: Final = "lock"
BACKUP: Final = "backup"  # a table that only backups have
FORMAT: Final = 2
_APPLICATION: Final = 0x72656472  # "redr": distinguishes our files from other SQLite files

_TABLES: Final = """
CREATE TABLE option (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE text (
    position INTEGER PRIMARY KEY, part INTEGER NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, kept TEXT NOT NULL,
    language TEXT NOT NULL DEFAULT 'datalog'
);
CREATE TABLE followed (name TEXT PRIMARY KEY, since INTEGER) WITHOUT ROWID;
CREATE TABLE relation (id INTEGER PRIMARY KEY, name TEXT NOT NULL, columns TEXT NOT NULL, UNIQUE (name, columns));
CREATE TABLE base (relation INTEGER NOT NULL, row TEXT NOT NULL, PRIMARY KEY (relation, row)) WITHOUT ROWID;
CREATE TABLE version (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, engine TEXT NOT NULL, key TEXT UNIQUE, digest TEXT, staged TEXT
);
CREATE TABLE change (
    version INTEGER NOT NULL, kind TEXT NOT NULL, relation INTEGER NOT NULL, plus TEXT NOT NULL, minus TEXT NOT NULL,
    counts TEXT, PRIMARY KEY (version, kind, relation)
);
CREATE TABLE cursor (name TEXT PRIMARY KEY, version INTEGER NOT NULL, at TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE lake (uri TEXT NOT NULL, settled INTEGER NOT NULL);
"""

# The statements that lead from a format to the next one. 1 to 2: definitions get a language, and changes the counts of copies.
_MIGRATIONS: Final = {
    1: ("ALTER TABLE text ADD COLUMN language TEXT NOT NULL DEFAULT 'datalog'", "ALTER TABLE change ADD COLUMN counts TEXT"),
}


@dataclass(frozen=True, slots=True)
class StoreLock:
    """The lock of a store, which is held until it is released or the process ends."""

    descriptor: int

    @classmethod
    def take(cls, folder: Path) -> StoreLock:
        """Take the lock of a store; raises StoreLocked with the holder's process id while another process has it."""
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreLocked(
                f"process {holder} has this store open",
                hint="end that process, because only one may write a store; or read it: rederive log",
            ).at(str(folder)) from None
        # The process id is for messages alone. The lock is the flock, which the system releases when its holder dies.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock."""
        # The file stays: if it were removed, two processes could hold locks on two files of the same name.
        os.close(self.descriptor)


@contextmanager
def name_errors(place: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into errors that name the store's folder."""
    try:
        yield
    except StoreError as error:
        if error.place is None:
            error.at(str(place))
        raise
    except sqlite3.Error as error:
        raise _store_error(error).at(str(place)) from error
    except (FileExistsError, NotADirectoryError):
        raise NotAStore("a store is a folder, and this is a file", hint="give another path").at(str(place)) from None
    except OSError as error:
        raise StoreError(f"cannot be opened: {error.strerror}", hint="give a folder that can be written").at(
            str(place)
        ) from error


def _store_error(error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_NOTADB"):
        return NotAStore(f"{FILE} is not a journal of rederive", hint="give another path, or restore the file from a backup")
    if name.startswith("SQLITE_CORRUPT"):
        return CorruptStore(f"{FILE} is damaged: {error}")
    return StoreError(f"the journal cannot be used: {error}", hint="check the disk, and try again; nothing was changed")


def create_folder(folder: Path) -> None:
    """Create the folder if there is none, and sync its parent, so that the folder's name is on disk too."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        descriptor = os.open(folder.parent, os.O_RDONLY)
        with suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(descriptor)
        os.close(descriptor)


def connect(folder: Path) -> sqlite3.Connection:
    """A connection for the only writer. The journal is created if there is none, and an older format is migrated."""
    # Autocommit: a transaction begins and ends where the code says so, and not where Python's module would put it.
    connection = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)
    try:
        _check_identity(connection)
        if _is_blank(connection):
            _create_tables(connection)
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (BACKUP,)).fetchone() is not None:
            raise NotAStore("this is a backup of a store", hint="make a store from it: rederive restore BACKUP DIR")
        connection.execute("PRAGMA synchronous = FULL")
        _migrate(connection)
        _check_pages(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_read_only(folder: Path) -> sqlite3.Connection:
    """A connection for a reader. A writer may be at work."""
    file = folder / FILE
    if not file.is_file():
        raise NotAStore(f"there is no {FILE} here", hint="give the folder that --store or rederive.open was given").at(
            str(folder)
        )
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
    try:
        _check_identity(connection)
        if _is_blank(connection):
            raise NotAStore(f"{FILE} is empty", hint="open it once to make it a store")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_blank(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _check_identity(connection: sqlite3.Connection) -> None:
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if application != _APPLICATION and not (application == 0 and _is_blank(connection)):
        raise NotAStore(f"{FILE} is an SQLite file of another application", hint="give another path")
    if version > FORMAT:
        raise NewerStore(
            f"{FILE} has format {version}, and this rederive reads formats up to {FORMAT}", hint="install a newer rederive"
        )


def _create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables in one transaction: a kill leaves either a journal or a blank file, which the next opening fills."""
    failpoints.hit("journal.create:before")
    # The mode is a property of the file, and cannot change inside a transaction.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    with closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        # Not `executescript`, which would commit the open transaction first.
        for statement in _TABLES.split(";\n"):
            cursor.execute(statement)
        # Both pragmas write the first page of the file, so they commit with the tables.
        cursor.execute(f"PRAGMA application_id = {_APPLICATION}")
        cursor.execute(f"PRAGMA user_version = {FORMAT}")
        failpoints.hit("journal.create:written")
        cursor.execute("COMMIT")
    failpoints.hit("journal.create:after")


def _format_of(connection: sqlite3.Connection) -> int:
    """The format of the file, as the connection sees it now."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring a journal of an older format to the present one, in one transaction."""
    if (found := _format_of(connection)) < FORMAT:
        connection.execute("BEGIN IMMEDIATE")
        for number in range(found, FORMAT):
            for statement in _MIGRATIONS[number]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        failpoints.hit("journal.renew:written")
        connection.execute("COMMIT")


def _check_pages(connection: sqlite3.Connection) -> None:
    # Checks the pages without comparing every index with its table, which `integrity_check` would do.
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise CorruptStore(f"{FILE} is damaged: {answer}")
