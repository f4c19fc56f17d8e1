"""Reading a journal, as its writer or from another process."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rederive.delta import Delta, counted
from rederive.errors import Closed, CorruptStore, Expired, Mismatch, UnknownRelation
from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.records import DATALOG, CatalogRecord, DefinitionText, RecordedDelta, SourceVersion, VersionRecord, VersionSummary
from rederive.store.codec import decode_counts, decode_relation, decode_rows
from rederive.store.journal.file import connect_read_only, name_errors
from rederive.store.position import Position

_BATCH = 256  # versions that one query reads
_COUNTED = 10_000  # versions whose numbers of rows are remembered


class JournalReader:
    """The read-only side of a journal. Every answer is that of one committed version."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self.closed = False
        self._connection = connection
        self._counted: dict[tuple[int, str], dict[str, tuple[int, int]]] = {}

    @classmethod
    def read(cls, folder: Path) -> JournalReader:
        """Open the journal of a folder for reading. Another process may write it meanwhile."""
        with name_errors(folder):
            return JournalReader(folder, connect_read_only(folder))

    def close(self) -> None:
        """Close the file. Closing it again has no effect."""
        self.closed = True
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Versions

    @property
    def version(self) -> int:
        """The last committed version."""
        return self._number("SELECT coalesce(max(number), 0) FROM version")

    def reach(self, view: str | None = None) -> int:
        """The earliest version after which all changes are still recorded: of everything, or of one view."""
        # The first version that is retained leads from the one before it to itself.
        kept = self._number("SELECT coalesce(min(number) - 1, 0) FROM version")
        return kept if view is None else max(kept, self._recorded_since(view))

    def committed_at(self, version: int) -> str | None:
        """When a version was committed, as the journal has it; None if it has no such version, or no longer."""
        found = self._query("SELECT at FROM version WHERE number = ?", version)
        return str(found[0][0]) if found else None

    @property
    def epoch(self) -> str:
        """The epoch of this history; empty if the journal is older than epochs and no writer has opened it since."""
        found = self._epochs()
        return found[-1][0] if found else ""

    @property
    def is_restored(self) -> bool:
        """Whether this history continues a backup."""
        return len(self._epochs()) > 1

    @property
    def is_just_restored(self) -> bool:
        """Whether nothing has been committed since the restore."""
        return self.is_restored and self.version == self._epochs()[-1][1]

    def version_at(self, position: int | str | Position) -> int:
        """The version of a position in this history; raises Mismatch if the position is, or may be, of another history.

        An int is a version that this process has read from this journal. A saved number without an epoch means the same version
        in all histories of this store up to the first restore; a greater one may be a version that the restore lost.
        """
        if isinstance(position, int):
            return position
        given, epochs = Position.of(position), self._epochs()
        if given.epoch and given.epoch != self.epoch:
            raise self._other_history(f"the position {given} is of another history: this one is {self.epoch}")
        if not given.epoch and len(epochs) > 1 and given.version > (shared := epochs[1][1]):
            reason = f"version {given.version} may be of another history: the store was restored at version {shared}"
            raise self._other_history(reason)
        return given.version

    def _other_history(self, reason: str) -> Mismatch:
        hint = "take the current rows, and follow the changes from there"
        return Mismatch(reason, hint=hint).at(str(self.folder))

    def since(self, version: int, view: str | None = None) -> Iterator[VersionRecord]:
        """The versions after this one, in order, with all their changes or those of one view.

        Raises `Expired` if the journal no longer has some of them.
        """
        self._check_reach(version, view)
        return self._following(version, view)

    def find_key(self, key: str) -> VersionRecord | None:
        """The version that an idempotency key was used for, as long as the journal has it."""
        # The key is unique in the table; it is forgotten when its version is trimmed.
        found = self._query("SELECT number FROM version WHERE key = ?", key)
        return self._records(found[0][0] - 1, None, 1)[0] if found else None

    def sources(self) -> dict[str, SourceVersion]:
        """The commit of each attached table that the last version follows, by base relation."""
        return {row[0]: SourceVersion(*row) for row in self._query("SELECT relation, version, table_id FROM source")}

    def base_rows(self) -> dict[str, list[Row]]:
        """The base rows in the journal, by relation; none if the store has a lake."""
        rows: dict[str, list[Row]] = {}
        with name_errors(self.folder):
            # One relation at a time, by its primary key: the rows of a base relation are next to one another in the file.
            for number, relation in self._relations().items():
                texts = [text for (text,) in self._query("SELECT row FROM base WHERE relation = ?", number)]
                if texts:
                    rows[relation.name] = decode_rows(f"[{','.join(texts)}]", relation)
        return rows

    # Parts of versions, for those who look at a few of them

    def deltas(self, kind: str, name: str | None, after: int, until: int) -> list[tuple[int, RecordedDelta]]:
        """What the versions after one and up to another did to one relation, or to all; `kind` is `base` or `view`.

        Raises `Expired` if some of that is not in the journal.
        """
        self._check_reach(after, name if kind == "view" else None)
        staged = "SELECT min(number) FROM version WHERE number > ? AND number <= ? AND staged IS NOT NULL"
        if (bulk := self._query(staged, after, until)[0][0]) is not None:
            raise Expired(f"the changes of version {bulk} are in the lake alone", hint="read the table of the view there")
        found = self._changes(after, until, kind, name)
        return [(version, one) for version, kinds in sorted(found.items()) for one in kinds.get(kind, ())]

    def delta_bytes(self, kind: str, name: str, after: int, until: int) -> int:
        """About how much `deltas` would read, in characters."""
        sql = """SELECT coalesce(sum(length(plus) + length(minus)), 0) FROM change
                 JOIN relation ON relation.id = change.relation WHERE version > ? AND version <= ? AND kind = ? AND name = ?"""
        return int(self._query(sql, after, until, kind, name)[0][0])

    def summaries(self, after: int, until: int) -> list[VersionSummary]:
        """Which relations the versions after one and up to another changed, and by how many rows; no row is decoded."""
        numbers = "SELECT number, at, engine FROM version WHERE number > ? AND number <= ? ORDER BY number"
        found = self._query(numbers, after, until)
        # SQLite reads the whole text of a change to count its rows, and a version does not change: each is counted once.
        if unknown := [number for number, at, _ in found if (number, at) not in self._counted]:
            if len(self._counted) + len(found) > _COUNTED:
                self._counted.clear()
                unknown = [number for number, *_ in found]
            changed = self._count_rows(unknown[0] - 1, unknown[-1])
            self._counted |= {
                (number, at): changed.get(number, {}) for number, at, _ in found if unknown[0] <= number <= unknown[-1]
            }
        return [VersionSummary(number, at, engine, self._counted[number, at]) for number, at, engine in found]

    def _count_rows(self, after: int, until: int) -> dict[int, dict[str, tuple[int, int]]]:
        counts = "counts" if self._has_counts else "NULL"
        sql = f"""SELECT version, kind, name, json_array_length(plus), json_array_length(minus), {counts}
                  FROM change JOIN relation ON relation.id = change.relation WHERE version > ? AND version <= ?"""
        changed: dict[int, dict[str, tuple[int, int]]] = {}
        for version, _, name, plus, minus, counted_rows in self._query(sql, after, until):
            if counted_rows is not None:
                plus, minus = (sum(side) for side in json.loads(counted_rows))
            of_version = changed.setdefault(version, {})
            before = of_version.get(name, (0, 0))
            of_version[name] = (before[0] + plus, before[1] + minus)
        return changed

    def cursors(self) -> list[tuple[str, int, str]]:
        """The named subscribers, with the version that each has acknowledged, and when."""
        return [(str(name), int(version), str(at)) for name, version, at in self._query("SELECT name, version, at FROM cursor")]

    @property
    def defined_since(self) -> int:
        """The version from which on the current definitions hold; 0 if they were never changed, or nobody recorded when."""
        if not self._query("SELECT 1 FROM sqlite_master WHERE name = 'defined'"):
            return 0
        return self._number("SELECT coalesce(max(version), 0) FROM defined")

    # Program, options, cursors, lake

    @property
    def catalog(self) -> CatalogRecord:
        """The current definitions."""
        with self._snapshot():
            language = "language" if self._has_counts else f"'{DATALOG}'"
            texts = self._query(f"SELECT part, name, text, kept, {language} FROM text ORDER BY position")
            followed = self._query("SELECT name, since FROM followed ORDER BY name")
        return CatalogRecord(tuple(DefinitionText(*row) for row in texts), dict(followed))

    @property
    def options(self) -> dict[str, str]:
        """The stored options."""
        return dict(self._query("SELECT name, value FROM option"))

    def cursor(self, name: str) -> int | None:
        """The version up to which a named subscription has acknowledged everything."""
        found = self._query("SELECT version FROM cursor WHERE name = ?", name)
        return int(found[0][0]) if found else None

    @property
    def lake(self) -> str | None:
        """The root of the lake that holds the base relations; None without a lake."""
        found = self._query("SELECT uri FROM lake")
        return str(found[0][0]) if found else None

    @property
    def settled(self) -> int:
        """The version that the lake is settled to; without a lake, the last version."""
        found = self._query("SELECT settled FROM lake")
        return int(found[0][0]) if found else self.version

    def unsettled(self) -> Iterator[VersionRecord]:
        """The versions that the lake is not settled to yet, in order."""
        return self.since(self.settled)

    def staged_versions(self, upto: int) -> list[int]:
        """The unsettled versions up to this one whose changes are staged in the lake."""
        numbers = "SELECT number FROM version WHERE number > ? AND number <= ? AND staged IS NOT NULL"
        return [number for (number,) in self._query(numbers, self.settled, upto)]

    # How

    def _epochs(self) -> list[tuple[str, int]]:
        """The epochs, each with the version after which it begins: the first, and one more for each restore."""
        if not self._query("SELECT 1 FROM sqlite_master WHERE name = 'epoch'"):
            return []
        return [(str(epoch), int(since)) for epoch, since in self._query("SELECT id, since FROM epoch ORDER BY rowid")]

    def _query(self, sql: str, *parameters: object) -> list[Any]:
        if self.closed:
            raise Closed
        try:
            return self._connection.execute(sql, parameters).fetchall()
        except (sqlite3.Error, OSError):
            with name_errors(self.folder):
                raise

    def _number(self, sql: str) -> int:
        return int(self._query(sql)[0][0])

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Everything that is read inside comes from one committed state of the file."""
        if self.closed or self._connection.in_transaction:
            yield
            return
        # Deferred: the first read inside takes the snapshot, and a writer is not blocked.
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")

    def _relations(self) -> dict[int, Relation]:
        found = self._query("SELECT id, name, columns FROM relation ORDER BY id")
        return {number: decode_relation(name, columns) for number, name, columns in found}

    def _following(self, version: int, view: str | None) -> Iterator[VersionRecord]:
        while True:
            with self._snapshot():
                # The writer may trim versions between two batches: a gap is refused, never skipped.
                self._check_reach(version, view)
                records = self._records(version, view, _BATCH)
            if not records:
                return
            yield from records
            version = records[-1].number

    def _records(self, version: int, view: str | None, most: int) -> list[VersionRecord]:
        # Versions first, then the changes of exactly these: a version that changed nothing is still reported.
        versions = self._query(
            "SELECT number, at, engine, key, digest, staged FROM version WHERE number > ? ORDER BY number LIMIT ?", version, most
        )
        if not versions:
            return []
        changes = self._changes(version, versions[-1][0], "view" if view is not None else None, view)
        return [_record(row, changes.get(row[0], {})) for row in versions]

    def _changes(self, after: int, until: int, kind: str | None, name: str | None) -> dict[int, dict[str, list[RecordedDelta]]]:
        """The deltas of these versions by version and kind: all of them, or those of one relation."""
        counts = "counts" if self._has_counts else "NULL"
        sql = f"""SELECT version, kind, name, columns, plus, minus, {counts}
                  FROM change JOIN relation ON relation.id = change.relation
                  WHERE version > ?1 AND version <= ?2 AND (?3 IS NULL OR kind = ?3) AND (?4 IS NULL OR name = ?4)
                  ORDER BY version, kind, name, relation.id"""
        found: dict[int, dict[str, list[RecordedDelta]]] = {}
        rows = self._query(sql, after, until, kind, name)
        if not rows:
            return found
        with name_errors(self.folder):
            for version, of, changed, *change in rows:
                found.setdefault(version, {}).setdefault(of, []).append(_recorded(changed, *change))
        return found

    @property
    def _has_counts(self) -> bool:
        """Whether the format has languages and counts. A reader may see format 1 until a writer has migrated the file."""
        return self._number("PRAGMA user_version") > 1

    def check_committed(self, version: int) -> None:
        """Raise Mismatch for a version that does not exist."""
        if not 0 <= version <= self.version:
            raise Mismatch(f"there is no version {version}: the last one is {self.version}").at(str(self.folder))

    def _check_reach(self, version: int, view: str | None) -> None:
        """Raise Expired if changes after a version are missing: trimmed, or never recorded."""
        self.check_committed(version)
        if version < (first := self.reach(view)):
            raise Expired(
                f"the changes after version {version} are not stored: they reach back to version {first}",
                hint="take the current rows, and follow the changes from there",
            ).at(str(self.folder))

    def _recorded_since(self, view: str) -> int:
        # A view that was dropped stays in the table: its recorded changes can still be read.
        followed = dict(self._query("SELECT name, since FROM followed"))
        if view not in followed:
            raise UnknownRelation(view, (name for name, since in followed.items() if since is not None))
        if followed[view] is None:
            raise Mismatch(f"the changes of '{view}' are not recorded: it is not monitored", hint="name it in an .output")
        return int(followed[view])


def _recorded(name: str, columns: str, plus: str, minus: str, counts: str | None) -> RecordedDelta:
    relation = decode_relation(name, columns)
    entering, leaving = decode_rows(plus, relation), decode_rows(minus, relation)
    numbers = decode_counts(counts, entering, leaving) or (None, None)
    return RecordedDelta(relation, Delta(counted(entering, numbers[0]), counted(leaving, numbers[1])))


def _record(row: Sequence[Any], changes: Mapping[str, Sequence[RecordedDelta]]) -> VersionRecord:
    number, at, engine, key, digest, staged = row
    try:
        when = datetime.fromisoformat(at)
    except ValueError as error:
        raise CorruptStore(f"version {number}: {error}") from None
    return VersionRecord(
        number, when, engine, tuple(changes.get("base", ())), tuple(changes.get("view", ())), key, digest, staged
    )
