"""A database's store: what it writes to its journal and its lake, and what it reads from them.

A version is committed by one synced SQLite transaction of the journal. With a lake, a bulk version is first staged as files that
the journal then names; the tables of the lake follow the journal later (`lake_sync`). What opening does: `recovery`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rederive.catalog import Catalog, CatalogChange, followed
from rederive.delta import Delta, Sign
from rederive.engines.protocol import Operation
from rederive.errors import Conflict, Expired, StoreError, UnknownOption
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import UTC as UTC_NAME
from rederive.ir.terms import Row
from rederive.records import CatalogRecord, RecordedDelta, VersionRecord
from rederive.result import Change, Result
from rederive.store.codec import digest
from rederive.store.journal.file import name_errors
from rederive.store.journal.writer import Journal
from rederive.store.recovery import StoreOptions, reconcile_options, recover_base_rows

if TYPE_CHECKING:
    from rederive.store.lake_sync import LakeSync

Net = Mapping[str, Delta]


class Store:
    """The durable side of one database."""

    def __init__(self, journal: Journal, options: StoreOptions) -> None:
        self.journal = journal
        self.options = options
        self.lake: LakeSync | None = None
        self.saved = 0  # the version of the checkpoint next to the journal; 0 without one that fits
        self.unsaved_rows = 0  # base rows that changed since that version, or since this process began

    @classmethod
    def open(cls, folder: Path, given: StoreOptions, retention: int | None = None, *, zone: str = UTC_NAME) -> Store:
        """The store of a folder, which is created if there is none. `zone`: the time zone of a new store."""
        if retention is not None and retention < 1:
            raise UnknownOption("retention", str(retention), ())
        journal = Journal.open(folder, retention)
        try:
            with name_errors(folder):
                return cls(journal, reconcile_options(journal, given, zone))
        except BaseException:
            journal.close()
            raise

    def close(self) -> None:
        """Wait for the lake, and release the journal."""
        if self.lake is not None and not self.journal.closed:
            # The settling thread reads the journal, so it ends before the journal is closed.
            self.lake.wait()
            self.lake.note_progress()
        self.journal.close()

    # Recovery

    def catalog(self) -> Catalog:
        """The definitions of the last committed version, compiled."""
        with name_errors(self.journal.folder):
            return Catalog.of(self.journal.catalog.texts, self.options.zone)

    def base_rows(self, program: Program) -> Mapping[str, Collection[Row]]:
        """The base rows at the last committed version, by base relation."""
        return recover_base_rows(self.journal, self.lake, program)

    # Writing

    def is_bulk(self, net: Net, result: Result) -> bool:
        """Whether the changes of a version are staged in the lake instead of written to the journal."""
        return self.lake is not None and self.lake.is_bulk(net, result.changes)

    def version_record(
        self, program: Program, net: Net, result: Result, signs: frozenset[Sign], key: str | None, used_for: str | None
    ) -> VersionRecord:
        """The record of a version, for `append`. `used_for`: the digest of the operations that the key is used for.

        The changes of a bulk version are written to the lake here. Until the journal names them nobody reads them: after a kill
        the next opening removes them.
        """
        record = self._record(program, program, net, result, signs)
        return replace(record, key=key, digest=used_for, firings=result.firings)

    def append(self, records: Sequence[VersionRecord]) -> None:
        """Commit versions, all or none; they are on disk when this returns. A bulk version is committed alone."""
        self._count_changes(records)
        match records:
            case [VersionRecord(staged=str()) as bulk]:
                self.journal.append_bulk(bulk)
            case _:
                self.journal.append(records)

    def _count_changes(self, records: Sequence[VersionRecord]) -> None:
        self.unsaved_rows += sum(len(one.delta.plus) + len(one.delta.minus) for record in records for one in record.base)

    def redefine(self, before: Program, step: CatalogChange, net: Net, result: Result | None, signs: frozenset[Sign]) -> bool:
        """Commit new definitions, with the version that they make, if any; returns whether that is a bulk version."""
        after = step.after.program
        if self.lake is not None:
            # Before anything is written: a change table cannot hold rows of two shapes.
            self.lake.prepare_columns(before, after)
        # A view is followed from the version that defines it on; without a version, from the present one.
        version = result.version if result is not None else self.journal.version
        catalog = CatalogRecord(step.after.texts(), followed(before, after, self.journal.catalog.followed, version))
        if result is None:
            self.journal.amend(catalog, sources=step.sources)
            return False
        record = replace(self._record(before, after, net, result, signs), sources=step.sources)
        self._count_changes([record])
        self.journal.append([record], catalog)
        return record.staged is not None

    def _record(self, before: Program, after: Program, net: Net, result: Result, signs: frozenset[Sign]) -> VersionRecord:
        # Only views that the program itself monitors are recorded: those that a subscription adds come and go with it.
        recorded = {*before.monitored, *after.monitored}
        changes = {view: change.only(signs) for view, change in result.changes.items() if view in recorded}
        now = datetime.now(UTC)
        if self.lake is not None and self.is_bulk(net, result):
            staged = self.lake.stage(before, after, result.version, net, changes)
            return VersionRecord(result.version, now, result.engine, staged=staged)
        views = _view_deltas({view: change for view, change in changes.items() if change}, before, after)
        return VersionRecord(result.version, now, result.engine, tuple(_base_deltas(net, before, after)), tuple(views))

    def acknowledge(self, name: str, version: int) -> None:
        """Record that a named subscription has everything up to this version."""
        self.journal.acknowledge(name, version, datetime.now(UTC))

    # Reading

    def find_result(self, key: str, operations: Sequence[Operation]) -> Result | None:
        """The result of the version that an idempotency key was used for; None if it was not used yet."""
        record = self.journal.find_key(key)
        if record is None:
            return None
        if record.digest != digest(operations):
            raise Conflict(
                f"the key '{key}' was used for another transaction, version {record.number}",
                hint="use a new key for each transaction",
            )
        changes = {change.view: change for change in self.changes_of(record)}
        # All costs are zero: a repetition computes nothing.
        return Result(record.number, changes, record.engine, self.options.strategy, 0.0, 0, {}, 0, {}, 0, 0, repeated=True)

    def changes(self, view: str, since: int) -> Iterator[Change]:
        """The changes of a view after a version, with the columns that it had at each."""
        records = self.journal.since(since, view)  # raises an error here if the changes are missing, not at the first `next`
        return (change for record in records for change in self.changes_of(record) if change.view == view)

    def history(self, program: Program, views: Sequence[str], since: int) -> Iterator[tuple[int, dict[str, Change]]]:
        """The versions after `since` with the changes of several views."""
        records = (self.recorded_changes(program.relations.get(view, Relation(view, ())), since) for view in views)
        # Every view's changes come in the order of versions, so merging them holds one change of each view in memory.
        found = merge(*records, key=lambda change: change.version)
        for version, changes in groupby(found, key=lambda change: change.version):
            yield version, {change.view: change for change in changes}

    def recorded_changes(self, view: Relation, since: int) -> Iterator[Change]:
        """The changes of a view after a version; raises `Expired` if the view had other columns then."""
        for record in self.journal.since(since, view.name):
            for recorded in record.views:
                if not _has_columns_of(recorded.relation, view):
                    hint = "take the current rows, and follow the changes from there"
                    raise Expired(f"'{view.name}' had other columns at version {record.number}", hint=hint)
            yield from (change for change in self.changes_of(record) if change.view == view.name)

    def changes_of(self, record: VersionRecord) -> list[Change]:
        """The changes of views at a version; those of a bulk version are read from the lake."""
        if record.staged is None or self.lake is None:
            return changes_of(record)
        return changes_of(replace(record, staged=None, views=tuple(self.lake.changes(record, self.catalog().program))))


# What a version did, as it is recorded and as subscribers see it


def changes_of(record: VersionRecord) -> list[Change]:
    """The changes of views at a version, as subscribers were notified of them. The record holds those of a small version."""
    if record.staged is not None:
        raise StoreError(f"version {record.number} is a bulk version: its changes are in the lake, at {record.staged}")
    views: dict[str, list[RecordedDelta]] = {}
    for recorded in record.views:
        views.setdefault(recorded.relation.name, []).append(recorded)
    return [_change_of(record.number, view) for view in views.values()]


def _change_of(version: int, recorded: Sequence[RecordedDelta]) -> Change:
    # A view whose columns changed is recorded twice: the rows that left have the old columns, those that entered the new.
    plus = next((one for one in recorded if one.delta.plus), recorded[0])
    minus = next((one for one in recorded if one.delta.minus), recorded[0])
    return Change(version, plus.relation.name, Delta(plus.delta.plus, minus.delta.minus), plus.relation, minus.relation)


def _view_deltas(changes: Mapping[str, Change], before: Program, after: Program) -> Iterator[RecordedDelta]:
    """The changes of views with the columns of their rows. Rows that leave may have other columns than the view has now."""
    for view, change in changes.items():
        delta, old, new = change.ordered, before.relations.get(view), after.relations.get(view)
        if old is not None and new is not None and old.columns != new.columns:
            sides = (RecordedDelta(old, Delta(minus=delta.minus)), RecordedDelta(new, Delta(plus=delta.plus)))
            yield from (side for side in sides if side.delta)
        elif (relation := new or old) is not None:
            yield RecordedDelta(relation, delta)


def _base_deltas(net: Mapping[str, Delta], before: Program, after: Program) -> Iterator[RecordedDelta]:
    """The net effect on base relations; rows that leave with a relation, or with its columns, have the columns of the old one."""
    for name, delta in net.items():
        is_shared = before is after or (name in before.relations and before.shares_base(name, after))
        if name in after.bases and (is_shared or delta.plus):
            yield RecordedDelta(after.relations[name], Delta(tuple(delta.plus), tuple(delta.minus) if is_shared else ()))
        if not is_shared and delta.minus:
            yield RecordedDelta(before.relations[name], Delta(minus=tuple(delta.minus)))


def _has_columns_of(recorded: Relation, view: Relation) -> bool:
    """Whether the columns of a recorded delta have the names and types that the view has now."""
    # Nullability and width may change without invalidating rows that are recorded already.
    return [(c.name, c.type) for c in recorded.columns] == [(c.name, c.type) for c in view.columns]
