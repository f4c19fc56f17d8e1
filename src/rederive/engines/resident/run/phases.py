"""The phases of a section, ready to run, and the choice among them. Each is committed or rolled back after a transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from rederive.analysis.cost import Estimate, Statistics, estimate
from rederive.analysis.graph import Component
from rederive.engines.resident.compile.rule_compiler import Function, Source
from rederive.engines.resident.run.aggregates import Groups
from rederive.engines.resident.run.closure_deletions import ClosureDeletions
from rederive.engines.resident.run.fixpoint import Fixpoint, Meter
from rederive.engines.resident.run.patience import FIRST, Overrun, Patience
from rederive.engines.resident.run.refolded_groups import change_rows
from rederive.engines.resident.storage.codes import CodedRow
from rederive.engines.resident.storage.table import Readable, RowBatch, StoredTable, Table, rows_of, whole_rows
from rederive.limits import Limits
from rederive.maintain.program import Section, Strategy
from rederive.scalar.failures import ScalarError


class Runnable(Protocol):
    """A phase, ready to run."""

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fill the tables of the phase; nothing outside of the transaction's tables changes."""

    def commit(self) -> None:
        """Make what the run found part of the state that is stored between transactions."""

    def rollback(self) -> None:
        """Discard what the run found, also after a failure in the middle of it."""


@dataclass(frozen=True, slots=True)
class SetPhase:
    """Rules to a fixpoint."""

    fixpoint: Fixpoint

    def run(self, meter: Meter, limits: Limits) -> None:
        """Run the fixpoint; its targets then hold everything that the rules derive."""
        self.fixpoint.run(meter, limits)

    def try_out(self, limits: Limits) -> None:
        """Run for the failures alone."""
        try:
            self.run(Meter(), limits)
        finally:
            self.fixpoint.clear()
            for target in self.fixpoint.targets:
                target.table.clear()

    def commit(self) -> None:
        """Do nothing: the tables are those of the transaction, which the engine applies and clears."""

    def rollback(self) -> None:
        """Drop the leaves that a failed run left pending."""
        self.fixpoint.clear()


@dataclass(frozen=True, slots=True)
class ClosurePhase:
    """The deletions of a stored transitive closure."""

    deletions: ClosureDeletions

    def run(self, meter: Meter, limits: Limits) -> None:
        """Find what the closure loses, if it loses steps."""
        if self.deletions.lost_steps:
            self.deletions.find(meter)

    def commit(self) -> None:
        """Do nothing: the tables are those of the transaction."""

    def rollback(self) -> None:
        """Do nothing: the tables are those of the transaction."""


@dataclass(frozen=True, slots=True)
class NetPhase:
    """minus = del - red - ins, plus = ins - old, in place: from now on p^del and p^ins are the exact delta.

    An insertion that was in the old state must have been deleted, as idle ones were dropped when found; so plus = ins - del.
    """

    gone: Table
    red: Table
    came: Table

    def run(self, meter: Meter, limits: Limits) -> None:
        """Turn overestimated deletions and insertions into the exact delta, in place."""
        # minus = del - red - ins. What another derivation supports (red) never left.
        for key, leaf in self.red.primary.items():
            self.gone.remove(key, leaf)
        # A row that is deleted and inserted is a phantom on both sides: it was there before and is there after.
        for key in [key for key in self.came.primary if key in self.gone.primary]:
            phantom = self.came.primary[key] & self.gone.primary[key]
            if phantom:
                self.gone.remove(key, phantom)
                self.came.remove(key, phantom)
        # The new state (old - del) + red + ins stays the same: the rows of red, now empty, have left del.
        self.red.clear()

    def commit(self) -> None:
        """Do nothing: the phase stores nothing of its own."""

    def rollback(self) -> None:
        """Do nothing: the phase stores nothing of its own."""


