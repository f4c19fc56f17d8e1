"""Bulk versions: those with more rows than a journal should hold, or with rows that are in Spark. Their changes are staged.

Staged files are written before the journal commits the version and names their folder, and the tables take them afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rederive.delta import CountedSide, Delta, Rows, multiplicities
from rederive.engines.protocol import Bulk
from rederive.engines.spark.engine import FrameRows
from rederive.ir.rules import Program, Relation
from rederive.lake.settle import rows_folder
from rederive.lake.staging import LastColumn, stage_changes, staging_folder
from rederive.lake.tables import Area, Lake
from rederive.result import Change

MOST_IN_JOURNAL: Final = 100_000  # rows of one version; syncing this many takes about a tenth of a second


def is_bulk(net: Mapping[str, Delta], changes: Mapping[str, Change]) -> bool:
    """Whether a version has more rows than a journal should hold, or rows that an engine left in Spark."""
    deltas = (*net.values(), *(change.delta for change in changes.values()))
    sides = [side for delta in deltas for side in (delta.plus, delta.minus)]
    if any(isinstance(part, Bulk) for side in sides for part in _parts(_counted_rows(side) or side)):
        return True
    return sum(map(len, sides)) > MOST_IN_JOURNAL


def stage_version(
    lake: Lake, before: Program, after: Program, version: int, net: Mapping[str, Delta], changes: Mapping[str, Change]
) -> str:
    """Write the changes of a bulk version next to the tables; returns their folder, which the journal then names.

    `before`: the program of the version before, which has the relations that leave.
    """
    with rows_folder(lake) as folder:
        for name, delta in net.items():
            relation = table_of(after if name in after.bases else before, name)
            last = LastColumn.OWN if relation.name == name else LastColumn.COPY_NUMBER
            stage_changes(lake, version, Area.BASE, relation, _parts(delta.minus), _parts(delta.plus), last, folder)
        for view, change in changes.items():
            is_bag = any(program.counting_relation(view) != view for program in (before, after))
            minus, plus = (_with_counts(side) if is_bag else side for side in (change.delta.minus, change.delta.plus))
            last = LastColumn.COUNT if is_bag else LastColumn.OWN
            relation = (after if view in after.relations else before).relations[view]
            stage_changes(lake, version, Area.CHANGES, relation, _parts(minus), _parts(plus), last, folder)
    return staging_folder(lake, version)


def table_of(program: Program, base: str) -> Relation:
    """The relation that the table of a base relation holds: the bag itself if the base relation numbers a bag's copies."""
    return program.relations[program.bag_of(base) or base]


def _with_counts(side: Rows) -> Rows:
    """The rows of a bag's side, each with its number of copies as one more value."""
    if not len(side):
        return ()
    found = _counted_rows(side)
    return [(*row, count) for row, count in multiplicities(side).items()] if found is None else found


def _counted_rows(side: Rows) -> Rows | None:
    """The side of a bag's delta as counted rows, if the engine has them as such."""
    return side.counted_rows if isinstance(side, CountedSide) else None


def _parts(rows: Rows) -> list[Rows]:
    """The rows in parts. Those that an engine left in Spark stay there."""
    return rows.parts() if isinstance(rows, FrameRows) else [rows]
