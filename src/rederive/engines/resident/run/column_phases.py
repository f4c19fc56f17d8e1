"""Phases by column: the differentials of views that are only summed and counted, and first evaluations.

A change of few rows is joined row by row, which costs little for each row and nothing beforehand; a change of many rows is joined
by column. The choice is made for each transaction, by the bindings that are expected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rederive.engines.resident.batch.batch_rule import BatchRule
from rederive.engines.resident.batch.vectors import Batch, NotByColumn, one_of_each
from rederive.engines.resident.run.fixpoint import Meter
from rederive.engines.resident.run.phases import Runnable
from rederive.engines.resident.storage.row_index import MOST_MATCHES
from rederive.engines.resident.storage.table import Table
from rederive.limits import Limits


class Threshold:
    """From how many bindings on a rule runs by column. Tests set it to 0, so that every change does."""

    requests: float = 100  # rows of one statement from which on their net effect is worked out by column
    bindings: float = 100  # a rule costs about 0.3 ms by column, and 3 us for each binding by row (benchmarks/star.py)


# A copy of a row of bitmaps into an array costs about as much as this many bindings by row.
COPIED: Final = 0.2


@dataclass(frozen=True, slots=True)
class Differential:
    """A rule that starts from one change and fills another."""

    rule: BatchRule
    driver: Table
    into: Table


@dataclass(frozen=True, slots=True)
class ColumnPhase:
    """The differentials of one view, by column where the change is large, else by `by_row`, the phases for rows.

    `inputs`: the changes that the phases for rows read.
    """

    differentials: tuple[Differential, ...]
    by_row: tuple[Runnable, ...]
    inputs: tuple[Table, ...]

    def run(self, meter: Meter, limits: Limits) -> None:
        """Fill the changes of the view."""
        active = [d for d in self.differentials if d.driver]
        if pays([d.rule for d in active]) and self._run_by_column(active, meter):
            return
        for table in self.inputs:
            table.unpack()
        for phase in self.by_row:
            phase.run(meter, limits)

    def _run_by_column(self, active: Sequence[Differential], meter: Meter) -> bool:
        found: dict[int, tuple[Table, list[Batch]]] = {}
        try:
            for differential in active:
                batch = differential.rule.run(meter)
                meter.count(len(batch))
                found.setdefault(id(differential.into), (differential.into, []))[1].append(batch)
            # One rule derives each row once; rows of two rules may be the same, where both of their relations changed.
            merged = [(table, one_of_each(batches)) for table, batches in found.values()]
        except NotByColumn:
            return False
        meter.by_column += 1
        for table, batch in merged:
            if len(batch):
                table.add_batch(batch)
        return True

    def commit(self) -> None:
        """As the phases for rows: the tables are those of the transaction."""
        for phase in self.by_row:
            phase.commit()

    def rollback(self) -> None:
        """Drop what a failed run left pending."""
        for phase in self.by_row:
            phase.rollback()


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