@dataclass(frozen=True, slots=True)
class DiffPhase:
    """plus = new - old, minus = old - new, where both states are tables; the old one is dropped unless it is stored."""

    old: StoredTable
    new: Table
    gone: Table
    came: Table
    is_stored: bool = False

    def run(self, meter: Meter, limits: Limits) -> None:
        """Compare both states leaf by leaf, in time proportional to their sizes."""
        # minus :- old, !new.   plus :- new, !old.
        for one, other, into in ((self.old, self.new, self.gone), (self.new, self.old, self.came)):
            there = other.lookup(other.primary_columns)
            for key, leaf in one.items():
                have = there(key)
                missing = leaf - have if have is not None else leaf.copy()
                if missing:
                    into.add(key, missing)

    def commit(self) -> None:
        """Drop the old state that was evaluated for the comparison; a stored one stays."""
        if not self.is_stored and isinstance(self.old, Table):
            self.old.clear()

    def rollback(self) -> None:
        """Drop the old state as a commit does: in either case it belongs to the transaction."""
        self.commit()


@dataclass(frozen=True, slots=True)
class CountPhase:
    """Derivation counts: rows whose count leaves zero enter, rows whose count comes back to zero leave."""

    rules: tuple[tuple[Function, Table, int], ...]
    changes: dict[CodedRow, int]
    counts: dict[CodedRow, int]
    gone: Table
    came: Table
    failures: list[ScalarError]
    strict: Callable[[], SetPhase]

    def run(self, meter: Meter, limits: Limits) -> None:
        """Sum the derivations that enter and leave, and report the rows whose count leaves or reaches zero."""
        # (Ai) with times = 1, (Si) with times = -1: the drivers are the tables of changes, so the cost follows the change.
        for function, driver, times in self.rules:
            for key, leaf in driver.primary.items():
                function(key, leaf, times)
        if self.failures:
            self._check(limits)
        self._net(meter)

    def _check(self, limits: Limits) -> None:
        """A functor failed for some binding. If it holds in the new state, its insertion rule fails too, and says so."""
        self.failures.clear()
        self.strict().try_out(limits)

    def _net(self, meter: Meter) -> None:
        entered, left = [], []
        # count^new = count + add - sub >= 0, so a change of a count that is zero can only be positive.
        for row, change in self.changes.items():
            meter.touched += 1
            before = self.counts.get(row, 0)
            if not before and change:
                entered.append(row)
            elif before and not before + change:
                left.append(row)
        self.came.load(entered)
        self.gone.load(left)

    def commit(self) -> None:
        """Add the changes to the stored counts."""
        for row, change in self.changes.items():
            count = self.counts.get(row, 0) + change
            if count:
                self.counts[row] = count
            else:
                self.counts.pop(row, None)
        self.changes.clear()

    def rollback(self) -> None:
        """Forget the changes of the counts; the stored counts were never touched."""
        self.changes.clear()
        self.failures.clear()


