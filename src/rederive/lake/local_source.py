"""A Delta table in a local folder that others write, read by this process: what commits changed, and rows at a commit.

No Spark job runs. Only what is understood here is read: tables whose protocol features are all known, without partitions, mapped
columns or types that Arrow has otherwise than Spark. Everything else raises `LeftToSpark`, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from rederive.engines.spark.run.arrow_sets import cast_columns, net_tables
from rederive.engines.spark.session.types import columns
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import UTC, Kind
from rederive.lake.local_log import Action, LocalLog, vector_id
from rederive.lake.types import BITS, METADATA
from rederive.locations import parse_location

# "inCommitTimestamp" and the like concern writers alone. Commits that a catalog coordinates are not all in the log's folder.
_READ_FEATURES: Final = {"deletionVectors", "timestampNtz"}
_WRITE_FEATURES: Final = {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"),
    *("allowColumnDefaults", "rowTracking", "domainMetadata", "clustering", "inCommitTimestamp"),
}
_KINDS: Final = {
    "long": Kind.NUMBER,
    "integer": Kind.NUMBER,
    "short": Kind.NUMBER,
    "byte": Kind.NUMBER,
    "string": Kind.SYMBOL,
    "boolean": Kind.BOOLEAN,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamp_ntz": Kind.TIMESTAMP,
    "decimal": Kind.DECIMAL,
    "double": Kind.FLOAT,
    "float": Kind.FLOAT,
}
_ENDS: Final = {
    Kind.DATE: (date.min, date.max),
    Kind.TIMESTAMP: (datetime.min, datetime.max),
}
_CHANGE_TYPE: Final = "_change_type"
_ENTERS: Final = ("insert", "update_postimage")
_LEAVES: Final = ("delete", "update_preimage")
_LEGACY: Final = b"org.apache.spark.legacy"  # dates of the Julian calendar, which Spark rebases when it reads


class LeftToSpark(Exception):
    """This process does not read the table; the message has the reason."""


@dataclass(frozen=True, slots=True)
class ReadBudget:
    """What this process may read. `file_rows`: rows of all files that it opens; `rows`: those of them that it holds."""

    file_rows: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows of a file. `positions`: only these; `deleted`: all but these; of a change file, those of the given sign."""

    file: Action
    sign: int
    positions: BitMap64 | None = None
    deleted: BitMap64 | None = None
    is_change: bool = False


