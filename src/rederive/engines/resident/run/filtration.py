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
        # In one function: a long path has a call for each of its rows, and little else.
        waiting, views, steps, trace = [(seed, start)], self.views, self.steps, self.trace
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
            if actual:
                # A stack, and the rules reversed: depth first, in the order of HD94's Figure 1.
                for following in reversed(steps.get(current.head, ())):
                    waiting.append((following, actual))

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
