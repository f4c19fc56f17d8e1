"""The net effect of a transaction whose requests are an Arrow table in the driver (decision 44).

The laws are those of `net.by_query`. Only candidate rows are fetched: from the files of the relation, where this process can read
them, else by one query.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
from pyarrow.acero import Declaration, HashJoinNodeOptions, ScanNodeOptions, TableSourceNodeOptions  # type: ignore[attr-defined]

from rederive.engines.spark.net.requested import (
    WAS,
    Requests,
    SignedFrame,
    candidate_frames,
    candidates_plan,
    identity_columns,
    request_columns,
)
from rederive.engines.spark.plan.sources import Frame, Local
from rederive.engines.spark.run.arrow_sets import Signed, add_columns, cast_columns, int64
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.storage import StoredRelation, duplicate_key, identity
from rederive.engines.spark.session.types import arrow_type, column, columns, from_arrow
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER

_ZERO = int64(0)


def net_effect_of_table(requests: Requests, table: pa.Table, stored: StoredRelation, jobs: Jobs) -> tuple[Frame, Frame]:
    """The rows that leave and those that enter, by the requests in `table`; refused where two rows then share a key."""
    relation = requests.relation
    request, upsert = request_columns(relation)
    found = _candidates(requests, table, stored, jobs)
    # A candidate that nobody requests has request -1, below every request, so a requested row keeps its own as the maximum.
    candidates = (add_columns(rows, {request: -1, upsert: 0, WAS: sign}) for rows, sign in found)
    parts = [add_columns(table, {WAS: 0}), *candidates]
    names = list(columns(relation.types))
    # One row for each distinct row: last request, last upsert, and `was`, which by the invariant of StoredRelation is 0 or 1.
    each = pa.concat_tables(parts).group_by(names).aggregate([(request, "max"), (upsert, "max"), (WAS, "sum")])
    each = each.rename_columns([name.removesuffix("_max").removesuffix("_sum") for name in each.column_names])
    if relation.key and requests.has_upserts:
        each = _apply_upserts(each, relation)
    last, was = each[request], each[WAS]
    # The lowest bit of a request says whether the row shall be there; without a request it stays as it was.
    stays = pc.if_else(pc.less(last, _ZERO), was, pc.bit_wise_and(last, int64(1)))
    _check_keys(each.append_column("stays", stays), relation)
    # net = new - old: idle requests give 0.
    sign = pc.subtract(stays, was)
    minus, plus = (each.filter(test).select(names) for test in (pc.less(sign, _ZERO), pc.greater(sign, _ZERO)))
    jobs.queries.touch(minus.num_rows + plus.num_rows)
    ends = requests.ends_of_delta
    return jobs.frames.of_table(minus, relation.types, ends[0]), jobs.frames.of_table(plus, relation.types, ends[1])


def _apply_upserts(each: pa.Table, relation: Relation) -> pa.Table:
    """An upsert requests the removal of every row of its key whose last request is before it."""
    request, upsert = request_columns(relation)
    key = [column(i) for i in relation.key]
    last = each.group_by(key).aggregate([(upsert, "max")]).rename_columns([*key, "last"])
    both = each.join(last, key)
    # An upsert of number n replaces rows whose request is below 2n; its own row has 2n + 1.
    replaced = pc.and_(pc.greater(both["last"], _ZERO), pc.less(both[request], pc.add(both["last"], both["last"])))
    return both.set_column(both.column_names.index(request), request, pc.if_else(replaced, _ZERO, both[request]))


def _check_keys(states: pa.Table, relation: Relation) -> None:
    """Refuse a state in which two rows share a key."""
    if not relation.key:
        return
    key = [column(i) for i in relation.key]
    there = states.filter(pc.field("stays") > 0)
    # Fewer keys than rows: some key has two rows.
    numbers = there.group_by(key).aggregate([([], "count_all")])
    if numbers.num_rows < there.num_rows:
        twice = numbers.filter(pc.field("count_all") > 1).sort_by([(name, "ascending") for name in key]).slice(0, 1)
        rivals = there.join(twice.select(key), key, join_type="left semi").select(columns(relation.types))
        raise duplicate_key(relation, from_arrow(rivals, relation.types))


# Candidate rows


def _candidates(requests: Requests, table: pa.Table, stored: StoredRelation, jobs: Jobs) -> list[Signed]:
    """The rows that are requested or share a key with a requested row, with their sign."""
    found: list[Signed] = []
    rest: list[SignedFrame] = []
    for frame, sign in candidate_frames(requests, stored):
        rows = _in_ranges(requests, table, frame, jobs)
        if rows is None:
            rest.append((frame, sign))
        else:
            found.append((rows, sign))
    return found + _by_query(requests, rest, jobs)


def _by_query(requests: Requests, parts: Sequence[SignedFrame], jobs: Jobs) -> list[Signed]:
    """The same from frames that this process cannot read."""
    plan = candidates_plan(requests, parts, jobs)
    if plan is None:
        return []
    rows = cast_columns(jobs.queries.data(plan).toArrow(), (*requests.relation.types, NUMBER))
    signs = rows.column(rows.num_columns - 1)
    own = rows.select(columns(requests.relation.types))
    return [(own.filter(pc.equal(signs, int64(sign))), sign) for sign in (1, -1)]


def _in_ranges(requests: Requests, table: pa.Table, frame: Frame, jobs: Jobs) -> pa.Table | None:
    """The candidates of a frame, without a query; others may be among them. None where that is not possible."""
    if (rows := _from_files(requests, table, frame, jobs.tuning.dense_factor)) is not None:
        return rows
    # More than the candidates does no harm: a row that is not requested stays as it was, and its sign is 0.
    fetched = jobs.queries.fetch(frame)
    return fetched.filter(_ranges(requests)) if fetched is not None else None


def _from_files(requests: Requests, table: pa.Table, frame: Frame, dense_factor: int) -> pa.Table | None:
    """All rows in the ranges of the requests; where these hold many others, those that have a requested identity."""
    if isinstance(frame, Local) or frame.files is None or frame.table is not None:
        return None
    relation, files = requests.relation, pyarrow.dataset.dataset(frame.files, format="parquet")
    if requests.are_dense(dense_factor):
        return cast_columns(files.to_table(filter=_ranges(requests)), relation.types)
    requested = table.select(identity_columns(relation))
    if any(values.null_count for values in requested.columns):
        return None  # to Arrow, NULL is not identical to NULL
    scan = Declaration("scan", ScanNodeOptions(files, filter=_ranges(requests)))
    sought = Declaration("table_source", TableSourceNodeOptions(requested))
    names: list[str | pc.Expression] = [*columns(relation.types)]
    keys: list[str | pc.Expression] = [*requested.column_names]
    found = Declaration("hashjoin", HashJoinNodeOptions("left semi", keys, keys, names, []), [scan, sought])
    return cast_columns(found.to_table(), relation.types)


def _ranges(requests: Requests) -> pc.Expression:
    """The condition of `candidates.in_ranges`: rows and deltas must be read by the same one, or a row counts wrongly."""
    relation = requests.relation
    by = identity(relation)[0]
    value, type = pc.field(column(by)), arrow_type(relation.types[by])
    tests = [(value >= pa.scalar(low, type)) & (value <= pa.scalar(high, type)) for low, high in requests.ranges]
    tests += [value.is_null()] if requests.may_have_nulls or not tests else []
    return reduce(or_, tests)
