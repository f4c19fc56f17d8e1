"""View changes as a Spark data source: `spark.readStream.format("rederive")`, with positions for offsets.

Options: `store`, the folder; `view`; `since`, the version or saved position after which to begin (0: from the beginning); for
`spark.read` also `until`, the last version. The columns are those of a change table: `_version`, `_change`, `_count`, and the
view's own.

The record of changes is on the driver's machine: it is read there when a scan is planned, and the rows travel to the workers
inside the partitions. Whoever subclasses `ChangeSource` says what the record is.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import pyarrow
import pyarrow.ipc
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from rederive.errors import MalformedInput, Mismatch, SchemaMismatch
from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.lake.tables import CHANGE, COUNT, VERSION, change_schema
from rederive.lake.types import arrow_table

NAME: Final = "rederive"
_ROWS: Final = 50_000  # in one partition

Session: TypeAlias = SparkSession
Offset: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Signed:
    """Rows that entered a view, or left it, at a version, and the columns that it had then.

    `counts`: of a bag, how many copies of each; None where each is one.
    """

    version: int
    relation: Relation
    sign: str
    rows: Sequence[Row]
    counts: Sequence[int] | None = None


class Record(Protocol):
    """The changes of one view, as they were recorded."""

    @property
    def version(self) -> int:
        """The last version."""

    @property
    def epoch(self) -> str:
        """The name of the history that the versions are of."""

    def version_at(self, position: str) -> int:
        """The version of a position, `"<epoch>-<version>"` or a number; refused where it is of another history."""

    @property
    def relation(self) -> Relation:
        """The view, with its columns as they are now."""

    def between(self, since: int, until: int) -> Iterator[Signed]:
        """The changes of the versions after `since` up to `until`, in order; refused where some are not kept."""


def register(spark: Session, source: type[ChangeSource]) -> None:
    """From now on `format("rederive")` is known to this session."""
    spark.dataSource.register(source)


class ChangeSource(DataSource):
    """The changes of one view."""

    @classmethod
    def name(cls) -> str:
        return NAME

    @staticmethod
    @abstractmethod
    def record(store: str, view: str) -> AbstractContextManager[Record]:
        """The record of a view in a store."""

    def schema(self) -> StructType:
        with self._opened() as record:
            return change_schema(record.relation)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(self)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self)

    def _opened(self) -> AbstractContextManager[Record]:
        return self.record(_required(self.options, "store"), _required(self.options, "view"))

    # What both readers do

    def begin(self) -> Offset:
        with self._opened() as record:
            return {"epoch": record.epoch, "version": record.version_at(_position(self.options, "since"))}

    def latest(self) -> int:
        with self._opened() as record:
            return record.version

    def slices(self, since: int, until: int | None, epoch: str | None = None) -> list[InputPartition]:
        """The changes of these versions, in partitions of a size that Spark can send to a worker.

        `epoch`: the one that the versions are of; None where they were just asked for.
        """
        with self._opened() as record:
            if epoch is not None:
                record.version_at(f"{epoch}-{since}" if epoch else str(since))
            last = record.version if until is None else until
            if not since <= last <= record.version:
                raise Mismatch(f"there are no versions from {since} to {last}: the last one is {record.version}")
            parts = (part for signed in record.between(since, last) for part in _parts(signed, record.relation))
            return [_Slice(_packed(tables)) for tables in _grouped(parts)]


class _Slice(InputPartition):
    """Rows on their way to a worker, as an Arrow stream."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)


class _BatchReader(DataSourceReader):
    def __init__(self, source: ChangeSource) -> None:
        self._source = source

    def partitions(self) -> Sequence[InputPartition]:
        options = self._source.options
        return self._source.slices(self._source.begin()["version"], _number(options, "until") if "until" in options else None)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return _unpacked(partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are positions: `{"epoch": "00c0ffee00c0ffee", "version": 7}` means that everything up to version 7 is read."""

    def __init__(self, source: ChangeSource) -> None:
        self._source = source
        self._target: int | None = None

    def initialOffset(self) -> Offset:
        return self._source.begin()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        last = self._source.latest() if self._target is None else self._target
        return {**start, "version": max(last, start["version"])}

    def prepareForTriggerAvailableNow(self) -> None:
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


def _parts(signed: Signed, relation: Relation) -> Iterator[pyarrow.Table]:
    if signed.relation.columns != relation.columns:
        raise SchemaMismatch(
            f"view '{relation.name}' had other columns at version {signed.version} than it has now",
            hint=f"read the later versions: since={signed.version}",
        )
    counts = signed.counts if signed.counts is not None else [1] * len(signed.rows)
    for start in range(0, len(signed.rows), _ROWS):
        rows = signed.rows[start : start + _ROWS]
        own: dict[str, pyarrow.Array[Any]] = {
            VERSION: pyarrow.array([signed.version] * len(rows), pyarrow.int64()),
            CHANGE: pyarrow.array([signed.sign] * len(rows), pyarrow.string()),
            COUNT: pyarrow.array(counts[start : start + _ROWS], pyarrow.int64()),
        }
        table = arrow_table(relation, rows)
        yield pyarrow.table({**own, **dict(zip(table.column_names, table.columns, strict=True))})


def _grouped(tables: Iterator[pyarrow.Table]) -> Iterator[list[pyarrow.Table]]:
    """Neighbours together, as long as they are no more than a partition's worth."""
    group: list[pyarrow.Table] = []
    for table in tables:
        if group and sum(part.num_rows for part in group) + table.num_rows > _ROWS:
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
    """The rows of a partition; of no partition at all Spark makes one, which has no value."""
    if partition is None or partition.value is None:
        return
    with pyarrow.ipc.open_stream(partition.value) as stream:
        yield from stream
