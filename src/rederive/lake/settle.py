"""Settling: a lake is brought to a version, once, by the changes of all versions that it does not have yet.

Each table is brought there by one commit, which the table remembers; at the end the version is written down in `state/settled`.
Whoever is killed on the way starts again, with the same versions or with more: a table takes only what it lacks.
A reader that must see all tables at one version reads each as of `settled(lake)`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
"""How the names of folders begin that hold rows on their way to the tables."""
SETTLED: Final = Relation("settled", (Column("version", NUMBER),))


@dataclass(frozen=True, slots=True)
class Tables:
    """The relations of a lake: which are base, which are monitored, which of the views are kept as tables too, and the bags."""

    base: Sequence[Relation]
    views: Sequence[Relation]
    materialized: Collection[str] = ()
    bags: Collection[str] = ()


def settled(lake: Lake) -> int:
    """The last version to which all tables were brought; 0 where there is none."""
    return lake.last_version(Area.STATE, SETTLED.name) or 0


def settle(lake: Lake, tables: Tables, versions: Sequence[VersionRecord]) -> int:
    """Bring every table to the last of `versions`, which follow one another; the version to which the lake is settled then."""
    done = settled(lake)
    if not versions or versions[-1].number <= done:
        return done
    last = versions[-1].number
    with rows_folder(lake) as folder:
        for _ in _written(lake, tables, versions, folder):
            failpoints.hit("lake.settle:table")
    failpoints.hit("lake.settle:tables")
    _write_down(lake, last)
    failpoints.hit("lake.settle:after")
    return last


def _write_down(lake: Lake, version: int) -> None:
    lake.append(Area.STATE, SETTLED, dataframe(lake.spark, SETTLED, [(version,)]), version)


def _written(lake: Lake, tables: Tables, versions: Sequence[VersionRecord], folder: str | None) -> Iterator[None]:
    """Bring each table that changes to the last version, one after the other; one that nothing changed yet is made empty."""
    last = versions[-1].number
    for relation in tables.base:
        changes = _changes(lake, Area.BASE, relation, versions, folder)
        if changes is not None:
            lake.apply_changes(Area.BASE, relation, changes, last, bag=relation.name in tables.bags)
            yield
        elif not lake.has_table(Area.BASE, relation.name):
            lake.create(Area.BASE, relation)
    for relation in tables.views:
        changes = _changes(lake, Area.CHANGES, relation, versions, folder)
        if changes is not None:
            lake.append_changes(relation, changes, last)
            yield
            if relation.name in tables.materialized:
                lake.apply_changes(Area.VIEWS, relation, changes, last, bag=relation.name in tables.bags)
                yield
        elif not lake.has_table(Area.CHANGES, relation.name):
            lake.create(Area.CHANGES, relation)


# The changes of one relation over all versions


def _changes(
    lake: Lake, area: Area, relation: Relation, versions: Sequence[VersionRecord], folder: str | None
) -> DataFrame | None:
    """A frame like the relation's change table; None where no version changes it."""
    schema = change_schema(relation)
    frames = [
        lake.spark.read.schema(schema).parquet(path)
        for version in versions
        if version.staged is not None and (path := staged_path(version.staged, area, relation.name)) and lake.has_path(path)
    ]
    table = _rows(area, relation, versions)
    if table.num_rows:
        frames.append(frame_of(lake.spark, table, schema, folder))
    if not frames:
        return None
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def staged_path(folder: str, area: Area, name: str) -> str:
    """Where a bulk version keeps the changes of one relation.

    >>> staged_path("/lake/_staged/7", Area.CHANGES, "Closure")
    '/lake/_staged/7/changes/-43losure'
    """
    return f"{folder}/{area.value}/{folder_name(name)}"


def _rows(area: Area, relation: Relation, versions: Sequence[VersionRecord]) -> pyarrow.Table:
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
                f"relation '{relation.name}' had other columns when these changes were made",
                hint="settle before columns change",
            )
        yield MINUS, multiplicities(recorded.delta.minus)
        yield PLUS, multiplicities(recorded.delta.plus)


@contextmanager
def rows_folder(lake: Lake) -> Iterator[str | None]:
    """A folder for rows that are many, where this process and every worker see the lake's root as a local folder."""
    root = parse_location(lake.root)
    if isinstance(root, RemoteAddress) or not (lake.spark.sparkContext.master or "").startswith("local"):
        yield None
        return
    root.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=ROWS, dir=root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
