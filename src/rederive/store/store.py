"""A database's store: what it writes to its journal, and what it finds there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rederive.catalog import Catalog, CatalogChange, followed
from rederive.delta import Delta, Sign
from rederive.engines.protocol import Engine, Operation
from rederive.errors import Conflict, CorruptStore, Expired, Mismatch, StoreError, UnknownOption
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import UTC as UTC_NAME
from rederive.ir.terms import Row, Type
from rederive.maintain.plan import AUTO, check_strategy
from rederive.records import CatalogRecord, RecordedDelta, VersionRecord
from rederive.result import Change, Result
from rederive.store.codec import digest
from rederive.store.journal.file import guarded
from rederive.store.journal.reader import JournalReader
from rederive.store.journal.writer import Journal

if TYPE_CHECKING:
    from rederive.store.lake_sync import LakeSync

Net = Mapping[str, Delta]


@dataclass(frozen=True, slots=True)
class Options:
    """What a database is opened with. In a store the empty text stands for an option that was not given."""

    strategy: str
    precision: str
    only: str
    zone: str = ""


class Store:
    """The durable side of one database."""

    def __init__(self, journal: Journal, options: Options) -> None:
        self.journal = journal
        self.options = options
        self.lake: LakeSync | None = None

    @classmethod
    def open(cls, folder: Path, given: Options, retention: int | None = None, *, zone: str = UTC_NAME) -> Store:
        """The store of a folder, made where there is none. What recorded changes depend on stays as the store was made with.

        `zone`: the time zone of a new store.
        """
        if retention is not None and retention < 1:
            raise UnknownOption("retention", str(retention), ())
        journal = Journal.open(folder, retention)
        try:
            with guarded(folder):
                return cls(journal, _settled_options(journal, given, zone))
        except BaseException:
            journal.close()
            raise

    def close(self) -> None:
        if self.lake is not None and not self.journal.closed:
            self.lake.wait()
            self.lake.note()
        self.journal.close()

    # What is found on opening

    def definitions(self) -> Catalog:
        with guarded(self.journal.folder):
            return Catalog.of(self.journal.catalog.texts, self.options.zone)

    def base_rows(self, program: Program) -> Mapping[str, Collection[Row]]:
        """The base rows at the last version."""
        if self.lake is not None:
            self.lake.clean()
            self.lake.attach(program)
            self.lake.settle(program, {})
            return self.lake.base(program)
        with guarded(self.journal.folder):
            if (lake := self.journal.lake) is not None:
                raise Mismatch(f"the base relations of this store are in a lake: {lake}", hint="open it with that lake")
            rows = self.journal.base_rows()
            for name in rows:
                if name not in program.bases:
                    raise CorruptStore(f"there are rows of '{name}', which is no base relation of the program")
            return rows

    # What is written

    def bulky(self, net: Net, result: Result) -> bool:
        """Whether a version's changes go beside the tables of the lake, and not into the journal."""
        return self.lake is not None and self.lake.bulky(net, result.changes)

    def entry(
        self, program: Program, net: Net, result: Result, signs: frozenset[Sign], key: str | None, used_for: str | None
    ) -> VersionRecord:
        """One version as the journal keeps it."""
        entry = self._entry(program, program, net, result, signs)
        return replace(entry, key=key, digest=used_for, firings=result.firings)

    def append(self, entries: Sequence[VersionRecord]) -> None:
        """Keep versions, all or none; when this returns, they are on disk. A bulk version comes alone."""
        match entries:
            case [VersionRecord(staged=str()) as bulk]:
                self.journal.append_bulk(bulk)
            case _:
                self.journal.append(entries)

    def redefine(self, before: Program, step: CatalogChange, net: Net, result: Result | None, signs: frozenset[Sign]) -> bool:
        """Keep a program, and the version that it made where it made one; whether that is a bulk version."""
        after = step.after.program
        if self.lake is not None:
            self.lake.check_columns(before, after)
        version = result.version if result is not None else self.journal.version
        catalog = CatalogRecord(step.after.texts(), followed(before, after, self.journal.catalog.followed, version))
        if result is None:
            self.journal.amend(catalog)
            return False
        entry = self._entry(before, after, net, result, signs)
        self.journal.append([entry], catalog)
        return entry.staged is not None

    def _entry(self, before: Program, after: Program, net: Net, result: Result, signs: frozenset[Sign]) -> VersionRecord:
        """Only views that the program itself monitors are recorded: those that a subscription added come and go with it.

        The changes of a bulk version are staged in the lake.
        """
        recorded = {*before.monitored, *after.monitored}
        parts = {view: change.only(signs) for view, change in result.changes.items() if view in recorded}
        if self.lake is not None and self.bulky(net, result):
            staged = self.lake.stage(before, after, result.version, net, parts)
            return VersionRecord(result.version, datetime.now(UTC), result.engine, staged=staged)
        views = chain.from_iterable(_recorded(view, part, before, after) for view, part in parts.items() if part)
        return VersionRecord(result.version, datetime.now(UTC), result.engine, _base_deltas(before, after, net), tuple(views))

    # What was written

    def repeated(self, key: str, operations: Sequence[Operation]) -> Result | None:
        """The result of the version that this key was used for, if it was."""
        entry = self.journal.by_key(key)
        if entry is None:
            return None
        if entry.digest != digest(operations):
            raise Conflict(
                f"the key '{key}' was used for another transaction, version {entry.number}",
                hint="a key stands for one transaction",
            )
        changes = {change.view: change for change in self.changes_of(entry)}
        return Result(entry.number, changes, entry.engine, self.options.strategy, 0.0, 0, {}, 0, {}, 0, 0, repeated=True)

    def changes(self, view: str, since: int) -> Iterator[Change]:
        return (change for entry in self.journal.since(since, view) for change in self.changes_of(entry) if change.view == view)

    def history(self, program: Program, views: Sequence[str], since: int) -> Iterator[tuple[int, dict[str, Change]]]:
        """Versions with the changes of several views, merged from the record of each."""
        records = (self.recorded(program.relations.get(view, Relation(view, ())), since) for view in views)
        found = merge(*records, key=lambda change: change.version)
        for version, changes in groupby(found, key=lambda change: change.version):
            yield version, {change.view: change for change in changes}

    def recorded(self, view: Relation, since: int) -> Iterator[Change]:
        """The changes of a view after a version; refused with `Expired` where it had other columns."""
        for entry in self.journal.since(since, view.name):
            for changed in entry.views:
                if _columns(changed.relation) != _columns(view):
                    hint = "take the rows as they are now, and follow the changes from there"
                    raise Expired(f"'{view.name}' had other columns at version {entry.number}", hint=hint)
            yield from (change for change in self.changes_of(entry) if change.view == view.name)

    def changes_of(self, entry: VersionRecord) -> list[Change]:
        """The view changes of a version, as they were announced; those of a bulk version are in the lake."""
        if entry.staged is None or self.lake is None:
            return changes_of(entry)
        return changes_of(replace(entry, staged=None, views=tuple(self.lake.changes(entry, self.definitions().program))))

    def acknowledge(self, name: str, version: int) -> None:
        self.journal.acknowledge(name, version, datetime.now(UTC))


