"""What a stored transitive closure loses when steps are deleted: every row is proved before its loss spreads.

Places go from the last component up, in the order of how many places each reaches, itself included: x reaches z and not the other
way round only if it reaches more. So when x is looked at, what its successors still reach is known, unless they are in one
component with x.

    p(x, y) stays  <=  step^new(x, y), or step^new(x, z) and p(z, y) stays               for z outside of the component of x

A component that stays strongly connected loses rows as a whole. A deleted step inside of one changes nothing while its end is
reached another way, which is searched from both ends. Only if it is not, the component is evaluated from scratch, and no other.

Where a loss spreads to many places, it is tried end by end (`closure_losses`), with a bound in proportion to the places that have
to be looked at: so a deletion costs at most about twice what the better of the two ways does.

New steps of the same transaction are not looked at here: what they support is inserted after it was deleted, and the net effect
cancels both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from pyroaring import BitMap

from rederive.engines.resident.run.closure_losses import LossesByEnd
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.storage.table import Leaf, Lookup, Table

NOTHING = BitMap()
BY_END_FROM = 64  # places to look at before the deletion is tried end by end; then four times as many, and so on
WORTH = 15  # places that a search back reaches in the time in which one place is looked at, measured on Debian's graph


@dataclass(frozen=True, slots=True)
class ClosureDeletions:
    """From the deleted steps to the lost rows of the closure. Lookups are by one column, in the old state."""

    steps: Lookup
    steps_back: Lookup
    lost_steps: Table
    ends: Lookup
    gone: Table

    def find(self, meter: Meter) -> None:
        """Fill the closure's deletions with the rows that the remaining steps do not derive."""
        _Losses(self.steps, self.steps_back, self.lost_steps, self.ends, self.gone, meter).find()


