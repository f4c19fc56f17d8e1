"""Changes of a table in a local folder, applied in this process: one file of the rows that enter, one of deletion vectors.

The rows that leave are searched for in the files whose statistics allow them, by the columns that identify a row. A row group at
a time is in memory, whatever the size of the table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from io import BytesIO
from os import cpu_count
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64
from pyspark.sql.types import StructType

from rederive.arrow_types import to_arrow_column
from rederive.errors import Mismatch, WriteConflict
from rederive.ir.rules import Relation
from rederive.ir.terms import Kind, Row, Value
from rederive.lake.change_table import CHANGE, COUNT, PLUS, VERSION
from rederive.lake.declaration import SINCE
from rederive.lake.local_log import (
    Action,
    LocalLog,
    Overtaken,
    remove_action,
    replace_vector,
    sync_folder,
    write_synced,
)
from rederive.lake.names import column_names
from rederive.lake.types import STORED_TYPES, rows_of

_ATTEMPTS: Final = 5
_ORDERED: Final = (Kind.NUMBER, Kind.SYMBOL, Kind.DATE)  # whose least and greatest values the log holds as JSON
_SIMPLE: Final = (*_ORDERED, Kind.UNSIGNED, Kind.FLOAT, Kind.DECIMAL, Kind.BOOLEAN, Kind.TIMESTAMP)
_LONGEST: Final = 32  # characters of a text in statistics, which Delta would cut
SMALL_FILE: Final = 16 * 2**20  # bytes
MOST_COMPACTED: Final = 256 * 2**20  # bytes of small files that this process rewrites at once


def can_write(relation: Relation) -> bool:
    """Whether this process writes the table of a relation; columns of nested and other types are left to Spark."""
    return all(type.kind in _SIMPLE for type in relation.types)


def first_file(log: LocalLog, relation: Relation, rows: pa.Table) -> list[Action]:
    """Write the first rows of a table to a file; the action that adds it."""
    return _write_file(log, rows, identity_names(relation))


def append_rows(log: LocalLog, rows: pa.Table, version: int) -> None:
    """Append rows with the columns of the table in one commit, unless it has this version already."""
    _commit(log, version, "WRITE", lambda: _write_file(log, rows))


def append_changes(log: LocalLog, changes: pa.Table, version: int) -> None:
    """Append to a change table what the versions up to `version` did; those that it has already are left out."""
    _commit(log, version, "WRITE", lambda: _write_file(log, _after(changes, log.written), (VERSION,)))


def _after(changes: pa.Table, version: int | None) -> pa.Table:
    return changes if version is None else changes.filter(pc.greater(changes[VERSION], pa.scalar(version)))


def apply_changes(relation: Relation, log: LocalLog, changes: pa.Table, version: int) -> None:
    """Bring a table to `version` by changes with the columns of a change table; those that it has already are left out.

    In a set the signs of a row add up to -1, 0 or 1; in a bag, to how many of its copies enter or leave.
    """

    def actions() -> list[Action]:
        plus, minus = _net(_after(changes, log.written), relation)
        return [*_delete(log, relation, minus), *_write_file(log, plus, identity_names(relation))]

    _commit(log, version, "MERGE", actions)


def _commit(log: LocalLog, version: int | None, operation: str, actions: Callable[[], list[Action]]) -> None:
    for _ in range(_ATTEMPTS):
        log.refresh()
        if version is not None and log.written is not None and log.written >= version:
            return
        after, made = log.version, actions()
        if not made:
            return
        sync_folder(log.place)
        try:
            log.commit(made, operation, version, after=after)
        except Overtaken:
            continue  # files that no commit names are nothing; `vacuum` removes them
        return
    raise WriteConflict(
        f"another writer changed the table during each of {_ATTEMPTS} attempts",
        hint="stop the other writer: only rederive may write the tables of a lake",
    ).at(str(log.place))


# What enters and what leaves


def _net(changes: pa.Table, relation: Relation) -> tuple[pa.Table, Counter[Row]]:
    """The copies of rows that enter, as a table, and those that leave."""
    names = list(column_names(relation))
    is_plus = pc.equal(changes[CHANGE], pa.scalar(PLUS))
    versions = pc.count_distinct(changes[VERSION]).as_py()
    plus, minus = changes.filter(is_plus), changes.filter(pc.invert(is_plus))
    if versions > 1 and minus.num_rows:
        # The union of deltas: signs add up, and what sums to zero is as it was.
        signed: Counter[Row] = Counter()
        entering: dict[Row, int] = {}
        for side, sign in ((plus, 1), (minus, -1)):
            counts = side[COUNT].to_numpy().tolist()
            for i, row in enumerate(rows_of(side.select(names), relation)):
                signed[row] += sign * counts[i]
                if sign > 0:
                    entering[row] = i
        chosen = [i for row, i in entering.items() for _ in range(signed[row])]
        return plus.select(names).take(pa.array(chosen, pa.int64())), Counter({row: -n for row, n in signed.items() if n < 0})
    numbers = plus[COUNT].to_numpy()
    copies = plus.select(names)
    if len(numbers) and numbers.max() > 1:
        copies = copies.take(np.repeat(np.arange(len(numbers)), numbers))
    leaving: Counter[Row] = Counter()
    if minus.num_rows:
        for row, number in zip(rows_of(minus.select(names), relation), minus[COUNT].to_numpy().tolist(), strict=True):
            leaving[row] += number
    return copies, leaving


def identity_names(relation: Relation) -> tuple[str, ...]:
    """The columns that identify a row, by which the rows of a file are ordered."""
    names = column_names(relation)
    return tuple(names[i] for i in relation.key) or names


def as_stored(table: pa.Table, schema: StructType) -> pa.Table:
    """The columns of a schema as a Delta table has them: its numbers may be narrow, and its timestamps instants."""
    names = {field.name: field.dataType.typeName() for field in schema.fields}
    columns = {
        name: table[name].cast(STORED_TYPES[type]) if type in STORED_TYPES else table[name] for name, type in names.items()
    }
    return pa.table(columns)


def _write_file(log: LocalLog, rows: pa.Table, by: Sequence[str] = (), *, data_change: bool = True) -> list[Action]:
    """Write rows to a new file, ordered by columns; the action that adds it. No rows are no file."""
    if not rows.num_rows:
        return []
    schema = log.schema
    typed = as_stored(rows, schema)
    if wrong := next((field.name for field in schema.fields if not field.nullable and typed[field.name].null_count), None):
        raise Mismatch(f"column '{wrong}' of the table is NOT NULL, and a row that enters has NULL").at(str(log.place))
    if by:
        typed = typed.sort_by([(name, "ascending") for name in by])
    name = f"part-00000-{uuid4()}-c000.snappy.parquet"
    write_parquet(log.place / name, typed)
    written = (log.place / name).stat()
    file = {"path": name, "partitionValues": {}, "size": written.st_size, "modificationTime": int(written.st_mtime * 1000)}
    file["dataChange"] = data_change
    return [{"add": {**file, "stats": json.dumps(_statistics(typed))}}]


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table to a new file, which is on the disk when this returns."""
    content = BytesIO()
    # Without Arrow's own schema, which other readers do not need.
    pq.write_table(table, content, store_schema=False)
    write_synced(path, content.getvalue())


