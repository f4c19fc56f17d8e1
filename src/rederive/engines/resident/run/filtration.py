"""HD94's propagate and filter: every call's approximation is filtered before anything of it goes on.

The procedure follows the paper's Figure 1, depth first: a rule is run for a set of updates; of its approximation, what is known
already is left out; what the other state proves is disqualified, once; the rest are actual updates, and the rules above run for
them.

A step that leaves all columns but the last as they are needs no calls: what follows from the updates of one key is found in one
loop over its places. The calls are made all the same where they are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyroaring import BitMap

from rederive.engines.resident.compile.rule_compiler import Function
from rederive.engines.resident.run.fixpoint import Meter, Target, TooManyRounds, limited
from rederive.engines.resident.run.spread import spread
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Probe, Readable, Table
from rederive.ir.rules import Atom, Rule
from rederive.ir.terms import Variable
from rederive.limits import Limits

Found = dict[Key, Leaf]
TraceCall = Callable[["PropagationRule", Found, Found, Found, Found], None]
Traced = Callable[[], TraceCall | None]  # what records the calls, while somebody wants to know them

NOTHING = BitMap()


@dataclass(slots=True)
class FilteredUpdates:
    """A view's updates of one sign: those that are actual, and those that the other state disqualified.

    `decided`: all rows of a key in the other state, as values of the last column, where they are known.
    """

    target: Target
    provable: Probe
    disqualified: Table
    decided: Callable[[Key], Leaf | None]

    def split(self, approximation: Found) -> tuple[Found, Found]:
        """Disqualified and actual updates of an approximation, without those that were seen before."""
        disqualified: Found = {}
        actual: Found = {}
        table, known, refused = self.target.table, self.target.table.primary, self.disqualified.primary
        for key, leaf in approximation.items():
            if (seen := known.get(key)) is not None:
                leaf = leaf - seen
            if (seen := refused.get(key)) is not None:
                leaf = leaf - seen
            if not leaf:
                continue
            # A deletion that the new state still derives, or an insertion that the old state had, is not an update. It is
            # remembered, so that no row is tested twice in a transaction.
            proved = self.provable(key, leaf)
            if proved:
                disqualified[key] = proved
                self.disqualified.add(key, proved.copy())
                leaf = leaf - proved
                if not leaf:
                    continue
            actual[key] = leaf
            table.add(key, leaf.copy())
        return disqualified, actual

    def walk(self, key: Key, leaf: Leaf, follow: Lookup, meter: Meter) -> None:
        """Find all updates of one key that follow from some of them."""
        # p^del(X, y) :- p^del(X, z), step(z, y), !p^new(X, y).
        while leaf:
            if (other := self.decided(key)) is not None:
                self._walk_on(key, leaf, other, follow, meter)
                return
            approximation = BitMap.union(NOTHING, *[step for place in leaf if (step := follow(place)) is not None])
            if not approximation:
                return
            meter.count(len(approximation))
            leaf = self.split({key: approximation})[1].get(key, NOTHING)

    def _walk_on(self, key: Key, leaf: Leaf, other: Leaf, follow: Lookup, meter: Meter) -> None:
        """The same where all rows of the key in the other state are known: no place is tested there."""
        before = self.target.table.primary[key] | other
        seen = before.copy()
        meter.count(spread(list(leaf), seen, follow))
        if found := seen - before:
            self.target.table.add(key, found)


@dataclass(frozen=True, slots=True)
class PropagationRule:
    """A rule that starts from the updates of one literal; `origin` is the view's own rule.

    `follow`: the steps from a place, where the rule is `p(X, y) :- p(X, z), step(z, y)`.
    """

    function: Function
    origin: Rule
    updated: str
    head: str
    sign: str
    follow: Lookup | None = None


def step_of(rule: Rule, driver: Atom) -> Atom | None:
    """Return the step of a rule `p(X, y) :- p(X, z), step(z, y)` that starts from p; None for other rules."""
    match rule.head, [literal for literal in rule.body if literal is not driver]:
        case Atom(_, (*columns, Variable() as end)), [Atom(_, (Variable() as place, last)) as step] if last == end:
            is_step = driver.terms == (*columns, place) and len({place, end, *columns}) == len(columns) + 2
            return step if is_step and driver.relation == rule.head.relation else None
        case _:
            return None


@dataclass(slots=True)
class FilterPhase:
    """Updates of one sign through one component."""

    seeds: Sequence[tuple[PropagationRule, Readable]]
    steps: dict[str, list[PropagationRule]]
    views: dict[str, FilteredUpdates]
    codes: Codes
    inventing: Rule | None
    trace: Traced

    def run(self, meter: Meter, limits: Limits) -> None:
        """Propagate from every changed relation below, one seed after the other, until no update is left."""
        trace = self.trace()
        with limited(self.inventing, self.codes, limits) as most:
            for step, driver in self.seeds:
                self._run(step, dict(driver.items()), meter, most, trace)

    def _run(self, seed: PropagationRule, start: Found, meter: Meter, most: float, trace: TraceCall | None) -> None:
        # In one function: a long path has a call for each of its rows, and little else.
        waiting, views, steps = [(seed, start)], self.views, self.steps
        calls = 0
        while waiting:
            current, updates = waiting.pop()
            calls += 1
            if calls > most:
                raise TooManyRounds
            view = views[current.head]
            function, pending = current.function, view.target.pending
            for key, leaf in updates.items():
                function(key, leaf)
            # What the rule found for these updates alone: pending is empty between two calls.
            if not pending:
                continue
            approximation = dict(pending)
            pending.clear()
            meter.count(sum(map(len, approximation.values())))
            disqualified, actual = view.split(approximation)
            if trace is not None:
                trace(current, updates, approximation, disqualified, actual)
            if not actual:
                continue
            following = steps.get(current.head, ())
            if trace is None and len(following) == 1 and (follow := following[0].follow) is not None:
                for key, leaf in actual.items():
                    view.walk(key, leaf, follow, meter)
                continue
            # A stack, and the rules reversed: depth first, in the order of HD94's Figure 1.
            for rule in reversed(following):
                waiting.append((rule, actual))

    def commit(self) -> None:
        """Forget what was disqualified: it holds for one transaction."""
        self._clear()

    def rollback(self) -> None:
        """Forget what was disqualified and what is pending."""
        self._clear()

    def _clear(self) -> None:
        for view in self.views.values():
            view.target.pending.clear()
            view.disqualified.clear()
