"""Phases by column: changes and first evaluations of views without recursion.

A change of few rows is joined row by row, which costs little for each row and nothing beforehand; a change of many rows is joined
by column. The choice is made for each transaction, by the bindings that are expected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rederive.engines.resident.batch.batch_rule import BatchRule
from rederive.engines.resident.batch.sources import ColumnSource
from rederive.engines.resident.batch.vectors import Batch, NotByColumn, Vector, differences, one_of_each, without
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.phases import Runnable
from rederive.engines.resident.run.threshold import Threshold
from rederive.engines.resident.storage.row_index import MOST_MATCHES, Array
from rederive.engines.resident.storage.table import StoredTable, Table
from rederive.limits import Limits

# A copy of a row of bitmaps into an array costs about as much as this many bindings by row.
COPIED: Final = 0.2


@dataclass(frozen=True, slots=True)
class Differential:
    """A rule that starts from one change and finds rows of another."""

    rule: BatchRule
    driver: Table


@dataclass(frozen=True, slots=True)
class ColumnPhase:
    """The change of one view without recursion, by column where it is large, else by `by_row`, the phases for rows.

    `rederivations`: the rules (R), empty where each row has one derivation at most. `view`: the stored rows, None where nothing
    is stored: rows that leave and enter then cancel in the sums above. `inputs`: the changes that the phases for rows read.
    """

    deletions: tuple[Differential, ...]
    rederivations: tuple[BatchRule, ...]
    insertions: tuple[Differential, ...]
    gone: Table
    came: Table
    view: StoredTable | None
    by_row: tuple[Runnable, ...]
    inputs: tuple[Table, ...]

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fill the changes of the view."""
        deletions, insertions = ([d.rule for d in ds if d.driver] for ds in (self.deletions, self.insertions))
        if pays([*deletions, *insertions]) and self._run_by_column(deletions, insertions, meter):
            return
        for table in self.inputs:
            table.unpack()
        for phase in self.by_row:
            phase.run(meter, limits)

    def _run_by_column(self, deletions: Sequence[BatchRule], insertions: Sequence[BatchRule], meter: Meter) -> bool:
        try:
            gone, came = self._found(deletions, meter), self._found(insertions, meter)
            if self.view is not None:
                gone, came = self._net(gone, came, meter)
        except NotByColumn:
            self.gone.clear()
            return False
        meter.by_column += 1
        for table, batch in ((self.gone, gone), (self.came, came)):
            if batch is not None and len(batch):
                table.add_batch(batch)
        return True

    def _found(self, rules: Sequence[BatchRule], meter: Meter) -> Batch | None:
        batches = []
        for rule in rules:
            batches.append(rule.run(meter))
            meter.count(len(batches[-1]))
        # One rule may derive a row twice, unless each has one derivation; two rules may both find a row whose relations changed.
        is_distinct = not self.rederivations and len(batches) == 1
        return one_of_each(batches, is_distinct=is_distinct) if batches else None

    def _net(self, gone: Batch | None, came: Batch | None, meter: Meter) -> tuple[Batch | None, Batch | None]:
        """plus = ins - p, minus = del - ins - red."""
        if not self.rederivations:
            # Where each row has one derivation, an insertion that was there before has lost it, and is among the deletions.
            return (gone, came) if gone is None or came is None else differences(gone, came)
        assert self.view is not None
        left = gone if gone is None or came is None else without(gone, came)
        left = left if left is None or not len(left) else self._not_rederived(left, meter)
        return left, came if came is None else came.where(~held_rows(self.view, came))

    def _not_rederived(self, gone: Batch, meter: Meter) -> Batch:
        # (R) starts from p^del.
        self.gone.add_batch(gone)
        back = [rule.run(meter) for rule in self.rederivations]
        self.gone.clear()
        return without(gone, one_of_each(back, is_distinct=False))

    def commit(self) -> None:
        """As the phases for rows: the tables are those of the transaction."""
        for phase in self.by_row:
            phase.commit()

    def rollback(self) -> None:
        """Drop what a failed run left pending."""
        for phase in self.by_row:
            phase.rollback()


