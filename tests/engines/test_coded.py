"""Recursions over symbols in rounds, which the Spark engine evaluates over codes: the same rows as the resident engine's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.analysis.graph import components
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.plan.sources import Distributed, Frame, Source, Types, is_small
from rederive.engines.spark.run.symbol_codes import CodedRecursion, coded_program, number_symbols
from rederive.engines.spark.session.types import CODE
from rederive.engines.spark.tuning import Tuning
from rederive.ir.terms import NUMBER, SYMBOL, Row
from rederive.lang import compile_program
from tests.selection import fast_only

BASES = """
    .decl edge(x: symbol, y: symbol)  .decl road(x: symbol, miles: number, y: symbol)  .decl shut(x: symbol)
    .decl reach(x: symbol, y: symbol)  .decl back(x: symbol, y: symbol)  .decl trip(x: symbol, miles: number, y: symbol)
"""
RECURSIONS = {
    "closure": "reach(x, y) :- edge(x, y).  reach(x, y) :- reach(x, z), reach(z, y).",
    "negation": "reach(x, y) :- edge(x, y).  reach(x, y) :- reach(x, z), edge(z, y), !shut(y).",
    "two relations": """
        reach(x, y) :- edge(x, y).  reach(x, y) :- back(y, x), !shut(x).
        back(x, y) :- reach(y, x).  back(x, y) :- back(x, z), edge(y, z).
    """,
    "numbers beside": "trip(x, m, y) :- road(x, m, y).  trip(x, m, y) :- trip(x, m, z), edge(z, y), !shut(z).",
}
WORDS = ["", " ", "a", "A", "é", "e\u0301", "日本", "it's", "$x", "\\n", "null", "0", "00", "-1"]
EDGES = [(one, WORDS[(i * 3 + 2) % 9]) for i, one in enumerate(WORDS)] + [("a", "A"), ("A", "a")]
ROADS = [(one, i % 4 - 1, WORDS[(i * 5 + 1) % 14]) for i, one in enumerate(WORDS)]


TUNING = Tuning(coded_rows=0, driver_rows=3, python_rows=-1, arrow_rows=-1)


@pytest.fixture
def decoded_types(monkeypatch: pytest.MonkeyPatch) -> list[Types]:
    """The types of what is decoded in a test."""
    found: list[Types] = []
    decode = CodedRecursion.decode

    def noted(self: CodedRecursion, source: Source, types: Types) -> Frame:
        found.append(types)
        return decode(self, source, types)

    monkeypatch.setattr(CodedRecursion, "decode", noted)
    return found


@pytest.mark.parametrize("name", fast_only(RECURSIONS, "closure", "negation"))
def test_the_same_as_the_resident_engine(spark: SparkSession, name: str, decoded_types: list[Types]) -> None:
    rules = RECURSIONS[name]
    spark_db = rederive.Database(SparkEngine(spark, decompose=False, tuning=TUNING), "materialized")
    resident = rederive.open(engine="resident", strategy="materialized")
    for db in (spark_db, resident):
        db.define(BASES + rules)
        for name, rows in (("edge", EDGES), ("road", ROADS), ("shut", [("日本",)])):
            db.load(name, rows)
    assert decoded_types, "nothing was evaluated over codes"
    _same(spark_db, resident)
    for db in (spark_db, resident):
        with db.transaction() as tx:
            tx.insert("edge", [("0", "-1"), ("-1", "new")])
            tx.delete("shut", [("日本",)])
    _same(spark_db, resident)


def _same(one: rederive.Database, other: rederive.Database) -> None:
    for view in one.pipeline.state.program.views:
        assert set(one.rows(view)) == set(other.rows(view)), view


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param("reach(x, y) :- edge(x, y).", id="no recursion"),
        pytest.param(".decl n(x: number)  reach(x, y) :- reach(x, y), n(_).", id="no symbol read"),
        pytest.param('reach(x, y) :- edge(x, y).  reach(x, y) :- reach(x, "a"), edge(x, y).', id="a constant"),
        pytest.param("reach(x, y) :- edge(x, y).  reach(x, y) :- reach(x, z), edge(z, y), x != y.", id="a comparison"),
        pytest.param("reach(x, y) :- edge(x, y).  reach(x, y) :- reach(x, z), y = cat(z, x), edge(x, y).", id="a functor"),
    ],
)
def test_what_does_more_than_compare_symbols_is_not_coded(rules: str) -> None:
    program = compile_program(BASES + rules)
    (component,) = (one for one in components(program) if "reach" in one.relations)
    assert coded_program(component, program) is None


def test_numbers_alone_are_not_coded() -> None:
    program = compile_program("""
        .decl edge(x: number, y: number)  .decl reach(x: number, y: number)
        reach(x, y) :- edge(x, y).  reach(x, y) :- reach(x, z), edge(z, y).
    """)
    assert [coded_program(component, program) for component in components(program)] == [None]


def test_columns_that_may_be_null_are_not_coded() -> None:
    db = rederive.open(engine="resident")
    db.sql("""
        CREATE TABLE more (x STRING NOT NULL PRIMARY KEY, y STRING);
        CREATE VIEW reach AS WITH RECURSIVE r AS (SELECT x, y FROM more UNION SELECT r.x, more.y FROM r JOIN more ON r.y = more.x)
        SELECT x, y FROM r;
    """)
    recursive = [component for component in components(db.pipeline.state.program) if component.recursive]
    assert recursive
    assert not any(coded_program(component, db.pipeline.state.program) for component in recursive)


def test_every_symbol_has_a_code_of_its_own(spark: SparkSession) -> None:
    engine = SparkEngine(spark, tuning=TUNING)
    rows: Sequence[Row] = [(f"s{i}", i, f"s{i * 7}") for i in range(3_000)]
    known = number_symbols([engine.jobs.frames.of_rows(rows, (SYMBOL, NUMBER, SYMBOL))], engine.jobs)
    found = engine.jobs.queries.rows(known)
    assert {symbol for symbol, _ in found} == {value for row in rows for value in (row[0], row[2])}
    assert len({code for _, code in found}) == len({symbol for symbol, _ in found}) == len(found)
    assert known.types == (SYMBOL, CODE)


def test_more_rows_are_sent_to_every_worker_where_they_are_codes(spark: SparkSession) -> None:
    data, tuning = spark.range(1).toDF("c0"), Tuning()
    rows = tuning.broadcast_code_rows
    assert is_small(Distributed((CODE, CODE), "n", rows, lambda: data), tuning)
    assert not is_small(Distributed((CODE, SYMBOL), "n", rows, lambda: data), tuning)
