"""Tests and maintenance queries on Spark: by its engine, and by the SQL that `advise` prints, as on the resident engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from rederive import Warehouse
from rederive.engines.spark.engine import SparkEngine
from rederive.errors import UnknownOption
from rederive.ir.to_sql import SPARK, WHOLE, identifier, sql_text
from rederive.lake.types import spark_type
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.compiled_maintenance import CompiledMaintenance, compile_maintenance
from rederive.warehouse.selfmaint.conjunctive import StoredView
from rederive.warehouse.selfmaint.search import KnownRows
from rederive.warehouse.selfmaint.source_update import KnownRelations, SourceUpdate, UpdateKind
from tests.papers.test_hu97 import CLOSED, INSERTION, OPEN, WAREHOUSE
from tests.properties.test_selfmaint import problems, relations, stored
from tests.selection import fast_only
from tests.warehouse.checks import Extents, Setting, by_engine, extents, given_of, kind_of
from tests.warehouse.test_warehouse import CHAIN, Remote
from tests.warehouse.witness import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE = Setting("""
    .decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .decl t(z: symbol)  .remote r, s, t
    .decl v1(x: symbol, y: symbol, z: symbol)  v1(x, y, z) :- r(x, y), s(y, z), t(z).
""")
NET = SourceUpdate.of(insert={"r": [("a", "b")]}, net=True)
MIXED = SourceUpdate.of(insert={"r": [("a", "b")], "s": [("b", "c1")]}, delete={"s": [("b", "c2")], "t": [("c2",)]})
HU97 = {
    "1.1, first instance": (WAREHOUSE, KnownRows(OPEN), INSERTION, False),
    "1.1, second instance": (WAREHOUSE, KnownRows(CLOSED), INSERTION, True),
    "1.1, v1 alone": (ALONE, KnownRows({"v1": CLOSED["v1"]}), INSERTION, False),
    "7.1, strictly": (ALONE, KnownRows({"v1": CLOSED["v1"]}), NET, False),
    "7.1, with s read": (ALONE, KnownRows({"v1": CLOSED["v1"]}, read={"s": CLOSED["v2"]}), NET, True),
    "insertions and deletions": (WAREHOUSE, KnownRows(CLOSED), MIXED, True),
}


def by_sql(spark: SparkSession, test: CompiledMaintenance, rows: Extents) -> tuple[bool, set[Any]]:
    """The printed SQL, over temporary views."""
    for name in test.program.bases:
        columns = test.program.relations[name].columns
        schema = ", ".join(f"`{column.name}` {spark_type(column.type).simpleString()}" for column in columns)
        data = [row or (True,) for row in rows.get(name, ())]
        spark.createDataFrame(data, schema or f"{WHOLE} boolean").createOrReplaceTempView(identifier(name))

    def ask(part: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(sql_text(test.program, names.of(test.view, part), SPARK)).collect()]

    maintainable = test.always or ask(names.MAINTAINABLE) == [(True,)]
    relation = test.program.relations[names.of(test.view, names.NEXT)]
    after = ask(names.NEXT)
    return maintainable, set(after) if relation.columns else {() for row in after if row == (True,)}


@pytest.mark.parametrize("example", fast_only(HU97, "1.1, second instance", "7.1, strictly"))
def test_hu97(spark: SparkSession, example: str) -> None:
    setting, knowledge, update, expected = HU97[example]
    test = setting.compiled("v1", kind_of(update), given_of(knowledge, update))
    rows = extents(knowledge, update)
    resident = by_engine(test, rows)
    assert resident[0] is expected
    assert by_engine(test, rows, SparkEngine(spark)) == resident
    assert by_sql(spark.newSession(), test, rows) == resident


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(problems(plain=True))
def test_random_views_and_updates(
    spark: SparkSession, problem: tuple[dict[str, int], tuple[StoredView, ...], Database, SourceUpdate]
) -> None:
    schema, found, database, update = problem
    knowledge = stored(found, database)
    test = compile_maintenance(found[0], found, relations(schema, found), kind_of(update), given_of(knowledge, update))
    assert test is not None
    rows = extents(knowledge, update)
    resident = by_engine(test, rows)
    assert by_engine(test, rows, SparkEngine(spark)) == resident
    assert by_sql(spark.newSession(), test, rows) == resident


def test_a_warehouse_on_spark(spark: SparkSession) -> None:
    """Strict, read and waiting: the reports are those of the resident engine."""

    def reports(engine: str) -> list[object]:
        remote = Remote(r=[("a1", "b1")], s=[("b1", "c1"), ("b", "c2")], t=[("c1",), ("c2",)])
        warehouse = Warehouse(CHAIN, remote.readers(), engine=engine, spark=spark if engine == "spark" else None)
        warehouse.load("size", [("c1", 1), ("c2", 2)])
        warehouse.refresh()
        found: list[object] = [warehouse.apply(delete={"r": [("a1", "b1")], "t": [("c2",)]})]
        remote.rows |= {"r": {("a2", "b")}, "t": {("c1",)}}
        remote.down = {"r", "s", "t"}
        found += [warehouse.apply(insert={"r": [("a2", "b")]}), warehouse.waiting()]
        remote.down = set()
        remote.rows["s"].add(("b", "c1"))
        return [*found, warehouse.apply(insert={"s": [("b", "c1")]}), warehouse.rows("v"), warehouse.rows("w")]

    assert reports("spark") == reports("resident")


def test_engines_by_name() -> None:
    with pytest.raises(UnknownOption, match="unknown engine 'flink'"):
        Warehouse(CHAIN, engine="flink")


@pytest.mark.slow
def test_every_kind_of_update_of_the_papers_views_prints_sql_that_spark_takes(spark: SparkSession) -> None:
    everything = UpdateKind.of(("r", "s", "t"), ("r", "s", "t"))
    for given_here in (
        KnownRelations(),
        KnownRelations(read=frozenset({"s"}), net=True),
        KnownRelations(logged=frozenset({"t"})),
    ):
        test = WAREHOUSE.compiled("v1", everything, given_here)
        rows = extents(KnownRows(CLOSED), INSERTION)
        assert by_sql(spark.newSession(), test, rows) == by_engine(test, rows)
