"""The net effect of a transaction that is not too much for the driver: what `net_bulk` asks Spark, over tables.

Only the rows of the relation that the wishes can be about are fetched: straight from its files, where this process can read them,
else by one query.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
from pyarrow.acero import Declaration, HashJoinNodeOptions, ScanNodeOptions, TableSourceNodeOptions  # type: ignore[attr-defined]

from rederive.engines.spark.net.candidates import near, parts_near
from rederive.engines.spark.net.requested import Wishes, beside, by_identity
from rederive.engines.spark.plan.sources import Frame, Local
from rederive.engines.spark.run.arrow_sets import Signed, typed, whole, with_values
from rederive.engines.spark.run.jobs import Jobs
from rederive.engines.spark.run.keys import duplicate, identity
from rederive.engines.spark.run.storage import Held
from rederive.engines.spark.session.types import arrow_type, column, columns, from_arrow
from rederive.ir.rules import Relation
from rederive.ir.terms import NUMBER

_WAS = "was"
_ZERO = whole(0)


def effect_here(wishes: Wishes, table: pa.Table, held: Held, jobs: Jobs) -> tuple[Frame, Frame]:
    """The rows that leave and those that enter, by the wishes in `table`; refused where two that are left share a key."""
    relation = wishes.relation
    wish, upsert = beside(relation)
    there = (with_values(rows, {wish: -1, upsert: 0, _WAS: was}) for rows, was in _near(wishes, table, held, jobs))
    parts = [with_values(table, {_WAS: 0}), *there]
    names = columns(relation.types)
    each = pa.concat_tables(parts).group_by(names).aggregate([(wish, "max"), (upsert, "max"), (_WAS, "sum")])
    each = each.rename_columns([name.removesuffix("_max").removesuffix("_sum") for name in each.column_names])
    if relation.key and wishes.upserts:
        each = _upserted(each, relation)
    last, was = each[wish], each[_WAS]
    stays = pc.if_else(pc.less(last, _ZERO), was, pc.bit_wise_and(last, whole(1)))
    _check_keys(each.append_column("stays", stays), relation)
    sign = pc.subtract(stays, was)
    gone, came = (each.filter(test).select(names) for test in (pc.less(sign, _ZERO), pc.greater(sign, _ZERO)))
    jobs.touched += gone.num_rows + came.num_rows
    around = wishes.around
    return jobs.tabled(gone, relation.types, around[0]), jobs.tabled(came, relation.types, around[1])


def _upserted(each: pa.Table, relation: Relation) -> pa.Table:
    """A row whose last wish is before the last upsert of its key is wished away by that."""
    wish, upsert = beside(relation)
    key = [column(i) for i in relation.key]
    last = each.group_by(key).aggregate([(upsert, "max")]).rename_columns([*key, "last"])
    both = each.join(last, key)
    replaced = pc.and_(pc.greater(both["last"], _ZERO), pc.less(both[wish], pc.add(both["last"], both["last"])))
    return both.set_column(both.column_names.index(wish), wish, pc.if_else(replaced, _ZERO, both[wish]))


def _check_keys(states: pa.Table, relation: Relation) -> None:
    """Refuse a state in which two rows share a key."""
    if not relation.key:
        return
    key = [column(i) for i in relation.key]
    there = states.filter(pc.field("stays") > 0)
    numbers = there.group_by(key).aggregate([([], "count_all")])
    if numbers.num_rows < there.num_rows:
        twice = numbers.filter(pc.field("count_all") > 1).sort_by([(name, "ascending") for name in key]).slice(0, 1)
        rivals = there.join(twice.select(key), key, join_type="left semi").select(columns(relation.types))
        raise duplicate(relation, from_arrow(rivals, relation.types))


# Rows of the relation


def _near(wishes: Wishes, table: pa.Table, held: Held, jobs: Jobs) -> list[Signed]:
    """The rows that can be wished for or share a key with one of these, and their changes: 1 where they are there, or -1."""
    found, elsewhere = [], []
    for frame, was in parts_near(wishes, held):
        rows = _in_ranges(wishes, table, frame, jobs)
        if rows is None:
            elsewhere.append((frame, was))
        else:
            found.append((rows, was))
    if elsewhere:
        rows = typed(jobs.session.sql(near(wishes, elsewhere, jobs)).toArrow(), (*wishes.relation.types, NUMBER))
        signs = rows.column(rows.num_columns - 1)
        own = rows.select(columns(wishes.relation.types))
        found += [(own.filter(pc.equal(signs, whole(was))), was) for was in (1, -1)]
    return found


def _in_ranges(wishes: Wishes, table: pa.Table, frame: Frame, jobs: Jobs) -> pa.Table | None:
    """The rows of a frame that are in the ranges of the wishes, where that takes no query; from files, not many others than are
    wished for."""
    if (rows := _from_files(wishes, table, frame)) is not None:
        return rows
    fetched = jobs.fetched(frame)
    return fetched.filter(_ranges(wishes)) if fetched is not None else None


def _from_files(wishes: Wishes, table: pa.Table, frame: Frame) -> pa.Table | None:
    """All rows in the ranges of the wishes, or, where these hold many others, those that share their identity with one."""
    if isinstance(frame, Local) or frame.files is None or frame.table is not None:
        return None
    relation, files = wishes.relation, pyarrow.dataset.dataset(frame.files, format="parquet")
    if wishes.dense:
        return typed(files.to_table(filter=_ranges(wishes)), relation.types)
    wished = table.select(by_identity(relation))
    if any(values.null_count for values in wished.columns):
        return None  # to Arrow, NULL is not identical to NULL
    scan = Declaration("scan", ScanNodeOptions(files, filter=_ranges(wishes)))
    sought = Declaration("table_source", TableSourceNodeOptions(wished))
    names: list[str | pc.Expression] = [*columns(relation.types)]
    keys: list[str | pc.Expression] = [*wished.column_names]
    found = Declaration("hashjoin", HashJoinNodeOptions("left semi", keys, keys, names, []), [scan, sought])
    return typed(found.to_table(), relation.types)


def _ranges(wishes: Wishes) -> pc.Expression:
    """The same rows that `near` asks for: of what changed there, nothing is left out."""
    relation = wishes.relation
    by = identity(relation)[0]
    value, type = pc.field(column(by)), arrow_type(relation.types[by])
    tests = [(value >= pa.scalar(low, type)) & (value <= pa.scalar(high, type)) for low, high in wishes.ranges]
    tests += [value.is_null()] if wishes.nulls or not tests else []
    return reduce(or_, tests)