@dataclass(frozen=True, slots=True)
class GroupPhase:
    """An aggregate by affected group."""

    groups: Groups
    source: tuple[Table, Table, Source]
    view: tuple[StoredTable, Table, Table]

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fold the changed source rows into their groups, and report the results that differ."""
        self.groups.change(*self.source, *self.view, meter)

    def commit(self) -> None:
        """Make the changed totals of the groups current."""
        self.groups.commit()

    def rollback(self) -> None:
        """Forget the changed totals of the groups."""
        self.groups.rollback()


@dataclass(frozen=True, slots=True)
class ComparePhase:
    """An aggregate that is not stored: the affected groups in both states."""

    group: tuple[int, ...]
    arity: int
    changed: tuple[Table, Table]
    states: tuple[Readable, Readable]
    view: tuple[Table, Table]
    ranks: bool = False

    def run(self, meter: Meter, limits: Limits) -> None:
        """Derive every affected group in both states, and report the results that differ."""
        # (G) p^touched(g) :- s^del(g, ...).   p^touched(g) :- s^ins(g, ...).
        affected = {tuple([row[i] for i in self.group]) for table in self.changed for row in rows_of(table.primary, self.arity)}
        columns = tuple(range(len(self.group)))
        before, after = (state.lookup(columns) for state in self.states)
        gone, came = self.view
        for group in affected:
            key = group[0] if len(group) == 1 else group
            old, new = before(key), after(key)
            # A numbered group has many rows; any other aggregate has one, so its entry is the whole result.
            if self.ranks:
                change_rows(
                    set(whole_rows(columns, key, old or (), gone.arity)),
                    set(whole_rows(columns, key, new or (), gone.arity)),
                    gone,
                    came,
                )
            elif old != new:
                if old is not None:
                    gone.add(key, old.copy())
                if new is not None:
                    came.add(key, new.copy())

    def commit(self) -> None:
        """Do nothing: no total of a group is stored."""

    def rollback(self) -> None:
        """Do nothing: no total of a group is stored."""


@dataclass(frozen=True, slots=True)
class FoldPhase:
    """An aggregate from scratch, in one state."""

    groups: Groups
    source: Source
    view: Table

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fold all groups of the source into the view's table."""
        rows = rows_of(dict(self.source.items()), self.groups.source.arity)
        for key, leaf in self.groups.fold(rows):
            meter.touched += 1
            self.view.add(key, leaf)

    def commit(self) -> None:
        """Do nothing: the fold stores no totals."""

    def rollback(self) -> None:
        """Do nothing: the fold stores no totals."""


@dataclass(frozen=True, slots=True)
class CountInitial:
    """The first evaluation of a counted view: every derivation once. What fails by itself fails in `strict` too."""

    functions: tuple[Function, ...]
    changes: dict[CodedRow, int]
    counts: dict[CodedRow, int]
    view: StoredTable
    failures: list[ScalarError]
    strict: Callable[[], SetPhase]

    def run(self, meter: Meter, limits: Limits) -> None:
        """Count every derivation, and load the rows that have one."""
        for function in self.functions:
            function(1)
        if self.failures:
            self.failures.clear()
            self.strict().try_out(limits)
        meter.touched += len(self.changes)
        self.view.load(self.changes)

    def commit(self) -> None:
        """Make the counted derivations the stored counts."""
        self.counts.update(self.changes)
        self.changes.clear()

    def rollback(self) -> None:
        """Forget the counted derivations."""
        self.changes.clear()


@dataclass(frozen=True, slots=True)
class GroupInitial:
    """The initial evaluation of an aggregate: its whole source enters, derived for this purpose where it is not stored."""

    groups: Groups
    source: Readable
    view: StoredTable
    by_column: Callable[[], RowBatch | None] | None = None

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fold the whole source into the groups, as an insertion of all its rows."""
        nothing, source, results = Table("nothing", self.source.arity), self._whole(), Table("results", self.view.arity)
        # From empty groups: the source is both the insertions and the new state; the view is empty, so all results enter.
        self.groups.change(nothing, source, source, self.view, nothing, results, meter)
        self.view.add_all(results)

    def _whole(self) -> Table:
        """The source's rows; those that are not stored are derived."""
        whole = Table("whole", self.source.arity)
        if self.by_column is not None and (batch := self.by_column()) is not None:
            whole.add_batch(batch)
            return whole
        if isinstance(self.source, Table):
            return self.source
        for key, leaf in self.source.items():
            whole.add(key, leaf.copy())
        return whole

    def commit(self) -> None:
        """Make the totals of the groups current."""
        self.groups.commit()

    def rollback(self) -> None:
        """Forget the totals of the groups."""
        self.groups.rollback()


_FEW: Final = 64  # rows: a smaller relation does not change what is cheapest


