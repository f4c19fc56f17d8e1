"""Delta tables of a lake: each write is one commit, is done once, and is seen by an independent reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import DataFrame

from rederive.errors import NewerFormat, NotATable, SchemaMismatch, VersionGone
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, SYMBOL, Row
from rederive.lake.change_table import change_schema
from rederive.lake.tables import Area, Lake
from rederive.lake.types import collect, dataframe
from tests.lake import witness
from tests.selection import fast_only

EDGE = Relation("edge", (Column("x", SYMBOL), Column("y", SYMBOL)))
FLAG = Relation("flag", ())


def frame(lake: Lake, relation: Relation, rows: Iterable[Row]) -> DataFrame:
    return dataframe(lake.spark, relation, rows)


def net_changes(lake: Lake, relation: Relation, gone: Iterable[Row], came: Iterable[Row], version: int) -> DataFrame:
    """What one version takes out and puts in, as a change table has it."""
    own = f"{version}L AS _version", "'{0}' AS _change", "1L AS _count"
    minus, plus = (
        frame(lake, relation, rows).selectExpr(own[0], own[1].format(sign), own[2], "*")
        for sign, rows in (("minus", gone), ("plus", came))
    )
    return minus.unionByName(plus)


def apply(lake: Lake, version: int, gone: Sequence[Row], came: Sequence[Row], relation: Relation = EDGE) -> None:
    lake.apply_changes(Area.BASE, relation, net_changes(lake, relation, gone, came, version), version)


def rows(lake: Lake, version: int | None = None, area: Area = Area.BASE, relation: Relation = EDGE) -> list[Row]:
    return sorted(collect(lake.read(area, relation, version), relation))


def changes(lake: Lake, *changes: tuple[int, str, str, str]) -> DataFrame:
    return lake.spark.createDataFrame([(v, c, 1, x, y) for v, c, x, y in changes], change_schema(EDGE))


def commits(lake: Lake, area: Area = Area.BASE, name: str = "edge") -> int:
    return deltalake.DeltaTable(lake.path(area, name)).version()


def test_versions_are_written_once_each_as_one_commit(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    assert (rows(lake), lake.last_version(Area.BASE, "edge")) == ([], None)

    apply(lake, 1, [], [("a", "b"), ("b", "c")])
    apply(lake, 2, [("a", "b")], [("c", "d")])
    apply(lake, 4, [("b", "c")], [])
    assert (rows(lake), lake.last_version(Area.BASE, "edge"), commits(lake)) == ([("c", "d")], 4, 3)
    assert witness.rows(lake.path(Area.BASE, "edge")) == [("c", "d")]

    # A repeated write, and one that was overtaken, change nothing: whether they append, delete or do both.
    apply(lake, 4, [], [("x", "y")])
    apply(lake, 4, [("c", "d")], [])
    apply(lake, 2, [("c", "d")], [("x", "y")])
    assert (rows(lake), commits(lake)) == ([("c", "d")], 3)

    # Each version can be read again, the one that changed nothing too.
    assert [rows(lake, version) for version in range(5)] == [
        [],
        [("a", "b"), ("b", "c")],
        [("b", "c"), ("c", "d")],
        [("b", "c"), ("c", "d")],
        [("c", "d")],
    ]


@pytest.mark.slow
def test_delta_itself_skips_a_repeated_merge(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes may both find that a version is not written yet: the table's own memory decides."""
    lake.create(Area.BASE, EDGE)
    apply(lake, 1, [], [("a", "b")])
    apply(lake, 2, [("a", "b")], [("a", "c")])
    monkeypatch.setattr("rederive.lake.tables._has_version", lambda table, version: False)
    apply(lake, 2, [("a", "c")], [("z", "z")])
    apply(lake, 2, [], [("z", "z")])
    lake.replace(Area.BASE, EDGE, frame(lake, EDGE, []), 2)
    assert (rows(lake), commits(lake)) == ([("a", "c")], 2)


@pytest.mark.slow
def test_what_leaves_and_comes_again_is_as_it_was(lake: Lake) -> None:
    lake.create(Area.VIEWS, EDGE)
    lake.replace(Area.VIEWS, EDGE, frame(lake, EDGE, [("a", "b"), ("b", "c")]), 1)
    batch = changes(
        lake,
        (1, "plus", "a", "b"),  # the table has it already
        (2, "minus", "a", "b"),
        (3, "plus", "a", "b"),
        (2, "plus", "c", "d"),
        (3, "minus", "c", "d"),
        (2, "minus", "b", "c"),
        (3, "plus", "d", "e"),
    )
    lake.apply_changes(Area.VIEWS, EDGE, batch, 3)
    assert rows(lake, area=Area.VIEWS) == [("a", "b"), ("d", "e")]
    assert witness.rows(lake.path(Area.VIEWS, "edge")) == [("a", "b"), ("d", "e")]
    assert lake.last_version(Area.VIEWS, "edge") == 3


