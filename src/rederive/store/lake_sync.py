"""The lake follows the journal: settling brings its tables to the journal's last version.

The order of writes, and why a kill between two of them loses nothing:
  1. A bulk version is staged as files.     Killed here: the journal does not name them; the next opening removes them.
  2. The journal commits the version.       From here on it exists. Killed here: the next opening settles it.
  3. Each table takes the version.          One Delta commit each, which is skipped if the table has the version already.
  4. `state/settled` takes it, then the journal (`note_progress`), which may trim the version now.
  5. Staged files of the version are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from threading import Lock, Thread
from typing import Concatenate, ParamSpec, TypeVar

from rederive.delta import Delta, from_numbered
from rederive.engines.protocol import Bulk
from rederive.engines.spark.run.data_frames import DataFrameRows
from rederive.engines.spark.session.sessions import acting
from rederive.errors import Mismatch, SchemaMismatch
from rederive.ir.rules import Program, Relation, Role
from rederive.ir.terms import Row, Value
from rederive.lake.bags import expand_copies
from rederive.lake.change_table import MINUS, PLUS
from rederive.lake.settle import MOST_IN_DRIVER, SETTLED, LakeRelations, rows_folder, settle, settled_version
from rederive.lake.staging import as_frame, changed_rows, is_bulk, stage_version, staging_folder, table_of, unstage
from rederive.lake.tables import Area, Lake
from rederive.lake.time_travel import rows_at
from rederive.lake.types import arrow_table
from rederive.locations import parse_location
from rederive.records import RecordedDelta, VersionRecord
from rederive.result import Change
from rederive.store import lake_recovery
from rederive.store.journal.reader import JournalReader
from rederive.store.journal.writer import Journal

ViewRows = Callable[[], Collection[Row]]
"""Fetches the rows of a stored view; called only if the view has no table yet."""
P = ParamSpec("P")
T = TypeVar("T")


def _in_lake_session(method: Callable[Concatenate[LakeSync, P], T]) -> Callable[Concatenate[LakeSync, P], T]:
    """Run a method in the lake's own Spark session, whichever session the caller's thread is in."""

    @wraps(method)
    def acted(self: LakeSync, /, *arguments: P.args, **named: P.kwargs) -> T:
        with acting(self.lake.spark):
            return method(self, *arguments, **named)

    return acted


class LakeSync:
    """The lake of one store. One thread writes the journal; a settling thread reads it by a connection of its own."""

    def __init__(self, lake: Lake, journal: Journal) -> None:
        self.lake = lake
        self.journal = journal
        self._thread: Thread | None = None
        # The lock protects what both threads use: whether the settling thread works, and the version that it settles up to.
        self._lock = Lock()
        self._working = False
        self._program: Program | None = None
        self._upto = 0
        self._settled = 0  # the last version that this process settled; the journal knows it after `note_progress`
        self._failure: BaseException | None = None
        if journal.lake is not None and parse_location(journal.lake) != parse_location(lake.root):
            self._move(journal.lake)

    def _move(self, old: str) -> None:
        """Note that the lake is at another location now. It must be the same one: settled to the same version, in this epoch."""
        if self.lake.has_path(old):
            hint = "open it with that one, or move its folder and open it there"
            raise Mismatch(f"the base relations of this store are in another lake: {old}", hint=hint)
        if (found := settled_version(self.lake)) < self.journal.settled or found > self.journal.version:
            hint = "give the folder to which that lake was moved"
            raise Mismatch(f"the lake of this store was at {old}, at version {self.journal.settled}; this is not it", hint=hint)
        self.journal.move_lake(self.lake.root)

    @_in_lake_session
    def recover(self, program: Program) -> dict[str, DataFrameRows]:
        """The base relations at the journal's last version, after the lake has been cleaned, attached and settled."""
        lake_recovery.clean(self.lake, self.journal)
        lake_recovery.attach(self.lake, self.journal, program)
        self.settle(program, {})
        return self.base_rows(program)

    @_in_lake_session
    def base_rows(self, program: Program) -> dict[str, DataFrameRows]:
        """The base relations as their tables have them."""
        return lake_recovery.read_base_relations(self.lake, program)

    # Versions

    @staticmethod
    def is_bulk(net: Mapping[str, Delta], changes: Mapping[str, Change]) -> bool:
        """Whether the changes of a version are staged instead of written to the journal."""
        return is_bulk(net, changes)

    @_in_lake_session
    def stage(
        self, before: Program, after: Program, version: int, net: Mapping[str, Delta], changes: Mapping[str, Change]
    ) -> str:
        """Write the changes of a bulk version next to the tables; returns their folder."""
        return stage_version(self.lake, before, after, version, net, changes)

    @_in_lake_session
    def changes(self, record: VersionRecord, program: Program) -> list[RecordedDelta]:
        """The deltas of views at a bulk version, from the change tables."""
        found = []
        for name in program.monitored:
            relation = program.relations[name]
            if self.lake.has_table(Area.CHANGES, name):
                number = record.number
                plus, minus = (changed_rows(self.lake, relation, number - 1, number, sign) for sign in (PLUS, MINUS))
                if plus or minus:
                    found.append(RecordedDelta(relation, Delta(dict(plus), dict(minus))))
        return found

    @_in_lake_session
    def has_rows(self, relation: Relation) -> bool:
        """Whether a view has a table of its rows."""
        return self.lake.has_table(Area.VIEWS, relation.name)

    @_in_lake_session
    def rows_at(self, relation: Relation, version: int, bindings: Mapping[int, Value]) -> Iterable[Row]:
        """The rows of a view at a settled version."""
        return rows_at(self.lake, relation, version, bindings)

    @_in_lake_session
    def prepare_columns(self, before: Program, after: Program) -> None:
        """Settle what the tables of views with other columns lack; the first settling after the definition replaces them.

        Refused for base relations: their rows would have to change with the columns.
        """
        for name in before.bases:
            # A table in place is not in the lake.
            if name in after.bases and name not in after.in_place and not before.shares_base(name, after):
                table = before.bags.get(name, name)
                hint = "create another table, and insert the rows into it"
                raise SchemaMismatch(f"the table of '{table}' in the lake has other columns than its new definition", hint=hint)
        known = self.journal.catalog.followed
        both = ((after.relations[name], before.relations.get(name)) for name in after.monitored if name in known)
        # A view that was dropped and comes back still has its tables.
        if any(old is None or old.columns != new.columns for new, old in both):
            self.settle(before, {})

    # Settling

    @_in_lake_session
    def settle(self, program: Program, stored: Mapping[str, ViewRows]) -> int:
        """Bring the tables to the journal's last version, which is returned. `stored`: the views that get a table of rows."""
        # One settling at a time: two would write the same tables.
        self.wait()
        self.note_progress()
        relations = self._relations(program, stored)
        for records in chunks(self.journal.unsettled()):
            self._settled = self._settle(records, relations)
        self.note_progress()
        self._register(relations)
        return self.journal.settled

    @_in_lake_session
    def settle_later(self, program: Program, stored: Mapping[str, ViewRows]) -> None:
        """The same in the background, while commits go on. A thread that is already at work goes on to the present version."""
        self.note_progress()
        with self._lock:
            if self._working:
                # The thread knows the relations of one program. Versions of another one wait for the next settling.
                self._upto = self.journal.version if program is self._program else self._upto
                return
        self.wait()
        relations = self._relations(program, stored)
        self._working, self._program, self._upto = True, program, self.journal.version
        self._thread = Thread(target=self._work, args=(relations,), name="rederive-settle", daemon=True)
        self._thread.start()

    @_in_lake_session
    def maintain(self) -> None:
        """Remove changes beyond the retention, compact the tables, write checkpoints of their logs, and remove files that no
        version of the last week needs."""
        self.wait()
        for area in Area:
            for name in self.lake.names(area):
                if area is Area.CHANGES:
                    self._remove_expired(name, self.journal.settled)
                self.lake.compact(area, name, files=2)
                self.lake.keep_up(area, name)
                self.lake.vacuum(area, name)

    def wait(self) -> None:
        """Wait until the settling thread has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def note_progress(self) -> None:
        """Write to the journal how far the lake is settled, and remove staged files; raises an error of the settling thread.

        The journal is noted before the files are removed: a kill in between leaves files that the next opening removes.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        # Read before it is noted: afterwards the journal no longer lists these versions as unsettled.
        if self._settled > self.journal.settled:
            staged = self.journal.staged_versions(self._settled)
            self.journal.settle_to(self._settled)
            for version in staged:
                unstage(self.lake, version)

    @_in_lake_session
    def _work(self, relations: LakeRelations) -> None:
        """The settling thread."""
        try:
            while (upto := self._next()) is not None:
                with JournalReader.read(self.journal.folder) as reader:
                    lacking = (record for record in reader.unsettled() if self._settled < record.number <= upto)
                    for records in chunks(lacking):
                        self._settle(records, relations)
                self._settled = upto
        except BaseException as error:
            self._failure, self._working = error, False

    def _next(self) -> int | None:
        """The version to settle up to; None if the tables have it, and the thread ends."""
        with self._lock:
            # Under the lock: either the thread sees a greater `_upto`, or
            # `settle_later` sees that it has ended and starts another one.
            self._working = self._settled < self._upto
            return self._upto if self._working else None

    def _relations(self, program: Program, stored: Mapping[str, ViewRows]) -> LakeRelations:
        """The relations whose tables are settled. A stored view without a table is written whole, at the journal's last version.

        A view that has a table is settled even if its rows are not stored any more.
        """
        for name in program.monitored:
            self._drop_replaced(program.relations[name])
        with_tables = [name for name in program.monitored if self.lake.has_table(Area.VIEWS, name)]
        for name in (name for name in program.monitored if name in stored and name not in with_tables):
            self._write_whole(program, name, stored[name]())
            with_tables.append(name)
        views = [program.relations[name] for name in program.monitored]
        elsewhere = program.in_place
        tables = {name: table_of(program, name) for name in program.bases if name not in elsewhere}
        base = list(tables.values())
        bags = {relation.name for relation in (*base, *views) if relation.role is Role.BAG}
        numbered = {name: relation for name, relation in tables.items() if relation.name != name}
        return LakeRelations(base, views, with_tables, bags, numbered)

    def _drop_replaced(self, view: Relation) -> None:
        """Drop the tables of a view that had other columns. Its changes begin again, with all rows of its new definition.

        A kill in between loses nothing: the journal has the version of the new definition until it is settled.
        """
        for area in (Area.CHANGES, Area.VIEWS):
            if self.lake.has_other_columns(area, view):
                self.lake.drop(area, view.name)

    def _write_whole(self, program: Program, name: str, rows: Collection[Row]) -> None:
        relation, counting = program.relations[name], program.relations[program.counting_relation(name)]
        # The engine's rows are those of the journal's last version: the table skips every record up to it.
        version, is_bag = self.journal.version or None, counting is not relation
        if not isinstance(rows, Bulk) and len(rows) <= MOST_IN_DRIVER:
            copies = [row[:-1] for row in rows for _ in range(int(str(row[-1])))] if is_bag else rows
            if self.lake.local_table(Area.VIEWS, relation, arrow_table(relation, copies), version) is not None:
                return
        with rows_folder(self.lake) as folder:
            whole = as_frame(self.lake, counting, rows, folder)
            if is_bag:
                whole = expand_copies(whole, whole.columns[-1])
            self.lake.replace(Area.VIEWS, relation, whole, version)

    def _settle(self, records: list[VersionRecord], relations: LakeRelations) -> int:
        as_tables = [_as_tables(self._here(record), relations.numbered) for record in records]
        settled = settle(self.lake, self._with_dropped(relations, records), as_tables)
        # After the version is settled: whoever waits for it can read it, and a failure here takes nothing back.
        for area, name in _tables(relations):
            if area is Area.CHANGES and self.lake.is_due(area, name):
                self._remove_expired(name, settled)
            self.lake.keep_up(area, name)
        return settled

    def _remove_expired(self, view: str, settled: int) -> None:
        """Remove from a change table the changes of versions beyond the store's retention, as the journal does."""
        if self.journal.retention is not None:
            self.lake.remove_changes(view, settled - self.journal.retention)

    def _here(self, record: VersionRecord) -> VersionRecord:
        """A version with the folder of its staged rows, which moved with the lake if that did."""
        if record.staged is None or record.staged.startswith(self.lake.root):
            return record
        return replace(record, staged=staging_folder(self.lake, record.number))

    def _register(self, relations: LakeRelations) -> None:
        """Make the tables of views known in the catalog. Last, and with each settling: they are complete without it."""
        for view in relations.views:
            for area in (Area.CHANGES, Area.VIEWS):
                if not self.lake.is_registered(area, view.name) and self.lake.has_table(area, view.name):
                    self.lake.register(area, view.name)

    def _with_dropped(self, relations: LakeRelations, records: list[VersionRecord]) -> LakeRelations:
        """The relations, with dropped views that these versions still change. Views that were bags count as bags."""
        recorded = [one for record in records for one in record.views]
        known = {relation.name for relation in relations.views}
        dropped = {one.relation.name: one.relation for one in recorded if one.relation.name not in known}
        with_tables = [name for name in dropped if self.lake.has_table(Area.VIEWS, name)]
        # The program no longer knows whether a dropped view was a bag. Adding up multiplicities is right for a set, too.
        bags = {one.relation.name for one in recorded if one.delta.counts is not None}
        return replace(
            relations,
            views=[*relations.views, *dropped.values()],
            with_tables=[*relations.with_tables, *with_tables],
            bags={*relations.bags, *bags, *with_tables},
        )


