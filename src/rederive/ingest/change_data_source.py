"""The changes of a store's views as a Spark data source: `spark.readStream.format("rederive")`, with positions for offsets.

Options: `store` is the folder and `view` the view. `since` is the version or saved position after which to start; the default 0
starts at the beginning. `spark.read` also takes `until`, the last version. The columns are those of a change table in the lake:
`_version`, `_change`, `_count`, then the view's own.

The journal is on the driver's machine. The driver reads it when it plans a scan, and sends the rows to the executors inside the
partitions, so executors never open the store.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import pyarrow
import pyarrow.ipc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructField, StructType

from rederive.catalog import Catalog
from rederive.errors import MalformedInput, Mismatch, SchemaMismatch, StoreError
from rederive.ir.rules import Relation
from rederive.ir.terms import INTERVAL, UTC, Row
from rederive.lake.change_table import CHANGE, COUNT, MINUS, PLUS, VERSION, change_schema
from rederive.lake.local_writes import as_stored
from rederive.lake.names import folder_name
from rederive.lake.tables import Area
from rederive.lake.types import arrow_table, schema_of, table_field
from rederive.locations import local_folder
from rederive.store.journal.reader import JournalReader

NAME: Final = "rederive"
_PARTITION_ROWS: Final = 50_000  # rows in one partition at most

Offset: TypeAlias = dict[str, Any]


def register(spark: SparkSession) -> None:
    """Make `spark.readStream.format("rederive")` and `spark.read.format("rederive")` known to a session."""
    spark.dataSource.register(ChangeDataSource)


class ChangeDataSource(DataSource):
    """The changes of one view, read from the journal of a store. Another process may write that journal meanwhile."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The columns of a change table of the view, as the view is defined now."""
        with self._journal() as (_, view):
            return _schema(view)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What `spark.read` uses."""
        return _BatchReader(self)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What `spark.readStream` uses."""
        return _StreamReader(self)

    # What both readers use

    def begin(self) -> Offset:
        """The offset of the option `since`."""
        with self._journal() as (journal, _):
            return {"epoch": journal.epoch, "version": journal.version_at(_position(self.options, "since"))}

    def latest(self) -> int:
        """The last committed version."""
        with self._journal() as (journal, _):
            return journal.version

    def slices(self, since: int, until: int | None, epoch: str | None = None) -> list[InputPartition]:
        """The changes after `since` up to `until`, in partitions of a size that Spark can send to an executor.

        `epoch`: the history that `since` belongs to. None means that `since` was just read from this journal.
        """
        with self._journal() as (journal, view):
            # An empty epoch is that of a checkpoint from before epochs: a plain version.
            if epoch is not None:
                journal.version_at(f"{epoch}-{since}" if epoch else str(since))
            last = journal.version if until is None else until
            if not since <= last <= journal.version:
                raise Mismatch(f"there are no versions from {since} to {last}: the last version is {journal.version}")
            return [_Slice(_packed(tables)) for tables in _grouped(_changes(journal, view, since, last))]

    @contextmanager
    def _journal(self) -> Iterator[tuple[JournalReader, Relation]]:
        """The journal of the option `store`, and the view's current columns."""
        store, view = _required(self.options, "store"), _required(self.options, "view")
        with JournalReader.read(local_folder(store, "a store")) as journal:
            journal.reach(view)  # raises an error if the view is unknown or its changes are not recorded
            definitions = Catalog.of(journal.catalog.texts, journal.options.get("zone", UTC))
            yield journal, definitions.program.relations[view]


class _Slice(InputPartition):
    """Rows that travel to an executor, as an Arrow stream."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)


class _BatchReader(DataSourceReader):
    def __init__(self, source: ChangeDataSource) -> None:
        self._source = source

    def partitions(self) -> Sequence[InputPartition]:
        options = self._source.options
        return self._source.slices(self._source.begin()["version"], _number(options, "until") if "until" in options else None)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return _unpacked(partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are positions. `{"epoch": "00c0ffee00c0ffee", "version": 7}` means: everything up to version 7 has been read."""

    def __init__(self, source: ChangeDataSource) -> None:
        self._source = source
        self._target: int | None = None

    def initialOffset(self) -> Offset:
        return self._source.begin()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        # An offset never goes back, and keeps its epoch: after a restore `partitions` refuses it, so two histories never mix.
        last = self._source.latest() if self._target is None else self._target
        return {**start, "version": max(last, start["version"])}

    def prepareForTriggerAvailableNow(self) -> None:
        # A run with availableNow ends: versions that are committed meanwhile are left to the next run.
        self._target = self._source.latest()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return self._source.slices(start["version"], end["version"], start.get("epoch", ""))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return _unpacked(partition)


