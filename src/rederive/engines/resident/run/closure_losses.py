"""What a stored closure loses, end by end, where many places lose a few ends.

E(x) are the ends that x, the start of a deleted step, may lose. The places that still reach an end are searched back from it,
once for all starts, a level of places at a time:

    p(v, e) is lost  <=>  v is or reached an x with e in E(x), and the remaining steps do not lead from v to e

A path from v that is lost has a first deleted step; v still reaches the start x of it, so x has lost the end too. Components make
no difference here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyroaring import BitMap

from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.storage.table import Leaf, Lookup

NOTHING = BitMap()


@dataclass(slots=True)
class _SearchBack:
    """All places that reach one, found as far as the search went."""

    steps_to: Lookup
    reached: Leaf
    waiting: Leaf

    def advance(self) -> None:
        """One step back from all places that wait."""
        self.waiting = BitMap.union(NOTHING, *[self.steps_to(v) or NOTHING for v in self.waiting]) - self.reached
        self.reached |= self.waiting


@dataclass(slots=True)
class LossesByEnd:
    """`steps_to` leads back along the remaining steps, `steps_back` along those of the old state.

    Searches that a bound stops go on where they were when a larger bound is tried.
    """

    steps_back: Lookup
    steps_to: Lookup
    meter: Meter
    searches: dict[int, _SearchBack] = field(default_factory=dict)

    def find(self, losing: Mapping[int, Leaf], most: int) -> dict[int, Leaf] | None:
        """The lost ends by place, from the ends that each start may lose; None where searches reach more places than that."""
        ends = BitMap.union(NOTHING, *losing.values())
        if len(ends) > most:
            return None
        for end in ends:
            if end not in self.searches:
                first = self.steps_to(end) or NOTHING
                self.searches[end] = _SearchBack(self.steps_to, first.copy(), first)
        affected = {x: _SearchBack(self.steps_back, BitMap((x,)), BitMap((x,))) for x in losing if losing[x]}
        if not self._complete([*(self.searches[end] for end in ends), *affected.values()], most):
            return None
        lost: dict[int, Leaf] = {}
        for end in ends:
            before = BitMap.union(NOTHING, *[affected[x].reached for x in affected if end in losing[x]])
            alone = BitMap((end,))
            losing_it = before - self.searches[end].reached
            self.meter.count(len(losing_it))
            for v in losing_it:
                if v in lost:
                    lost[v].add(end)
                else:
                    lost[v] = alone.copy()
        return lost

    def _complete(self, searches: list[_SearchBack], most: int) -> bool:
        """Finish the searches, unless they reach more places than that together."""
        total = sum(len(search.reached) for search in searches)
        for search in searches:
            while search.waiting:
                if total > most:
                    return False
                search.advance()
                total += len(search.waiting)
                self.meter.count(len(search.waiting))
        return total <= most
