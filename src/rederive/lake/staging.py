"""Changes of a version that are too many for a journal: written beside the tables first, applied to them once it is committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rederive import failpoints
from rederive.engines.spark.run.data_frame_rows import DataFrameRows
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
SCRATCH: Final = "_scratch"  # of the engine, on a cluster


def staging(lake: Lake, version: int) -> str:
    """The folder of a version's changes."""
    return f"{lake.root.rstrip('/')}/{STAGED}/{version}"


class Behind(Enum):
    """What the given rows have behind the columns of the relation's table."""

    NOTHING = "nothing"
    COPY = "the number of the copy"
    COUNT = "how many copies there are"


def stage(
    lake: Lake,
    version: int,
    area: Area,
    relation: Relation,
    gone: Iterable[Collection[Row]],
    came: Iterable[Collection[Row]],
    behind: Behind = Behind.NOTHING,
    folder: str | None = None,
) -> None:
    """Write what leaves and enters one relation. Written twice is written once: its place is emptied first.

    `folder`: what many rows of ours go through, as for `frame`.
    """
    given = relation if behind is Behind.NOTHING else numbered_relation(relation)
    place = staged_path(staging(lake, version), area, relation.name)
    remove(lake.spark, place)
    for sign, parts in ((MINUS, gone), (PLUS, came)):
        for rows in parts:
            if len(rows):
                _signed(frame(lake, given, rows, folder), version, sign, behind).write.mode("append").parquet(place)
                failpoints.hit("lake.stage:part")


def unstage(lake: Lake, version: int) -> None:
    """Remove what was staged for a version."""
    remove(lake.spark, staging(lake, version))


def remove_leftovers(lake: Lake, is_needed: Callable[[int], bool]) -> None:
    """Remove folders of rows that were on their way, and staged versions that are not needed: all are ours by their names."""
    root = lake.root.rstrip("/")
    for name in names_in(lake.spark, lake.root) or ():
        if name.startswith(ROWS) or name == SCRATCH:
            remove(lake.spark, f"{root}/{name}")
    for name in names_in(lake.spark, f"{root}/{STAGED}") or ():
        if name.isdecimal() and not is_needed(int(name)):
            unstage(lake, int(name))


def numbered_relation(relation: Relation) -> Relation:
    """A relation with a number behind its columns: of a copy, or of how many copies there are."""
    return Relation(relation.name, (*relation.columns, Column(COUNT, NUMBER)))


def changed_rows(
    lake: Lake, relation: Relation, after: int, upto: int, sign: str, where: SparkColumn | None = None
) -> list[tuple[Row, int]]:
    """The rows that some versions put into a view, or took out of it, and how many of each, from its change table."""
    asked = (F.col(VERSION) > after) & (F.col(VERSION) <= upto) & (F.col(CHANGE) == sign)
    table = lake.read(Area.CHANGES, relation).where(asked if where is None else asked & where)
    others = [F.col(f"`{name}`") for name in table.columns[3:]]
    found = collect(table.select(*others, F.col(COUNT)), numbered_relation(relation))
    return [(row[:-1], int(str(row[-1]))) for row in found]


def frame(lake: Lake, relation: Relation, rows: Collection[Row], folder: str | None = None) -> DataFrame:
    """Rows, wherever they are, as a frame with the columns of the relation's table. Many rows of ours go through a folder."""
    if isinstance(rows, DataFrameRows) and relation.columns:
        return rows.data.toDF(*column_names(relation))
    return dataframe(lake.spark, relation, rows, folder)


def _signed(rows: DataFrame, version: int, sign: str, behind: Behind) -> DataFrame:
    names = rows.columns if behind is Behind.NOTHING else rows.columns[:-1]
    count = F.col(f"`{rows.columns[-1]}`") if behind is Behind.COUNT else F.lit(1)
    own = (F.lit(version).cast("long").alias(VERSION), F.lit(sign).alias(CHANGE), count.cast("long").alias(COUNT))
    return rows.select(*own, *(F.col(f"`{name}`") for name in names))
