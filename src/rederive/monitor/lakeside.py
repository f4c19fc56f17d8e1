"""The lake of a store: where its base relations are, and where views and their changes are written for others to read.

The journal is what commits a version. A small version's changes are rows in it; a bulk version's are staged as files in the lake
before the journal names them. Settling then brings the tables of the lake to the journal's last version, once: after a kill at
any point it is done again, and a table takes only what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Thread

from rederive.analysis.polarity import Sign
from rederive.engines.base import Bulk, Delta, Rows
from rederive.engines.spark.bulk import DataRows
from rederive.engines.spark.engine import FrameRows
from rederive.errors import Mismatch
from rederive.ir.rules import Program
from rederive.ir.terms import Row
from rederive.lake.settle import Tables, rows_folder, settle
from rederive.lake.staging import frame, stage, staging, unstage, version_rows
from rederive.lake.tables import MINUS, PLUS, Area, Lake
from rederive.monitor.changes import Change
from rederive.monitor.entries import Changed, Entry
from rederive.monitor.journal import Journal
from rederive.monitor.journal_reader import JournalReader

Extent = Callable[[], Collection[Row]]


class Lakeside:
    """The lake of one store. Its journal is written by one thread alone; a settling thread reads it by itself."""

    def __init__(self, lake: Lake, journal: Journal) -> None:
        self.lake = lake
        self.journal = journal
        self._thread: Thread | None = None
        self._settled = 0
        self._failure: BaseException | None = None
        if journal.lake is not None and journal.lake != lake.root:
            raise Mismatch(f"the base relations of this store are in another lake: {journal.lake}", hint="open it with that one")

    # Base relations

    def attach(self, program: Program) -> None:
        """Move the base relations of a store that has no lake yet. What an earlier, unfinished move wrote is written over."""
        if self.journal.lake is None:
            rows = self.journal.base_rows()
            with rows_folder(self.lake) as folder:
                for name in program.bases:
                    relation = program.relations[name]
                    self.lake.replace(Area.BASE, relation, frame(self.lake, relation, rows.get(name, []), folder))
            self.journal.attach_lake(self.lake.root)

    def base(self, program: Program) -> dict[str, DataRows]:
        """The base relations as the lake has them."""
        found = {}
        for name in program.bases:
            relation = program.relations[name]
            if self.lake.has(self.lake.path(Area.BASE, name)):
                found[name] = DataRows(self.lake.read(Area.BASE, relation), relation.types)
        return found

    def load(self, program: Program, initial: Mapping[str, Collection[Row]]) -> None:
        """Add initial rows to base relations, one commit for each; before the first version."""
        for name, rows in initial.items():
            relation = program.relations[name]
            data = frame(self.lake, relation, rows)
            if self.lake.has(self.lake.path(Area.BASE, name)):
                there = self.lake.read(Area.BASE, relation)
                data = frame(self.lake, relation, DataRows(there, relation.types)).union(data).distinct()
            self.lake.replace(Area.BASE, relation, data)

    # Versions

    @staticmethod
    def bulky(net: Mapping[str, Delta], changes: Mapping[str, Change]) -> bool:
        """Whether a version has more rows than belong into a journal."""
        rows: list[object] = [side for delta in net.values() for side in (delta.plus, delta.minus)]
        found = (side for change in changes.values() for side in (change.delta.plus, change.delta.minus))
        rows += [part for side in found if isinstance(side, FrameRows) for part in side.parts()]
        return any(isinstance(part, Bulk) for part in rows)

    def stage(self, program: Program, version: int, net: Mapping[str, Delta], changes: Mapping[str, Change]) -> str:
        """Write a bulk version's changes beside the tables; the folder, for the journal to name."""
        for name, delta in net.items():
            stage(self.lake, version, Area.BASE, program.relations[name], [delta.minus], [delta.plus])
        for view, change in changes.items():
            stage(self.lake, version, Area.CHANGES, program.relations[view], *_sides(change))
        return staging(self.lake, version)

    def changes(self, entry: Entry, program: Program) -> list[Changed]:
        """The view changes of a bulk version, from the change tables."""
        found = []
        for name in program.monitored:
            relation = program.relations[name]
            if self.lake.has(self.lake.path(Area.CHANGES, name)):
                plus, minus = (version_rows(self.lake, relation, entry.number, sign) for sign in (PLUS, MINUS))
                if plus or minus:
                    found.append(Changed(relation, plus, minus))
        return found

    # Settling

    def settle(self, program: Program, stored: Mapping[str, Extent]) -> int:
        """Bring the tables to the journal's last version. Views that are stored have a table of their rows."""
        self.wait()
        self._settled = self._settle(list(self.journal.unsettled()), self._tables(program, stored))
        self.note()
        return self.journal.settled

    def settle_later(self, program: Program, stored: Mapping[str, Extent]) -> None:
        """The same in the background; commits go on meanwhile. Nothing where it is still at work."""
        if self._thread is not None and self._thread.is_alive():
            return
        self.wait()
        self.note()
        tables = self._tables(program, stored)

        def work() -> None:
            try:
                reader = JournalReader.read(self.journal.folder)
                try:
                    self._settled = self._settle(list(reader.unsettled()), tables)
                finally:
                    reader.close()
            except BaseException as error:
                self._failure = error

        self._thread = Thread(target=work, name="rederive-settle", daemon=True)
        self._thread.start()

    def _tables(self, program: Program, stored: Mapping[str, Extent]) -> Tables:
        """The tables to settle. A stored view that has none yet is written whole, as it is at the journal's last version."""
        names = [name for name in program.monitored if name in stored]
        for name in names:
            if not self.lake.has(self.lake.path(Area.VIEWS, name)):
                relation = program.relations[name]
                with rows_folder(self.lake) as folder:
                    rows = frame(self.lake, relation, stored[name](), folder)
                    self.lake.replace(Area.VIEWS, relation, rows, self.journal.version or None)
        base, views = ([program.relations[name] for name in group] for group in (program.bases, program.monitored))
        return Tables(base, views, names)

    def _settle(self, entries: list[Entry], tables: Tables) -> int:
        return settle(self.lake, tables, entries) if entries else 0

    def note(self) -> None:
        """Tell the journal how far the lake is, and remove what is no longer needed; a failure in the background is raised."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._settled > self.journal.settled:
            staged = [entry.number for entry in self.journal.unsettled() if entry.staged and entry.number <= self._settled]
            self.journal.settle_to(self._settled)
            for version in staged:
                unstage(self.lake, version)

    def wait(self) -> None:
        """Until a settling in the background is done."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _parts(rows: Rows) -> list[Collection[Row]]:
    return rows.parts() if isinstance(rows, FrameRows) else [rows.decoded()]


def _sides(change: Change) -> tuple[list[Collection[Row]], list[Collection[Row]]]:
    """What left and what entered, of the signs that are recorded."""
    minus = _parts(change.delta.minus) if Sign.MINUS in change.signs else []
    return minus, _parts(change.delta.plus) if Sign.PLUS in change.signs else []
