"""Bringing stored views up to date: strictly where that is sure to be right, else with one relation more at a time (HU97, 7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rederive.engines.protocol import Engine
from rederive.errors import SourceUnavailable
from rederive.ir.rules import Program
from rederive.ir.terms import Row
from rederive.values import sort_key
from rederive.warehouse.report import MaintenanceStatus, ViewOutcome
from rederive.warehouse.selfmaint.canonical import determined
from rederive.warehouse.selfmaint.conjunctive import StoredView, ViewClass
from rederive.warehouse.selfmaint.search import KnownRows, Maintainability, decide
from rederive.warehouse.selfmaint.source_update import KnownRelations, PartialCopy, SourceUpdate
from rederive.warehouse.view_storage import ViewStorage, copied, evaluated

Extents = dict[str, frozenset[Row]]


class AfterImages:
    """Base relations in the state that all views are to reach, each fetched once however many views need it."""

    def __init__(self, remote: frozenset[str], estimate: Callable[[str], float], fetch: Callable[[str], frozenset[Row]]) -> None:
        self.remote = remote
        self._estimate = estimate
        self._fetch = fetch
        self._fetched: Extents = {}

    def cost(self, relation: str) -> tuple[bool, float, str]:
        """What was fetched already comes first, then the smallest expected, then the alphabet."""
        return relation not in self._fetched, self._estimate(relation), relation

    def __getitem__(self, relation: str) -> frozenset[Row]:
        """The rows; raises SourceUnavailable where they cannot be had in that state."""
        if relation not in self._fetched:
            self._fetched[relation] = self._fetch(relation)
        return self._fetched[relation]


@dataclass(frozen=True, slots=True)
class OutdatedViews:
    """Views that are at one version, and an update that brings their sources to a later one.

    `current`: no other view is ahead of them, so relations that are kept here are still in the state before the update.
    """

    group: tuple[StoredView, ...]
    update: SourceUpdate
    log: PartialCopy
    current: bool


class MaintenanceStep:
    """One try to bring the views of a situation up to date. It changes no view: all are decided on before any is changed."""

    def __init__(
        self,
        program: Program,
        stored: ViewStorage,
        engine: Callable[[], Engine],
        images: AfterImages,
        situation: OutdatedViews,
        steps: int,
    ) -> None:
        self._program = program
        self._stored = stored
        self._engine = engine
        self._images = images
        self._now = situation
        self._steps = steps
        self._bases = frozenset(name for view in situation.group for name in view.sources)
        self._read: dict[str, None] = {}
        self._failed: dict[str, str] = {}
        self._contents: Extents = {}

    def outcomes(self) -> dict[str, ViewOutcome]:
        touched = self._now.update.relations
        found = {
            v.name: ViewOutcome(MaintenanceStatus.UNAFFECTED) for v in self._now.group if not touched.intersection(v.sources)
        }
        pending = [view for view in self._now.group if view.name not in found]
        if not self._now.current:  # what is kept here has moved on: it is at hand in its state after the update
            self._read = dict.fromkeys(sorted(self._bases - self._images.remote))
        try:
            while pending:
                found |= self._settled(pending)
                pending = [view for view in pending if view.name not in found]
                if pending and not self._read_next(pending):
                    why = "; ".join(self._failed.values())
                    return found | {view.name: ViewOutcome(MaintenanceStatus.WAITING, why=why) for view in pending}
            return found
        finally:
            self._stored.present(SourceUpdate(), {}, PartialCopy())

    def _settled(self, pending: Sequence[StoredView]) -> dict[str, ViewOutcome]:
        """The views that what is known so far suffices for."""
        self._stored.present(self._now.update, self._readings(), self._now.log)
        outcomes = ((view.name, self._maintained(view)) for view in pending)
        return {name: outcome for name, outcome in outcomes if outcome is not None}

    # What is known

    def _given(self) -> KnownRelations:
        local = self._bases - self._images.remote if self._now.current else frozenset[str]()
        logged = self._bases.intersection((*self._now.log.present, *self._now.log.absent))
        return KnownRelations(local, frozenset(self._read), logged, self._now.update.net)

    def _readings(self) -> Extents:
        return {name: self._images[name] for name in self._read}

    def _rows(self, name: str) -> frozenset[Row]:
        if name not in self._contents:
            self._contents[name] = self._stored.rows(name)
        return self._contents[name]

    def _local(self) -> Extents:
        return {name: self._rows(name) for name in self._given().local}

    def _whole(self) -> Extents:
        """The relations that are known as a whole, after the update."""
        found = {name: self._now.update.after(name, rows) for name, rows in self._local().items()}
        for view in self._now.group:
            copy = copied(view, self._rows(view.name)) if view.kind is ViewClass.PLAIN else None
            if copy is not None:
                found[copy[0]] = self._now.update.after(*copy)
        return found | self._readings()

    def _read_next(self, pending: Sequence[StoredView]) -> bool:
        """Read one relation more; False where none is left that can be read."""
        whole = determined(self._now.group, self._given())
        wanted = {name for view in pending for name in view.sources} - whole - self._failed.keys()
        for name in sorted(wanted, key=self._images.cost):
            try:
                _ = self._images[name]
            except SourceUnavailable as error:
                self._failed[name] = error.message
            else:
                self._read[name] = None
                return True
        return False

    # Maintaining

    def _maintained(self, view: StoredView) -> ViewOutcome | None:
        """How the view is brought up to date with what is known; None where it takes more."""
        change = self._stored.maintained(view, self._now.group, self._given())
        if change is None:
            after = self._after(view)
            if after is None:
                return None
            change = after - self._rows(view.name), self._rows(view.name) - after
        read = tuple(name for name in self._read if name in self._images.remote)
        plus, minus = (tuple(sorted(rows, key=sort_key)) for rows in change)
        return ViewOutcome(MaintenanceStatus.READ if read else MaintenanceStatus.STRICT, plus, minus, read)

    def _after(self, view: StoredView) -> frozenset[Row] | None:
        """The new rows where all base relations are known, or where the search is certain of them."""
        if determined(self._now.group, self._given()).issuperset(view.sources):
            images = self._whole()
            return evaluated(self._program, view.name, {name: images[name] for name in view.sources}, self._engine())
        if all(other.kind in (ViewClass.PLAIN, ViewClass.OTHER) for other in self._now.group):
            return None  # the compiled test is exact
        if sum(self._stored.size(other.name) for other in self._now.group) > self._steps:
            return None  # the search looks at every row at least once
        contents = {other.name: self._rows(other.name) for other in self._now.group}
        knowledge = KnownRows(contents, self._local(), self._readings(), self._now.log)
        decision = decide(view, self._now.group, self._program.relations, knowledge, self._now.update, self._steps)
        return decision.rows if decision.answer is Maintainability.YES else None
