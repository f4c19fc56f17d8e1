"""Several questions in one go, on every engine: the answers of each by itself, and nothing of them left behind."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from rederive.engines.protocol import Action, Engine, Operation
from rederive.lang import compile_program
from rederive.maintain.plan import plan
from rederive.opening import ENGINES, make_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = compile_program("""
    .decl e(x: number, y: number)  .decl two(x: number, z: number)  .decl far(x: number)
    two(x, z) :- e(x, y), e(y, z).
    far(x) :- two(x, _), !e(x, x).
""")
ROWS = {(1, 2), (2, 3), (3, 3)}


@pytest.mark.parametrize("name", ENGINES)
def test_answers(spark: SparkSession, name: str) -> None:
    engine = make_engine(name, None, spark)
    engine.install(plan(PROGRAM, (), "on_demand"), (), {"e": ROWS})
    engine.commit()
    with closing(engine.answers(["far", "two", "e"])) as answers:
        assert [set(rows) for rows in answers] == [{(1,), (2,)}, {(1, 3), (2, 3), (3, 3)}, ROWS]
    with closing(engine.answers(["two", "far"])) as answers:
        next(answers)  # and no more is asked for
    _insert(engine, (3, 1))
    assert set(engine.rows("two", {})) == {(1, 3), (2, 3), (3, 3), (2, 1), (3, 1), (3, 2)}


def _insert(engine: Engine, row: tuple[int, ...]) -> None:
    engine.propagate(engine.net_effect([Operation(Action.INSERT, "e", (row,))]))
    engine.commit()
