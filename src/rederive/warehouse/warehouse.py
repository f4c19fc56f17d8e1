"""A warehouse: stored views over remote relations, maintained with as few reads of the sources as possible (HU97)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rederive.boundary import given_rows, guard_class
from rederive.catalog import Catalog
from rederive.delta import sort_rows
from rederive.errors import StrategyError, UnknownRelation
from rederive.ir.rules import Program
from rederive.ir.terms import Row, Value
from rederive.opening import make_engine
from rederive.rows import base_relation, typed_row
from rederive.warehouse.maintenance_step import AfterImages, MaintenanceStep, OutdatedViews
from rederive.warehouse.report import MaintenanceReport, MaintenanceStatus, ViewOutcome
from rederive.warehouse.selfmaint.conjunctive import StoredView, stored_views
from rederive.warehouse.selfmaint.search import STEPS
from rederive.warehouse.selfmaint.source_update import PartialCopy, SourceUpdate
from rederive.warehouse.sources import Reader, RemoteSources
from rederive.warehouse.view_storage import ViewStorage, evaluate_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GivenRows = Mapping[str, Iterable[Sequence[Value] | Mapping[str, Value]]]


def warehouse_program(texts: Iterable[tuple[str, str]]) -> Program:
    """Return the program of texts in Datalog or SQL, each with its name.

    >>> program = warehouse_program([('''
    ...     CREATE TABLE r (x INT NOT NULL PRIMARY KEY) USING remote;
    ...     CREATE VIEW v AS SELECT x FROM r WHERE x > 1
    ... ''', "warehouse.sql")])
    >>> [view.name for view in stored_views(program)]
    ['v']
    """
    found = Catalog()
    for text, name in texts:
        # Not `define`: files may share declarations, and the same definition twice is one.
        step = found.migrate(text, name, whole=False)
        found = step.after if step is not None else found
    return found.program


@dataclass(frozen=True, slots=True)
class WarehouseProgress:
    """How far a warehouse is: its version, the version of each view, and the transactions that some view lacks."""

    version: int
    views: Mapping[str, int]
    pending: Mapping[int, SourceUpdate]


@guard_class
class Warehouse:
    """Stored views, and the transactions on the relations under them.

    A view is maintained from the stored views and the transaction alone if that is provably right. Otherwise remote relations
    are read, one at a time, the smallest expected first (HU97, Figure 2(b)). A view whose sources cannot be read waits, and so
    do its later transactions; the other views go on.

    `text`: a program in Datalog or SQL, or a compiled one. `readers`: a function for each remote relation that can be read.
    `net`: the sources report net changes only. `log`: how many of the last transactions are remembered as partial copies.
    `steps`: the limit of a search, if the compiled test does not say yes. `engine`: where views are stored, and tests and
    maintenance rules run: resident, spark or auto.

    >>> warehouse = Warehouse('''
    ...     .decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .decl t(z: symbol)  .remote r, s, t
    ...     .decl v1(x: symbol, y: symbol, z: symbol)  v1(x, y, z) :- r(x, y), s(y, z), t(z).
    ...     .decl v2(y: symbol, z: symbol)             v2(y, z) :- s(y, z).
    ... ''', readers={"t": lambda: [("c1",), ("c2",)]})
    >>> warehouse.load("v1", [("a1", "b1", "c1")])
    >>> warehouse.load("v2", [("b1", "c1"), ("b", "c2")])
    >>> report = warehouse.apply(insert={"r": [("a", "b")]})
    >>> print(report.views["v1"], report.views["v1"].plus)
    maintained with sources read: t (('a', 'b', 'c2'),)
    >>> report = warehouse.apply(insert={"r": [("e", "b")]})
    >>> print(report.views["v1"], report.views["v1"].plus)
    maintained without a source (('e', 'b', 'c2'),)
    """

    def __init__(
        self,
        text: str | Program,
        readers: Mapping[str, Reader] | None = None,
        *,
        net: bool = False,
        log: int = 0,
        steps: int = STEPS,
        name: str = "<text>",
        engine: str = "resident",
        spark: SparkSession | None = None,
    ) -> None:
        self.program = text if isinstance(text, Program) else warehouse_program([(text, name)])
        self.views = stored_views(self.program)
        if not self.views:
            hint = "declare base relations .remote, or tables USING remote, and views over them"
            raise StrategyError("the program has no stored view over a remote relation", hint=hint)
        self.remote = frozenset(remote.relation for remote in self.program.remotes)
        self.version = 0
        self._net = net
        self._steps = steps
        self._sources = RemoteSources(self.program, readers or {})
        self._engine = partial(make_engine, engine, None, spark)
        self._stored = ViewStorage(self.program, self.views, self._engine())
        self._updates: dict[int, SourceUpdate] = {}
        self._at = dict.fromkeys((view.name for view in self.views), 0)
        self._why: dict[str, str] = {}
        self._log: deque[SourceUpdate] = deque(maxlen=log)

    # Contents

    def load(self, name: str, rows: Iterable[Sequence[Value] | Mapping[str, Value]]) -> None:
        """Load the present rows of a stored view or of a local relation."""
        known = {*self._at, *(base for view in self.views for base in view.sources)} - self.remote
        if name not in known:
            raise UnknownRelation(name, known)
        self.load_typed({name: [typed_row(self.program.relations[name], row) for row in given_rows(rows)]})

    def load_typed(self, contents: Mapping[str, Iterable[Row]]) -> None:
        """Load rows that are typed already, for several relations."""
        self._stored.load(contents)

    def refresh(self) -> None:
        """Read every remote relation under the views, and evaluate all views from scratch.

        Before the first transaction, the warehouse takes the version of the sources.
        """
        names = dict.fromkeys(name for view in self.views for name in view.sources)
        if not self._updates:
            self.version = max(self.version, self._sources.version(name for name in names if name in self.remote))
        images = {name: self._image(name, self.version) for name in names}
        self._stored.load({view.name: evaluate_view(self.program, view.name, images, self._engine()) for view in self.views})
        # Whatever waited is overtaken: all views are those of the sources now.
        self._at = dict.fromkeys(self._at, self.version)
        self._why.clear()

    def rows(self, view: str) -> list[Row]:
        """Return the stored rows of a view, in order."""
        if view not in self._at:
            raise UnknownRelation(view, self._at)
        return sort_rows(self._stored.rows(view))

    @property
    def progress(self) -> WarehouseProgress:
        """How far the warehouse is."""
        return WarehouseProgress(self.version, dict(self._at), dict(self._updates))

    def restore(self, progress: WarehouseProgress, contents: Mapping[str, Iterable[Row]]) -> None:
        """Continue from the progress and the rows of a warehouse with the same views."""
        self.load_typed(contents)
        self.version, self._at, self._updates = progress.version, dict(progress.views), dict(progress.pending)
        self._why.clear()
        # The log says what earlier updates left in the sources; a later process cannot know it, and being without it is safe.
        self._log.clear()

    def waiting(self) -> dict[str, str]:
        """Return the views that are behind, each with the reason."""
        return {
            name: f"at version {at} of {self.version}: {self._why.get(name, 'not processed yet')}"
            for name, at in self._at.items()
            if at < self.version
        }

    # Transactions

    def apply(self, insert: GivenRows | None = None, delete: GivenRows | None = None) -> MaintenanceReport:
        """Take one transaction of the sources, and update the views with it and all earlier ones."""
        self.receive(insert, delete)
        return self.process()[-1]

    def receive(self, insert: GivenRows | None = None, delete: GivenRows | None = None) -> int:
        """Take one transaction to be processed later, and return its number. A row that is deleted and inserted is inserted."""
        update = SourceUpdate.of(self._typed(insert or {}), self._typed(delete or {}), net=self._net)
        self._updates[max(self._updates, default=self.version) + 1] = update
        return max(self._updates)

    def _typed(self, given: GivenRows) -> dict[str, frozenset[Row]]:
        declared = {name: base_relation(self.program, name) for name in given}
        return {name: frozenset(typed_row(declared[name], row) for row in given_rows(rows)) for name, rows in given.items()}

    def process(self) -> list[MaintenanceReport]:
        """Update the views with every transaction received, one version after the other."""
        reports = []
        while self.version + 1 in self._updates:
            reports.append(self._step(self.version + 1))
        return reports

    def retry(self) -> MaintenanceReport:
        """Try again to update the views that wait for a source."""
        return self._report(self.version, self._outcomes(self.version))

    def _step(self, version: int) -> MaintenanceReport:
        update = self._updates[version]
        outcomes = self._outcomes(version)
        # After the tests, which need local relations in the state before the update.
        local = {name for name in update.relations if name in self.program.bases and name not in self.remote}
        used = {name for view in self.views for name in view.sources}
        self._stored.change({name: (update.inserts.get(name, ()), update.deletes.get(name, ())) for name in local & used})
        self.version = version
        self._log.append(update)
        return self._report(version, outcomes)

    def _report(self, version: int, found: Mapping[str, ViewOutcome]) -> MaintenanceReport:
        """Apply the outcomes to all views at once, and drop the updates that no view needs."""
        self._stored.change({name: (outcome.plus, outcome.minus) for name, outcome in found.items()})
        for name, outcome in found.items():
            if outcome.status is MaintenanceStatus.WAITING:
                self._why[name] = outcome.why
            else:
                self._at[name] = version
                self._why.pop(name, None)
        # An update is needed until every view has it; later ones also take back readings that are ahead.
        oldest = min(self._at.values())
        self._updates = {number: update for number, update in self._updates.items() if number > oldest}
        reads = dict.fromkeys(name for outcome in found.values() for name in outcome.read)
        maintained = self._remote_under(
            name for name, outcome in found.items() if outcome.status in (MaintenanceStatus.STRICT, MaintenanceStatus.READ)
        )
        awaited = self._remote_under(name for name, outcome in found.items() if outcome.status is MaintenanceStatus.WAITING)
        return MaintenanceReport(version, found, tuple(reads), len(maintained - awaited - set(reads)))

    def _remote_under(self, views: Iterable[str]) -> set[str]:
        """Return the remote relations that these views depend on."""
        names = set(views)
        return {name for view in self.views if view.name in names for name in view.sources if name in self.remote}

    # Decisions

    def _outcomes(self, version: int) -> dict[str, ViewOutcome]:
        """Return the outcome of each view that is behind this version. Views at one version are decided together."""
        images = AfterImages(self.remote, self._sources.estimate, lambda relation: self._image(relation, version))
        found: dict[str, ViewOutcome] = {}
        # A relation that is read for one group of views costs nothing for the next.
        for start in sorted({at for at in self._at.values() if at < version}, reverse=True):
            group = [view for view in self.views if self._at[view.name] == start]
            outdated = self._outdated(group, start, version)
            found |= MaintenanceStep(self.program, self._stored, self._engine, images, outdated, self._steps).outcomes()
        return {view.name: found[view.name] for view in self.views if view.name in found}

    def _outdated(self, group: Sequence[StoredView], start: int, version: int) -> OutdatedViews:
        """Return views of one version with the update since then, and what the log says about the state before it."""
        update = SourceUpdate(net=self._net)
        for number in range(start + 1, version + 1):
            update = update.then(self._updates[number])
        if start == self.version and not self._net:
            update = self._stored.without_idle_rows(update, {n for view in group for n in view.sources} - self.remote)
        log = PartialCopy()
        for past in self._log if start == self.version else ():  # the log describes the state after its last transaction only
            log = log.then(past)
        return OutdatedViews(tuple(group), update, log, current=start == self.version)

    def _image(self, relation: str, version: int) -> frozenset[Row]:
        """Return a base relation after a version: from its source or, if it is local, from its table."""
        if relation in self.remote:
            return self._sources.read(relation, version, self._updates)
        rows = self._stored.rows(relation)
        return self._updates[version].after(relation, rows) if version > self.version else rows
