"""The net effect of many requests on a wide base relation, by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rederive.delta import Delta
from rederive.engines.protocol import Action, Operation
from rederive.engines.resident.batch.encoding import encode_columns
from rederive.engines.resident.batch.vectors import Space, group_numbers
from rederive.engines.resident.run.threshold import Threshold
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.column_table import CodeColumns, CodedColumns, ColumnTable
from rederive.engines.resident.storage.row_index import Array, all_differ, pack
from rederive.engines.resident.storage.table import Versions
from rederive.ir.rules import Relation


def net_effect_by_column(
    operations: Sequence[Operation], relations: Mapping[str, Relation], versions: Mapping[str, Versions], codes: Codes
) -> dict[str, Delta]:
    """The deltas of relations that are requested to change in many rows; what is left out is worked out row by row."""
    by_relation: dict[str, list[Operation]] = {}
    for operation in operations:
        by_relation.setdefault(operation.relation, []).append(operation)
    found = {}
    for name, requests in by_relation.items():
        table = versions[name].old
        if isinstance(table, ColumnTable) and sum(len(request.rows) for request in requests) >= Threshold.requests:
            delta = _delta(relations[name], table, requests, codes)
            if delta is not None:
                found[name] = delta
    return found


def _delta(relation: Relation, table: ColumnTable, requests: Sequence[Operation], codes: Codes) -> Delta | None:
    """None where keys collide, or upserts and others mix: rows one by one say which collide, and what follows what."""
    space = Space(codes)
    parts = [encode_columns(relation, request.rows, space) for request in requests]
    if any(request.action is Action.UPSERT for request in requests):
        sides = _upserted(relation, table, parts[0]) if len(requests) == 1 else None
    else:
        there = np.concatenate(
            [np.full(len(part[0]), request.action is Action.INSERT) for part, request in zip(parts, requests, strict=True)]
        )
        columns = parts[0] if len(parts) == 1 else tuple(map(np.concatenate, zip(*parts, strict=True)))
        sides = _requested(relation, table, columns, there)
    return Delta(*(CodedColumns(relation, side, codes) for side in sides)) if sides is not None else None


def _requested(
    relation: Relation, table: ColumnTable, columns: CodeColumns, there: Array
) -> tuple[CodeColumns, CodeColumns] | None:
    last = _last_of_each(columns)
    if last is not None:
        columns, there = _take(columns, last), there[last]
    stored = table.holds(columns)
    # plus = requested - stored, minus = stored and requested to leave: idle requests cancel, and so do opposite ones.
    plus, minus = _take(columns, np.flatnonzero(there & ~stored)), _take(columns, np.flatnonzero(~there & stored))
    if relation.key and len(plus[0]) and _collides(relation.key, table, plus, minus):
        return None
    return plus, minus


def _collides(key: tuple[int, ...], table: ColumnTable, plus: CodeColumns, minus: CodeColumns) -> bool:
    """Whether two rows would share a key: two that enter, or one that enters and one that stays."""
    keys = [plus[i] for i in sorted(key)]
    if _last_of_each(keys) is not None:
        return True
    _, rivals = table.find_many(tuple(sorted(key)), keys)
    leaving = table.find_many(tuple(range(table.arity)), minus)[1] if len(minus[0]) else minus[0]
    return not np.isin(rivals, leaving).all()


def _upserted(relation: Relation, table: ColumnTable, columns: CodeColumns) -> tuple[CodeColumns, CodeColumns]:
    """Each row replaces the one with its key; of several with one key, the last."""
    key = tuple(sorted(relation.key)) or tuple(range(relation.arity))
    last = _last_of_each([columns[i] for i in key])
    if last is not None:
        columns = _take(columns, last)
    stored = table.holds(columns)
    positions, rows = table.find_many(key, [columns[i] for i in key])
    replaced = rows[~stored[positions]]
    return _take(columns, np.flatnonzero(~stored)), tuple(column[replaced] for column in table.columns)


def _last_of_each(columns: Sequence[Array]) -> Array | None:
    """The position of the last of equal rows; None where all differ."""
    count = len(columns[0])
    if all_differ(pack(columns)):
        return None
    numbers, first = group_numbers(columns, count)
    if len(first) == count:
        return None
    last = np.empty(len(first), np.int64)
    last[numbers] = np.arange(count)  # of several assignments to one place, the last one counts
    return np.sort(last)


def _take(columns: CodeColumns, rows: Array) -> CodeColumns:
    return columns if len(rows) == len(columns[0]) else tuple(column[rows] for column in columns)