@dataclass(frozen=True, slots=True)
class LocalSource:
    """The log of a table at a commit, for readers of a database in a time zone."""

    log: LocalLog
    zone: str
    budget: ReadBudget

    @classmethod
    def open(cls, location: str, zone: str, budget: ReadBudget, version: int | None = None) -> LocalSource:
        """The table at a commit, by default the last one."""
        place = parse_location(location)
        if not isinstance(place, Path):
            raise LeftToSpark("it is not in a local folder")
        log = LocalLog(place)
        if not log.read(version):
            raise LeftToSpark("its log cannot be read here")
        _check_protocol(log)
        return cls(log, zone, budget)

    @property
    def number_of_rows(self) -> int:
        """The number of rows, by the statistics of the log."""
        return sum(_rows(file) - _deleted(file) for file in self.log.files.values())

    def rows(self, table: Relation) -> pa.Table:
        """All rows, in columns named by position."""
        with _reading():
            return self._read([self._whole(file, 1) for file in self.log.files.values()], table, range(table.arity), 1)

    # Changes

    def net_change(self, table: Relation, after: int) -> tuple[pa.Table, pa.Table]:
        """The rows that left and entered by the commits after `after`, in columns named by position; keys are checked.

        Precondition: at `after`, no key has two rows.
        """
        if not table.key:
            raise LeftToSpark("the copies of its rows are counted")
        with _reading():
            parts = [part for number in range(after + 1, self.log.version + 1) for part in self._parts(number)]
            everything = range(table.arity)
            # The union of deltas: signs add up, and a row that was rewritten as it was is no change.
            minus, plus = net_tables([(self._read(parts, table, everything, sign), sign) for sign in (-1, 1)])
            for i, column in enumerate(table.columns):
                if not column.nullable and plus.column(i).null_count:
                    raise LeftToSpark(f"column '{column.name}' has NULL")
            self._check_keys(table, minus, plus)
        return minus, plus

    def _parts(self, number: int) -> list[_Part]:
        """What a commit puts in and takes out."""
        actions = self.log.actions(self.log.commit_file(number))
        if any("metaData" in action or "protocol" in action for action in actions):
            raise LeftToSpark(f"commit {number} changes the table itself")
        # By Delta's protocol, the change files of a commit have all of its change.
        if changes := [action["cdc"] for action in actions if "cdc" in action]:
            return [_Part(file, 0, is_change=True) for file in changes]
        added, removed = (
            {file["path"]: file for action in actions if (file := action.get(kind)) is not None and file.get("dataChange", True)}
            for kind in ("add", "remove")
        )
        found: list[_Part] = []
        for path, file in added.items():
            old = removed.pop(path, None)
            if old is None:
                found.append(self._whole(file, 1))
            elif vector_id(old) != vector_id(file):
                # A file whose deletion vector changes: rows of the new vector alone leave, and those of the old one come back.
                before, now = self.log.deleted(old), self.log.deleted(file)
                found += [_Part(file, -1, now - before), _Part(file, 1, before - now)]
        return found + [self._whole(file, -1) for file in removed.values()]

    def _whole(self, file: Action, sign: int) -> _Part:
        return _Part(file, sign, deleted=self.log.deleted(file))

    def _check_keys(self, table: Relation, minus: pa.Table, plus: pa.Table) -> None:
        """Leave a change to Spark that gives a key two rows: it names them.

        A key that also leaves had one row, which is gone; so only the others can meet an old row, whose files are searched.
        """
        names = [columns(table.types)[i] for i in table.key]
        if any(table.types[i].kind is Kind.FLOAT for i in table.key):
            raise LeftToSpark("its key has floats")
        entering = plus.select(names)
        if entering.group_by(names).aggregate([]).num_rows < entering.num_rows:
            raise LeftToSpark("a key enters twice")
        new = entering.join(minus.select(names), names, join_type="left anti").combine_chunks()
        if not new.num_rows:
            return
        fields = self._fields(table, table.key)
        ends = [pc.min_max(new[name]) for name in names]
        files = [
            file
            for file in self.log.files.values()
            if all(_may_overlap(file, f, e, table.types[i].kind) for f, e, i in zip(fields, ends, table.key, strict=True))
        ]
        found = self._read([self._whole(file, 1) for file in files], table, table.key, 1, among=new)
        if found.num_rows > new.num_rows:
            raise LeftToSpark("a key is there twice")

    # Files

    def _read(
        self, parts: Sequence[_Part], table: Relation, positions: Sequence[int], sign: int, among: pa.Table | None = None
    ) -> pa.Table:
        """Columns of the rows of a sign, as a base relation has them; `among`: only rows with one of these values."""
        chosen = [part for part in parts if part.sign in (0, sign)]
        opened = [self._open(part.file) for part in chosen]
        held = sum(_held(part, file) for part, file in zip(chosen, opened, strict=True)) if among is None else 0
        if sum(file.metadata.num_rows for file in opened) > self.budget.file_rows or held > self.budget.rows:
            raise LeftToSpark("the changed files have too many rows" if among is None else "too many rows may have its new keys")
        types = tuple(table.types[i] for i in positions)
        fields = self._fields(table, positions)
        found = [pa.table([pa.array([], pa.null()) for _ in types], names=list(columns(types)))]
        found[0] = cast_columns(found[0], types)
        for part, file in zip(chosen, opened, strict=True):
            start = 0
            for group in range(file.num_row_groups):
                length = file.metadata.row_group(group).num_rows
                mask = _mask(part, start, length)
                start += length
                if mask is not None and not mask.any():
                    continue
                read = file.read_row_group(group, [*fields, *([_CHANGE_TYPE] if part.is_change else ())])
                if mask is not None:
                    read = read.filter(pa.array(mask))
                if part.is_change:
                    read = read.filter(_of_sign(read[_CHANGE_TYPE], sign))
                rows = _typed(read.select(fields), [table.columns[i] for i in positions])
                if among is not None:
                    names = list(columns(types))
                    rows = rows.join(among.rename_columns(names), names, join_type="left semi")
                found.append(rows)
        return pa.concat_tables(found)

    def _open(self, file: Action) -> pq.ParquetFile:
        opened = pq.ParquetFile(self.log.place / unquote(file["path"]), coerce_int96_timestamp_unit="us")
        if any(name.startswith(_LEGACY) for name in opened.metadata.metadata or {}):
            raise LeftToSpark("its files have dates of an old calendar")
        return opened

    def _fields(self, table: Relation, positions: Sequence[int]) -> list[str]:
        """The names that columns have in the files, if their values are understood."""
        known = {field.name.lower(): field for field in self.log.schema.fields}
        found = []
        for column in (table.columns[i] for i in positions):
            field = known.get(column.name.lower())
            kind = _KINDS.get(field.dataType.typeName()) if field is not None else None
            if field is None or kind is not column.type.kind or BITS.get(type(field.dataType), 64) > column.bits:
                raise LeftToSpark(f"column '{column.name}' is of another type")
            if self.zone != UTC and field.dataType.typeName() == "timestamp_ntz" and METADATA not in (field.metadata or {}):
                raise LeftToSpark(f"column '{column.name}' has no time zone")
            found.append(field.name)
        return found