def chunks(records: Iterable[VersionRecord]) -> Iterator[list[VersionRecord]]:
    """Consecutive versions, in parts that hold no more rows than this process applies to the tables at once, or one version."""
    chunk: list[VersionRecord] = []
    rows = 0
    for record in records:
        more = sum(len(one.delta.plus) + len(one.delta.minus) for one in (*record.base, *record.views))
        if chunk and rows + more > MOST_IN_DRIVER:
            yield chunk
            chunk, rows = [], 0
        chunk.append(record)
        rows += more
    if chunk:
        yield chunk


def _tables(relations: LakeRelations) -> Iterator[tuple[Area, str]]:
    """The tables that a settling writes."""
    yield from ((Area.BASE, relation.name) for relation in relations.base)
    yield from ((Area.CHANGES, relation.name) for relation in relations.views)
    yield from ((Area.VIEWS, name) for name in relations.with_tables)
    yield Area.STATE, SETTLED.name


def _as_tables(record: VersionRecord, numbered: Mapping[str, Relation]) -> VersionRecord:
    """A version with the deltas of bags as their tables hold them: with counts instead of numbered copies."""
    return replace(record, base=tuple(_as_table(recorded, numbered.get(recorded.relation.name)) for recorded in record.base))


def _as_table(recorded: RecordedDelta, bag: Relation | None) -> RecordedDelta:
    if bag is None:
        return recorded
    # the columns are those of the record, which settling compares with those of the table
    relation = Relation(bag.name, recorded.relation.columns[:-1])
    return RecordedDelta(relation, from_numbered(recorded.delta))
