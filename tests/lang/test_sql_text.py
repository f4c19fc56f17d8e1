"""Rules as SQL text: literals, names, and what is refused."""

from __future__ import annotations

import datetime
from decimal import Decimal

import duckdb
import pytest

from rederive.errors import StrategyError
from rederive.ir.rules import Atom, Column, Program, Relation, Rule
from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, Constant, Kind, Type, Value
from rederive.ir.to_sql import DUCKDB, SPARK, sql_text
from rederive.lang import compile_program

VALUES: list[tuple[Value, Type]] = [
    ("it's a \\ 'quote'", SYMBOL),
    (-7, NUMBER),
    (0.1, FLOAT),
    (True, BOOLEAN),
    (datetime.date(2026, 11, 15), DATE),
    (datetime.datetime(2026, 11, 15, 20, 37), TIMESTAMP),
    (Decimal("12.50"), Type(Kind.DECIMAL, 10, 2)),
]


@pytest.mark.parametrize(("value", "type_"), VALUES, ids=[str(type_) for _, type_ in VALUES])
def test_a_constant_comes_back_as_it_was(value: Value, type_: Type) -> None:
    program = Program({"v": Relation("v", (Column("x", type_),))}, (Rule(Atom("v", (Constant(value, type_),)), ()),))
    assert duckdb.connect().execute(sql_text(program, "v", DUCKDB)).fetchall() == [(value,)]


def test_spark_writes_texts_with_backslashes() -> None:
    program = compile_program('.decl e(x: symbol) .decl v() v() :- e("it\'s \\\\").')
    assert sql_text(program, "v", SPARK) == r"SELECT EXISTS (SELECT 1 FROM `e` t0 WHERE t0.`x` <=> 'it\'s \\') AS `v`"


def test_an_equation_gives_a_variable_its_place() -> None:
    program = compile_program(".decl e(x: number) .decl v(x: number, y: number) v(y, z) :- y = z, z = x, e(x), e(z).")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE e AS SELECT 4 AS x")
    assert connection.execute(sql_text(program, "v", DUCKDB)).fetchall() == [(4, 4)]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("v(x) :- e(x). v(x) :- v(x), e(x).", "'v' is recursive"),
        ("v(n) :- n = count : { e(_) }.", "is an aggregate"),
        ("v(x) :- e(x), x + 1 < 3.", r"the functor '+' is not written"),
        ("v(y) :- e(x), y = x + 1.", "the functor '+' is not written"),
    ],
)
def test_refused(rules: str, message: str) -> None:
    with pytest.raises(StrategyError, match=message.replace("+", r"\+")):
        sql_text(compile_program(f".decl e(x: number) .decl v(x: number) {rules}"), "v")


def test_two_names_that_are_one_in_sql_are_refused() -> None:
    relations = {name: Relation(name, ()) for name in ("r.known", "r__known")}
    with pytest.raises(StrategyError, match="'r__known' is the name in SQL"):
        sql_text(Program(relations, ()), "r.known")
