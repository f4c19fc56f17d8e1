"""Deletions of a recursion, the oldest rows first: a row that older ones still derive is not deleted and spreads nothing.

A row that is found to depend on a deleted one, and is older than it, has a derivation without it: nothing has to be looked up. A
younger one is proved by (P) from rows that are older than itself. These are final then: rows are taken in the order of their
moments. What follows from younger rows alone is hidden, and tried again some moments later, when more rows are final: what came
in between and depends on it is looked at, and nothing else. A proof then gives it that later moment. What no row at all proves is
deleted at once; (R) puts back what follows from rows that are put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from pyroaring import BitMap

from rederive.engines.resident.compile.rule_compiler import Function
from rederive.engines.resident.run.ages import Ages, DueKeys, Timeline
from rederive.engines.resident.run.fixpoint import Meter, Seed
from rederive.engines.resident.storage.table import Key, Leaf, Table
from rederive.limits import Limits

SOON = 64  # moments after which a row without a proof is tried again; 4 to 64 measure alike on points-to programs
LATER = 4  # times as many moments after each try


@dataclass(slots=True)
class AgedView:
    """One view of the component. `pending`: rows that (Di) found. `kept`: rows that a proof found.

    `due`: the keys under which (Di) looks for rows next, where they are single codes. `all_keys`: all of them, once needed.
    """

    ages: Ages
    gone: Table
    pending: dict[Key, Leaf] = field(default_factory=dict)
    kept: dict[Key, Leaf] = field(default_factory=dict)
    all_keys: Leaf | None = None
    due: DueKeys = field(default_factory=DueKeys)
    variants: list[Function] = field(default_factory=list)
    proofs: list[Function] = field(default_factory=list)

    def expect(self, moment: int, until: int) -> None:
        """Let (Di) look for rows under keys that have rows of these moments, where that leaves many keys out."""
        table = self.ages.table
        if table.arity != 2:
            return
        due = self.ages.arrivals.between(moment, until)
        if 2 * len(due) < len(table.primary):
            self.due.keys = BitMap(due)  # type: ignore[arg-type]  # single codes
            return
        if self.all_keys is None:
            self.all_keys = BitMap(table.primary)  # type: ignore[arg-type]
        self.due.keys = self.all_keys

    def without_proof(self, key: Key, leaf: Leaf) -> Leaf:
        """The rows of a leaf that no proof finds."""
        for proof in self.proofs:
            proof(key, leaf)
            if self.kept:
                leaf = leaf - self.kept.pop(key)
                if not leaf:
                    break
        return leaf


@dataclass(slots=True)
class AgedDeletions:
    """The phase: `seeds` start from the changes below the component.

    `parts`: by moment, the rows to look at then. `tried`: by moment, the hidden rows that are tried again then, and how many
    moments that is after the last time.
    """

    seeds: Sequence[Seed]
    views: Sequence[AgedView]
    timeline: Timeline
    waiting: list[int] = field(default_factory=list)
    parts: dict[int, dict[tuple[int, Key], Leaf]] = field(default_factory=dict)
    tried: dict[int, list[tuple[int, Key, Leaf, int]]] = field(default_factory=dict)

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fill the deletions of the component with the rows that older ones do not derive."""
        for seed in self.seeds:
            seed.run(meter)
        self._gather(0, self.timeline.now)
        while self.waiting:
            moment = heappop(self.waiting)
            self.timeline.limit = moment
            for (i, key), leaf in self.parts.pop(moment, {}).items():
                meter.count(len(leaf))
                if leaf := self.views[i].without_proof(key, leaf):
                    self._lose(i, key, leaf, moment)
            self._try_again(moment, meter)

    def _try_again(self, moment: int, meter: Meter) -> None:
        """Show the hidden rows of this moment that older ones prove by now."""
        proved = []
        for i, key, leaf, after in self.tried.pop(moment, ()):
            meter.count(len(leaf))
            rest = self.views[i].without_proof(key, leaf)
            if rest:
                self._hide_until(i, key, rest, moment, LATER * after)
            if len(rest) < len(leaf):
                proved.append((self.views[i], key, leaf - rest))
        # Last, as rows of one moment must not prove one another.
        for view, key, leaf in proved:
            view.gone.remove(key, leaf)
            self.timeline.moved.append((view.ages, key, leaf, moment))

    def _lose(self, i: int, key: Key, leaf: Leaf, moment: int) -> None:
        """Delete or hide rows that older ones do not prove: those that younger rows may prove are tried again."""
        self.views[i].gone.add(key, leaf.copy())
        self.timeline.limit = self.timeline.now + 1
        lost = self.views[i].without_proof(key, leaf)
        self.timeline.limit = moment
        if lost:
            self._hide_until(i, key, lost, moment, self.timeline.now)
        if len(lost) < len(leaf):
            self._hide_until(i, key, leaf - lost, moment, SOON)

    def _hide_until(self, i: int, key: Key, leaf: Leaf, moment: int, after: int) -> None:
        """Look at what depends on rows without a proof and came before they are tried again, or later if they never are."""
        view, then = self.views[i], moment + after
        for other in self.views:
            other.expect(moment, then)
        if then <= self.timeline.now:
            self.tried.setdefault(then, []).append((i, key, leaf, after))
            heappush(self.waiting, then)
        else:
            self.timeline.deleted.append((view.ages, key, leaf))
        for variant in view.variants:
            variant(key, leaf)
        self._gather(moment, then)

    def _gather(self, moment: int, until: int) -> None:
        """Let the rows that were found and came between these moments wait for theirs."""
        for i, view in enumerate(self.views):
            for key, found in view.pending.items():
                for came, part in view.ages.younger(key, found, moment, until):
                    if came not in self.parts:
                        self.parts[came] = {}
                        heappush(self.waiting, came)
                    known = self.parts[came].get((i, key))
                    if known is None:
                        self.parts[came][i, key] = part.copy()
                    else:
                        known |= part
            view.pending.clear()

    def commit(self) -> None:
        """Give the rows that entered and that were put back their moments."""
        self.timeline.commit()
        for view in self.views:
            view.all_keys = None

    def rollback(self) -> None:
        """Forget what was found, also after a failure in the middle of a run."""
        self.timeline.rollback()
        self.waiting.clear()
        self.parts.clear()
        self.tried.clear()
        for view in self.views:
            view.pending.clear()
            view.kept.clear()
            view.all_keys = None


@dataclass(frozen=True, slots=True)
class RenewedAges:
    """Before an evaluation from scratch: its leaves give all rows new moments."""

    timeline: Timeline

    def run(self, meter: Meter, limits: Limits) -> None:
        """Begin to record the evaluation."""
        self.timeline.evaluated = []

    def commit(self) -> None:
        """Do nothing: the phase of the deletions commits the moments."""

    def rollback(self) -> None:
        """Forget the recorded evaluation."""
        self.timeline.rollback()
