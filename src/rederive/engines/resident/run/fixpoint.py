"""Semi-naive evaluation, leaf by leaf.

A sweep takes the pending leaves in order. What is new of a leaf goes into the table at once and to the rules that start from it,
whose findings join the pending leaves of the same sweep: a leaf that comes later in the sweep has already gathered them.

When many leaves are pending, and where a leaf's rows flow depends on its key alone, a sweep goes along that flow (in reverse
postorder of a depth-first search): outside of cycles every leaf is then complete before it is passed on, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf

from rederive.engines.resident.compile.rule_compiler import Function
from rederive.engines.resident.storage.codes import Codes, TooManyValues
from rederive.engines.resident.storage.table import Key, Leaf, Lookup, Probe, Readable, Table
from rederive.errors import LimitExceeded
from rederive.ir.rules import Rule
from rederive.limits import HINT, Limits, Watch, endless_recursion

# Pending leaves from which on a sweep is ordered: the search along the flow has to pay for itself.
ORDERED_FROM = 256


class OverBudget(Exception):
    """A view takes more room than it may."""


class TooManyRounds(Exception):
    """A recursion has not come to an end in the rounds that it may take."""


@contextmanager
def limited(inventing: Rule | None, codes: Codes, limits: Limits) -> Iterator[float]:
    """Gives the rounds that a recursion may take, and stops the rule that makes new values without end."""
    # Without new values a recursion ends: there are finitely many rows over the values that exist.
    if inventing is None:
        yield inf
        return
    try:
        with codes.at_most(limits.tuples):
            yield limits.rounds
    except TooManyValues:
        raise endless_recursion(inventing, f"{limits.tuples:,} new values") from None
    except TooManyRounds:
        raise endless_recursion(inventing, f"{limits.rounds:,} rounds") from None


@dataclass(slots=True)
class Meter:
    """Counts the tuples that a transaction looked at as possible changes or answers.

    When there are more than `most`, `check` runs: it returns a new bound, or raises `OverBudget`.
    """

    touched: int = 0
    most: float = inf
    check: Callable[[], float] = lambda: inf
    rows: float = inf
    watch: Watch = field(default_factory=Watch)
    by_column: int = 0  # views that the transaction joined by column

    def count(self, tuples: int) -> None:
        """Count so many tuples, and stop the work where a bound on rows, memory or time is exceeded."""
        self.touched += tuples
        if self.touched > self.most:
            self.most = self.check()
        if self.touched > self.rows:
            raise LimitExceeded(f"the work was stopped after {self.rows:,.0f} rows", hint=HINT).of(())
        if self.watch.late:
            self.watch.stop()


@dataclass(frozen=True, slots=True)
class Seed:
    """A function to start from: called for each leaf of `driver`, or once where there is none."""

    function: Function
    driver: Readable | None

    def run(self, meter: Meter) -> None:
        """Call the function for each leaf of the driver, or once where there is none."""
        if self.driver is None:
            self.function()
            return
        for key, leaf in self.driver.items():
            self.function(key, leaf)


@dataclass(slots=True)
class Target:
    """A table that a phase fills. `known`: what must not be taken in again, by primary key.

    `disqualify` tests in a state that is derived on demand which rows are known. `record` is called for each leaf that is new.
    """

    table: Table
    known: Lookup
    pending: dict[Key, Leaf] = field(default_factory=dict)
    variants: list[Function] = field(default_factory=list)
    flow: Callable[[Key], list[Key]] | None = None
    disqualify: Probe | None = None
    record: Callable[[Key, Leaf], None] | None = None

    def order(self, meter: Meter) -> list[Key] | None:
        """Along the flow from what is pending and new, where that is much and the flow is known."""
        if self.flow is None or len(self.pending) < ORDERED_FROM:
            return None
        self._drop_known(meter)
        return reverse_postorder(self.pending, self.flow) if len(self.pending) >= ORDERED_FROM else None

    def _drop_known(self, meter: Meter) -> None:
        """Leave only rows pending that the table does not have: a step that much leads to adds few."""
        for key, leaf in list(self.pending.items()):
            have = self.known(key)
            if have is not None:
                meter.count(leaf.intersection_cardinality(have))
                leaf -= have
                if not leaf:
                    del self.pending[key]

    def sweep(self, meter: Meter, order: list[Key] | None = None) -> None:
        """Take in the leaves pending now."""
        pending, known, add, variants = self.pending, self.known, self.table.add, self.variants
        disqualify, record = self.disqualify, self.record
        # Semi-naive: each row is taken in once, because `known` is subtracted before the variants see the leaf. Variants
        # add to `pending` while this loop runs, also under keys that are still to come.
        for key in order or list(pending):
            leaf = pending.pop(key, None)
            if leaf is None:
                continue
            meter.count(len(leaf))
            have = known(key)
            if have is not None:
                leaf -= have
                if not leaf:
                    continue
            # Rows of a state that is derived on demand are tested for this leaf alone, not looked up as a whole.
            if disqualify is not None and (idle := disqualify(key, leaf)):
                leaf -= idle
                if not leaf:
                    continue
            if record is not None:
                record(key, leaf)
            # In this order: a rule that reads its own head's table must see the leaf that it starts from.
            add(key, leaf)
            for variant in variants:
                variant(key, leaf)


@dataclass(frozen=True, slots=True)
class Fixpoint:
    """One phase: seeds, then sweeps over its targets until nothing is pending.

    `inventing` is the rule that may make new values without end, where there is one.
    """

    seeds: Sequence[Seed]
    targets: Sequence[Target]
    codes: Codes
    inventing: Rule | None = None

    def run(self, meter: Meter, limits: Limits) -> None:
        """Run seeds and sweeps until nothing is pending, within the limits of a recursion that makes new values."""
        if self.inventing is None:
            self._run(meter, inf)
            return
        with limited(self.inventing, self.codes, limits) as most:
            self._run(meter, most)

    def _run(self, meter: Meter, most: float) -> None:
        for seed in self.seeds:
            seed.run(meter)
        rounds = 0
        order: list[Key] | None = None
        # At the end no target has pending leaves: the tables are the least fixpoint over what the seeds found.
        while waiting := [target for target in self.targets if target.pending]:
            for target in waiting:
                # The first order serves all rounds: it holds every key that the pending leaves can flow to.
                order = order or target.order(meter)
                target.sweep(meter, order)
            rounds += 1
            if rounds > most:
                raise TooManyRounds

    def clear(self) -> None:
        """Forget what is pending, after a failure."""
        for target in self.targets:
            target.pending.clear()


def reverse_postorder(starts: Iterable[Key], flow: Callable[[Key], list[Key]]) -> list[Key]:
    """Every key that the starts flow to, each before those it flows to itself, cycles aside.

    >>> reverse_postorder([1, 3], {1: [2], 2: [], 3: [1]}.__getitem__)
    [3, 1, 2]
    """
    seen: set[Key] = set()
    finished: list[Key] = []
    for start in starts:
        if start in seen:
            continue
        seen.add(start)
        # An explicit stack: a chain of the data may be longer than Python's recursion limit.
        path = [(start, iter(flow(start)))]
        while path:
            key, following = path[-1]
            for other in following:
                if other not in seen:
                    seen.add(other)
                    path.append((other, iter(flow(other))))
                    break
            else:
                finished.append(key)
                path.pop()
    finished.reverse()
    return finished
