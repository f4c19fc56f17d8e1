"""A transitive closure that is not stored, answered by walking the steps: forwards from x, backwards from y.

    p(x, y) :- p(x, z), step(z, y).        x is given: the left-linear form, and nothing is derived that x does not reach
    p(x, y) :- step(x, z), p(z, y).        y is given: the right-linear form, backwards

The ends of a walk that is done are complete: a later walk that meets its start takes them in whole and goes no further there.
A question with both ends given is answered from either side. It walks from x until it has come to one step before y; the next
question for x walks on to all its ends. But where other x asked for the same y before, it walks back from y, no further than the
walks from those x went: whichever side there are fewer of is soon complete, at no more than twice its cost. Without any end
given, the rules are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pyroaring import BitMap

from rederive.engines.resident.demand import Demand, RuleAnswers, guessed_fanout
from rederive.engines.resident.fixpoint import Meter
from rederive.engines.resident.table import Key, Leaf, Lookup, Probe, Readable, Table

FEW = 8  # ends, so that a walk back from each may be worth it
NOWHERE = BitMap()
HOLDS = frozenset({()})  # what is left of a row all of whose columns are given


@dataclass(frozen=True, slots=True)
class Walk:
    """The ends of all walks from a start, in one direction. `follow` gives those of a single step.

    `ahead` is told from which places steps will be wanted next, where these are derived too.
    """

    follow: Lookup
    meter: Meter
    ahead: Callable[[Leaf], None] | None = None
    complete: dict[int, Leaf] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    def ends(self, start: int) -> Leaf:
        return self._walk(start)

    def within(self, start: int, most: int) -> Leaf | None:
        """The ends, or None where there are more than that, unless they are known."""
        if start in self.complete or most:
            self._walk(start, lambda reached: len(reached) > most)
        return self.complete.get(start)

    def towards(self, start: int, wanted: Sequence[Leaf]) -> Leaf:
        """The ends; or, where one of each of these sets comes before, those up to there. Whoever starts here again gets all."""
        if start in self.begun:
            return self._walk(start)
        self.begun.add(start)
        return self._walk(start, lambda reached: not any(reached.isdisjoint(some) for some in wanted))

    def _walk(self, start: int, enough: Callable[[Leaf], bool] | None = None) -> Leaf:
        """What is reached. It is complete, and kept, unless that was enough before."""
        if start in self.complete:
            return self.complete[start]
        reached = BitMap()
        waiting = self.follow(start)
        while waiting:
            reached |= waiting
            if enough is not None and enough(reached):
                break
            open_ends = [node for node in waiting if node not in self.complete]
            for node in waiting if len(open_ends) < len(waiting) else ():
                reached |= self.complete.get(node, NOWHERE)
            waiting = self._following(open_ends) - reached
        else:
            self.complete[start] = reached
        self.meter.count(len(reached))
        return reached

    def _following(self, places: list[int]) -> Leaf:
        """One step from each of the places."""
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
        self.walks: dict[int, Walk] = {}
        self.asked: dict[int, int] = {}  # how far walks went to settle whether they have this end

    def __bool__(self) -> bool:
        return bool(self.step)

    def fanout(self, bound: tuple[int, ...]) -> float:
        """A closure reaches further than other views."""
        return guessed_fanout(bound, self.arity) ** 2

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        if len(bound) == self.arity:
            ends = self._walk(0).ends
            return lambda key: HOLDS if key[1] in ends(key[0]) else None
        (column,) = bound
        ends = self._walk(column).ends
        return lambda key: ends(key) or None

    def probe(self) -> Probe:
        forwards, backwards = self._walk(0), self._walk(1)

        def probe(key: int, leaf: Leaf) -> Leaf | None:
            if key in forwards.complete or len(leaf) > FEW:
                return forwards.ends(key) & leaf or None
            starts = [backwards.within(end, self.asked.get(end, 0)) for end in leaf]
            if None not in starts:
                return BitMap([end for end, found in zip(leaf, starts, strict=True) if found and key in found]) or None
            return self._towards(key, leaf) or None

        return probe

    def _towards(self, start: int, leaf: Leaf) -> Leaf:
        """Which of a few ends a walk from here reaches. It is over when it has come to one step before each of them."""
        forwards, before = self._walk(0), self._walk(1).follow
        reached = forwards.towards(start, [(before(end) or NOWHERE) | BitMap((end,)) for end in leaf])
        for end in leaf:
            self.asked[end] = self.asked.get(end, 0) + len(reached)
        return reached & leaf if start in forwards.complete else leaf.copy()

    def items(self) -> Iterable[tuple[Key, Leaf]]:
        self.rules.ask(self.relation, ())(())
        return self.rules.table(self.relation).items()

    def _walk(self, column: int) -> Walk:
        """The walk from this column to the other."""
        if column not in self.walks:
            ahead = self.step.ahead(column) if isinstance(self.step, Demand) else None
            self.walks[column] = Walk(self.step.lookup((column,)), self.meter, ahead)
        return self.walks[column]

    def table(self, relation: str) -> Table:
        """The rows derived so far."""
        table = Table(relation, self.arity)
        table.add_all(self.rules.table(relation))
        for column, walk in self.walks.items():
            pairs = ((start, end) for start, ends in walk.complete.items() for end in ends)
            table.load(pairs if column == 0 else ((end, start) for start, end in pairs))
        return table

    def size(self, relation: str) -> int:
        forwards, backwards = (self.walks[i].complete if i in self.walks else {} for i in (0, 1))
        starts = BitMap(forwards)
        twice = sum(end in forwards[start] for end, found in backwards.items() for start in found & starts)
        walked = sum(map(len, forwards.values())) + sum(map(len, backwards.values())) - twice
        return self.rules.size(relation) or walked  # whoever asked for all rows has them all

    def clear(self) -> None:
        self.rules.clear()
        for walk in self.walks.values():
            walk.complete.clear()
            walk.begun.clear()
        self.asked.clear()