def test_changes_are_appended_once(lake: Lake) -> None:
    lake.create(Area.CHANGES, EDGE)
    first = changes(lake, (1, "plus", "a", "b"), (2, "minus", "a", "b"))
    longer = first.union(changes(lake, (3, "plus", "b", "c")))
    lake.append_changes(EDGE, first, 2)
    lake.append_changes(EDGE, longer, 3)
    lake.append_changes(EDGE, longer, 3)
    kept = [(1, "plus", 1, "a", "b"), (2, "minus", 1, "a", "b"), (3, "plus", 1, "b", "c")]
    assert witness.rows(lake.path(Area.CHANGES, "edge")) == kept
    table = lake.read(Area.CHANGES, EDGE)
    assert table.columns == ["_version", "_change", "_count", "x", "y"]
    assert sorted(map(tuple, table.collect())) == kept


@pytest.mark.slow
def test_a_relation_without_columns(lake: Lake) -> None:
    lake.create(Area.BASE, FLAG)
    apply(lake, 1, [], [()], FLAG)
    assert rows(lake, relation=FLAG) == [()]
    apply(lake, 2, [()], [], FLAG)
    assert rows(lake, relation=FLAG) == []
    assert rows(lake, 1, relation=FLAG) == [()]


NAMES = ('path.at("a", _)', "ä/../b`c%20;{}=" + "v" * 200)


@pytest.mark.parametrize("name", fast_only(NAMES, NAMES[1]))
def test_any_name_is_a_table(lake: Lake, name: str) -> None:
    relation = Relation(name, (Column("x", NUMBER), Column("X", NUMBER), Column("a b", NUMBER)))
    lake.replace(Area.VIEWS, relation, frame(lake, relation, [(1, 2, 3)]))
    table = lake.read(Area.VIEWS, relation)
    assert (table.columns, collect(table, relation)) == (["x", "X", "a b"], [(1, 2, 3)])
    assert lake.declaration(Area.VIEWS, name) == relation
    lake.drop(Area.VIEWS, name)
    assert lake.declaration(Area.VIEWS, name) is None


