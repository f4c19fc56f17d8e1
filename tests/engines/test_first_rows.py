"""The first rows of groups on Spark: prefixes that are longer than what a view shows, moved by a change alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import rederive
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.run.aggregates.first_rows import first_rows_name, has_prefix, prefix_types, shift
from rederive.engines.spark.session.types import from_arrow, to_arrow
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Aggregate, Function, Order
from rederive.ir.terms import FLOAT, NUMBER, SYMBOL, Row, Value
from tests.selection import examples

SOURCE = (NUMBER, SYMBOL, NUMBER)  # a value, the group, another value
TYPES = prefix_types((SYMBOL, NUMBER, NUMBER, NUMBER))
MARGIN = 2


def window(order: Sequence[Order], most: int, group: tuple[int, ...] = (1,)) -> Aggregate:
    """The first rows of each group."""
    return Aggregate("view", Function.ROW_NUMBER, "source", group, None, order=tuple(order), most=most)


def in_order(rows: Iterable[Row], aggregate: Aggregate) -> list[Row]:
    """Rows of the source in the order of the window, by the definition."""

    def compare(one: Row, other: Row) -> int:
        for order in (*aggregate.order, *map(Order, range(len(SOURCE)))):
            a, b = one[order.column], other[order.column]
            if a != b:
                if a is None or b is None:
                    return -1 if (a is None) is order.nulls_first else 1
                return -1 if (a < b) is not order.descending else 1  # type: ignore[operator]
        return 0

    return sorted(rows, key=cmp_to_key(compare))


def groups_of(rows: Iterable[Row], aggregate: Aggregate) -> dict[Row, list[Row]]:
    """The rows of each group, in order."""
    found: dict[Row, list[Row]] = {}
    for row in in_order(rows, aggregate):
        found.setdefault(tuple(row[i] for i in aggregate.group), []).append(row)
    return found


def prefixes(rows: Iterable[Row], aggregate: Aggregate, known: Mapping[Row, int]) -> set[Row]:
    """The prefixes that know so many rows of each group."""
    rest = [i for i in range(len(SOURCE)) if i not in aggregate.group]
    return {
        (*group, *(row[i] for i in rest), n, len(of) <= known[group])
        for group, of in groups_of(rows, aggregate).items()
        for n, row in enumerate(of[: known[group]], 1)
    }


VALUES = st.one_of(st.none(), st.integers(0, 4))
ROWS = st.frozensets(st.tuples(VALUES, st.sampled_from([None, "a", "b"]), VALUES), max_size=30)
ORDERS = st.lists(st.builds(Order, st.sampled_from([0, 2]), st.booleans(), st.booleans()), max_size=2)


@examples(300)
@given(ROWS, ROWS, ORDERS, st.integers(0, 3), st.integers(0, 4), st.sampled_from([(1,), (), (1, 2)]))
@example(frozenset({(1, "a", 1)}), frozenset({(1, "a", 1), (0, "a", 1)}), [], 1, 0, (1,))  # a group is new, and was empty before
def test_a_change_moves_the_prefixes(
    old: frozenset[Row], new: frozenset[Row], order: list[Order], most: int, more: int, group: tuple[int, ...]
) -> None:
    aggregate = window(order, most, group)
    types = prefix_types((*(SOURCE[i] for i in (*group, *(i for i in range(3) if i not in group))), NUMBER))
    # What is stored of a group knows at least what the view shows.
    before = prefixes(old, aggregate, {g: max(most + more, 1) for g in groups_of(old, aggregate)})
    changed = {tuple(row[i] for i in group) for row in old ^ new}
    of_changed = frozenset(row for row in before if row[: len(group)] in changed)
    change = (to_arrow(old - new, SOURCE), to_arrow(new - old, SOURCE))
    kept, short = shift(aggregate, to_arrow(of_changed, types), change, MARGIN, types)
    found, missing = set(from_arrow(kept, types)), _groups(short, types, group)
    _check(found, missing, aggregate, {g: of for g, of in groups_of(new, aggregate).items() if g in changed}, most)
    # Nothing is read where a group was known to its end.
    assert not {row[: len(group)] for row in of_changed if row[-1]} & missing


def _groups(short: object, types: Sequence[object], group: tuple[int, ...]) -> set[Row]:
    if not group:
        return {()} if short.num_rows else set()  # type: ignore[attr-defined]
    return set(from_arrow(short, tuple(types[: len(group)])))  # type: ignore[arg-type]


def _check(found: set[Row], missing: set[Row], aggregate: Aggregate, after: Mapping[Row, list[Row]], most: int) -> None:
    width = len(aggregate.group)
    rest = [i for i in range(len(SOURCE)) if i not in aggregate.group]
    assert {row[:width] for row in found}.isdisjoint(missing)
    for group, rows in after.items():
        if group in missing:
            continue
        known = sorted((row for row in found if row[:width] == group), key=lambda row: cast(int, row[-2]))
        is_whole = all(row[-1] for row in known)
        # A prefix of the group's order, numbered, as long as the view shows; all of the group where it says so.
        expected = [(*group, *(row[i] for i in rest), n) for n, row in enumerate(rows, 1)]
        assert [row[:-1] for row in known] == expected[: len(known)]
        assert len(known) == len(rows) if is_whole and known else len(known) >= min(most, len(rows))
        assert len(known) <= most + 2 * MARGIN
    assert {row[:width] for row in found} <= set(after)


def _descending(*values: Value) -> list[Row]:
    return [(value, "a", 0) for value in values]


def test_a_group_is_read_where_too_few_rows_are_known() -> None:
    """Two of three rows that are known leave, and the view shows two."""
    aggregate = window([Order(0, descending=True)], 2)
    old = frozenset(_descending(9, 8, 7, 6, 5))
    before = to_arrow(frozenset(prefixes(old, aggregate, {("a",): 3})), TYPES)
    nothing = to_arrow(frozenset(), SOURCE)
    kept, short = shift(aggregate, before, (to_arrow(frozenset(_descending(9, 8)), SOURCE), nothing), MARGIN, TYPES)
    assert not kept.num_rows
    assert from_arrow(short, (SYMBOL,)) == [("a",)]


def test_rows_far_behind_the_prefix_are_left_alone() -> None:
    aggregate = window([Order(0, descending=True)], 2)
    old = frozenset(_descending(*range(100, 200)))
    before = to_arrow(frozenset(prefixes(old, aggregate, {("a",): 4})), TYPES)
    change = (to_arrow(frozenset(_descending(*range(100, 150))), SOURCE), to_arrow(frozenset(_descending(*range(50))), SOURCE))
    kept, short = shift(aggregate, before, change, MARGIN, TYPES)
    assert set(from_arrow(kept, TYPES)) == set(from_arrow(before, TYPES))
    assert not short.num_rows


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda a: a, True),
        (lambda a: window((), 0), True),
        (lambda a: Aggregate("view", Function.ROW_NUMBER, "source", (1,), None), False),
        (lambda a: Aggregate("view", Function.SUM, "source", (1,), 0), False),
    ],
)
def test_which_aggregates_have_prefixes(change: Callable[[Aggregate], Aggregate], expected: bool) -> None:
    assert has_prefix(change(window((), 3)), (SYMBOL, NUMBER, NUMBER)) is expected


def test_floats_have_no_prefixes() -> None:
    """Arrow orders NaN and -0.0 in its own way."""
    assert not has_prefix(window((), 3), (FLOAT, NUMBER))


PLACES = {
    "driver": Tuning(first_rows_margin=1),
    "tables": Tuning(driver_rows=0, python_rows=-1, first_rows_margin=1),
    "spark": Tuning(driver_rows=0, python_rows=-1, arrow_rows=-1, first_rows_margin=1),
}
TOP = """CREATE VIEW top AS SELECT k, id, n FROM (SELECT k, id, n, row_number() OVER (PARTITION BY k ORDER BY n DESC, id) AS place
FROM t) WHERE place <= 2; CREATE VIEW first AS SELECT id FROM t ORDER BY n NULLS LAST, id LIMIT 2"""
# Enough of one group leave that its prefix is too short; groups end and begin.
CHANGES = (
    "INSERT INTO t VALUES (1, 1, 5), (2, 1, 7), (3, 1, 7), (4, 1, NULL), (5, NULL, 2), (6, 2, 0), (7, 1, 1), (8, 1, 9)",
    "DELETE FROM t WHERE id IN (8, 2, 3)",
    "UPDATE t SET n = 100 WHERE id = 7",
    "INSERT INTO t VALUES (9, NULL, 3), (10, NULL, 4), (11, NULL, 5), (12, 3, 1)",
    "DELETE FROM t WHERE id IN (11, 6)",
)


@pytest.mark.parametrize("place", ["driver", *(pytest.param(name, marks=pytest.mark.slow) for name in ("tables", "spark"))])
def test_views_over_first_rows(spark: SparkSession, place: str) -> None:
    rows: dict[int, tuple[int | None, int | None]] = {}
    engine = SparkEngine(spark, tuning=PLACES[place])
    db = rederive.Database(engine)
    db.sql(f"CREATE TABLE t (id INT PRIMARY KEY, k INT, n INT); {TOP}")
    assert first_rows_name("top.rank1.first(2)") in engine.installed.storage
    with rederive.open() as other:
        other.sql(f"CREATE TABLE t (id INT PRIMARY KEY, k INT, n INT); {TOP}")
        for change in CHANGES:
            for each in (db, other):
                each.sql(change)
            rows = cast(Any, {row[0]: row[1:] for row in other.rows("t")})
            assert Counter(db.rows("top")) == Counter(_top(rows)), change
            expected = sorted(rows, key=lambda i: (rows[i][1] is None, rows[i][1] or 0, i))[:2]
            assert Counter(db.rows("first")) == Counter((i,) for i in expected), change


def _top(rows: Mapping[int, tuple[int | None, int | None]]) -> list[Row]:
    """The first two rows of each group; NULL is the least value, and so the last in descending order."""
    found: list[Row] = []
    for k in {k for k, _ in rows.values()}:
        of = sorted((i for i in rows if rows[i][0] == k), key=lambda i: (rows[i][1] is None, -(rows[i][1] or 0), i))
        found += [(k, i, rows[i][1]) for i in of[:2]]
    return found
