"""Writing the journal: everything that a database must find again, in one SQLite file.

A commit is one SQLite transaction, which is synced before `append` returns. It contains the version, the net effect on base
relations, the changes of views, the firings, and the base rows after it. So after a kill at any point the next process finds all
of a version or nothing of it.

Without a lake the journal holds the base rows, and every version counts as settled. Otherwise the lake has them, and a version
is settled once all tables have it. A version that is not settled is never trimmed, because only the journal has its changes.
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
from rederive.records import CatalogRecord, RecordedDelta, SourceVersion, VersionRecord
from rederive.store.codec import encode_columns, encode_counts, encode_row, encode_rows
from rederive.store.journal.file import StoreLock, connect, create_folder, name_errors
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
    ...     print(journal.version, journal.base_rows(), [record.number for record in journal.since(0)])
    ...     journal.close()
    1 {'n': [(7,)]} [1]
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, lock: StoreLock, retention: int | None) -> None:
        super().__init__(folder, connection)
        self._ensure_rule_tables()
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS source (relation TEXT PRIMARY KEY, version INTEGER NOT NULL, table_id TEXT NOT NULL)"
        )
        self.retention = retention
        self._lock = lock
        self._read_back()
        self._ensure_epoch()
        self._ensure_defined()

    def _read_back(self) -> None:
        """Read what the writer knows of its file from then on: nobody else changes it, so no commit has to ask for it."""
        self._version, self._lake = super().version, super().lake
        self._ids = {relation: number for number, relation in self._relations().items()}

    @property
    def version(self) -> int:
        """The last committed version."""
        self._check_open()
        return self._version

    @property
    def lake(self) -> str | None:
        """The root of the lake that holds the base relations; None without a lake."""
        self._check_open()
        return self._lake

    def _check_open(self) -> None:
        if self.closed:
            raise Closed

    @classmethod
    def open(cls, folder: Path, retention: int | None = None) -> Journal:
        """Open the journal of a folder, and create it if there is none. `retention`: how many versions it holds; None for all."""
        with name_errors(folder):
            create_folder(folder)
            lock = StoreLock.take(folder)
            try:
                return cls(folder, connect(folder), lock, retention)
            except BaseException:
                lock.release()
                raise

    def close(self) -> None:
        """Close the file and release its lock. Closing it again has no effect."""
        if not self.closed:
            super().close()
            self._lock.release()

    def _ensure_epoch(self) -> None:
        """Give an epoch to a journal that has none: a new one, or one that is older than epochs."""
        self._connection.execute("CREATE TABLE IF NOT EXISTS epoch (id TEXT NOT NULL, since INTEGER NOT NULL)")
        self._connection.execute("CREATE TABLE IF NOT EXISTS lost_cursor (name TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        if not self._epochs():
            self._connection.execute("INSERT INTO epoch VALUES (?, ?)", (new_epoch(), self.version))

    def _ensure_defined(self) -> None:
        """Begin to record since when the current definitions hold: in an older journal, from its present version on."""
        self._connection.execute("CREATE TABLE IF NOT EXISTS defined (version INTEGER NOT NULL)")
        if not self._query("SELECT 1 FROM defined"):
            self._connection.execute("INSERT INTO defined VALUES (?)", (self.version,))

    def begin_epoch(self) -> str:
        """Begin another history after the present version: positions of the old one after it are refused from now on."""
        epoch = new_epoch()
        with self._transaction("amend"):
            self._connection.execute("INSERT INTO epoch VALUES (?, ?)", (epoch, self.version))
            # Subscribers may have acknowledged versions that the backup lacks. Their cursors are set aside, and reading one is
            # refused until its subscriber acknowledges again (decision 0057).
            self._connection.execute("INSERT OR REPLACE INTO lost_cursor SELECT name, version FROM cursor")
            self._connection.execute("DELETE FROM cursor")
        return epoch

    # Versions

    def append(self, records: Iterable[VersionRecord], catalog: CatalogRecord | None = None) -> None:
        """Commit versions, all or none, and the definitions after them, if these change; on disk when this returns."""
        with self._transaction("append"):
            for record in records:
                self._append(record)
            if catalog is not None:
                self._write_catalog(catalog)
            self._trim()
        failpoints.hit("journal.append:after")

    def append_bulk(self, record: VersionRecord) -> None:
        """Commit a version whose changes are staged in the lake. `settle_to` follows once the tables have them."""
        if self.lake is None or record.staged is None or record.base or record.views:
            raise Mismatch(
                "the changes of a bulk version must be staged in the store's lake", hint="attach a lake, and stage them there"
            )
        self.append([record])

    def amend(
        self,
        catalog: CatalogRecord | None = None,
        base: Iterable[RecordedDelta] = (),
        sources: Iterable[SourceVersion] = (),
    ) -> None:
        """Write what makes no version: definitions that change no view, initial rows, commits of sources without a change."""
        with self._transaction("amend"):
            if catalog is not None:
                self._write_catalog(catalog)
            for recorded in base:
                self._apply_to_base(recorded)
            self._write_sources(sources)
        failpoints.hit("journal.amend:after")

    # Options and cursors

    def write_options(self, options: Mapping[str, str]) -> None:
        """Replace the stored options."""
        with self._transaction("amend"):
            self._connection.executemany("INSERT OR REPLACE INTO option VALUES (?, ?)", options.items())

    def cursor(self, name: str) -> int | None:
        """Raises Mismatch if the subscription last acknowledged before a restore: what it has may be of another history."""
        if lost := self._query("SELECT version FROM lost_cursor WHERE name = ?", name):
            reason = f"'{name}' acknowledged version {lost[0][0]} or a later one before the store was restored"
            error = self._other_history(reason)
            error.hint = f"take the current rows, then acknowledge version {self.version}"
            raise error
        return super().cursor(name)

    def acknowledge(self, name: str, version: int, at: datetime) -> None:
        """Record that a named subscription has everything up to this version. A cursor never goes back."""
        self.check_committed(version)
        with self._transaction("amend"):
            self._connection.execute("DELETE FROM lost_cursor WHERE name = ?", (name,))
            self._connection.execute(
                "INSERT INTO cursor VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
                "SET version = excluded.version, at = excluded.at WHERE excluded.version > version",
                (name, version, at.isoformat()),
            )

    def delete_cursor(self, name: str) -> None:
        """Delete the cursor of a named subscription."""
        with self._transaction("amend"):
            self._connection.execute("DELETE FROM cursor WHERE name = ?", (name,))
            self._connection.execute("DELETE FROM lost_cursor WHERE name = ?", (name,))

    # Lake

    def attach_lake(self, uri: str) -> None:
        """Hand the base relations over to a lake, which must have them as of the present version already."""
        if self.lake is not None:
            raise Mismatch(f"the store already has a lake: {self.lake}").at(str(self.folder))
        with self._transaction("attach"):
            # One transaction: at every moment either the journal or the lake holds the base rows.
            self._connection.execute("INSERT INTO lake VALUES (?, ?)", (uri, self.version))
            self._connection.execute("DELETE FROM base")
            self._lake = uri

    def move_lake(self, uri: str) -> None:
        """Record that the lake is at another location now."""
        if self.lake is None:
            raise Mismatch("the store has no lake", hint="leave the lake out").at(str(self.folder))
        with self._transaction("amend"):
            self._connection.execute("UPDATE lake SET uri = ?", (uri,))
            self._lake = uri

    def settle_to(self, version: int) -> None:
        """Record that the lake is settled to this version. Recording it again has no effect."""
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
        """Commit all that a block writes, or nothing of it."""
        self._check_open()
        try:
            # Takes SQLite's write lock now. A deferred transaction would fail at its first write instead.
            self._connection.execute("BEGIN IMMEDIATE")
            failpoints.hit(f"journal.{name}:begun")
            yield
            failpoints.hit(f"journal.{name}:written")
            self._connection.execute("COMMIT")
        except BaseException:
            with name_errors(self.folder):
                if self._connection.in_transaction:  # after some errors, such as a full disk, SQLite has rolled back already
                    self._connection.execute("ROLLBACK")
                # Versions and numbers of relations that the transaction gave do not exist.
                self._read_back()
                raise

    def _append(self, record: VersionRecord) -> None:
        # Versions have no gaps: the number of a version is how many there are.
        if record.number != self.version + 1:
            raise Mismatch(f"version {record.number} cannot follow version {self.version}")
        self._connection.execute(
            "INSERT INTO version VALUES (?, ?, ?, ?, ?, ?)",
            (record.number, record.at.isoformat(), record.engine, record.key, record.digest, record.staged),
        )
        self._version = record.number
        for recorded in record.base:
            self._write_delta(record.number, "base", recorded)
        for recorded in record.views:
            self._write_delta(record.number, "view", recorded)
        if self.lake is None:
            for recorded in record.base:
                self._apply_to_base(recorded)
        for firing in record.firings:
            self._write_firing(firing)
        # In the transaction of the version: after a kill, no commit of a source is applied twice or left out.
        self._write_sources(record.sources)

    def _write_sources(self, sources: Iterable[SourceVersion]) -> None:
        rows = ((one.relation, one.version, one.table_id) for one in sources)
        self._connection.executemany("INSERT OR REPLACE INTO source VALUES (?, ?, ?)", rows)

    def _write_delta(self, version: int, kind: str, recorded: RecordedDelta) -> None:
        delta = recorded.delta
        sides = (encode_rows(delta.plus), encode_rows(delta.minus), encode_counts(delta.counts))
        row = (version, kind, self._id(recorded.relation), *sides)
        self._connection.execute("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?)", row)

    def _apply_to_base(self, recorded: RecordedDelta) -> None:
        """Apply the delta of a base relation to its rows in the journal."""
        relation, delta = self._id(recorded.relation), recorded.delta
        leaving, entering = (((relation, encode_row(row)) for row in rows) for rows in (delta.minus, delta.plus))
        self._connection.executemany("DELETE FROM base WHERE relation = ? AND row = ?", leaving)
        self._connection.executemany("INSERT OR IGNORE INTO base VALUES (?, ?)", entering)

    def _id(self, relation: Relation) -> int:
        """The number of a relation with these columns in the file; a new relation gets one."""
        # The file knows a relation by its name, columns and key; being monitored is not a part of that.
        kept = replace(relation, monitored=None)
        if kept not in self._ids:
            insert = "INSERT INTO relation (name, columns) VALUES (?, ?)"
            number = self._connection.execute(insert, (relation.name, encode_columns(relation))).lastrowid
            assert number is not None
            self._ids[kept] = number
        return self._ids[kept]

    def _write_catalog(self, catalog: CatalogRecord) -> None:
        """Write the texts that differ. Common is a new text at the end, so equal texts at the beginning stay."""
        pairs = zip(self.catalog.texts, catalog.texts, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rows = ((i, t.part, t.name, t.text, t.kept, t.language) for i, t in enumerate(catalog.texts) if i >= same)
        self._connection.execute("DELETE FROM text WHERE position >= ?", (same,))
        self._connection.executemany("INSERT INTO text VALUES (?, ?, ?, ?, ?, ?)", rows)
        # A past state is one of the current definitions only from this version on.
        self._connection.execute("DELETE FROM defined")
        self._connection.execute("INSERT INTO defined VALUES (?)", (self.version,))
        self._connection.execute("DELETE FROM followed")
        self._connection.executemany("INSERT INTO followed VALUES (?, ?)", catalog.followed.items())

    def _trim(self) -> None:
        """Delete versions beyond the retention, but none that is not settled."""
        if self.retention is not None:
            # The horizon is a version: those up to it go. Idempotency keys go with their versions.
            horizon = min(self.version - self.retention, self.settled)
            self._connection.execute("DELETE FROM change WHERE version <= ?", (horizon,))
            self._connection.execute("DELETE FROM version WHERE number <= ?", (horizon,))
            self._trim_firings(horizon)
