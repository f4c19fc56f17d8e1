"""A transitive closure that is not stored, answered by walking the steps: forwards from x, backwards from y.

    p(x, y) :- p(x, z), step(z, y).        x is given: the left-linear form, and nothing is derived that x does not reach
    p(x, y) :- step(x, z), p(z, y).        y is given: the right-linear form, backwards

The ends of a walk that is done are complete: a later walk that meets its start takes them in whole and goes no further there.
A question with both ends given is one for all ends of x, which the next y shares. Without any, the rules are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pyroaring import BitMap

from rederive.engines.resident.demand import Demand, RuleAnswers, guessed_fanout
from rederive.engines.resident.fixpoint import Meter
from rederive.engines.resident.table import Key, Leaf, Lookup, Probe, Readable, Table

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

    def ends(self, start: int) -> Leaf:
        found = self.complete.get(start)
        if found is None:
            found = self.complete[start] = self._walk(start)
            self.meter.count(len(found))
        return found

    def _walk(self, start: int) -> Leaf:
        reached = BitMap()
        waiting = self.follow(start)
        while waiting:
            reached |= waiting
            open_ends = [node for node in waiting if node not in self.complete]
            for node in waiting if len(open_ends) < len(waiting) else ():
                reached |= self.complete.get(node, NOWHERE)
            waiting = self._following(open_ends) - reached
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

    def __bool__(self) -> bool:
        return bool(self.step)

    def fanout(self, bound: tuple[int, ...]) -> float:
        return guessed_fanout(bound, self.arity)

    def lookup(self, bound: tuple[int, ...]) -> Lookup:
        if len(bound) == self.arity:
            ends = self._walk(0).ends
            return lambda key: HOLDS if key[1] in ends(key[0]) else None
        (column,) = bound
        ends = self._walk(column).ends
        return lambda key: ends(key) or None

    def probe(self) -> Probe:
        ends = self._walk(0).ends
        return lambda key, leaf: ends(key) & leaf or None

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
        walked = sum(len(ends) for walk in self.walks.values() for ends in walk.complete.values())
        return walked + self.rules.size(relation)

    def clear(self) -> None:
        self.rules.clear()
        for walk in self.walks.values():
            walk.complete.clear()
