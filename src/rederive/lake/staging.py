"""Staging: the changes of a bulk version are written as files next to the tables before the journal commits the version.

The journal then names the folder, and settling applies its files to the tables. Files that no journal names are leftovers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rederive import failpoints
from rederive.engines.spark.run.data_frames import DataFrameRows
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, Row
from rederive.lake.change_table import CHANGE, COUNT, MINUS, PLUS, VERSION
from rederive.lake.file_system import names_in, remove
from rederive.lake.names import column_names
from rederive.lake.settle import ROWS, staged_path
from rederive.lake.tables import Area, Lake
from rederive.lake.types import collect, dataframe

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

STAGED: Final = "_staged"
SCRATCH: Final = "_scratch"  # where the engine keeps checkpoints on a cluster


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
    remove(lake.spark, place)
    for sign, parts in ((MINUS, minus), (PLUS, plus)):
        for rows in parts:
            if len(rows):
                _with_own_columns(as_frame(lake, given, rows, folder), version, sign, last).write.mode("append").parquet(place)
                # A kill here leaves a folder that no journal names. The next opening removes it.
                failpoints.hit("lake.stage:part")


def unstage(lake: Lake, version: int) -> None:
    """Remove the staged changes of a version."""
    remove(lake.spark, staging_folder(lake, version))


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
    asked = (F.col(VERSION) > after) & (F.col(VERSION) <= upto) & (F.col(CHANGE) == sign)
    table = lake.read(Area.CHANGES, relation).where(asked if where is None else asked & where)
    # The first three columns are the change table's own.
    others = [F.col(f"`{name}`") for name in table.columns[3:]]
    found = collect(table.select(*others, F.col(COUNT)), with_number(relation))
    return [(row[:-1], int(str(row[-1]))) for row in found]


def as_frame(lake: Lake, relation: Relation, rows: Collection[Row], folder: str | None = None) -> DataFrame:
    """Rows as a data frame with the columns of the relation's table. Rows in Spark stay there; many others use `folder`."""
    if isinstance(rows, DataFrameRows) and relation.columns:
        return rows.data.toDF(*column_names(relation))
    return dataframe(lake.spark, relation, rows, folder)


def _with_own_columns(rows: DataFrame, version: int, sign: str, last: LastColumn) -> DataFrame:
    names = rows.columns if last is LastColumn.OWN else rows.columns[:-1]
    count = F.col(f"`{rows.columns[-1]}`") if last is LastColumn.COUNT else F.lit(1)
    own = (F.lit(version).cast("long").alias(VERSION), F.lit(sign).alias(CHANGE), count.cast("long").alias(COUNT))
    return rows.select(*own, *(F.col(f"`{name}`") for name in names))