@contextmanager
def _reading() -> Iterator[None]:
    """Files that are gone, or are not what is expected, are left to Spark, which reports what is wrong."""
    try:
        yield
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise LeftToSpark(f"a file cannot be read here: {error}") from error


def _check_protocol(log: LocalLog) -> None:
    protocol, properties = log.protocol, log.properties
    read, write = (set(protocol.get(name) or ()) for name in ("readerFeatures", "writerFeatures"))
    if protocol["minReaderVersion"] not in (1, 3) or (read | write) - _READ_FEATURES - _WRITE_FEATURES:
        raise LeftToSpark(f"its protocol has features that are not known here: {sorted(read | write)}")
    if log.metadata.get("partitionColumns"):
        raise LeftToSpark("it is partitioned")
    if properties.get("delta.columnMapping.mode", "none") != "none":
        raise LeftToSpark("its columns are mapped")


def _statistics(file: Action) -> dict[str, Any]:
    return json.loads(file.get("stats") or "{}")  # type: ignore[no-any-return]


def _rows(file: Action) -> int:
    found = _statistics(file).get("numRecords")
    if found is None:
        raise LeftToSpark("its log does not say how many rows a file has")
    return int(found)


def _deleted(file: Action) -> int:
    return int((file.get("deletionVector") or {}).get("cardinality", 0))


def _may_overlap(file: Action, field: str, ends: pa.StructScalar, kind: Kind) -> bool:
    """Whether a file can have a value between two ends, by its least and greatest value; texts may have been cut."""
    stats = _statistics(file)
    low, high = ((stats.get(name) or {}).get(field) for name in ("minValues", "maxValues"))
    if kind is not Kind.NUMBER or low is None or high is None or ends["min"].as_py() is None:
        return True
    return bool(low <= ends["max"].as_py() and ends["min"].as_py() <= high)


def _held(part: _Part, file: pq.ParquetFile) -> int:
    """How many rows of a file are held, at most."""
    if part.positions is not None:
        return len(part.positions)
    return int(file.metadata.num_rows) - len(part.deleted or ())


def _mask(part: _Part, start: int, length: int) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Which rows of a row group are meant; None for all of them."""
    vector = part.positions if part.positions is not None else part.deleted
    if vector is None or (part.positions is None and not vector):
        return None
    inside = vector & BitMap64(range(start, start + length))
    mask = np.zeros(length, np.bool_)
    mask[np.fromiter(inside, np.int64, len(inside)) - start] = True
    return mask if part.positions is not None else ~mask


def _of_sign(kinds: Any, sign: int) -> Any:
    wanted, others = (_ENTERS, _LEAVES) if sign > 0 else (_LEAVES, _ENTERS)
    known = pc.is_in(kinds, value_set=pa.array([*wanted, *others]))
    if not pc.all(known).as_py() and len(kinds):
        raise LeftToSpark("a change file has changes of another kind")
    return pc.is_in(kinds, value_set=pa.array(wanted))


def _typed(read: pa.Table, chosen: Sequence[Column]) -> pa.Table:
    """The values of files as a base relation has them, in columns named by position."""
    found = cast_columns(read, tuple(column.type for column in chosen))
    for i, column in enumerate(chosen):
        values = found.column(i)
        if column.type.kind is Kind.FLOAT:
            # One zero and one NaN, so that rows are equal exactly if their bytes are.
            values = pc.if_else(pc.is_nan(values), pa.scalar(float("nan")), pc.add(values, pa.scalar(0.0)))
            found = found.set_column(i, found.column_names[i], values)
        elif column.type.kind in _ENDS and len(values):
            first, last = (pa.scalar(end, values.type) for end in _ENDS[column.type.kind])
            ends = pc.min_max(values)
            if ends["min"].is_valid and not (
                pc.greater_equal(ends["min"], first).as_py() and pc.less_equal(ends["max"], last).as_py()
            ):
                raise LeftToSpark(f"column '{column.name}' has a value out of range")
    return found