@dataclass(slots=True)
class _Losses:
    """One run. `suspects`: by place, the ends that it reached along something that was lost.

    `spreading`: places before one that has just lost ends, and these ends.
    """

    steps: Lookup
    steps_back: Lookup
    lost_steps: Table
    ends: Lookup
    gone: Table
    meter: Meter
    suspects: dict[int, Leaf] = field(default_factory=dict)
    spreading: list[tuple[Leaf, Leaf]] = field(default_factory=list)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    broken: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    remaining: dict[int, Leaf] = field(default_factory=dict)
    lost_back: dict[int, Leaf] = field(default_factory=dict)

    def find(self) -> None:
        for x, lasts in self.lost_steps.primary.items():
            for z in lasts:
                self._lose_step(x, z)  # type: ignore[arg-type]
        by_end = LossesByEnd(self.steps_back, self._steps_to, self.meter)
        looked_at, again = 0, BY_END_FROM
        while self.waiting:
            _, x = heappop(self.waiting)
            if x in self.done:
                continue
            if x in self.ends(x):
                self._lose_in_component(x)
            else:
                self._lose_place(x)
            looked_at += 1
            # Those that wait and those that a loss spreads to have to be looked at too.
            places = looked_at + len(self.waiting) + sum(len(before) for before, _ in self.spreading)
            if places >= again:
                if self._finish(by_end, WORTH * places):
                    return
                again = 4 * places
            self._spread()

    def _finish(self, by_end: LossesByEnd, most: int) -> bool:
        """Find all losses end by end, if that reaches no more places than that."""
        # What a broken component loses is not known as suspects.
        if not self.broken <= self.done:
            return False
        starts = self.lost_steps.primary
        lost = by_end.find({x: self.suspects.get(x) or self.gone.primary.get(x, NOTHING) for x in starts}, most)  # type: ignore[arg-type,misc]
        if lost is None:
            return False
        for v, ends in lost.items():
            if known := self.gone.primary.get(v):
                ends -= known
            if ends:
                self.gone.add(v, ends)
        return True

    def _lose_step(self, x: int, z: int) -> None:
        beyond = self.ends(z)
        if beyond is None:
            self._suspect(x, BitMap((z,)))
        elif x not in beyond:
            self._suspect(x, beyond | BitMap((z,)))
        # x and z are in one component.
        elif not self._still_reaches(x, z):
            self.broken.add(x)
            self._suspect(x, NOTHING)

    def _suspect(self, x: int, ends: Leaf) -> None:
        known = self.suspects.get(x)
        if known is None:
            self.suspects[x] = ends.copy()
            reached = self.ends(x)
            # How many places x reaches, itself included: the same for all of a component, and more than beyond it.
            heappush(self.waiting, (len(reached) + (x not in reached), x))
        else:
            known |= ends

    def _lose_place(self, x: int) -> None:
        """A place that is in no cycle: what its successors still reach is known."""
        rest = self.suspects.pop(x)
        self.meter.count(len(rest))
        following = self._steps_from(x)
        rest -= following
        ends, lost = self.ends, self.gone.primary
        # The innermost loop of a large deletion: what most successors reach is as it was.
        for z in following:
            if not rest:
                return
            if z in lost:
                rest -= self._remaining(z)
            elif (reached := ends(z)) is not None:
                rest -= reached
        if rest:
            self._lose(x, rest, NOTHING)

    def _lose_in_component(self, x: int) -> None:
        members = self._component(x)
        self.done.update(members)
        rest = BitMap.union(NOTHING, *(self.suspects.pop(v) for v in members if v in self.suspects))
        self.meter.count(len(rest))
        if not self.broken.isdisjoint(members):
            self._evaluate(members)
            return
        # Still strongly connected: its places reach one another, and each reaches what any of them reaches.
        rest -= members
        for v in members:
            for z in self._steps_from(v) - members:
                if not rest:
                    return
                rest.discard(z)
                rest -= self._remaining(z)
        if rest:
            for v in members:
                self._lose(v, rest.copy(), members)

    def _lose(self, x: int, ends: Leaf, members: Leaf) -> None:
        """Delete rows of x, which those of the places before it outside of its component may depend on."""
        before = self.steps_back(x)
        if before is not None:
            self.spreading.append((before - members if members else before, ends))
        self.meter.count(len(ends))
        self.gone.add(x, ends)

    def _spread(self) -> None:
        """Suspect the rows that may depend on those that were just lost."""
        suspects = self.suspects
        for before, ends in self.spreading:
            for v in before:
                if v in suspects:
                    suspects[v] |= ends
                else:
                    self._suspect(v, ends)
        self.spreading.clear()

    def _remaining(self, z: int) -> Leaf:
        """What z reaches in the new state, where its losses are known."""
        reached = self.ends(z)
        if reached is None:
            return NOTHING
        lost = self.gone.primary.get(z)
        if lost is None:
            return reached  # type: ignore[no-any-return]
        # A place is done before those that read it, so this is made once.
        if z not in self.remaining:
            self.remaining[z] = reached - lost
        return self.remaining[z]

    def _steps_from(self, x: int) -> Leaf:
        """The ends of the steps from x that remain."""
        following, lost = self.steps(x), self.lost_steps.primary.get(x)
        if following is None:
            return NOTHING
        return following if lost is None else following - lost  # type: ignore[no-any-return]

    def _steps_to(self, y: int) -> Leaf:
        """The starts of the steps to y that remain."""
        if not self.lost_back:
            for x, lasts in self.lost_steps.primary.items():
                for last in lasts:
                    self.lost_back.setdefault(last, BitMap()).add(x)  # type: ignore[arg-type]
        before, lost = self.steps_back(y), self.lost_back.get(y)
        return before if lost is None else before - lost  # type: ignore[no-any-return]

    def _still_reaches(self, a: int, b: int) -> bool:
        """Whether remaining steps lead from a to b, which are in one component: from both ends until they meet."""
        ahead, behind = BitMap((a,)), BitMap((b,))
        reached, reaching = BitMap(), BitMap((b,))
        while ahead and behind:
            self.meter.count(1)
            if len(ahead) <= len(behind):
                ahead = BitMap.union(NOTHING, *map(self._steps_from, ahead))
                if not ahead.isdisjoint(reaching):
                    return True
                # Only places that reached b before can lead to it.
                ahead = BitMap([v for v in ahead - reached if b in (self.ends(v) or NOTHING)])
                reached |= ahead
            else:
                behind = BitMap.union(NOTHING, *map(self._steps_to, behind))
                if a in behind or not behind.isdisjoint(reached):
                    return True
                behind -= reaching
                behind &= self.ends(a)
                reaching |= behind
        return False

    def _component(self, x: int) -> Leaf:
        """The places that x reached and that reached x."""
        members = waiting = BitMap((x,))
        while waiting:
            following = BitMap.union(NOTHING, *(self.steps(v) or NOTHING for v in waiting)) - members
            waiting = BitMap([v for v in following if x in (self.ends(v) or NOTHING)])
            members = members | waiting
        return members

    # A component that falls apart

    def _evaluate(self, members: Leaf) -> None:
        """The rows of a component from scratch: its parts, the last ones first."""
        found: dict[int, Leaf] = {}
        before = self.ends(members[0])
        for part in components_of(members, lambda v: self._steps_from(v) & members):
            ends = BitMap()
            for v in part:
                following = self._steps_from(v)
                ends |= following
                for z in following:
                    if z not in members:
                        ends |= self._remaining(z)
                    elif z in found:
                        ends |= found[z]
            self.meter.count(len(ends))
            lost = before - ends
            for v in part:
                found[v] = ends
                if lost:
                    self._lose(v, lost.copy(), members)


def components_of(places: Iterable[int], follow: Lookup) -> Iterator[list[int]]:
    """The strongly connected components of a graph, each after all those that it leads to (Tarjan).

    >>> list(components_of([1, 2, 3], {1: [2], 2: [3], 3: [2]}.__getitem__))
    [[3, 2], [1]]
    """
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    finished: set[int] = set()
    for start in places:
        if start in number:
            continue
        # An explicit path: a chain of the data may be longer than Python's recursion limit.
        path = [(start, iter(follow(start)))]
        number[start] = low[start] = len(number)
        stack.append(start)
        while path:
            v, following = path[-1]
            for z in following:
                if z not in number:
                    number[z] = low[z] = len(number)
                    stack.append(z)
                    path.append((z, iter(follow(z))))
                    break
                if z not in finished:
                    low[v] = min(low[v], number[z])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[v])
                if low[v] == number[v]:
                    part = [stack.pop()]
                    while part[-1] != v:
                        part.append(stack.pop())
                    finished.update(part)
                    yield part
