"""The journal: everything that a database must find again, in one SQLite file.

A commit is one SQLite transaction, on disk before `append` returns: the version, its net base changes, its view changes, and
the base rows as they are then. Whatever ends the process, the next one finds all of a version or nothing of it.

Without a lake the base rows are in the journal, and every version is settled. With a lake they are there, and a version is
settled once the lake has it; what is not settled is never trimmed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from rederive import failpoints
from rederive.errors import Closed, Mismatch
from rederive.ir.rules import Relation
from rederive.records import CatalogRecord, RecordedDelta, VersionRecord
from rederive.store.codec import encode_columns, encode_counts, encode_row, encode_rows
from rederive.store.journal.file import Lock, connect, create, guarded
from rederive.store.journal.rules import RuleJournal
from rederive.store.position import new_epoch


class Journal(RuleJournal):
    """The journal of one store, for its one writer.

    >>> from tempfile import TemporaryDirectory
    >>> from rederive.delta import Delta
    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER
    >>> n, noon = Relation("n", (Column("x", NUMBER),)), datetime(2024, 2, 29, 12)
    >>> with TemporaryDirectory() as folder:
    ...     journal = Journal.open(Path(folder))
    ...     journal.append([VersionRecord(1, noon, "resident", base=(RecordedDelta(n, Delta([(7,)])),))])
    ...     journal.close()
    ...     journal = Journal.open(Path(folder))
    ...     print(journal.version, journal.base_rows(), [entry.number for entry in journal.since(0)])
    ...     journal.close()
    1 {'n': [(7,)]} [1]
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: Lock, retention: int | None) -> None:
        super().__init__(folder, connection)
        self._make_rule_tables()
        self._make_epoch()
        self.retention = retention
        self._lock = lock
        self._ids = self._known_ids()

    @classmethod
    def open(cls, folder: Path, retention: int | None = None) -> Journal:
        """The journal of a folder, made where there is none. `retention`: how many versions are kept; None for all."""
        with guarded(folder):
            create(folder)
            lock = Lock.take(folder)
            try:
                return cls(folder, connect(folder), lock, retention)
            except BaseException:
                lock.release()
                raise

    def close(self) -> None:
        """Let go of the file and of its lock. Twice is once."""
        if not self.closed:
            super().close()
            self._lock.release()

    def _make_epoch(self) -> None:
        """A journal that was made before there were epochs gets one when it is opened."""
        self._connection.execute("CREATE TABLE IF NOT EXISTS epoch (id TEXT NOT NULL, since INTEGER NOT NULL)")
        self._connection.execute("CREATE TABLE IF NOT EXISTS lost_cursor (name TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        if not self._epochs():
            self._connection.execute("INSERT INTO epoch VALUES (?, ?)", (new_epoch(), self.version))

    def begin_epoch(self) -> str:
        """From now on this is another history: what is known of this one's later versions elsewhere is not of it."""
        epoch = new_epoch()
        with self._transaction("amend"):
            self._connection.execute("INSERT INTO epoch VALUES (?, ?)", (epoch, self.version))
            self._connection.execute("INSERT OR REPLACE INTO lost_cursor SELECT name, version FROM cursor")
            self._connection.execute("DELETE FROM cursor")
        return epoch

    # Versions

    def append(self, entries: Iterable[VersionRecord], catalog: CatalogRecord | None = None) -> None:
        """Commit versions, all or none, and the program that stands after them; on disk when this returns."""
        with self._transaction("append"):
            for entry in entries:
                self._append(entry)
            if catalog is not None:
                self._write_catalog(catalog)
            self._trim()
        failpoints.hit("journal.append:after")

    def append_bulk(self, entry: VersionRecord) -> None:
        """Commit a version whose changes are staged in the lake; `settle_to` follows once its tables have them."""
        if self.lake is None or entry.staged is None or entry.base or entry.views:
            raise Mismatch(
                "a bulk version has its changes staged in the store's lake", hint="attach a lake, and stage them there"
            )
        self.append([entry])

    def amend(self, catalog: CatalogRecord | None = None, base: Iterable[RecordedDelta] = ()) -> None:
        """Keep what makes no version: a program under which no view changed, and initial rows."""
        with self._transaction("amend"):
            if catalog is not None:
                self._write_catalog(catalog)
            for recorded in base:
                self._move(recorded)
        failpoints.hit("journal.amend:after")

    # Options and cursors

    def write_options(self, options: Mapping[str, str]) -> None:
        """Keep these options in place of what was there."""
        with self._transaction("amend"):
            self._connection.executemany("INSERT OR REPLACE INTO option VALUES (?, ?)", options.items())

    def cursor(self, name: str) -> int | None:
        """Refused where the subscription was last heard of before a restore: what it has may not be of this history."""
        if lost := self._query("SELECT version FROM lost_cursor WHERE name = ?", name):
            reason = f"'{name}' acknowledged version {lost[0][0]} or a later one before the store was restored"
            error = self._of_another_history(reason)
            error.hint = f"take the rows as they are now, then acknowledge version {self.version}"
            raise error
        return super().cursor(name)

    def acknowledge(self, name: str, version: int, at: datetime) -> None:
        """A named subscription has everything up to this version; a cursor never goes back."""
        self.check_committed(version)
        with self._transaction("amend"):
            self._connection.execute("DELETE FROM lost_cursor WHERE name = ?", (name,))
            self._connection.execute(
                "INSERT INTO cursor VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
                "SET version = excluded.version, at = excluded.at WHERE excluded.version > version",
                (name, version, at.isoformat()),
            )

    def forget(self, name: str) -> None:
        """Remove a cursor."""
        with self._transaction("amend"):
            self._connection.execute("DELETE FROM cursor WHERE name = ?", (name,))
            self._connection.execute("DELETE FROM lost_cursor WHERE name = ?", (name,))

    # Lake

    def attach_lake(self, uri: str) -> None:
        """From now on the base relations are in this lake, which must have them as they are at the present version."""
        if self.lake is not None:
            raise Mismatch(f"the store has a lake already: {self.lake}").at(str(self.folder))
        with self._transaction("attach"):
            self._connection.execute("INSERT INTO lake VALUES (?, ?)", (uri, self.version))
            self._connection.execute("DELETE FROM base")

    def move_lake(self, uri: str) -> None:
        """The lake is in another place now."""
        if self.lake is None:
            raise Mismatch("the store has no lake", hint="leave the lake out").at(str(self.folder))
        with self._transaction("amend"):
            self._connection.execute("UPDATE lake SET uri = ?", (uri,))

    def settle_to(self, version: int) -> None:
        """The lake has everything up to this version. Saying it twice is saying it once."""
        if self.lake is None:
            raise Mismatch("the store has no lake to settle into", hint="attach one first").at(str(self.folder))
        self.check_committed(version)
        with self._transaction("settle"):
            self._connection.execute("UPDATE lake SET settled = max(settled, ?)", (version,))
            self._trim()
        failpoints.hit("journal.settle:after")

    # How

    @contextmanager
    def _transaction(self, name: str) -> Iterator[None]:
        """All of a block or nothing."""
        if self.closed:
            raise Closed
        with guarded(self.folder):
            self._connection.execute("BEGIN IMMEDIATE")
            failpoints.hit(f"journal.{name}:begun")
            try:
                yield
                failpoints.hit(f"journal.{name}:written")
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite may have rolled back by itself
                    self._connection.execute("ROLLBACK")
                self._ids = self._known_ids()
                raise

    def _append(self, entry: VersionRecord) -> None:
        if entry.number != self.version + 1:
            raise Mismatch(f"version {entry.number} cannot follow version {self.version}")
        self._connection.execute(
            "INSERT INTO version VALUES (?, ?, ?, ?, ?, ?)",
            (entry.number, entry.at.isoformat(), entry.engine, entry.key, entry.digest, entry.staged),
        )
        for recorded in entry.base:
            self._write_delta(entry.number, "base", recorded)
        for recorded in entry.views:
            self._write_delta(entry.number, "view", recorded)
        if self.lake is None:
            for recorded in entry.base:
                self._move(recorded)
        for firing in entry.firings:
            self._write_firing(firing)

    def _write_delta(self, version: int, kind: str, recorded: RecordedDelta) -> None:
        delta = recorded.delta
        sides = (encode_rows(delta.plus), encode_rows(delta.minus), encode_counts(delta.counts))
        row = (version, kind, self._id(recorded.relation), *sides)
        self._connection.execute("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?)", row)

    def _move(self, recorded: RecordedDelta) -> None:
        """Apply the delta of a base relation to its rows in the journal."""
        relation, delta = self._id(recorded.relation), recorded.delta
        leaving, entering = (((relation, encode_row(row)) for row in rows) for rows in (delta.minus, delta.plus))
        self._connection.executemany("DELETE FROM base WHERE relation = ? AND row = ?", leaving)
        self._connection.executemany("INSERT OR IGNORE INTO base VALUES (?, ?)", entering)

    def _known_ids(self) -> dict[Relation, int]:
        return {relation: number for number, relation in self._relations().items()}

    def _id(self, relation: Relation) -> int:
        """A relation with these columns is known to the file by a number."""
        kept = replace(relation, monitored=None)
        if kept not in self._ids:
            insert = "INSERT INTO relation (name, columns) VALUES (?, ?)"
            number = self._connection.execute(insert, (relation.name, encode_columns(relation))).lastrowid
            assert number is not None
            self._ids[kept] = number
        return self._ids[kept]

    def _write_catalog(self, catalog: CatalogRecord) -> None:
        """Write what differs: texts are added far more often than changed."""
        pairs = zip(self.catalog.texts, catalog.texts, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rows = ((i, t.part, t.name, t.text, t.kept, t.language) for i, t in enumerate(catalog.texts) if i >= same)
        self._connection.execute("DELETE FROM text WHERE position >= ?", (same,))
        self._connection.executemany("INSERT INTO text VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._connection.execute("DELETE FROM followed")
        self._connection.executemany("INSERT INTO followed VALUES (?, ?)", catalog.followed.items())

    def _trim(self) -> None:
        """Forget versions beyond the retention; never one that is not settled, and never the last."""
        if self.retention is not None:
            horizon = min(self.version - self.retention, self.settled)
            self._connection.execute("DELETE FROM change WHERE version <= ?", (horizon,))
            self._connection.execute("DELETE FROM version WHERE number <= ?", (horizon,))
            self._trim_firings(horizon)
