"""The journal's file: made, opened, checked and locked. What is in it is `journal`'s business.

SQLite keeps it in WAL mode and syncs it at every commit. A lock file beside it keeps two writers apart; the system lets go of the
lock when its holder ends, however it ends. Readers need no lock.
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
BACKUP: Final = "backup"  # a table that only a backup has
FORMAT: Final = 2
_APPLICATION: Final = 0x72656472  # "redr": tells our files from other SQLite files

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

# From each older format to the next one: definitions have a language, and changes may have copies.
_NEXT: Final = {
    1: ("ALTER TABLE text ADD COLUMN language TEXT NOT NULL DEFAULT 'datalog'", "ALTER TABLE change ADD COLUMN counts TEXT"),
}


@dataclass(frozen=True, slots=True)
class Lock:
    """Held until it is released or the process ends."""

    descriptor: int

    @classmethod
    def take(cls, folder: Path) -> Lock:
        """The lock of a store; refused with the holder's process id while another one has it."""
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreLocked(
                f"process {holder} has this store open",
                hint="one process at a time writes a store; end that one, or read: rederive log",
            ).at(str(folder)) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        os.close(self.descriptor)


@contextmanager
def guarded(place: Path) -> Iterator[None]:
    """What goes wrong with the file or its folder becomes an error that names it."""
    try:
        yield
    except StoreError as error:
        if error.place is None:
            error.at(str(place))
        raise
    except sqlite3.Error as error:
        raise _explained(error).at(str(place)) from error
    except (FileExistsError, NotADirectoryError):
        raise NotAStore("a file stands here, and a store is a folder", hint="give another path").at(str(place)) from None
    except OSError as error:
        raise StoreError(f"cannot be opened: {error.strerror}", hint="give a folder that can be written").at(
            str(place)
        ) from error


def _explained(error: sqlite3.Error) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_NOTADB"):
        return NotAStore(f"{FILE} is not a journal of rederive", hint="give another path, or restore the file from a backup")
    if name.startswith("SQLITE_CORRUPT"):
        return CorruptStore(f"{FILE} is damaged: {error}")
    return StoreError(f"the journal cannot be used: {error}", hint="nothing was changed; see to the disk, and try again")


def create(folder: Path) -> None:
    """Make the folder where there is none, and have its name on disk."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        descriptor = os.open(folder.parent, os.O_RDONLY)
        with suppress(OSError):  # some file systems cannot sync a folder
            os.fsync(descriptor)
        os.close(descriptor)


def connect(folder: Path) -> sqlite3.Connection:
    """The journal of a folder, made where there is none, for the one writer."""
    connection = sqlite3.connect(folder / FILE, isolation_level=None, check_same_thread=False)
    try:
        _recognise(connection)
        if _blank(connection):
            _make(connection)
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (BACKUP,)).fetchone() is not None:
            raise NotAStore("this is a backup of a store", hint="make a store from it: rederive restore BACKUP DIR")
        connection.execute("PRAGMA synchronous = FULL")
        _renew(connection)
        _verify(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(folder: Path) -> sqlite3.Connection:
    """The journal of a folder, to look at; its writer may be at work."""
    file = folder / FILE
    if not file.is_file():
        raise NotAStore(f"there is no {FILE} here", hint="give the folder that --store or rederive.open was given").at(
            str(folder)
        )
    connection = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
    try:
        _recognise(connection)
        if _blank(connection):
            raise NotAStore(f"{FILE} is empty", hint="open it once to make it a store")
    except BaseException:
        connection.close()
        raise
    return connection


def _blank(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _recognise(connection: sqlite3.Connection) -> None:
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    if application != _APPLICATION and not (application == 0 and _blank(connection)):
        raise NotAStore(f"{FILE} is an SQLite file of something else", hint="give another path")
    if version > FORMAT:
        raise NewerStore(
            f"{FILE} has format {version}, and this rederive reads formats up to {FORMAT}", hint="install a newer rederive"
        )


def _make(connection: sqlite3.Connection) -> None:
    """All tables in one transaction: a kill leaves a journal or a blank file."""
    failpoints.hit("journal.create:before")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    with closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";\n"):
            cursor.execute(statement)
        cursor.execute(f"PRAGMA application_id = {_APPLICATION}")
        cursor.execute(f"PRAGMA user_version = {FORMAT}")
        failpoints.hit("journal.create:written")
        cursor.execute("COMMIT")
    failpoints.hit("journal.create:after")


def format_of(connection: sqlite3.Connection) -> int:
    """The format that the file has, as the connection sees it now."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _renew(connection: sqlite3.Connection) -> None:
    """Bring a journal of an older format to this one, in one transaction."""
    if (found := format_of(connection)) < FORMAT:
        connection.execute("BEGIN IMMEDIATE")
        for number in range(found, FORMAT):
            for statement in _NEXT[number]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        failpoints.hit("journal.renew:written")
        connection.execute("COMMIT")


def _verify(connection: sqlite3.Connection) -> None:
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise CorruptStore(f"{FILE} is damaged: {answer}")
