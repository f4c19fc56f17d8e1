"""A transitive closure that is not stored, answered by a search along its steps: forwards from x, backwards from y.

    p(x, y) :- p(x, z), step(z, y).        x is bound: the left-linear form, and nothing is derived that x does not reach
    p(x, y) :- step(x, z), p(z, y).        y is bound: the right-linear form, backwards

The ends of a finished search are complete: a later search that meets its start takes them in whole and goes no further there. A
query with both ends bound searches from both until the two meet, one step at a time from the side where fewer places wait. The
next query for the same x searches all its ends; but where other x were queried for the same y before, it searches back from y, no
further than the searches from those x went: the side with fewer ends is soon complete, at no more than twice its cost. Without a
bound end, the rules are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf

from pyroaring import BitMap

from rederive.engines.resident.run.derived_views import DerivedView, RuleAnswers, guessed_fanout
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.spread import spread
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Probe, Readable, Table

FEW = 8  # ends, so that a search back from each may be worth it
NOWHERE = BitMap()
HOLDS = frozenset({()})  # what is left of a row all of whose columns are given


@dataclass(slots=True)
class Front:
    """A search that is not finished: what it has reached, how many of that by its first step, and the places to continue from."""

    reached: Leaf
    first_step: int
    waiting: Leaf


@dataclass(frozen=True, slots=True)
class Search:
    """The ends of all searches from a start, in one direction. `follow` gives those of a single step.

    `ahead` derives the steps from the next places together, where steps are derived on demand too.
    """

    follow: Lookup
    meter: Meter
    ahead: Callable[[Leaf], None] | None = None
    complete: dict[int, Leaf] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    def ends(self, start: int) -> Leaf:
        """Return all ends from a start, and remember them as complete."""
        found = self.within(start, inf)
        assert found is not None
        return found

    def within(self, start: int, most: float) -> Leaf | None:
        """The ends, or None where there are more than that, unless they are known."""
        if start not in self.complete and most:
            front = self.begin(start)
            # Invariant: every place reached is waiting, followed already, or its complete ends are in `reached`.
            if self.ahead is None:
                waiting = list(front.waiting)
                spread(waiting, front.reached, self.follow, self.complete, most)
                front.waiting = BitMap(waiting)
            while front.waiting and len(front.reached) <= most:
                self.advance(front)
            self.leave(start, front)
        return self.complete.get(start)

    def begin(self, start: int) -> Front:
        """Return a front that has taken the first step."""
        first = self.follow(start) or NOWHERE
        return Front(first.copy(), len(first), first)

    def advance(self, front: Front) -> None:
        """One step from all places, but for those whose ends are known."""
        # p(x, y) :- p(x, z), step(z, y).  Of a complete z all ends are taken at once.
        places = [place for place in front.waiting if place not in self.complete]
        for place in front.waiting if len(places) < len(front.waiting) else ():
            front.reached |= self.complete.get(place, NOWHERE)
        # Only ends that are new wait: semi-naive, so a cycle ends the search.
        front.waiting = self._following(places) - front.reached
        front.reached |= front.waiting

    def leave(self, start: int, front: Front) -> None:
        """Store what a finished search has reached; of one that is given up, the first step was only read."""
        if front.waiting:
            self.meter.count(len(front.reached) - front.first_step)
        else:
            self.meter.count(len(front.reached))
            self.complete[start] = front.reached

    def _following(self, places: list[int]) -> Leaf:
        """One step from each of the places."""
        # One fixpoint for all places instead of one for each.
        if self.ahead is not None:
            self.ahead(BitMap(places))
        found = BitMap()
        for place in places:
            found |= self.follow(place) or NOWHERE
        return found


class ClosureAnswers:
    """A view that is the transitive closure of `step`, a relation of two columns, in one state of the database."""

    lazy = True
    arity = 2
    primary_columns = (0,)

    def __init__(self, relation: str, step: Readable, rules: RuleAnswers, meter: Meter) -> None:
        self.relation = relation
        self.step = step
        self.rules = rules
        self.meter = meter
        self.searches: dict[int, Search] = {}
        self.spent: dict[int, int] = {}  # by end: how many places searches reached to decide whether they have it

    def __bool__(self) -> bool:
        return bool(self.step)

    def fanout(self, bound: tuple[int, ...]) -> float:
        """A closure reaches further than other views."""
        return guessed_fanout(bound, self.arity) ** 2

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """Return a function that searches from the bound end, or from x where both ends are bound."""
        if len(bound) == self.arity:
            ends = self._search(0).ends
            return lambda key: HOLDS if key[1] in ends(key[0]) else None
        (column,) = bound
        ends = self._search(column).ends
        return lambda key: ends(key) or None

    def probe(self) -> Probe:
        """Return a function that decides a few ends by a search from both sides, many by one search from x."""
        forwards, backwards = self._search(0), self._search(1)

        complete = forwards.complete

        def probe(key: int, leaf: Leaf) -> Leaf | None:
            if (ends := complete.get(key)) is not None:
                return ends & leaf or None
            if len(leaf) > FEW:
                return forwards.ends(key) & leaf or None
            # Back from each end, no further than searches from other starts went for it: at most twice the cost of the
            # better side.
            starts = [backwards.within(end, self.spent.get(end, 0)) for end in leaf]
            if None not in starts:
                return BitMap([end for end, found in zip(leaf, starts, strict=True) if found and key in found]) or None
            return self._towards(key, leaf) or None

        return probe

    def decided(self) -> Callable[[Key], Leaf | None]:
        """Return a function that gives all ends of a start, if they were searched."""
        return self._search(0).complete.get  # type: ignore[return-value]

    def _towards(self, start: int, leaf: Leaf) -> Leaf:
        """Which of a few ends are reached: from both sides, until they meet. A second search from this start goes to all ends."""
        forwards = self._search(0)
        if start in forwards.begun:
            ends = forwards.ends(start)
            self._note(leaf, len(ends))
            return ends & leaf
        forwards.begun.add(start)
        front = forwards.begin(start)
        held = BitMap([end for end in leaf if self._connected(start, front, end)])
        forwards.leave(start, front)
        self._note(leaf, len(front.reached))
        return held

    def _connected(self, start: int, front: Front, end: int) -> bool:
        forwards, backwards = self._search(0), self._search(1)
        back = backwards.begin(end)
        # p(x, y) holds iff x is among the places that reach y, or the two fronts share a place.
        while not (met := start in back.reached or not front.reached.isdisjoint(back.reached)) and front.waiting and back.waiting:
            if len(front.waiting) <= len(back.waiting):
                forwards.advance(front)
            else:
                backwards.advance(back)
        backwards.leave(end, back)
        return met

    def _note(self, ends: Leaf, reached: int) -> None:
        for end in ends:
            self.spent[end] = self.spent.get(end, 0) + reached

    def items(self) -> Iterable[tuple[Key, Leaf]]:
        """Return all pairs, derived by the rules: without a bound end no search is better than another."""
        self.rules.deriver(self.relation, ())(())
        return self.rules.table(self.relation).items()

    def _search(self, column: int) -> Search:
        """The search from this column to the other."""
        if column not in self.searches:
            ahead = self.step.ahead(column) if isinstance(self.step, DerivedView) else None
            self.searches[column] = Search(self.step.lookup((column,)), self.meter, ahead)
        return self.searches[column]

    def table(self, relation: str) -> Table:
        """The rows derived so far."""
        table = Table(relation, self.arity)
        table.add_all(self.rules.table(relation))
        for column, search in self.searches.items():
            pairs = ((start, end) for start, ends in search.complete.items() for end in ends)
            table.load(pairs if column == 0 else ((end, start) for start, end in pairs))
        return table

    def size(self, relation: str) -> int:
        """Return the number of distinct pairs that searches or rules have derived."""
        forwards, backwards = (self.searches[i].complete if i in self.searches else {} for i in (0, 1))
        starts = BitMap(forwards)
        # A pair that both directions have found counts once.
        twice = sum(end in forwards[start] for end, found in backwards.items() for start in found & starts)
        reached = sum(map(len, forwards.values())) + sum(map(len, backwards.values())) - twice
        return self.rules.size(relation) or reached  # a query for all rows has derived them all

    def clear(self) -> None:
        """Forget all searches, as the state of the database that they saw may change."""
        self.rules.clear()
        for search in self.searches.values():
            search.complete.clear()
            search.begun.clear()
        self.spent.clear()


class StartedClosureAnswers(ClosureAnswers):
    """The part of a transitive closure with one start: the same searches, and no row with another start.

    All probes of a state share one search from the start, which goes as far as one of them needs. Searches back from the ends
    together reach no more places than it does: then it goes on alone. So the probes cost at most twice the whole search.
    """

    def __init__(self, relation: str, start: int, step: Readable, rules: RuleAnswers, meter: Meter) -> None:
        super().__init__(relation, step, rules, meter)
        self.start = start
        self.front: Front | None = None
        self.reached_back = 0

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        """Return a function that searches from the start, or that tells whether it reaches an end."""
        start, probe = self.start, self.probe()
        if bound == (0,):
            ends = self._search(0).ends
            return lambda key: (ends(start) or None) if key == start else None
        if bound == (1,):
            only = BitMap([start])
            return lambda key: only if probe(start, BitMap([key])) else None
        return lambda key: HOLDS if probe(key[0], BitMap([key[1]])) else None

    def probe(self) -> Probe:
        """As of the whole closure, for its one start."""
        start, whole = self.start, super().probe()
        return lambda key, leaf: whole(start, leaf) if key == start else None

    def _towards(self, start: int, leaf: Leaf) -> Leaf:
        forwards = self._search(0)
        if self.front is None:
            self.front = forwards.begin(start)
            self.meter.count(len(self.front.reached))
        front, before = self.front, len(self.front.reached)
        held = BitMap([end for end in leaf if self._reaches(front, end)])
        self.meter.count(len(front.reached) - before)
        if not front.waiting:
            forwards.complete[start] = front.reached
        return held

    def _reaches(self, front: Front, end: int) -> bool:
        forwards, backwards = self._search(0), self._search(1)
        if end in front.reached or not front.waiting:
            return end in front.reached
        back = backwards.begin(end)
        # p(c, y) holds iff c is among the places that reach y, or the two fronts share a place.
        while not (met := self.start in back.reached or not front.reached.isdisjoint(back.reached)) and back.waiting:
            if not front.waiting:
                return end in front.reached
            if self.reached_back >= len(front.reached) or len(front.waiting) <= len(back.waiting):
                forwards.advance(front)
            else:
                before = len(back.reached)
                backwards.advance(back)
                self.reached_back += len(back.reached) - before
        backwards.leave(end, back)
        return met or end in front.reached

    def clear(self) -> None:
        """Forget all searches, as the state of the database that they saw may change."""
        super().clear()
        self.front, self.reached_back = None, 0

    def table(self, relation: str) -> Table:
        """The rows derived so far."""
        table = Table(relation, self.arity)
        table.add_all(self.rules.table(relation))
        table.load((self.start, end) for end in self._found())
        return table

    def size(self, relation: str) -> int:
        """Return the number of ends that searches or rules have derived."""
        return self.rules.size(relation) or len(self._found())

    def _found(self) -> Leaf:
        forwards, backwards = (self.searches[i].complete if i in self.searches else {} for i in (0, 1))
        return forwards.get(self.start, NOWHERE) | BitMap([end for end, starts in backwards.items() if self.start in starts])
