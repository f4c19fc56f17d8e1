"""`rederive advise`."""

from __future__ import annotations

import json
from collections.abc import Callable

import duckdb

from rederive.ir.to_sql import DUCKDB, identifier, sql_text
from rederive.lang import compile_program
from rederive.warehouse.selfmaint.advice import advise
from tests.cli.conftest import Cli, Write
from tests.warehouse.test_sql import ORDERS

WAREHOUSE = """.decl r(x: symbol, y: symbol)
.decl s(y: symbol, z: symbol)
.decl t(z: symbol)
.remote r, s, t
.decl v1(x: symbol, y: symbol, z: symbol)
v1(x, y, z) :- r(x, y), s(y, z), t(z).
.decl v2(y: symbol, z: symbol)
v2(y, z) :- s(y, z).
.decl ends(x: symbol, z: symbol)
ends(x, z) :- r(x, y), s(y, z).
.decl lonely(x: symbol)
lonely(x) :- r(x, _), !t(x).
"""


def test_table(cli: Cli, write: Write, golden: Callable[[str, str], None]) -> None:
    ran = cli("advise", write("warehouse.dl", WAREHOUSE))
    assert (ran.code, ran.err) == (0, "")
    golden("advise.txt", ran.out)


def test_json_has_the_test_and_the_maintenance_queries(cli: Cli, write: Write) -> None:
    data = json.loads(cli("advise", write("warehouse.dl", WAREHOUSE), "--view", "v1", "--format", "json").out)
    by_update = {line["update"]: line for line in data}
    assert by_update["insert r"]["answer"] == "depends on the data"
    assert by_update["insert r"]["needs"] == ["t"]
    assert "SELECT NOT EXISTS" in by_update["insert r"]["test"]
    assert "`v1__plus`" in by_update["insert r"]["plus"]
    assert by_update["delete r"]["answer"] == "always"
    assert by_update["delete r"]["test"] is None
    assert "`v1__minus`" in by_update["delete r"]["minus"]


def test_every_query_is_valid_sql() -> None:
    """DuckDB binds each of them, over tables of the columns that the rules declare."""
    found = 0
    connection = duckdb.connect()
    for program in (line.rules.program for line in advise(compile_program(WAREHOUSE)) if line.rules is not None):
        for base in program.bases:
            columns = ", ".join(f'"{column.name}" VARCHAR' for column in program.relations[base].columns)
            connection.execute(f'CREATE OR REPLACE TABLE "{identifier(base)}" ({columns})')
        outputs = [name for name in program.views if name.endswith((".plus", ".minus", ".next", ".maintainable"))]
        for name in outputs:
            connection.execute(sql_text(program, name, DUCKDB))
        found += len(outputs)
    assert found > 20


def test_errors(cli: Cli, write: Write) -> None:
    path = write("warehouse.dl", WAREHOUSE)
    assert "unknown relation 'v3'" in cli("advise", path, "--view", "v3").err
    assert "unknown update 'insert q'" in cli("advise", path, "--update", "insert q").err
    assert "unknown format 'dot'" in cli("advise", path, "--format", "dot").err
    ran = cli("advise", write("plain.dl", ".decl r(x: number) .decl v(x: number) v(x) :- r(x)."))
    assert (ran.code, ran.out) == (2, "")
    assert "plain.dl: error[strategy]: the program has no stored view over a remote relation" in ran.err


def test_advice_on_sql(cli: Cli, write: Write) -> None:
    ran = cli("advise", write("orders.sql", ORDERS), "--view", "large", "--net")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "view large: conjunctive, with conditions, over customer, placed",
        "  update           without a source     otherwise reads",
        "  insert customer  depends on the data  placed",
        "  delete customer  always",
        "  insert placed    always",
        "  delete placed    always",
        "  mixed            depends on the data  placed",
    ]
    with_tests = cli("advise", "orders.sql", "--view", "large", "--net", "--sql").out
    assert "test for insert customer:" in with_tests
    assert "`customer__inserted`" in with_tests