def stored_zone(folder: Path) -> str | None:
    """The time zone of the store in a folder; None where there is no store. What is wrong with one is said when it is opened."""
    try:
        with JournalReader.read(folder) as journal:
            return journal.options.get("zone", UTC_NAME)
    except (StoreError, OSError):
        return None


def _columns(relation: Relation) -> list[tuple[str, Type]]:
    return [(column.name, column.type) for column in relation.columns]


def changes_of(entry: VersionRecord) -> list[Change]:
    """The view changes of a version, as they were announced."""
    if entry.staged is not None:
        raise StoreError(f"version {entry.number} is a bulk version: its changes are in the lake, at {entry.staged}")
    views: dict[str, Delta] = {}
    for recorded in entry.views:
        # a view that was given other columns is there twice: what left had the old ones, what entered has the new ones
        name, delta = recorded.relation.name, recorded.delta
        other = views.get(name, Delta())
        views[name] = Delta(delta.plus or other.plus, delta.minus or other.minus)
    return [Change(entry.number, name, delta) for name, delta in views.items()]


def _recorded(view: str, change: Change, before: Program, after: Program) -> list[RecordedDelta]:
    """The delta of a view with the columns that its rows have: those that leave may have had others."""
    delta, old, new = change.ordered, before.relations.get(view), after.relations.get(view)
    if old is None or new is None or old.columns == new.columns:
        relation = new or old
        assert relation is not None
        return [RecordedDelta(relation, delta)]
    sides = (RecordedDelta(old, Delta(minus=delta.minus)), RecordedDelta(new, Delta(plus=delta.plus)))
    return [side for side in sides if side.delta]


def vanishing(engine: Engine, before: Program, after: Program) -> dict[str, Delta]:
    """The rows of base relations that another program does not have."""
    gone = {name: tuple(engine.rows(name, {})) for name in before.bases if name not in after.bases}
    return {name: Delta(minus=rows) for name, rows in gone.items() if rows}


def _base_deltas(before: Program, after: Program, net: Net) -> tuple[RecordedDelta, ...]:
    rows = {name: Delta(tuple(delta.plus), tuple(delta.minus)) for name, delta in net.items()}
    return tuple(RecordedDelta(_declared(name, before, after), delta) for name, delta in rows.items())


def _declared(name: str, before: Program, after: Program) -> Relation:
    return after.relations[name] if name in after.bases else before.relations[name]


def _settled_options(journal: Journal, given: Options, zone: str) -> Options:
    """Options as they hold from now on. The strategy may change; the others decide what the recorded changes mean.

    A store that says nothing of a time zone was made when all were in UTC.
    """
    kept = journal.options
    defaults = {"zone": UTC_NAME} | kept if kept else {"strategy": AUTO, "precision": "exact", "only": "", "zone": zone}
    for name in ("precision", "only", "zone") if kept else ():
        wanted = getattr(given, name)
        if wanted and wanted != defaults[name]:
            raise Mismatch(
                f"the store is kept with {name} '{defaults[name]}', not '{wanted}'",
                hint="its recorded changes depend on it: use another store",
            ).at(str(journal.folder))
    options = {name: value or defaults[name] for name, value in asdict(given).items()}
    check_strategy(options["strategy"], options["precision"])
    if options != kept:
        journal.write_options(options)
    return Options(**options)
