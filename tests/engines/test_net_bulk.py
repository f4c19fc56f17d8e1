"""The net effect of operations in data frames and in lists, in any order: against the resident engine's."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql import SparkSession

from rederive.delta import Delta
from rederive.engines.protocol import Action, Operation
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.run.data_frames import DataFrameRows
from rederive.engines.spark.tuning import Tuning
from rederive.errors import DuplicateKey
from rederive.ir.terms import Row, Type
from rederive.lang import compile_program
from rederive.maintain.plan import plan
from tests.selection import fast_only

KEYED = ".decl r(k: number, v: symbol) key(k)"
PLAIN = ".decl r(k: number, v: symbol)"
BARE = ".decl r()"


PROGRAMS = {"a key": KEYED, "no key": PLAIN}
# Rows are in Arrow tables, or stay in Spark, as if they were many.
PLACES = {"tables": Tuning(driver_rows=2), "spark": Tuning(driver_rows=2, arrow_rows=-1)}
CASES = [f"{place}, {key}" for place in PLACES for key in PROGRAMS]


@pytest.fixture(params=PLACES)
def tuning(request: pytest.FixtureRequest) -> Tuning:
    return PLACES[request.param]


def operations(chance: random.Random, *, keyed: bool) -> Iterator[tuple[Action, list[Row], bool]]:
    """The rows of a data frame have no order: two of its upserts do not share a key."""
    actions = [Action.INSERT, Action.DELETE, Action.UPSERT]
    for _ in range(chance.randint(1, 4)):
        action, framed = chance.choice(actions), chance.random() < 0.6
        rows: list[Row] = [(chance.randint(0, 5), chance.choice("abc")) for _ in range(chance.randint(1, 8))]
        if framed and keyed and action is Action.UPSERT:
            rows = list({row[0]: row for row in rows}.values())
        yield action, rows, framed


def outcome(engine: ResidentEngine | SparkEngine, given: list[Operation]) -> dict[str, tuple[set[Row], set[Row]]] | str:
    try:
        return {name: _sides(delta) for name, delta in engine.net_effect(given).items()}
    except DuplicateKey:
        return "refused"


def _sides(delta: Delta) -> tuple[set[Row], set[Row]]:
    return set(delta.plus), set(delta.minus)


def installed(engine: ResidentEngine | SparkEngine, program: str, rows: list[Row]) -> ResidentEngine | SparkEngine:
    engine.install(plan(compile_program(program), [], "materialized"), [], {"r": rows})
    engine.commit()
    return engine


@pytest.mark.parametrize("case", fast_only(CASES, "tables, no key"))
def test_random_operations(spark: SparkSession, case: str) -> None:
    place, key = case.split(", ")
    program = PROGRAMS[key]
    chance = random.Random(program)
    start: list[Row] = [(k, "b") for k in range(4)]
    ours, witness = (
        installed(SparkEngine(spark, tuning=PLACES[place]), program, start),
        installed(ResidentEngine(), program, start),
    )
    types = compile_program(program).relations["r"].types
    refused = 0
    for _ in range(12):
        given = list(operations(chance, keyed=program == KEYED))
        as_rows = [Operation(action, "r", tuple(rows)) for action, rows, _ in given]
        framed = [
            Operation(
                action, "r", DataFrameRows(spark.createDataFrame(rows, "k bigint, v string"), types) if frame else tuple(rows)
            )
            for action, rows, frame in given
        ]
        framed += [Operation(Action.DELETE, "r", DataFrameRows(spark.createDataFrame([], "k bigint, v string"), types))]
        expected = outcome(witness, as_rows)
        assert outcome(ours, framed) == expected, given
        refused += expected == "refused"
    assert refused < 12


def test_a_relation_without_columns(spark: SparkSession, tuning: Tuning) -> None:
    engine = installed(SparkEngine(spark, tuning=tuning), BARE, [])
    some = DataFrameRows(spark.range(3), ())
    none = DataFrameRows(spark.range(0), ())
    assert outcome(engine, [Operation(Action.INSERT, "r", some)]) == {"r": ({()}, set())}
    assert outcome(engine, [Operation(Action.INSERT, "r", none)]) == {}
    assert outcome(engine, [Operation(Action.INSERT, "r", some), Operation(Action.DELETE, "r", ((),))]) == {}


def test_two_rows_of_a_frame_that_share_a_key_are_refused(spark: SparkSession, tuning: Tuning) -> None:
    engine = installed(SparkEngine(spark, tuning=tuning), KEYED, [(1, "a")])
    rows = DataFrameRows(
        spark.createDataFrame([(1, "b"), (1, "c")], "k bigint, v string"), compile_program(KEYED).relations["r"].types
    )
    for action in (Action.INSERT, Action.UPSERT):
        with pytest.raises(DuplicateKey) as refused:
            engine.net_effect([Operation(action, "r", rows)])
        assert "(1, " in refused.value.message


@pytest.mark.parametrize("case", fast_only(CASES, "tables, a key", "spark, no key"))
def test_changes_upon_changes(spark: SparkSession, case: str) -> None:
    """Changes that are not merged yet meet new changes of the same keys, and of others."""
    place, key = case.split(", ")
    program = PROGRAMS[key]
    types = compile_program(program).relations["r"].types
    ours, witness = installed(SparkEngine(spark, tuning=PLACES[place]), program, []), installed(ResidentEngine(), program, [])

    def framed(*rows: Row) -> DataFrameRows:
        return DataFrameRows(spark.createDataFrame(list(rows), "k bigint, v string"), types)

    low: list[Row] = [(k, "a") for k in range(6)]
    high: list[Row] = [(k, "a") for k in range(100, 106)]
    steps: list[tuple[Action, list[Row]]] = [
        (Action.INSERT, low),
        (Action.INSERT, high),
        (Action.DELETE, low[:4]),
        (Action.INSERT, low[1:3]),
        (Action.DELETE, [*low, *high[3:]]),
        (Action.UPSERT if program == KEYED else Action.INSERT, [(k, "b") for k in (2, 3, 4, 102, 200)]),
    ]
    for action, rows in steps:
        for engine, given in ((ours, framed(*rows)), (witness, tuple(rows))):
            engine.propagate(engine.net_effect([Operation(action, "r", given)]))
            engine.commit()
        assert ours.size("r") == witness.size("r")
    assert sorted(ours.rows("r", {})) == sorted(witness.rows("r", {}))


def _bulk(spark: SparkSession, rows: Sequence[Row], types: tuple[Type, ...]) -> DataFrameRows:
    return DataFrameRows(spark.createDataFrame(list(rows), "k bigint, v string"), types)