def _statistics(table: pa.Table) -> dict[str, Any]:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_integer(column.type) or pa.types.is_date(column.type) or pa.types.is_string(column.type):
            values = [pc.min(column).as_py(), pc.max(column).as_py()]
            if None in values or any(isinstance(value, str) and len(value) > _LONGEST for value in values):
                continue
            least[name], greatest[name] = (value.isoformat() if isinstance(value, date) else value for value in values)
    nulls = {name: column.null_count for name, column in zip(table.column_names, table.columns, strict=True)}
    return {"numRecords": table.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls, "tightBounds": True}


# Deletions


def _delete(log: LocalLog, relation: Relation, leaving: Counter[Row]) -> list[Action]:
    """The actions that delete rows from the files that have them."""
    if not leaving:
        return []
    identity = relation.key or tuple(range(relation.arity))  # positions
    files = [file for file in log.files.values() if _may_have(file, relation, identity, leaving)]
    with ThreadPoolExecutor(cpu_count() or 1) as pool:
        candidates = list(pool.map(lambda file: _candidates(log, file, relation, identity, leaving), files))
    left = Counter(leaving)
    changed: list[tuple[Action, BitMap64]] = []
    for file, found in zip(files, candidates, strict=True):
        positions = []
        for row, position in found:
            if left[row] > 0:
                left[row] -= 1
                positions.append(position)
        if positions:
            changed.append((file, BitMap64(positions)))
    if missing := +left:
        row, number = next(iter(missing.items()))
        raise Mismatch(
            f"the table of '{relation.name}' lacks {sum(missing.values())} rows that leave it, such as {row!r}, {number} times",
            hint="somebody else changed it: open the store with a new lake",
        ).at(str(log.place))
    return _mark(log, changed)


def _mark(log: LocalLog, changed: Sequence[tuple[Action, BitMap64]]) -> list[Action]:
    actions: list[Action] = []
    marked: list[tuple[Action, BitMap64]] = []
    for file, positions in changed:
        vector = log.deleted(file) | positions
        if len(vector) == json.loads(file.get("stats") or "{}").get("numRecords"):
            actions.append(remove_action(file))
        else:
            marked.append((file, vector))
    described = log.write_vectors([vector for _, vector in marked]) if marked else []
    for (file, _), description in zip(marked, described, strict=True):
        actions += replace_vector(file, description)
    return actions


