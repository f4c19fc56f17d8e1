"""Staging: the changes of a bulk version are written as files next to the tables before the journal commits the version.

A bulk version has more rows than a journal should hold, or rows that are in Spark. The journal names the folder of its files, and
settling applies them to the tables. Files that no journal names are leftovers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from rederive import failpoints
from rederive.delta import CountedSide, Delta, Rows, multiplicities
from rederive.engines.protocol import Bulk
from rederive.engines.spark.engine import FrameRows
from rederive.engines.spark.run.data_frames import DataFrameRows
from rederive.engines.spark.session.sessions import described
from rederive.ir.rules import Column, Program, Relation, Role
from rederive.ir.terms import NUMBER, Row
from rederive.lake.change_table import CHANGE, COUNT, MINUS, PLUS, VERSION
from rederive.lake.file_system import names_in, remove
from rederive.lake.local_writes import write_parquet
from rederive.lake.names import column_names
from rederive.lake.settle import ROWS, rows_folder, staged_path
from rederive.lake.tables import Area, Lake
from rederive.lake.types import arrow_table, collect, dataframe
from rederive.result import Change

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

STAGED: Final = "_staged"
MOST_IN_JOURNAL: Final = 100_000  # rows of one version; syncing this many takes about a tenth of a second
SAVED: Final = "_saved"  # what the engine continues from in a later process
SCRATCH: Final = "_scratch"  # where the engine keeps checkpoints on a cluster


# Bulk versions


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
            is_bag = any(view in program.relations and program.relations[view].role is Role.BAG for program in (before, after))
            minus, plus = (_with_counts(side) if is_bag else side for side in (change.delta.minus, change.delta.plus))
            last = LastColumn.COUNT if is_bag else LastColumn.OWN
            relation = (after if view in after.relations else before).relations[view]
            stage_changes(lake, version, Area.CHANGES, relation, _parts(minus), _parts(plus), last, folder)
    return staging_folder(lake, version)


def table_of(program: Program, base: str) -> Relation:
    """The relation that the table of a base relation holds: the bag itself if the base relation numbers a bag's copies."""
    return program.relations[program.bags.get(base, base)]


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


# Files


def staging_folder(lake: Lake, version: int) -> str:
    """The folder of a version's staged changes."""
    return f"{lake.root.rstrip('/')}/{STAGED}/{version}"


class LastColumn(Enum):
    """What the last value of a given row is: the relation's own, or one more value after the relation's columns."""

    OWN = "a column of the relation"
    COPY_NUMBER = "the number of this copy of the row"
    COUNT = "how many copies of the row there are"


def stage_changes(
    lake: Lake,
    version: int,
    area: Area,
    relation: Relation,
    minus: Iterable[Collection[Row]],
    plus: Iterable[Collection[Row]],
    last: LastColumn = LastColumn.OWN,
    folder: str | None = None,
) -> None:
    """Write the rows that leave and enter one relation, in parts. The target is emptied first, so a repetition has no effect.

    `folder`: see `as_frame`.
    """
    given = relation if last is LastColumn.OWN else with_number(relation)
    place = staged_path(staging_folder(lake, version), area, relation.name)
    # Whatever is there is of an attempt that was killed or rolled back.
    lake.remove_rows(place)
    local = lake.local_folder(place)
    for sign, parts in ((MINUS, minus), (PLUS, plus)):
        for rows in parts:
            if len(rows):
                table = _in_driver(given, rows) if local is not None else None
                if local is not None and table is not None:
                    local.mkdir(parents=True, exist_ok=True)
                    write_parquet(local / f"{uuid4().hex}.parquet", _table_with_own_columns(table, version, sign, last))
                else:
                    frame = as_frame(lake, given, rows, folder)
                    with described(lake.spark, f"stage {area.value}/{relation.name} of version {version}"):
                        _with_own_columns(frame, version, sign, last).write.mode("append").parquet(place)
                # A kill here leaves a folder that no journal names. The next opening removes it.
                failpoints.hit("lake.stage:part")


def unstage(lake: Lake, version: int) -> None:
    """Remove the staged changes of a version."""
    lake.remove_rows(staging_folder(lake, version))


def remove_leftovers(lake: Lake, is_needed: Callable[[int], bool]) -> None:
    """Remove temporary folders, and staged versions that are not needed. The names of both are reserved for rederive."""
    root = lake.root.rstrip("/")
    for name in names_in(lake.spark, lake.root) or ():
        if name.startswith(ROWS) or name == SCRATCH:
            remove(lake.spark, f"{root}/{name}")
    for name in names_in(lake.spark, f"{root}/{STAGED}") or ():
        # Folders of versions have numbers for names; anything else there is not ours.
        if name.isdecimal() and not is_needed(int(name)):
            unstage(lake, int(name))


def with_number(relation: Relation) -> Relation:
    """The relation with one more column: the number of a copy, or the number of copies."""
    return Relation(relation.name, (*relation.columns, Column(COUNT, NUMBER)))


def changed_rows(
    lake: Lake, relation: Relation, after: int, upto: int, sign: str, where: SparkColumn | None = None
) -> list[tuple[Row, int]]:
    """The rows with one sign in a view's change table, and the copies of each, of the versions after `after` up to `upto`."""
    lake.check_retained(relation, after)
    asked = (F.col(VERSION) > after) & (F.col(VERSION) <= upto) & (F.col(CHANGE) == sign)
    table = lake.read(Area.CHANGES, relation).where(asked if where is None else asked & where)
    # The first three columns are the change table's own.
    others = [F.col(f"`{name}`") for name in table.columns[3:]]
    with described(lake.spark, f"read changes of {relation.name}, versions {after + 1} to {upto}"):
        found = collect(table.select(*others, F.col(COUNT)), with_number(relation))
    return [(row[:-1], int(str(row[-1]))) for row in found]


def as_frame(lake: Lake, relation: Relation, rows: Collection[Row], folder: str | None = None) -> DataFrame:
    """Rows as a data frame with the columns of the relation's table. Rows in Spark stay there; many others use `folder`."""
    if isinstance(rows, DataFrameRows) and relation.columns:
        return rows.data.toDF(*column_names(relation))
    return dataframe(lake.spark, relation, rows, folder)


def _in_driver(relation: Relation, rows: Collection[Row]) -> pa.Table | None:
    """Rows as an Arrow table, where this process has them already."""
    if isinstance(rows, DataFrameRows):
        return rows.table.rename_columns(list(column_names(relation))) if rows.table is not None else None
    return arrow_table(relation, rows) if not isinstance(rows, Bulk) else None


def _table_with_own_columns(rows: pa.Table, version: int, sign: str, last: LastColumn) -> pa.Table:
    number = rows.num_rows
    names = rows.column_names if last is LastColumn.OWN else rows.column_names[:-1]
    count = rows.columns[-1] if last is LastColumn.COUNT else pa.array(np.ones(number, np.int64))
    own = [pa.array(np.full(number, version, np.int64)), pa.array([sign] * number, pa.string()), count]
    return pa.table([*own, *(rows[name] for name in names)], names=[VERSION, CHANGE, COUNT, *names])


def _with_own_columns(rows: DataFrame, version: int, sign: str, last: LastColumn) -> DataFrame:
    names = rows.columns if last is LastColumn.OWN else rows.columns[:-1]
    count = F.col(f"`{rows.columns[-1]}`") if last is LastColumn.COUNT else F.lit(1)
    own = (F.lit(version).cast("long").alias(VERSION), F.lit(sign).alias(CHANGE), count.cast("long").alias(COUNT))
    return rows.select(*own, *(F.col(f"`{name}`") for name in names))
