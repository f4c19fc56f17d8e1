"""Settling: bring the tables of a lake to a version, by the changes of all versions that they lack.

Each table takes them in one Delta commit, which its log remembers. At the end `state/settled` gets the version. After a kill,
settling starts again with the same versions or with more: a table takes only those that it lacks, so no change applies twice.
A reader that must see all tables at one version reads each as of `settled_version(lake)`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow

from rederive import failpoints
from rederive.delta import multiplicities
from rederive.errors import SchemaMismatch
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, Row
from rederive.lake.change_table import CHANGE, COUNT, MINUS, PLUS, VERSION, change_schema
from rederive.lake.names import folder_name
from rederive.lake.tables import Area, Lake
from rederive.lake.types import arrow_table, dataframe, frame_of
from rederive.locations import RemoteAddress, parse_location
from rederive.records import RecordedDelta, VersionRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = "_rows-"
"""The prefix of temporary folders, which hold rows on their way to the tables."""
SETTLED: Final = Relation("settled", (Column("version", NUMBER),))


@dataclass(frozen=True, slots=True)
class LakeRelations:
    """What a lake holds: base relations, monitored views, the names of views with a table of rows, and the names of bags.

    `numbered`: the base relations of numbered copies, by name, and the table that holds the bag of each.
    """

    base: Sequence[Relation]
    views: Sequence[Relation]
    with_tables: Collection[str] = ()
    bags: Collection[str] = ()
    numbered: Mapping[str, Relation] = field(default_factory=dict)


def settled_version(lake: Lake) -> int:
    """The last version to which all tables were brought; 0 if there is none."""
    return lake.last_version(Area.STATE, SETTLED.name) or 0


def settle(lake: Lake, relations: LakeRelations, versions: Sequence[VersionRecord]) -> int:
    """Bring every table to the last of `versions`, which are consecutive; returns the version that the lake is settled to."""
    done = settled_version(lake)
    if not versions or versions[-1].number <= done:
        return done
    last = versions[-1].number
    with rows_folder(lake) as folder:
        for _ in _write_tables(lake, relations, versions, folder):
            failpoints.hit("lake.settle:table")
    failpoints.hit("lake.settle:tables")
    # Last: whoever reads `state/settled` never sees a version that some table lacks. A kill before leaves tables at different
    # versions, and the next settling brings each of them further.
    _note_settled(lake, last)
    failpoints.hit("lake.settle:after")
    return last


def _note_settled(lake: Lake, version: int) -> None:
    lake.append(Area.STATE, SETTLED, dataframe(lake.spark, SETTLED, [(version,)]), version)


def _write_tables(lake: Lake, relations: LakeRelations, versions: Sequence[VersionRecord], folder: str | None) -> Iterator[None]:
    """Bring each table to the last version, and yield after each. A table that no version changed yet is created empty."""
    last = versions[-1].number
    for relation in relations.base:
        changes = _changes(lake, Area.BASE, relation, versions, folder)
        if changes is not None:
            lake.apply_changes(Area.BASE, relation, changes, last, bag=relation.name in relations.bags)
            yield
        elif not lake.has_table(Area.BASE, relation.name):
            lake.create(Area.BASE, relation)
    for relation in relations.views:
        changes = _changes(lake, Area.CHANGES, relation, versions, folder)
        if changes is not None:
            lake.append_changes(relation, changes, last)
            yield
            if relation.name in relations.with_tables:
                lake.apply_changes(Area.VIEWS, relation, changes, last, bag=relation.name in relations.bags)
                yield
        elif not lake.has_table(Area.CHANGES, relation.name):
            lake.create(Area.CHANGES, relation)


# The changes of one relation over all versions


def _changes(
    lake: Lake, area: Area, relation: Relation, versions: Sequence[VersionRecord], folder: str | None
) -> DataFrame | None:
    """The changes with the columns of the relation's change table; None if no version changes the relation."""
    schema = change_schema(relation)
    # A bulk version has staged files only of the relations that it changes.
    frames = [
        lake.spark.read.schema(schema).parquet(path)
        for version in versions
        if version.staged is not None and (path := staged_path(version.staged, area, relation.name)) and lake.has_path(path)
    ]
    table = _recorded_rows(area, relation, versions)
    if table.num_rows:
        frames.append(frame_of(lake.spark, table, schema, folder))
    if not frames:
        return None
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def staged_path(folder: str, area: Area, name: str) -> str:
    """The folder with a bulk version's changes of one relation.

    >>> staged_path("/lake/_staged/7", Area.CHANGES, "Closure")
    '/lake/_staged/7/changes/-43losure'
    """
    return f"{folder}/{area.value}/{folder_name(name)}"


def _recorded_rows(area: Area, relation: Relation, versions: Sequence[VersionRecord]) -> pyarrow.Table:
    rows: list[Row] = []
    numbers: list[int] = []
    signs: list[str] = []
    counts: list[int] = []
    for version in versions:
        for sign, found in _signed(version.base if area is Area.BASE else version.views, relation):
            rows += found
            numbers += [version.number] * len(found)
            signs += [sign] * len(found)
            counts += found.values()
    table = arrow_table(relation, rows)
    own = {VERSION: pyarrow.array(numbers, pyarrow.int64()), CHANGE: pyarrow.array(signs, pyarrow.string())}
    own[COUNT] = pyarrow.array(counts, pyarrow.int64())
    return pyarrow.table([*own.values(), *table.columns], names=[*own, *table.column_names])


def _signed(deltas: Iterable[RecordedDelta], relation: Relation) -> Iterator[tuple[str, Mapping[Row, int]]]:
    for recorded in deltas:
        if recorded.relation.name != relation.name:
            continue
        if recorded.relation.columns != relation.columns:
            raise SchemaMismatch(
                f"relation '{relation.name}' had other columns when these changes were recorded",
                hint="settle the lake before columns change",
            )
        # Both signs of one version in one frame: the order within a version has no meaning, since its delta is net.
        yield MINUS, multiplicities(recorded.delta.minus)
        yield PLUS, multiplicities(recorded.delta.plus)


@contextmanager
def rows_folder(lake: Lake) -> Iterator[str | None]:
    """A temporary folder for many rows; None if the root is not a local folder that this process and all executors see."""
    root = parse_location(lake.root)
    # On a cluster the executors do not see this machine's files: rows then go through the driver's connection.
    if isinstance(root, RemoteAddress) or not (lake.spark.sparkContext.master or "").startswith("local"):
        yield None
        return
    root.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=ROWS, dir=root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
