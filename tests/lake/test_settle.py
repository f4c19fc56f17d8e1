"""Settling brings every table to a version exactly once, wherever it was stopped before."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from rederive import failpoints
from rederive.delta import Delta
from rederive.errors import SchemaMismatch
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, SYMBOL
from rederive.lake.change_table import change_schema
from rederive.lake.settle import LakeRelations, settle, settled_version, staged_path
from rederive.lake.tables import Area, Lake
from rederive.records import RecordedDelta, VersionRecord
from rederive.store import lake_sync
from tests.lake import witness

EDGE = Relation("edge", (Column("x", SYMBOL), Column("y", SYMBOL)))
REACH = Relation("reach.view", EDGE.columns)
TABLES = LakeRelations((EDGE,), (REACH,), {"reach.view"})


def entry(number: int, base: Delta | None = None, views: Delta | None = None, staged: str | None = None) -> VersionRecord:
    """A version with a delta of `edge` and one of `reach.view`."""
    of_base, of_views = ((RecordedDelta(relation, d),) if d else () for relation, d in ((EDGE, base), (REACH, views)))
    return VersionRecord(number, datetime(2024, 2, 29), "resident", of_base, of_views, staged=staged)


AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")
VERSIONS = (
    entry(1, Delta((AB, BC)), Delta((AB, BC, ("a", "c")))),
    entry(2),
    entry(3, Delta((CD,), (AB,)), Delta((CD, ("b", "d")), (AB, ("a", "c")))),
    entry(4, Delta((AB,)), Delta((AB, ("a", "c"), ("a", "d")))),
)
BASE = [AB, BC, CD]
VIEW = [AB, ("a", "c"), ("a", "d"), BC, ("b", "d"), CD]
CHANGES = sorted(
    (version.number, sign, 1, *row)
    for version in VERSIONS
    for change in version.views
    for sign, rows in (("plus", change.delta.plus), ("minus", change.delta.minus))
    for row in rows
)


class Stopped(Exception):
    pass


def check(lake: Lake) -> None:
    assert settled_version(lake) == 4
    assert witness.rows(lake.path(Area.BASE, "edge")) == BASE
    assert witness.rows(lake.path(Area.VIEWS, "reach.view")) == VIEW
    assert sorted(witness.rows(lake.path(Area.CHANGES, "reach.view"))) == CHANGES


@pytest.mark.parametrize("stop", [2, *(pytest.param(stop, marks=pytest.mark.slow) for stop in (1, 3, 4, 5))])
def test_stopped_anywhere_and_begun_again_with_more(lake: Lake, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    passed: list[str] = []

    def hit(point: str) -> None:
        passed.append(point)
        if len(passed) == stop:
            raise Stopped

    monkeypatch.setattr(failpoints, "hit", hit)
    with pytest.raises(Stopped):
        settle(lake, TABLES, VERSIONS[:3])
    expected = ["lake.settle:table"] * 3 + ["lake.settle:tables", "lake.settle:after"]
    assert passed == expected[:stop]
    assert settled_version(lake) == (3 if stop == 5 else 0)
    assert settle(lake, TABLES, VERSIONS) == 4
    check(lake)
    assert settle(lake, TABLES, VERSIONS) == 4
    assert not list(Path(lake.root).glob("_rows-*"))


def test_versions_are_settled_in_parts_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_sync, "MOST_IN_DRIVER", 10)
    relation = Relation("n", (Column("x", NUMBER),))
    sizes = [4, 5, 2, 30, 1, 9]
    records = [
        VersionRecord(n, datetime(2026, 1, 1), "spark", (RecordedDelta(relation, Delta([(x,) for x in range(size)])),))
        for n, size in enumerate(sizes, 1)
    ]
    assert [[one.number for one in part] for part in lake_sync.chunks(records)] == [[1, 2], [3], [4], [5, 6]]
    assert list(lake_sync.chunks([])) == []


def test_staged_changes_of_a_bulk_version(lake: Lake, tmp_path: Path) -> None:
    staged = str(tmp_path / "staged")
    last = VERSIONS[3]
    for area, change in ((Area.BASE, last.base[0]), (Area.CHANGES, last.views[0])):
        rows = [(4, "plus", 1, *row) for row in change.delta.plus]
        frame = lake.spark.createDataFrame(rows, change_schema(change.relation))
        frame.write.parquet(staged_path(staged, area, change.relation.name))
    settle(lake, TABLES, (*VERSIONS[:3], entry(4, staged=staged)))
    check(lake)


@pytest.mark.slow
def test_a_bag_holds_each_row_as_often_as_it_occurs(lake: Lake) -> None:
    """Over several versions at once, and over one more; NULL is a value."""
    nothing = ("a", None)
    versions = (
        entry(1, Delta({AB: 3, nothing: 2}), Delta({AB: 3})),
        entry(2, Delta({BC: 1}, {AB: 2}), Delta({}, {AB: 2})),
        entry(3, Delta({AB: 2}, {nothing: 1, BC: 1}), Delta({BC: 2, AB: 1})),
        entry(4, Delta({}, {AB: 3}), Delta({}, {BC: 1, AB: 2})),
    )
    tables = LakeRelations((EDGE,), (REACH,), {"reach.view"}, {"edge", "reach.view"})
    states = ((2, [AB, nothing, nothing, BC], [AB]), (3, [AB, AB, AB, nothing], [AB, AB, BC, BC]), (4, [nothing], [BC]))
    for number, base, view in states:
        settle(lake, tables, versions[:number])
        assert witness.rows(lake.path(Area.BASE, "edge")) == sorted(base, key=repr)
        assert witness.rows(lake.path(Area.VIEWS, "reach.view")) == view
    changes = witness.rows(lake.path(Area.CHANGES, "reach.view"))
    assert [row for row in changes if row[0] == 3] == [(3, "plus", 1, *AB), (3, "plus", 2, *BC)]


def test_other_columns_are_refused(lake: Lake) -> None:
    other = Relation("edge", (Column("x", SYMBOL), Column("n", NUMBER)))
    with pytest.raises(SchemaMismatch, match="had other columns when these changes were recorded"):
        settle(lake, TABLES, (replace(entry(1), base=(RecordedDelta(other, Delta((("a", 1),))),)),))
    assert settled_version(lake) == 0