def _may_have(file: Action, relation: Relation, identity: Sequence[int], leaving: Iterable[Row]) -> bool:
    """Whether a file can have one of these rows, by the least and greatest values of the columns that identify a row."""
    stats = json.loads(file.get("stats") or "{}")
    least, greatest = stats.get("minValues") or {}, stats.get("maxValues") or {}
    names = column_names(relation)
    for i in identity:
        name, type = names[i], relation.types[i]
        if type.kind in _ORDERED and name in least and name in greatest:
            low, high = least[name], greatest[name]
            # Another writer may have cut a text.
            if isinstance(high, str) and len(high) >= _LONGEST:
                continue
            values = [_shown(row[i]) for row in leaving]
            if not any(value is None or low <= value <= high for value in values):
                return False
    return True


def _shown(value: Value) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def _candidates(
    log: LocalLog, file: Action, relation: Relation, identity: Sequence[int], leaving: Mapping[Row, int]
) -> list[tuple[Row, int]]:
    """The rows of a file that leave, and their positions."""
    deleted, found = log.deleted(file), []
    opened = pq.ParquetFile(log.place / unquote(file["path"]), coerce_int96_timestamp_unit="us")
    names = column_names(relation)
    # -0.0 equals 0.0, and Arrow tells them apart: floats are compared as values of rows alone.
    tested = [i for i in identity if relation.types[i].kind is not Kind.FLOAT] if relation.columns else []
    start = 0
    for group in range(opened.num_row_groups):
        length = opened.metadata.row_group(group).num_rows
        mask = np.ones(length, np.bool_)
        for i in tested:
            column = opened.read_row_group(group, [names[i]])[names[i]]
            values = to_arrow_column([row[i] for row in leaving], relation.types[i]).cast(column.type)
            mask &= pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False)
            if not mask.any():
                break
        places = [int(i) for i in np.flatnonzero(mask) if start + int(i) not in deleted]
        if places:
            rows = rows_of(opened.read_row_group(group, list(names)).select(list(names)).take(places), relation)
            found += [(row, start + i) for row, i in zip(rows, places, strict=True) if row in leaving]
        start += length
    return found


# Upkeep


def remove_changes(log: LocalLog, upto: int) -> None:
    """Remove from a change table what the versions up to this one did, and note the version, in one commit."""

    def actions() -> list[Action]:
        made: list[Action] = []
        marked: list[tuple[Action, BitMap64]] = []
        for file in log.files.values():
            stats = json.loads(file.get("stats") or "{}")
            first, last = ((stats.get(ends) or {}).get(VERSION) for ends in ("minValues", "maxValues"))
            if last is not None and last <= upto:
                made.append(remove_action(file))
            elif first is None or first <= upto:
                versions = _read_file(log, file, [VERSION])[VERSION].to_numpy()
                marked.append((file, BitMap64(np.flatnonzero(versions <= upto).tolist())))
        noted = {**log.metadata, "configuration": {**log.properties, SINCE: str(upto)}}
        return [{"metaData": noted}, *made, *_mark(log, [(file, found) for file, found in marked if found])]

    if upto > int(log.properties.get(SINCE, 0)):
        _commit(log, None, "DELETE", actions)


def compact(log: LocalLog, by: Sequence[str], files: int) -> bool:
    """Rewrite small files as one, ordered by columns, if there are at least `files` of them. No row changes."""

    def small_files() -> list[Action]:
        return [file for file in log.files.values() if file["size"] < SMALL_FILE]

    def actions() -> list[Action]:
        found = small_files()
        added = _write_file(log, pa.concat_tables([_present(log, file) for file in found]), by, data_change=False)
        return [*(remove_action(file, data_change=False) for file in found), *added]

    found = small_files()
    if len(found) < files or sum(file["size"] for file in found) > MOST_COMPACTED:
        return False
    # A compaction changes no row and names no version, so it belongs to the version before it.
    _commit(log, None, "OPTIMIZE", actions)
    return True


def _read_file(log: LocalLog, file: Action, columns: list[str] | None = None) -> pa.Table:
    # Other writers have timestamps in nanoseconds, which do not reach the years 1 to 9999.
    path = log.place / unquote(file["path"])
    return pq.read_table(path, columns=columns, partitioning=None, coerce_int96_timestamp_unit="us")


def _present(log: LocalLog, file: Action) -> pa.Table:
    table, deleted = _read_file(log, file), log.deleted(file)
    table = as_stored(table, log.schema)
    if not deleted:
        return table
    stays = np.ones(table.num_rows, np.bool_)
    stays[list(deleted)] = False
    return table.filter(pa.array(stays))
