"""The choice of the engine by work: a large transaction goes to Spark, small ones bring the rows back; the answers stay exact."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.engines import auto
from rederive.engines.auto import AutoEngine, Pace
from rederive.engines.memory_budget import BYTES_PER_ROW
from rederive.engines.protocol import Action, Bulk, Operation
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.spark.engine import SparkEngine
from rederive.ir.terms import Row
from tests.oracle import evaluate

PROGRAM = """
    .decl e(x: number, y: number)  .decl two(x: number, y: number)
    two(x, z) :- e(x, y), e(y, z).
"""
START = [(i, i + 1) for i in range(20)]
LARGE = 50
EAGER = Pace(resident=1.0, spark=1e9, jobs=5.0, moved=1e9)


@pytest.fixture(autouse=True)
def _fewer_rows_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "LARGE", LARGE)


def database(spark: SparkSession, pace: Pace, memory: int = 2**30) -> rederive.Database:
    limits = rederive.Limits(memory=memory)
    db = rederive.Database(AutoEngine(limits, lambda: SparkEngine(spark, limits), lambda: 2, pace), "auto")
    db.define(PROGRAM)
    db.load("e", START)
    return db


def change(db: rederive.Database, *, insert: list[tuple[int, int]]) -> rederive.Result:
    """One transaction, whose change is that of the oracle."""
    before = evaluate(db.pipeline.state.program, {"e": set(db.rows("e"))})["two"]
    with db.transaction() as tx:
        tx.insert("e", insert)
    after = evaluate(db.pipeline.state.program, {"e": set(db.rows("e"))})["two"]
    assert set(tx.result.changes["two"].plus) == after - before
    assert set(db.rows("two")) == after
    return tx.result


def many(start: int) -> list[tuple[int, int]]:
    return [(start + 2 * i, start + 2 * i + 1) for i in range(LARGE)]


def test_a_large_transaction_goes_to_spark_and_small_ones_come_back(spark: SparkSession) -> None:
    db = database(spark, EAGER)
    assert change(db, insert=[(20, 21)]).engine == "resident"
    large = change(db, insert=[*many(1_000), (21, 22)])
    assert large.engine == "spark"
    assert "s on Spark" in large.engine_reason
    back = change(db, insert=[(22, 23)])  # it loses five seconds on Spark, and the way takes none
    assert back.engine == "resident"
    assert "small transactions" in back.engine_reason


def test_the_way_is_not_taken_for_nothing(spark: SparkSession) -> None:
    """What small transactions lose on Spark adds up until it is worth the way back: here, from the third on."""
    db = database(spark, Pace(resident=1.0, spark=1e9, jobs=5.0, moved=8.0))  # 71 rows: 9 seconds
    assert change(db, insert=[*many(1_000), (20, 21)]).engine == "spark"
    engines = [change(db, insert=[(n, n + 1)]).engine for n in (21, 22, 23)]
    assert engines == ["spark", "spark", "resident"]


@pytest.mark.parametrize("pace", [Pace(), Pace(resident=1.0, spark=0.5)], ids=["as measured", "Spark is no faster"])
def test_a_transaction_stays_where_it_is_faster(spark: SparkSession, pace: Pace) -> None:
    db = database(spark, pace)
    assert change(db, insert=[*many(1_000), (20, 21)]).engine == "resident"


def test_what_barely_fits_does_not_come_back(spark: SparkSession) -> None:
    db = database(spark, EAGER, memory=100 * BYTES_PER_ROW)
    assert change(db, insert=[*many(1_000), (20, 21)]).engine == "spark"
    assert change(db, insert=[(21, 22)]).engine == "spark"
    outgrown = change(db, insert=[*many(2_000), (22, 23)])
    assert outgrown.engine == "spark"
    assert outgrown.engine_reason.startswith("123 base rows")
    assert outgrown.engine_reason.endswith("do not fit the 195.3 KiB of memory that they may take")


class Elsewhere(ResidentEngine):
    """An engine with room for any number of rows."""

    name = "spark"


class Far(Bulk):
    """Rows of a data frame, which come to this process if somebody iterates over them."""

    def __init__(self, engine: AutoEngine) -> None:
        self.engine = engine

    is_in_driver = False

    def __len__(self) -> int:
        return 2 * LARGE

    def __iter__(self) -> Iterator[Row]:
        assert self.engine.name == "spark"
        return iter([(-n, n) for n in range(len(self))])


@pytest.mark.parametrize(
    "table", ["CREATE TABLE t (a INT, b INT)", "CREATE TABLE t (a INT PRIMARY KEY, b INT)"], ids=["bag", "set"]
)
def test_a_frame_without_room_is_not_read_here(table: str) -> None:
    """Also where this process would be as fast: the net effect of a resident engine needs the rows."""
    limits = rederive.Limits(memory=LARGE * BYTES_PER_ROW)
    engine = AutoEngine(limits, lambda: Elsewhere(limits), pace=Pace(resident=1e9))
    db = rederive.Database(engine, "auto")
    db.sql(table)
    result = db.pipeline.commit_operations([Operation(Action.INSERT, "t", Far(engine))])
    assert result.engine == "spark"
    assert len(db.rows("t")) == 2 * LARGE


def test_moves_before_a_transaction_that_would_exceed_what_is_left(spark: SparkSession) -> None:
    """By the bytes that were measured, and by what the machine has: the limit is far away."""
    available = 10.0 * 2**20
    engine = AutoEngine(rederive.Limits(), lambda: SparkEngine(spark), available=lambda: available)
    db = rederive.Database(engine, "auto")
    db.define(PROGRAM)
    db.load("e", [(i, i + 1) for i in range(2_000)])
    taken = re.search(r"take about ([\d.]+) MiB, and fit the ([\d.]+) MiB .* machine", engine.reason)
    assert taken is not None, engine.reason
    assert 5 + float(taken[1]) == pytest.approx(float(taken[2]), abs=0.2)
    available = 0.2 * 2**20  # somebody else has taken the rest
    with db.transaction() as tx:
        tx.insert("e", [(i, i + 1) for i in range(3_000, 4_000)])
    assert (tx.result.engine, len(tx.result.changes["two"].plus)) == ("spark", 999)
    assert "would take about" in tx.result.engine_reason
    assert "do not fit" in tx.result.engine_reason
