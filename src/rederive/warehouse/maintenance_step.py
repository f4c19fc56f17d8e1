"""One maintenance step: bring the stored views of one version to a later one (HU97, section 7 and Figure 2(b)).

A view is maintained from the stored views and the update if a test proves that this is right. Otherwise one more remote relation
is read, the cheapest first, and all views that are left are tested again: a relation that was read helps every view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rederive.delta import sort_rows
from rederive.engines.protocol import Engine
from rederive.errors import SourceUnavailable
from rederive.ir.rules import Program
from rederive.ir.terms import Row
from rederive.warehouse.report import MaintenanceStatus, ViewOutcome
from rederive.warehouse.selfmaint.canonical import known_completely
from rederive.warehouse.selfmaint.conjunctive import StoredView, ViewClass
from rederive.warehouse.selfmaint.open_rows import unknown_relations
from rederive.warehouse.selfmaint.search import MAX_OPEN_ROWS, KnownRows, Maintainability, decide
from rederive.warehouse.selfmaint.search_conditions import is_searched
from rederive.warehouse.selfmaint.source_update import KnownRelations, PartialCopy, SourceUpdate, UpdateKind
from rederive.warehouse.view_storage import ViewStorage, copied_relation, evaluate_view

Extents = dict[str, frozenset[Row]]


class AfterImages:
    """Base relations in the state after the update. Each is fetched once, however many views need it."""

    def __init__(self, remote: frozenset[str], estimate: Callable[[str], float], fetch: Callable[[str], frozenset[Row]]) -> None:
        self.remote = remote
        self._estimate = estimate
        self._fetch = fetch
        self._fetched: Extents = {}

    def cost(self, relation: str) -> tuple[bool, float, str]:
        """Return the order in which relations are read: fetched ones, then the smallest expected, then by name."""
        return relation not in self._fetched, self._estimate(relation), relation

    def __getitem__(self, relation: str) -> frozenset[Row]:
        """Return the rows; raise SourceUnavailable if the source cannot give them in that state."""
        if relation not in self._fetched:
            self._fetched[relation] = self._fetch(relation)
        return self._fetched[relation]


@dataclass(frozen=True, slots=True)
class OutdatedViews:
    """Views at one version, and the update that brings their sources to a later version.

    `log`: what earlier updates say about the sources (HU97, 6.3). `current`: no other view is ahead of these, so the local
    relations are still in the state before the update.
    """

    group: tuple[StoredView, ...]
    update: SourceUpdate
    log: PartialCopy
    current: bool


class MaintenanceStep:
    """One attempt to update outdated views. It changes no view: the tests of all views need the old rows of each."""

    def __init__(
        self,
        program: Program,
        stored: ViewStorage,
        engine: Callable[[], Engine],
        images: AfterImages,
        outdated: OutdatedViews,
        steps: int,
    ) -> None:
        self._program = program
        self._stored = stored
        self._engine = engine
        self._images = images
        self._outdated = outdated
        self._steps = steps
        self._bases = frozenset(name for view in outdated.group for name in view.sources)
        self._read: dict[str, None] = {}
        self._failed: dict[str, str] = {}
        self._contents: Extents = {}

    def outcomes(self) -> dict[str, ViewOutcome]:
        """Return the new rows of each view, or why it waits."""
        # An update of relations that a view does not read leaves it as it is, without any test.
        touched = self._outdated.update.relations
        found = {
            v.name: ViewOutcome(MaintenanceStatus.UNAFFECTED) for v in self._outdated.group if not touched.intersection(v.sources)
        }
        pending = [view for view in self._outdated.group if view.name not in found]
        if not self._outdated.current:  # the local relations are in the state after the update, like relations that were read
            self._read = dict.fromkeys(sorted(self._bases - self._images.remote))
        try:
            while pending:
                found |= self._decide(pending)
                pending = [view for view in pending if view.name not in found]
                if pending and not self._read_next(pending):
                    why, read = "; ".join(self._failed.values()), self._sources_read()
                    return found | {view.name: ViewOutcome(MaintenanceStatus.WAITING, read=read, why=why) for view in pending}
            return found
        finally:
            # The compiled rules see an update only while it is decided.
            self._stored.set_update(SourceUpdate(), {}, PartialCopy())

    def _decide(self, pending: Sequence[StoredView]) -> dict[str, ViewOutcome]:
        """Return the outcomes of the views that can be maintained with what is known so far."""
        self._stored.set_update(self._outdated.update, self._read_rows(), self._outdated.log)
        outcomes = ((view.name, self._maintain(view)) for view in pending)
        return {name: outcome for name, outcome in outcomes if outcome is not None}

    # Knowledge

    def _known_relations(self) -> KnownRelations:
        local = self._bases - self._images.remote if self._outdated.current else frozenset[str]()
        logged = self._bases.intersection((*self._outdated.log.present, *self._outdated.log.absent))
        return KnownRelations(local, frozenset(self._read), logged, self._outdated.update.net)

    def _read_rows(self) -> Extents:
        return {name: self._images[name] for name in self._read}

    def _rows(self, name: str) -> frozenset[Row]:
        if name not in self._contents:
            self._contents[name] = self._stored.rows(name)
        return self._contents[name]

    def _local_rows(self) -> Extents:
        return {name: self._rows(name) for name in self._known_relations().local}

    def _whole_relations(self) -> Extents:
        """Return the relations that are known completely, in the state after the update."""
        found = {name: self._outdated.update.after(name, rows) for name, rows in self._local_rows().items()}
        # A view that copies a relation tells its before-image, and with the update its after-image.
        for view in self._outdated.group:
            copy = copied_relation(view, self._rows(view.name)) if view.kind is ViewClass.PLAIN else None
            if copy is not None:
                found[copy[0]] = self._outdated.update.after(*copy)
        return found | self._read_rows()

    def _read_next(self, pending: Sequence[StoredView]) -> bool:
        """Read one more relation. Return False if no relation that may help can be read."""
        whole = known_completely(self._outdated.group, self._known_relations())
        # Relations that are known completely are never read, however cheap they are.
        missing = {name for view in pending for name in view.sources} - whole - self._failed.keys()
        # First those whose facts decide about a row. The others tell more about these, which helps if one cannot be read.
        deciding = {name for view in pending for name in self._deciding(view)}
        for name in sorted(missing, key=lambda name: (name not in deciding, self._images.cost(name))):
            try:
                _ = self._images[name]
            except SourceUnavailable as error:
                # A source that does not answer is not asked again in this step, by any view.
                self._failed[name] = error.message
            else:
                self._read[name] = None
                return True
        return False

    def _deciding(self, view: StoredView) -> frozenset[str]:
        rules = self._stored.compile_maintenance(view, self._outdated.group, self._known_relations())
        if rules is None or view.totals is not None:
            return frozenset(view.sources)
        kind = UpdateKind.of(self._outdated.update.inserts, self._outdated.update.deletes)
        return unknown_relations(view, self._outdated.group, kind, self._known_relations())

    def _sources_read(self) -> tuple[str, ...]:
        return tuple(name for name in self._read if name in self._images.remote)

    # Maintenance

    def _maintain(self, view: StoredView) -> ViewOutcome | None:
        """Return the change of a view, or None if what is known does not suffice."""
        change = self._stored.maintain(view, self._outdated.group, self._known_relations())
        if change is None:
            after = self._new_rows(view)
            if after is None:
                return None
            # plus = v' - v, minus = v - v': the stored rows are a set.
            change = after - self._rows(view.name), self._rows(view.name) - after
        read = self._sources_read()
        plus, minus = (tuple(sort_rows(rows)) for rows in change)
        return ViewOutcome(MaintenanceStatus.READ if read else MaintenanceStatus.STRICT, plus, minus, read)

    def _new_rows(self, view: StoredView) -> frozenset[Row] | None:
        """Return the new rows of a view if all its base relations are known, or if the search proves them."""
        if known_completely(self._outdated.group, self._known_relations()).issuperset(view.sources):
            images = self._whole_relations()
            return evaluate_view(self._program, view.name, {name: images[name] for name in view.sources}, self._engine())
        local = self._known_relations().local
        searched = [other for other in self._outdated.group if is_searched(other, self._program.relations, local)]
        if view not in searched or all(other.kind is ViewClass.PLAIN for other in searched):
            return None  # the compiled test is exact: a search would find the same
        sizes = {other.name: self._stored.size(other.name) for other in searched}
        opened = sum(sizes[other.name] for other in searched if other.kind is not ViewClass.PLAIN)
        if opened > MAX_OPEN_ROWS or sum(sizes.values()) > self._steps:
            return None  # the search looks at every row at least once
        contents = {other.name: self._rows(other.name) for other in self._outdated.group}
        knowledge = KnownRows(contents, self._local_rows(), self._read_rows(), self._outdated.log)
        decision = decide(view, self._outdated.group, self._program.relations, knowledge, self._outdated.update, self._steps)
        return decision.rows if decision.answer is Maintainability.YES else None
