"""HD94's propagate and filter: every call's approximation is filtered before anything of it goes on.

The procedure follows the paper's Figure 1, depth first: a rule is run for a set of updates; of its approximation, what is known
already is left out; what the other state proves is disqualified, once; the rest are actual updates, and the rules above run for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rederive.engines.resident.compile.rule_compiler import Function
from rederive.engines.resident.run.fixpoint import Meter, Target, TooManyRounds, limited
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.table import Key, Leaf, Probe, Readable, Table
from rederive.ir.rules import Rule
from rederive.limits import Limits

Found = dict[Key, Leaf]
TraceCall = Callable[["PropagationRule", Found, Found, Found, Found], None]


@dataclass(slots=True)
class FilteredUpdates:
    """A view's updates of one sign: those that are actual, and those that the other state disqualified."""

    target: Target
    provable: Probe
    disqualified: Table

    def split(self, approximation: Found) -> tuple[Found, Found]:
        """Disqualified and actual updates of an approximation, without those that were seen before."""
        disqualified: Found = {}
        actual: Found = {}
        for key, leaf in approximation.items():
            for seen in (self.target.table.primary, self.disqualified.primary):
                if key in seen:
                    leaf = leaf - seen[key]
            if not leaf:
                continue
            # A deletion that the new state still derives, or an insertion that the old state had, is not an update. It is
            # remembered, so that no row is tested twice in a transaction.
            proved = self.provable(key, leaf)
            if proved:
                disqualified[key] = proved
                self.disqualified.add(key, proved.copy())
                leaf = leaf - proved
            if leaf:
                actual[key] = leaf
                self.target.table.add(key, leaf.copy())
        return disqualified, actual


@dataclass(frozen=True, slots=True)
class PropagationRule:
    """A rule that starts from the updates of one literal; `origin` is the view's own rule."""

    function: Function
    origin: Rule
    updated: str
    head: str
    sign: str


@dataclass(slots=True)
class FilterPhase:
    """Updates of one sign through one component."""

    seeds: Sequence[tuple[PropagationRule, Readable]]
    steps: dict[str, list[PropagationRule]]
    views: dict[str, FilteredUpdates]
    codes: Codes
    inventing: Rule | None
    trace: TraceCall | None = None

    def run(self, meter: Meter, limits: Limits) -> None:
        """Propagate from every changed relation below, one seed after the other, until no update is left."""
        with limited(self.inventing, self.codes, limits) as most:
            for step, driver in self.seeds:
                self._run(step, dict(driver.items()), meter, most)

    def _run(self, seed: PropagationRule, start: Found, meter: Meter, most: float) -> None:
        waiting = [(seed, start)]
        calls = 0
        while waiting:
            current, updates = waiting.pop()
            if updates:
                actual = self._propagate(current, updates, meter)
                # A stack, and the rules reversed: depth first, in the order of HD94's Figure 1.
                waiting += [(following, actual) for following in reversed(self.steps.get(current.head, ()))]
            calls += 1
            if calls > most:
                raise TooManyRounds

    def _propagate(self, step: PropagationRule, updates: Found, meter: Meter) -> Found:
        view = self.views[step.head]
        for key, leaf in updates.items():
            step.function(key, leaf)
        # What the rule found for these updates alone: pending is empty between two calls.
        approximation = dict(view.target.pending)
        view.target.pending.clear()
        meter.count(sum(map(len, approximation.values())))
        disqualified, actual = view.split(approximation)
        if approximation and self.trace is not None:
            self.trace(step, updates, approximation, disqualified, actual)
        return actual

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