def test_a_column_is_added_at_the_end_with_a_default(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    apply(lake, 1, [], [("a", "b")])
    wider = Relation("edge", (*EDGE.columns, Column("n", NUMBER)))
    with pytest.raises(SchemaMismatch, match="it has 2 columns in the table and 3 in the program"):
        lake.read(Area.BASE, wider)
    lake.evolve(Area.BASE, wider, {"n": 7})
    assert rows(lake, relation=wider) == [("a", "b", 7)]
    assert witness.rows(lake.path(Area.BASE, "edge")) == [("a", "b", 7)]
    apply(lake, 1, [], [("x", "y", 0)], wider)
    apply(lake, 2, [("a", "b", 7)], [("a", "b", 8)], wider)
    assert (rows(lake, relation=wider), lake.last_version(Area.BASE, "edge")) == ([("a", "b", 8)], 2)


REFUSED = {
    "column 2 is 'y: symbol' in the table and 'y: number'": Relation("edge", (Column("x", SYMBOL), Column("y", NUMBER))),
    "column 1 is 'x: symbol' in the table and 'y: symbol'": Relation("edge", (Column("y", SYMBOL), Column("x", SYMBOL))),
    "its key is .all columns. in the table and .x. in the program": Relation("edge", EDGE.columns, (0,)),
    "it has 2 columns in the table and 1 in the program": Relation("edge", EDGE.columns[:1]),
}


def test_another_declaration_is_refused(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    for difference, other in REFUSED.items():
        with pytest.raises(SchemaMismatch, match=difference):
            lake.create(Area.BASE, other)
        with pytest.raises(SchemaMismatch, match=difference):
            lake.read(Area.BASE, other)
        with pytest.raises(SchemaMismatch, match=difference):
            apply(lake, 1, [], [], other)
        with pytest.raises(SchemaMismatch, match=difference):
            lake.replace(Area.BASE, other, frame(lake, other, []))
    assert commits(lake) == 0


NO_EVOLUTION: list[tuple[Relation, dict[str, int]]] = [
    (Relation("edge", (*EDGE.columns, Column("n", NUMBER))), {}),
    (Relation("edge", (*EDGE.columns, Column("n", NUMBER)), (0,)), {"n": 1}),
    (Relation("edge", (Column("n", NUMBER), *EDGE.columns)), {"n": 1}),
    (Relation("edge", EDGE.columns[:1]), {}),
]


@pytest.mark.slow
def test_no_other_change_of_columns(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    for relation, defaults in NO_EVOLUTION:
        with pytest.raises(SchemaMismatch):
            lake.evolve(Area.BASE, relation, defaults)
    assert commits(lake) == 0


def test_a_frame_of_other_types_is_refused(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    wrong = frame(lake, Relation("n", (Column("x", SYMBOL), Column("y", NUMBER))), [])
    with pytest.raises(SchemaMismatch, match=r"column 'y' of relation 'edge' is symbol, so string is expected.*has bigint"):
        lake.replace(Area.BASE, EDGE, wrong, 1)
    with pytest.raises(SchemaMismatch, match=r"column 'y' of relation 'edge' is symbol, so string is expected.*has bigint"):
        lake.append(Area.BASE, EDGE, wrong, 1)
    with pytest.raises(SchemaMismatch, match="not changes of relation 'edge': column 'x' is found where '_version' is expected"):
        lake.apply_changes(Area.BASE, EDGE, wrong, 1)
    assert commits(lake) == 0


def test_a_newer_lake_is_refused(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    path = lake.path(Area.BASE, "edge")
    lake.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('rederive.format' = '3')")
    with pytest.raises(
        NewerFormat, match=f"{path}: error.newer_format.: the table has format 3, .* up to 2\n  help: upgrade rederive"
    ):
        lake.read(Area.BASE, EDGE)
    with pytest.raises(NewerFormat):
        apply(lake, 1, [], [("a", "b")])
    assert commits(lake) == 1


@pytest.mark.slow
def test_a_table_that_somebody_changed_is_refused(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    lake.spark.sql(f"ALTER TABLE delta.`{lake.path(Area.BASE, 'edge')}` ADD COLUMNS (z STRING)")
    with pytest.raises(SchemaMismatch, match="was changed by somebody else: column 'z' is not expected"):
        lake.read(Area.BASE, EDGE)


def test_what_is_no_table_of_ours_is_refused(lake: Lake) -> None:
    with pytest.raises(NotATable, match="no table of relation 'edge'"):
        lake.read(Area.BASE, EDGE)
    path = lake.path(Area.BASE, "edge")
    lake.spark.range(1).write.parquet(path)
    with pytest.raises(NotATable, match="something other than a Delta table"):
        lake.create(Area.BASE, EDGE)
    with pytest.raises(NotATable, match="something other than a Delta table"):
        lake.replace(Area.BASE, EDGE, frame(lake, EDGE, []))
    lake.spark.range(1).write.format("delta").save(lake.path(Area.VIEWS, "edge"))
    with pytest.raises(NotATable, match="not one of a lake of rederive"):
        lake.create(Area.VIEWS, EDGE)


@pytest.mark.slow
def test_small_files_are_gathered(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    for version in range(1, 4):
        apply(lake, version, [], [("a", str(version))])
    path = lake.path(Area.BASE, "edge")
    assert not lake.compact(Area.BASE, "edge")
    assert lake.compact(Area.BASE, "edge", files=3)
    assert len(deltalake.DeltaTable(path).file_uris()) == 1
    assert witness.rows(path) == [("a", "1"), ("a", "2"), ("a", "3")]
    assert [len(rows(lake, version)) for version in range(5)] == [0, 1, 2, 3, 3]
    apply(lake, 4, [("a", "1")], [])
    lake.vacuum(Area.BASE, "edge")
    assert [len(rows(lake, version)) for version in (2, 4)] == [2, 2]


@pytest.mark.slow
def test_a_version_that_the_log_has_forgotten(lake: Lake) -> None:
    lake.create(Area.BASE, EDGE)
    apply(lake, 1, [], [("a", "1")])
    apply(lake, 2, [], [("a", "2")])
    path = lake.path(Area.BASE, "edge")
    deltalake.DeltaTable(path).create_checkpoint()
    for number in (0, 1):
        Path(path, "_delta_log", f"{number:020}.json").unlink()
    assert rows(lake, 2) == [("a", "1"), ("a", "2")]
    with pytest.raises(VersionGone, match="the rows of version 1 are no longer stored"):
        lake.read(Area.BASE, EDGE, 1)
