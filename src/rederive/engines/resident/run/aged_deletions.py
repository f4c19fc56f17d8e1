"""Deletions of a recursion, the oldest rows first: a row that older ones still derive is not deleted and spreads nothing.

A row that is found to depend on a deleted one, and is older than it, has a derivation without it: nothing has to be looked up. A
younger one is proved by (P) from rows that are older than itself. These are final then: rows are taken in the order of their
moments, so each is looked at once. What follows from younger rows alone is deleted here, and (R) puts it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from rederive.engines.resident.compile.rule_compiler import Function
from rederive.engines.resident.run.ages import Ages, Timeline
from rederive.engines.resident.run.fixpoint import Meter, Seed
from rederive.engines.resident.storage.table import Key, Leaf, Table
from rederive.limits import Limits


@dataclass(slots=True)
class AgedView:
    """One view of the component. `pending`: rows that (Di) found. `kept`: rows that a proof found."""

    ages: Ages
    gone: Table
    pending: dict[Key, Leaf] = field(default_factory=dict)
    kept: dict[Key, Leaf] = field(default_factory=dict)
    variants: list[Function] = field(default_factory=list)
    proofs: list[Function] = field(default_factory=list)

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
    """The phase: `seeds` start from the changes below the component."""

    seeds: Sequence[Seed]
    views: Sequence[AgedView]
    timeline: Timeline
    waiting: list[int] = field(default_factory=list)
    parts: dict[int, tuple[AgedView, Key, Leaf]] = field(default_factory=dict)

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fill the deletions of the component with the rows that older ones do not derive."""
        for seed in self.seeds:
            seed.run(meter)
        self._gather(0)
        while self.waiting:
            moment = heappop(self.waiting)
            view, key, leaf = self.parts.pop(moment)
            meter.count(len(leaf))
            self.timeline.limit = moment
            leaf = view.without_proof(key, leaf)
            if leaf:
                view.gone.add(key, leaf.copy())
                self.timeline.deleted.append((view.ages, key, leaf))
                for variant in view.variants:
                    variant(key, leaf)
                self._gather(moment)

    def _gather(self, moment: int) -> None:
        """Let the rows that were found and are younger than this moment wait for theirs."""
        for view in self.views:
            for key, found in view.pending.items():
                for came, part in view.ages.younger(key, found, moment):
                    if came in self.parts:
                        self.parts[came][2].__ior__(part)
                    else:
                        self.parts[came] = (view, key, part)
                        heappush(self.waiting, came)
            view.pending.clear()

    def commit(self) -> None:
        """Give the rows that entered and that were put back their moments."""
        self.timeline.commit()

    def rollback(self) -> None:
        """Forget what was found, also after a failure in the middle of a run."""
        self.timeline.rollback()
        self.waiting.clear()
        self.parts.clear()
        for view in self.views:
            view.pending.clear()
            view.kept.clear()


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
