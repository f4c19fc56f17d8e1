"""Settling: bring the tables of a lake to a version, by the changes of all versions that they lack.

Each table takes them in one Delta commit, which its log remembers. At the end `state/settled` gets the version. After a kill,
settling starts again with the same versions or with more: a table takes only those that it lacks, so no change applies twice.
A reader that must see all tables at one version reads each as of `settled_version(lake)`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

import pyarrow
from pyarrow import parquet

from rederive import failpoints
from rederive.delta import multiplicities
from rederive.errors import SchemaMismatch
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, Row
from rederive.lake import local_writes
from rederive.lake.change_table import CHANGE, COUNT, MINUS, PLUS, VERSION, change_schema
from rederive.lake.names import folder_name
from rederive.lake.tables import Area, Lake
from rederive.lake.types import arrow_table, dataframe, frame_of
from rederive.records import RecordedDelta, VersionRecord

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from rederive.lake.local_log import LocalLog

ROWS: Final = "_rows-"
"""The prefix of temporary folders, which hold rows on their way to the tables."""
MOST_IN_DRIVER: Final = 500_000
"""Changed rows of one relation that this process applies to a table; more are applied by Spark."""
WRITERS: Final = 4
"""Tables that this process writes at the same time: most of the time they wait for the disk."""
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
    log = lake.local_table(Area.STATE, SETTLED)
    if log is not None:
        local_writes.append_rows(log, pyarrow.table({SETTLED.columns[0].name: [version]}), version)
    else:
        lake.append(Area.STATE, SETTLED, dataframe(lake.spark, SETTLED, [(version,)]), version)


def _write_tables(lake: Lake, relations: LakeRelations, versions: Sequence[VersionRecord], folder: str | None) -> Iterator[None]:
    """Bring each table to the last version, and yield after each. A table that no version changed yet is created empty.

    Few rows are written by this process, many by Spark; tables that this process writes are written at the same time.
    """
    last = versions[-1].number
    local: list[Callable[[], None]] = []
    for area, names in ((Area.BASE, relations.base), (Area.CHANGES, relations.views)):
        for relation in names:
            changes = RelationChanges(lake, area, relation, versions)
            if not changes:
                lake.create(area, relation)
                continue
            is_bag, fits = relation.name in relations.bags, changes.fit_here
            for one in (area, Area.VIEWS) if area is Area.CHANGES and relation.name in relations.with_tables else (area,):
                log = lake.local_table(one, relation) if fits else None
                if log is not None:
                    write = local_writes.append_changes if one is Area.CHANGES else partial(local_writes.apply_changes, relation)
                    local.append(partial(_write_here, write, log, changes, last))
                    continue
                frame = changes.frame(folder)
                if one is Area.CHANGES:
                    lake.append_changes(relation, frame, last)
                else:
                    lake.apply_changes(one, relation, frame, last, bag=is_bag)
                yield
    with ThreadPoolExecutor(WRITERS) as pool:
        for done in as_completed([pool.submit(write) for write in local]):
            done.result()
            yield


def _write_here(write: Callable[..., None], log: LocalLog, changes: RelationChanges, version: int) -> None:
    # Read by the thread that writes them: this process holds the rows of as many tables as it has writers.
    write(log, changes.rows(), version)


# The changes of one relation over all versions


class RelationChanges:
    """What versions did to a relation, with the columns of its change table: recorded in the journal, or staged in files."""

    def __init__(self, lake: Lake, area: Area, relation: Relation, versions: Sequence[VersionRecord]) -> None:
        self.lake = lake
        self.relation = relation
        self.recorded = _recorded_rows(area, relation, versions)
        # A bulk version has staged files only of the relations that it changes.
        folders = (staged_path(version.staged, area, relation.name) for version in versions if version.staged is not None)
        self.staged = [path for path in folders if lake.has_path(path)]

    def __bool__(self) -> bool:
        return bool(self.staged) or self.recorded is not None

    @property
    def fit_here(self) -> bool:
        """Whether this process can read them: they are not many, and not in files that only Spark reads."""
        recorded = self.recorded.num_rows if self.recorded is not None else 0
        is_local = all(self.lake.local_folder(path) is not None for path in self.staged)
        return is_local and recorded + sum(parquet.read_metadata(file).num_rows for file in self._files) <= MOST_IN_DRIVER

    @property
    def _files(self) -> list[Path]:
        folders = (self.lake.local_folder(path) for path in self.staged)
        return [file for folder in folders if folder is not None for file in sorted(folder.glob("*.parquet"))]

    def rows(self) -> pyarrow.Table:
        """All rows, in this process."""
        recorded = [self.recorded] if self.recorded is not None else []
        first, *others = [*recorded, *(parquet.read_table(file, partitioning=None) for file in self._files)]
        return pyarrow.concat_tables([first, *(table.cast(first.schema) for table in others)])

    def frame(self, folder: str | None) -> DataFrame:
        """All rows as a data frame. `folder`: for many rows on their way to Spark."""
        schema = change_schema(self.relation)
        frames = [self.lake.spark.read.schema(schema).parquet(path) for path in self.staged]
        if self.recorded is not None:
            frames.append(frame_of(self.lake.spark, self.recorded, schema, folder))
        return reduce(lambda one, other: one.unionByName(other), frames)


def staged_path(folder: str, area: Area, name: str) -> str:
    """The folder with a bulk version's changes of one relation.

    >>> staged_path("/lake/_staged/7", Area.CHANGES, "Closure")
    '/lake/_staged/7/changes/-43losure'
    """
    return f"{folder}/{area.value}/{folder_name(name)}"


def _recorded_rows(area: Area, relation: Relation, versions: Sequence[VersionRecord]) -> pyarrow.Table | None:
    """The changes of a relation that the journal holds; None if it holds none."""
    rows: list[Row] = []
    numbers: list[int] = []
    signs: list[str] = []
    counts: list[int] = []
    for version in versions:
        is_view = area is not Area.BASE
        for sign, found in _signed(version.views if is_view else version.base, relation, is_view=is_view):
            rows += found
            numbers += [version.number] * len(found)
            signs += [sign] * len(found)
            counts += found.values()
    if not rows:
        return None
    table = arrow_table(relation, rows)
    own = {VERSION: pyarrow.array(numbers, pyarrow.int64()), CHANGE: pyarrow.array(signs, pyarrow.string())}
    own[COUNT] = pyarrow.array(counts, pyarrow.int64())
    return pyarrow.table([*own.values(), *table.columns], names=[*own, *table.column_names])


def _signed(deltas: Iterable[RecordedDelta], relation: Relation, *, is_view: bool) -> Iterator[tuple[str, Mapping[Row, int]]]:
    for recorded in deltas:
        if recorded.relation.name != relation.name:
            continue
        # Rows of a view that had other columns leave with its old table.
        if recorded.relation.columns != relation.columns and is_view:
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
    # On a cluster the executors do not see this machine's files: rows then go through the driver's connection.
    if lake.local_root is None:
        yield None
        return
    lake.local_root.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=ROWS, dir=lake.local_root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
