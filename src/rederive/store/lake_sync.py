"""The lake of a store: where its base relations are, and where views and their changes are written for others to read.

The journal is what commits a version. A small version's changes are rows in it; a bulk version's are staged as files in the lake
before the journal names them. Settling then brings the tables of the lake to the journal's last version, once: after a kill at
any point it is done again, and a table takes only what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from threading import Lock, Thread
from typing import Concatenate, ParamSpec, TypeVar

from rederive.bags import bag_tables
from rederive.delta import CountedSide, Delta, Rows, from_numbered, multiplicities
from rederive.engines.protocol import Bulk
from rederive.engines.spark.engine import FrameRows
from rederive.engines.spark.run.data_frame_rows import DataFrameRows
from rederive.engines.spark.session.sessions import acting
from rederive.errors import Mismatch, SchemaMismatch
from rederive.ir.rules import COPIES, Program, Relation
from rederive.ir.terms import Row, Value
from rederive.lake.bags import expand_copies, number_copies
from rederive.lake.change_table import MINUS, PLUS
from rederive.lake.settle import Tables, rows_folder, settle, settled
from rederive.lake.staging import Behind, changed_rows, frame, remove_leftovers, stage, staging, unstage
from rederive.lake.tables import Area, Lake
from rederive.lake.time_travel import rows_at
from rederive.locations import parse_location
from rederive.records import RecordedDelta, VersionRecord
from rederive.result import Change
from rederive.store.journal.reader import JournalReader
from rederive.store.journal.writer import Journal

Extent = Callable[[], Collection[Row]]
MOST_IN_JOURNAL = 100_000  # rows of a version of a store with a lake; more are staged: a tenth of a second for each sync
P = ParamSpec("P")
T = TypeVar("T")


def _in_our_session(method: Callable[Concatenate[LakeSync, P], T]) -> Callable[Concatenate[LakeSync, P], T]:
    """What is done with tables is done in the lake's own session, whichever the user's thread is in."""

    @wraps(method)
    def acted(self: LakeSync, /, *arguments: P.args, **named: P.kwargs) -> T:
        with acting(self.lake.spark):
            return method(self, *arguments, **named)

    return acted


class LakeSync:
    """The lake of one store. Its journal is written by one thread alone; a settling thread reads it by itself."""

    def __init__(self, lake: Lake, journal: Journal) -> None:
        self.lake = lake
        self.journal = journal
        self._thread: Thread | None = None
        self._lock = Lock()  # for what the settling thread goes by: whether it works, and how far it shall go
        self._working = False
        self._program: Program | None = None
        self._upto = 0
        self._settled = 0
        self._failure: BaseException | None = None
        if journal.lake is not None and parse_location(journal.lake) != parse_location(lake.root):
            raise Mismatch(f"the base relations of this store are in another lake: {journal.lake}", hint="open it with that one")

    # Base relations

    @_in_our_session
    def clean(self) -> None:
        """Remove what a killed process left beside the tables: rows on their way, and staged versions that nobody needs."""
        journal = self.journal
        remove_leftovers(self.lake, lambda version: journal.settled < version <= journal.version)

    @_in_our_session
    def attach(self, program: Program) -> None:
        """Move the base relations of a store that has no lake yet. What an earlier, unfinished move wrote is written over."""
        self._check_restored(program)
        if self.journal.lake is None:
            rows = self.journal.base_rows()
            with rows_folder(self.lake) as folder:
                for name in program.bases:
                    relation, kept = table_of(program, name), rows.get(name, [])
                    self.lake.replace(Area.BASE, relation, frame(self.lake, relation, _without_copies(name, kept), folder))
            self._write_history(program)
            self.journal.attach_lake(self.lake.root)

    def _write_history(self, program: Program) -> None:
        """The change tables of the versions before the lake, as far as the journal has them: changes add up to the view.

        Of a view that had other columns, what its rows of now came by.
        """
        views = [program.relations[name] for name in program.monitored]
        columns = {view.name: view.columns for view in views}
        entries = []
        for entry in self.journal.since(self.journal.reach()):
            fitting = (one for one in entry.views if columns.get(one.relation.name) == one.relation.columns)
            entries.append(replace(entry, base=(), views=tuple(fitting)))
        settle(self.lake, Tables((), views), entries)

    def _check_restored(self, program: Program) -> None:
        """Refuse a lake that is not as it was at the backup: what it has more would be read as if it were of this history."""
        journal = self.journal
        if journal.lake is None or not journal.is_just_restored:
            return
        tables = [table_of(program, name).name for name in program.bases]
        ahead = max((self.lake.last_version(Area.BASE, name) or 0 for name in tables), default=0)
        if ahead > journal.version or not journal.settled <= settled(self.lake) <= journal.version:
            found = max(ahead, settled(self.lake))
            raise Mismatch(
                f"the lake is at version {found}, and the restored store at version {journal.version}",
                hint=f"restore the lake too, as it was at version {journal.settled}, and name it: rederive restore --lake",
            ).at(self.lake.root)

    @_in_our_session
    def base(self, program: Program) -> dict[str, DataFrameRows]:
        """The base relations as the lake has them."""
        found = {}
        for name in program.bases:
            relation = table_of(program, name)
            if self.lake.has_table(Area.BASE, relation.name):
                rows = self.lake.read(Area.BASE, relation)
                found[name] = DataFrameRows(rows if relation.name == name else number_copies(rows), program.relations[name].types)
        return found

    # Versions

    @staticmethod
    def bulky(net: Mapping[str, Delta], changes: Mapping[str, Change]) -> bool:
        """Whether a version has more rows than belong into a journal."""
        deltas = (*net.values(), *(change.delta for change in changes.values()))
        sides = [side for delta in deltas for side in (delta.plus, delta.minus)]
        if any(isinstance(part, Bulk) for side in sides for part in _parts(_counted_rows(side) or side)):
            return True
        return sum(map(len, sides)) > MOST_IN_JOURNAL

    @_in_our_session
    def stage(
        self, before: Program, after: Program, version: int, net: Mapping[str, Delta], changes: Mapping[str, Change]
    ) -> str:
        """Write a bulk version's changes beside the tables; the folder, for the journal to name.

        `before`: the program of the version before it, which has the relations that leave.
        """
        with rows_folder(self.lake) as folder:
            for name, delta in net.items():
                relation = table_of(after if name in after.bases else before, name)
                behind = Behind.NOTHING if relation.name == name else Behind.COPY
                stage(self.lake, version, Area.BASE, relation, _parts(delta.minus), _parts(delta.plus), behind, folder)
            for view, change in changes.items():
                bag = any(program.counted(view) != view for program in (before, after))
                sides, behind = (_counted(change.delta), Behind.COUNT) if bag else (_sides(change.delta), Behind.NOTHING)
                relation = (after if view in after.relations else before).relations[view]
                stage(self.lake, version, Area.CHANGES, relation, *sides, behind, folder)
        return staging(self.lake, version)

    @_in_our_session
    def changes(self, entry: VersionRecord, program: Program) -> list[RecordedDelta]:
        """The view changes of a bulk version, from the change tables."""
        found = []
        for name in program.monitored:
            relation = program.relations[name]
            if self.lake.has_table(Area.CHANGES, name):
                number = entry.number
                plus, minus = (changed_rows(self.lake, relation, number - 1, number, sign) for sign in (PLUS, MINUS))
                if plus or minus:
                    found.append(RecordedDelta(relation, Delta(dict(plus), dict(minus))))
        return found

    @_in_our_session
    def has_rows(self, relation: Relation) -> bool:
        """Whether there is a table of a view's rows."""
        return self.lake.has_table(Area.VIEWS, relation.name)

    @_in_our_session
    def rows_at(self, relation: Relation, version: int, bindings: Mapping[int, Value]) -> Iterable[Row]:
        """The rows of a view at a settled version."""
        return rows_at(self.lake, relation, version, bindings)

    # Definitions

    @_in_our_session
    def check_columns(self, before: Program, after: Program) -> None:
        """Refuse a view that has other columns than its tables; the lake is settled where it may have to tell."""
        known = self.journal.catalog.followed
        for name in after.monitored:
            new, old = after.relations[name], before.relations.get(name)
            if old is None and name in known:
                self.settle(before, {})
                old = self.lake.declaration(Area.CHANGES, name) or self.lake.declaration(Area.VIEWS, name)
            if old is not None and old.columns != new.columns and name in known:
                raise SchemaMismatch(
                    f"the tables of '{name}' in the lake have other columns than its new definition",
                    hint="give the new view another name",
                )

    # Settling

    @_in_our_session
    def settle(self, program: Program, stored: Mapping[str, Extent]) -> int:
        """Bring the tables to the journal's last version. Views that are stored have a table of their rows."""
        self.wait()
        self.note()
        self._settled = self._settle(list(self.journal.unsettled()), self._tables(program, stored))
        self.note()
        return self.journal.settled

    @_in_our_session
    def settle_later(self, program: Program, stored: Mapping[str, Extent]) -> None:
        """The same in the background; commits go on meanwhile. While it is at work, it goes on to the present version, too."""
        self.note()
        with self._lock:
            if self._working:
                self._upto = self.journal.version if program is self._program else self._upto
                return
        self.wait()
        tables = self._tables(program, stored)
        self._working, self._program, self._upto = True, program, self.journal.version
        self._thread = Thread(target=self._work, args=(tables,), name="rederive-settle", daemon=True)
        self._thread.start()

    @_in_our_session
    def _work(self, tables: Tables) -> None:
        try:
            while (upto := self._next()) is not None:
                with JournalReader.read(self.journal.folder) as reader:
                    entries = [entry for entry in reader.unsettled() if self._settled < entry.number <= upto]
                self._settle(entries, tables)
                self._settled = upto
        except BaseException as error:
            self._failure, self._working = error, False

    def _next(self) -> int | None:
        """The version that the tables are to be brought to; None where they are there, and the work is done."""
        with self._lock:
            self._working = self._settled < self._upto
            return self._upto if self._working else None

    def _tables(self, program: Program, stored: Mapping[str, Extent]) -> Tables:
        """The tables to settle. A stored view that has none yet is written whole, as it is at the journal's last version.

        One that has a table is brought along, also where nobody has its rows at hand.
        """
        there = [name for name in program.monitored if self.lake.has_table(Area.VIEWS, name)]
        for name in (name for name in program.monitored if name in stored and name not in there):
            self._write_whole(program, name, stored[name]())
            there.append(name)
        views = [program.relations[name] for name in program.monitored]
        base = [table_of(program, name) for name in program.bases]
        bags = {*bag_tables(program), *(name for name in program.monitored if program.counted(name) != name)}
        return Tables(base, views, there, bags)

    def _write_whole(self, program: Program, name: str, rows: Collection[Row]) -> None:
        relation = program.relations[name]
        with rows_folder(self.lake) as folder:
            whole = frame(self.lake, program.relations[program.counted(name)], rows, folder)
            if program.counted(name) != name:
                whole = expand_copies(whole, whole.columns[-1])
            self.lake.replace(Area.VIEWS, relation, whole, self.journal.version or None)

    def _settle(self, entries: list[VersionRecord], tables: Tables) -> int:
        if not entries:
            return 0
        return settle(self.lake, self._with_former(tables, entries), [_of_tables(entry) for entry in entries])

    def _with_former(self, tables: Tables, entries: list[VersionRecord]) -> Tables:
        """The tables with those of views that these versions still change though they are dropped; and views that were bags."""
        recorded = [one for entry in entries for one in entry.views]
        known = {relation.name for relation in tables.views}
        dropped = {one.relation.name: one.relation for one in recorded if one.relation.name not in known}
        there = [name for name in dropped if self.lake.has_table(Area.VIEWS, name)]
        were = {one.relation.name for one in recorded if one.delta.counts is not None}
        views, kept = [*tables.views, *dropped.values()], [*tables.materialized, *there]
        return Tables(tables.base, views, kept, {*tables.bags, *were, *there})

    def note(self) -> None:
        """Tell the journal how far the lake is, and remove what is no longer needed; a failure in the background is raised."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._settled > self.journal.settled:
            staged = self.journal.staged(self._settled)
            self.journal.settle_to(self._settled)
            for version in staged:
                unstage(self.lake, version)

    def wait(self) -> None:
        """Until a settling in the background is done."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def table_of(program: Program, base: str) -> Relation:
    """The relation that a base relation's table holds: where it numbers the copies of a bag, the bag."""
    return program.relations[base.removesuffix(f".{COPIES}")]


