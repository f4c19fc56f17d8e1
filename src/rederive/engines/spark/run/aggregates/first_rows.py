"""The first rows of each group, by a stored prefix of its order that is longer than what the view shows.

The prefix P of a group is its first rows up to some last row, or all of its rows: then it is *whole*. For a change of the group:

    P' = { r in (P - del) + ins : r <= last(P) }        and without the test where P is whole

are again the first rows of the group, since every row up to last(P) is known. So a change is worked out from itself and P, in the
driver where both are there. Only where P' has fewer rows than the view shows, the rows of the group are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rederive.analysis.derivations import window_columns
from rederive.engines.spark.plan.expressions import Named, Window, count_rows, infix, number, ref
from rederive.engines.spark.plan.nodes import Filter, Plan, Projection
from rederive.engines.spark.plan.sources import Types
from rederive.engines.spark.run.aggregates.from_scratch import numbered_plan
from rederive.engines.spark.run.arrow_sets import can_compare, cast_columns
from rederive.engines.spark.session.types import column
from rederive.ir.rules import Aggregate, Function, Order
from rederive.ir.terms import BOOLEAN

_IS_OLD, _LEAVES, _ENTERS = range(3)
_KIND: Final = "kind"


def first_rows_name(view: str) -> str:
    """The name under which the prefixes of a view's groups are stored: its rows, and whether they are all of the group."""
    return f"{view}.first"


def has_prefix(aggregate: Aggregate, types: Types) -> bool:
    """Whether prefixes are stored for an aggregate, whose view has columns of these types."""
    return aggregate.function is Function.ROW_NUMBER and aggregate.most is not None and can_compare(types)


def prefix_types(types: Types) -> Types:
    """The columns of a prefix: those of the view, and whether it is whole."""
    return (*types, BOOLEAN)


def prefix_plan(aggregate: Aggregate, arity: int, rows: Plan, margin: int) -> Plan:
    """The prefixes of the groups of some rows: `margin` rows more than the view shows."""
    most = (aggregate.most or 0) + margin
    # One row more tells whether there are more.
    numbered = numbered_plan(replace(aggregate, most=most + 1), arity, rows)
    found = Window(count_rows(), tuple(ref(i) for i in range(len(aggregate.group))))
    is_whole = Named(infix("<=", found, number(most)), column(arity + 1))
    counted = Projection(numbered, (*(ref(i) for i in range(arity + 1)), is_whole))
    return Filter(counted, (infix("<=", ref(arity), number(most)),))


def shown_plan(aggregate: Aggregate, arity: int, prefixes: Plan) -> Plan:
    """The rows of prefixes that the view shows."""
    rows = Filter(prefixes, (infix("<=", ref(arity), number(aggregate.most or 0)),))
    return Projection(rows, tuple(ref(i) for i in range(arity + 1)))


def shown_rows(aggregate: Aggregate, arity: int, prefixes: pa.Table) -> pa.Table:
    """The same of a table."""
    rows = prefixes.filter(pc.field(column(arity)) <= (aggregate.most or 0))
    return rows.select([column(i) for i in range(arity + 1)])


def shift(
    aggregate: Aggregate, before: pa.Table, change: tuple[pa.Table, pa.Table], margin: int, types: Types
) -> tuple[pa.Table, pa.Table]:
    """The prefixes of changed groups after a change, and the groups of which too few rows are known.

    `before`: their prefixes. `change`: the rows that leave and enter the source. `types`: of the prefixes' columns.
    """
    arity, width = len(types) - 2, len(aggregate.group)
    most, names, groups = aggregate.most or 0, [column(i) for i in range(arity)], [column(i) for i in range(width)]
    order = [column(i) for i in window_columns(aggregate, arity)]
    keys = _sort_keys(aggregate, arity)
    changed = [(side.select(order).rename_columns(names), kind) for side, kind in zip(change, (_LEAVES, _ENTERS), strict=True)]
    parts = [(before.select(names), _IS_OLD)] + [(_near(rows, before, keys, width, arity), kind) for rows, kind in changed]
    rows = pa.concat_tables(part.append_column(_KIND, pa.array(np.full(len(part), kind, np.int8))) for part, kind in parts)
    whole = before[column(arity + 1)].combine_chunks().to_numpy(zero_copy_only=False)
    # Rows of `before` come first, so their places in it are their places here.
    places = _sorted_places(rows, keys, width)
    rows = rows.take(pa.array(places))
    kinds = rows[_KIND].to_numpy()
    starts_group, starts_row = _differs(rows, groups), _differs(rows, names)
    group = np.cumsum(starts_group) - 1
    number_of_groups = int(group[-1]) + 1 if len(group) else 0

    # Of each group: the place of the last row that was known, and whether all were; a group without known rows had none.
    last, is_whole = np.full(number_of_groups, -1), np.ones(number_of_groups, np.bool_)
    known = np.flatnonzero(kinds == _IS_OLD)
    np.maximum.at(last, group[known], known)
    is_whole[group[known]] = whole[places[known]]

    # A row is there if it was and does not leave, or if it enters; equal rows are neighbours.
    row = np.cumsum(starts_row) - 1
    has = [np.zeros(int(row[-1]) + 1 if len(row) else 0, np.bool_) for _ in range(3)]
    for kind, found in enumerate(has):
        found[row[kinds == kind]] = True
    is_there = (has[_IS_OLD] & ~has[_LEAVES]) | has[_ENTERS]
    first = np.flatnonzero(starts_row)
    first = first[is_there]
    first = first[is_whole[group[first]] | (first <= last[group[first]])]

    counts = np.bincount(group[first], minlength=number_of_groups)
    is_short = ~is_whole & (counts < most)
    # Many rows more than are needed are cut off, and the group is no longer known to its end.
    is_long = counts > most + 2 * margin
    first = first[~is_short[group[first]]]
    of = group[first]
    begins = np.searchsorted(of, of, side="left")
    numbers = np.arange(len(first)) - begins + 1
    fits = ~is_long[of] | (numbers <= most + margin)
    kept = rows.take(pa.array(first[fits])).select(names)
    kept = kept.append_column(column(arity), pa.array(numbers[fits]))
    kept = kept.append_column(column(arity + 1), pa.array((is_whole & ~is_long)[of[fits]]))
    short = rows.take(pa.array(np.flatnonzero(starts_group)[is_short], pa.int64())).select(groups)
    return cast_columns(kept, types), cast_columns(short, types[:width]) if width else short