# Options


def _required(options: Mapping[str, str], name: str) -> str:
    if name not in options:
        raise MalformedInput(f"the option '{name}' is missing", hint=f'.format("{NAME}").option("{name}", ...)')
    return options[name]


def _number(options: Mapping[str, str], name: str) -> int:
    if not (text := options[name]).isdecimal():
        raise MalformedInput(f"the option '{name}' must be a version, not '{text}'")
    return int(text)


def _position(options: Mapping[str, str], name: str) -> str:
    text = options.get(name, "0")
    if not text.rpartition("-")[2].isdecimal() or text.startswith("-"):
        raise MalformedInput(f"the option '{name}' must be a version, not '{text}'")
    return text


# Rows


def _schema(view: Relation) -> StructType:
    """The columns of a change table, with Spark's own types. Intervals, which Delta does not have, are intervals here."""
    if not view.columns:
        return change_schema(view)
    own, of_view = change_schema(view).fields[:3], zip(schema_of(view).fields, view.columns, strict=False)
    typed = (f if c.type.parts or c.type == INTERVAL else table_field(f, c) for f, c in of_view)
    # Arrow's schema, with which Spark compares this one, has no NOT NULL.
    return StructType([*own, *(StructField(field.name, field.dataType, True, field.metadata) for field in typed)])


def _changes(journal: JournalReader, view: Relation, since: int, until: int) -> Iterator[pyarrow.Table]:
    """The changes of the versions after `since` up to `until`, in order, as tables of at most one partition's rows."""
    for record in journal.since(since, view.name):
        if record.number > until:
            return
        if record.staged is not None:
            raise _only_in_lake(journal, view, record.number)
        for recorded in record.views:
            if recorded.relation.columns != view.columns:
                raise SchemaMismatch(
                    f"view '{view.name}' had other columns at version {record.number} than it has now",
                    hint=f"read the later versions: since={record.number}",
                )
            delta = recorded.delta
            plus, minus = delta.counts or ([1] * len(delta.plus), [1] * len(delta.minus))
            yield from _tables(view, record.number, PLUS, list(delta.plus), plus)
            yield from _tables(view, record.number, MINUS, list(delta.minus), minus)


def _only_in_lake(journal: JournalReader, view: Relation, version: int) -> StoreError:
    """Whoever plans a scan for Spark has no Spark session of its own to read the lake with."""
    table = f"{journal.lake}/{Area.CHANGES.value}/{folder_name(view.name)}"
    return StoreError(
        f"version {version} is a bulk version: only the lake has its changes",
        hint=f'read or follow the change table instead: format("delta").load("{table}")',
    ).at(str(journal.folder))


def _tables(view: Relation, version: int, sign: str, rows: Sequence[Row], counts: Sequence[int]) -> Iterator[pyarrow.Table]:
    # A partition travels inside the task that reads it, and Spark limits the size of tasks.
    for start in range(0, len(rows), _PARTITION_ROWS):
        part = rows[start : start + _PARTITION_ROWS]
        own: dict[str, pyarrow.Array[Any]] = {
            VERSION: pyarrow.array([version] * len(part), pyarrow.int64()),
            CHANGE: pyarrow.array([sign] * len(part), pyarrow.string()),
            COUNT: pyarrow.array(counts[start : start + _PARTITION_ROWS], pyarrow.int64()),
        }
        table = arrow_table(view, part)
        yield as_stored(pyarrow.table({**own, **dict(zip(table.column_names, table.columns, strict=True))}), _schema(view))


def _grouped(tables: Iterator[pyarrow.Table]) -> Iterator[list[pyarrow.Table]]:
    """Consecutive tables in groups, each of at most one partition's rows."""
    group: list[pyarrow.Table] = []
    for table in tables:
        if group and sum(part.num_rows for part in group) + table.num_rows > _PARTITION_ROWS:
            yield group
            group = []
        group.append(table)
    if group:
        yield group


def _packed(tables: Sequence[pyarrow.Table]) -> bytes:
    table, buffer = pyarrow.concat_tables(tables).combine_chunks(), io.BytesIO()
    with pyarrow.ipc.new_stream(buffer, table.schema) as stream:
        stream.write_table(table)
    return buffer.getvalue()


def _unpacked(partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a partition. Where a scan has no partition, Spark passes one without a value."""
    if partition is None or partition.value is None:
        return
    with pyarrow.ipc.open_stream(partition.value) as stream:
        yield from stream