def _without_copies(base: str, rows: Collection[Row]) -> Collection[Row]:
    return [row[:-1] for row in rows] if base.endswith(f".{COPIES}") else rows


def _of_tables(entry: VersionRecord) -> VersionRecord:
    """A version with the changes of bags as their tables have them: copies are counted, and not told apart."""
    return replace(entry, base=tuple(_of_table(recorded) for recorded in entry.base))


def _of_table(recorded: RecordedDelta) -> RecordedDelta:
    name, columns = recorded.relation.name, recorded.relation.columns
    if not name.endswith(f".{COPIES}"):
        return recorded
    return RecordedDelta(Relation(name.removesuffix(f".{COPIES}"), columns[:-1]), from_numbered(recorded.delta))


def _sides(delta: Delta) -> tuple[list[Rows], list[Rows]]:
    """What left and what entered a set."""
    return _parts(delta.minus), _parts(delta.plus)


def _counted(delta: Delta) -> tuple[list[Rows], list[Rows]]:
    """What left and what entered a bag, each row with the number of its copies behind it."""
    return _parts(_with_counts(delta.minus)), _parts(_with_counts(delta.plus))


def _with_counts(side: Rows) -> Rows:
    if not len(side):
        return ()
    found = _counted_rows(side)
    return [(*row, count) for row, count in multiplicities(side).items()] if found is None else found


def _counted_rows(side: Rows) -> Rows | None:
    """The side of a bag's delta as counted rows, where the engine has them as such."""
    return side.counted_rows if isinstance(side, CountedSide) else None


def _parts(rows: Rows) -> list[Rows]:
    """The rows where they are: those that an engine has left in Spark stay there."""
    return rows.parts() if isinstance(rows, FrameRows) else [rows]