def _sort_keys(aggregate: Aggregate, arity: int) -> list[Order]:
    """The order of a group, over the columns of the view. Ties are broken by all columns of the source, as the plans do."""
    place = {source: i for i, source in enumerate(window_columns(aggregate, arity))}
    found: dict[int, Order] = {}
    for order in (*aggregate.order, *map(Order, range(arity))):
        found.setdefault(place[order.column], replace(order, column=place[order.column]))
    return [order for i, order in found.items() if i >= len(aggregate.group)]


def _near(rows: pa.Table, before: pa.Table, keys: Sequence[Order], width: int, arity: int) -> pa.Table:
    """The rows without most of those that are behind the prefix of their group: by the first column of the order alone."""
    groups = [column(i) for i in range(width)]
    if not keys or not width or len(rows) <= len(before):
        return rows
    key, (last, whole) = column(keys[0].column), (column(arity), column(arity + 1))
    if any(table[name].null_count for table in (rows, before) for name in (*groups, key)):
        return rows  # a join finds no NULL
    ends = (
        before.select([*groups, key, whole])
        .group_by(groups)
        .aggregate([(key, "min" if keys[0].descending else "max"), (whole, "max")])
    )
    ends = ends.rename_columns([*groups, "end", "whole"])
    numbered = rows.append_column(last, pa.array(np.arange(len(rows))))
    found = numbered.select([*groups, key, last]).join(ends, groups, join_type="left outer")
    is_before = pc.greater_equal(found[key], found["end"]) if keys[0].descending else pc.less_equal(found[key], found["end"])
    # Without an end the group was empty.
    whole_or_none, before_or_none = (pc.fill_null(cast(Any, one), pa.scalar(True)) for one in (found["whole"], is_before))
    is_near = pc.or_(cast(Any, whole_or_none), cast(Any, before_or_none))
    return rows.take(found[last].filter(is_near).combine_chunks())


def _sorted_places(rows: pa.Table, keys: Sequence[Order], width: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The places of the rows by group, and in the order of each group."""
    sorting: dict[str, Any] = {}
    order: list[tuple[str, Any]] = []
    for one in (*(Order(i) for i in range(width)), *keys):
        values = rows[column(one.column)]
        if values.null_count:
            sorting[f"null{one.column}"] = pc.is_null(values).cast(pa.int8())
            order.append((f"null{one.column}", "descending" if one.nulls_first else "ascending"))
        sorting[column(one.column)] = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
        order.append((column(one.column), "descending" if one.descending else "ascending"))
    found: np.ndarray[Any, np.dtype[np.int64]] = pc.sort_indices(pa.table(sorting), sort_keys=order).to_numpy().astype(np.int64)
    return found


def _differs(rows: pa.Table, names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows differ from the one before in some of these columns; the first one does."""
    found = np.zeros(len(rows), np.bool_)
    found[:1] = True
    for name in names if len(rows) > 1 else ():
        values = rows[name].combine_chunks()
        one, other = values[1:], values[:-1]
        unequal = pc.fill_null(cast(Any, pc.not_equal(one, other)), pa.scalar(False))
        either = pc.xor(pc.is_null(one), pc.is_null(other))
        found[1:] |= pc.or_(cast(Any, unequal), either).to_numpy(zero_copy_only=False)
    return found