class CostEstimate:
    """What a component's maintenance costs at the present sizes: views that were defined over empty relations do not stay small.

    The estimate is made again when as many rows of a relation have changed as it had then, so its cost is spread over them, and
    the sizes are not what they were.
    """

    def __init__(self, component: Component, influents: Collection[str], statistics: Statistics) -> None:
        self._component = component
        self._names = tuple({*component.relations, *influents})
        self._statistics = statistics
        self._sizes: tuple[int, ...] = ()
        self._make()

    def present(self, changed: Iterable[tuple[str, int, int]] = ()) -> Estimate:
        """The estimate for a transaction in which so many rows of each relation leave and enter."""
        # Amortized: the next estimate comes after as many changed rows of a relation as it had at the last one. The sizes are
        # those before this transaction, whose rows count for the next one.
        if any(self._left[name] < 0 for name in self._names):
            self._make()
        for name, gone, came in changed:
            self._left[name] -= gone + came
        return self._estimate

    def _make(self) -> None:
        rows = [int(self._statistics.rows(name)) for name in self._names]
        # Sizes within a factor of two: small relations change as a whole all the time, and stay small.
        sizes = tuple(number.bit_length() for number in rows)
        if sizes != self._sizes:
            self._estimate, self._sizes = estimate(self._component, self._statistics), sizes
        self._left = {name: max(number, _FEW) for name, number in zip(self._names, rows, strict=True)}


def _run_all(phases: Sequence[Runnable], meter: Meter, limits: Limits) -> None:
    for phase in phases:
        phase.run(meter, limits)


@dataclass(frozen=True, slots=True)
class LinkedSection:
    """A section that runs. `influents`: it has nothing to do where none of them changed.

    `from_scratch` are the phases that evaluate the view from scratch, and `estimate` what they and the incremental phases cost;
    empty and None where there is no choice. `patience`: when incremental work is given up. `forget` empties what both fill.
    """

    section: Section
    influents: Mapping[str, tuple[Table, Table]]
    phases: tuple[Runnable, ...]
    from_scratch: tuple[Runnable, ...] = ()
    estimate: CostEstimate | None = None
    patience: Patience | None = None
    forget: Callable[[], None] = lambda: None

    def run(self, meter: Meter, limits: Limits) -> tuple[float, bool]:
        """Fill the deltas of the section's views; the tuples this was estimated to touch, and whether it was from scratch."""
        phases, expected = self.cheapest_phases()
        if self.patience is None:
            _run_all(phases, meter, limits)
            return expected, False
        if phases is self.from_scratch:
            _run_all(phases, meter, limits)
            return expected, True
        while True:
            self.patience.start, self.patience.end = self.patience.clock(), None
            self.patience.loses_rows = any(gone for gone, _ in self.influents.values())
            meter.most, meter.check = meter.touched + FIRST, self.patience.check
            try:
                _run_all(phases, meter, limits)
                return expected, False
            except Overrun:
                self._give_up()
            finally:
                meter.most = inf
            try:
                with self.patience.measure():
                    _run_all(self.from_scratch, meter, limits)
                return expected, True
            except Overrun:
                self._give_up()

    def _give_up(self) -> None:
        for phase in (*self.phases, *self.from_scratch):
            phase.rollback()
        self.forget()

    def is_affected(self) -> bool:
        """Whether the section has anything to do. Recomputation always has: views above may need its states."""
        for gone, came in self.influents.values():
            if gone or came:
                return True
        return self.section.strategy is Strategy.RECOMPUTE

    def cheapest_phases(self) -> tuple[tuple[Runnable, ...], float]:
        """The phases to run for the present deltas, and an estimate of the tuples that they touch."""
        if self.estimate is None:
            return self.phases, 0.0
        # Exact sizes of the deltas below: sections run bottom up, so what this one reads is complete.
        changed = [(name, len(gone), len(came)) for name, (gone, came) in self.influents.items() if gone or came]
        present = self.estimate.present(changed)
        costs = ((present.per_row.get(name, (0.0, 0.0)), gone, came) for name, gone, came in changed)
        incremental = sum(leaves * gone + enters * came for (leaves, enters), gone, came in costs)
        return (self.phases, incremental) if incremental <= present.whole else (self.from_scratch, present.whole)