@dataclass(frozen=True, slots=True)
class ColumnInitial:
    """The first evaluation of a view without recursion: by column, else by `by_row` into `staged`, which may be the view itself.

    `rules`: None where they cannot run by column.
    """

    rules: tuple[BatchRule, ...] | None
    by_row: Runnable
    staged: Table
    view: StoredTable

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fill the view."""
        if self.rules is not None and pays(self.rules) and self._run_by_column(self.rules, meter):
            return
        self.by_row.run(meter, limits)
        if self.staged is not self.view:
            self.view.add_all(self.staged)
            self.staged.clear()

    def _run_by_column(self, rules: Sequence[BatchRule], meter: Meter) -> bool:
        try:
            found = one_of_each([rule.run(meter) for rule in rules], is_distinct=False)
        except NotByColumn:
            return False
        meter.count(len(found))
        self.view.load_columns(found.code_columns())
        return True

    def commit(self) -> None:
        """Do nothing: the view is filled."""

    def rollback(self) -> None:
        """Drop what a failed run left pending."""
        self.by_row.rollback()
        if self.staged is not self.view:
            self.staged.clear()


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """A stored view without recursion evaluated over the new state and compared, by column where that pays, else by `by_row`.

    `is_distinct`: there is one rule, which derives no row twice.
    """

    rules: tuple[BatchRule, ...]
    gone: Table
    came: Table
    view: ColumnSource
    by_row: tuple[Runnable, ...]
    is_distinct: bool

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fill the changes of the view."""
        if not (pays(self.rules) and self._run_by_column(meter)):
            for phase in self.by_row:
                phase.run(meter, limits)

    def _run_by_column(self, meter: Meter) -> bool:
        try:
            fresh = one_of_each([rule.run(meter) for rule in self.rules], is_distinct=self.is_distinct)
        except NotByColumn:
            return False
        meter.count(len(fresh))
        meter.by_column += 1
        types = [(vector.space, vector.type) for vector in fresh.vectors]
        # Copies: the commit writes into the arrays of the view, and readers of the change come after it.
        stored = [codes.copy() for codes in self.view.scan()]
        old = Batch([Vector(*type_, codes) for type_, codes in zip(types, stored, strict=True)], len(stored[0]))
        # plus = fresh - p, minus = p - fresh.
        for table, batch in zip((self.gone, self.came), differences(old, fresh), strict=True):
            if len(batch):
                table.add_batch(batch)
        return True

    def commit(self) -> None:
        """As the phases for rows."""
        for phase in self.by_row:
            phase.commit()

    def rollback(self) -> None:
        """Drop what a failed run left pending."""
        for phase in self.by_row:
            phase.rollback()


def held_rows(view: StoredTable, batch: Batch) -> Array:
    """Which of these rows are stored."""
    if isinstance(view, Table):
        return np.fromiter((row in view for row in batch.coded_rows()), np.bool_, len(batch))
    return view.holds(batch.code_columns())


@dataclass(frozen=True, slots=True)
class UnpackPhase:
    """Before phases that read rows: changes that came by column become rows."""

    tables: tuple[Table, ...]

    def run(self, meter: Meter, limits: Limits) -> None:
        """Take batches into the indexes of their tables."""
        for table in self.tables:
            table.unpack()

    def commit(self) -> None:
        """Do nothing: the phase stores nothing of its own."""

    def rollback(self) -> None:
        """Do nothing: the phase stores nothing of its own."""


def pays(rules: Sequence[BatchRule]) -> bool:
    """Whether rules run faster by column than by row."""
    least = Threshold.bindings
    expected = sum(rule.expected() for rule in rules)
    if not least:
        return expected <= MOST_MATCHES
    return least <= expected <= MOST_MATCHES and expected >= COPIED * sum(rule.preparation() for rule in rules)


WholeSource = Callable[[], Batch | None]
"""All rows of an aggregate's source by column; None where they have to be found one by one."""
