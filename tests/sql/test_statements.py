"""Statements: what they define and change, what they print, and what is refused."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import rederive
from rederive.cli.main import app
from rederive.errors import (
    DuplicateKey,
    EvaluationError,
    IllTypedRow,
    NotABase,
    Redefined,
    StillNeeded,
    SyntaxProblem,
    TypeClash,
    UnknownName,
    Unsupported,
)

TABLES = """
CREATE TABLE t (k INT PRIMARY KEY, a INT, s STRING);
CREATE TABLE bag (a INT, s STRING);
"""


@pytest.fixture
def db() -> rederive.Database:
    db = rederive.open()
    db.sql(TABLES)
    return db


def run(tmp_path: Path, text: str, *options: str) -> list[dict[str, object]]:
    program = tmp_path / "program.sql"
    program.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["run", str(program), *options])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# Versions and what they print


def test_counts_are_printed_only_where_a_multiplicity_is_not_one(tmp_path: Path) -> None:
    lines = run(
        tmp_path,
        TABLES + "CREATE VIEW v AS SELECT s FROM bag;"
        "INSERT INTO bag VALUES (1, 'x'), (2, 'x'), (3, 'y'); INSERT INTO bag VALUES (1, 'z');"
        "DELETE FROM bag WHERE a = 2;",
    )
    assert lines == [
        {"version": 1, "view": "v", "plus": [["x"], ["y"]], "minus": [], "counts": {"plus": [2, 1], "minus": []}},
        {"version": 2, "view": "v", "plus": [["z"]], "minus": []},
        {"version": 3, "view": "v", "plus": [], "minus": [["x"]]},
    ]


def test_a_view_over_rows_announces_them_as_one_version(tmp_path: Path) -> None:
    text = (
        TABLES + "INSERT INTO t VALUES (1, 2, 'x'); CREATE VIEW v AS SELECT a FROM t; CREATE TEMPORARY VIEW w AS SELECT k FROM t;"
    )
    assert run(tmp_path, text) == [{"version": 2, "view": "v", "plus": [[2]], "minus": []}]


def test_a_temporary_view_is_not_monitored_but_can_be_read(tmp_path: Path) -> None:
    text = (
        TABLES + "CREATE TEMPORARY VIEW w AS SELECT k FROM t; CREATE VIEW v AS SELECT k FROM w; INSERT INTO t VALUES (1, 2, 'x')"
    )
    assert [line["view"] for line in run(tmp_path, text)] == ["v"]


def test_statements_between_begin_and_commit_are_one_version(tmp_path: Path) -> None:
    text = """CREATE VIEW v AS SELECT k, a FROM t;
        BEGIN; INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y');
        UPDATE t SET a = a + 10 WHERE k = 1; DELETE FROM t WHERE a = 2; COMMIT;
        BEGIN; DELETE FROM t; ROLLBACK;"""
    assert run(tmp_path, TABLES + text) == [{"version": 1, "view": "v", "plus": [[1, 11]], "minus": []}]


def test_base_rows_and_changes(tmp_path: Path) -> None:
    base, changes = tmp_path / "bag.csv", tmp_path / "changes.jsonl"
    base.write_text("a,s\n1,x\n1,x\n,y\n", encoding="utf-8")
    changes.write_text('{"delete": {"bag": [[1, "x"]]}, "insert": {"bag": [[null, "y"], [null, "y"]]}}\n', encoding="utf-8")
    text = TABLES + "CREATE VIEW v AS SELECT a, s FROM bag;"
    lines = run(tmp_path, text, "--base", f"bag={base}", "--changes", str(changes))
    assert lines == [
        {"version": 1, "view": "v", "plus": [[None, "y"], [1, "x"]], "minus": [], "counts": {"plus": [1, 2], "minus": []}},
        {"version": 2, "view": "v", "plus": [[None, "y"]], "minus": [[1, "x"]], "counts": {"plus": [2], "minus": [1]}},
    ]


def test_a_query_on_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "p.sql"
    program.write_text(TABLES + "INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (NULL, 'y')", encoding="utf-8")
    result = CliRunner().invoke(app, ["query", str(program), "SELECT s, sum(a) FROM bag GROUP BY s"])
    assert result.stdout == '["x",2]\n["y",null]\n'


# Tables


def test_a_table_without_a_key_is_a_bag(db: rederive.Database) -> None:
    with db.transaction() as tx:
        tx.insert("bag", [(1, "x"), (1, "x"), (None, "y")])
        tx.delete("bag", [(1, "x"), (9, "z")])
    assert db.rows("bag") == [(None, "y"), (1, "x")]
    db.sql("UPDATE bag SET s = 'y'")
    assert db.rows("bag", s="y") == [(None, "y"), (1, "y")]


def test_insert_by_column_names_and_from_a_query(db: rederive.Database) -> None:
    db.sql("INSERT INTO t (s, k) VALUES ('x', 1), ('y', 1 + 1)")
    db.sql("INSERT INTO bag SELECT k, s FROM t UNION ALL SELECT k, s FROM t")
    assert db.rows("t") == [(1, None, "x"), (2, None, "y")]
    assert db.rows("bag") == [(1, "x"), (1, "x"), (2, "y"), (2, "y")]
    db.sql("DELETE FROM bag WHERE a IN (SELECT k FROM t WHERE s = 'x'); UPDATE t SET a = (SELECT count(*) FROM bag) WHERE k = 2")
    assert db.rows("bag") == [(2, "y"), (2, "y")]
    assert db.rows("t") == [(1, None, "x"), (2, 2, "y")]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO t VALUES (NULL, 1, 'x')", IllTypedRow),
        ("INSERT INTO t VALUES (1, 3000000000, 'x')", EvaluationError),
        ("INSERT INTO t VALUES (1, 1, 'x'), (1, 2, 'x')", DuplicateKey),
        ("INSERT INTO t VALUES (1, 'one', 'x')", EvaluationError),
        ("INSERT INTO nowhere VALUES (1)", UnknownName),
        ("INSERT INTO v VALUES (1)", NotABase),
        ("UPDATE t SET a = a / 0 WHERE k = 7", EvaluationError),
        ("BEGIN; INSERT INTO t VALUES (1, 1, 'x')", SyntaxProblem),
        ("COMMIT", SyntaxProblem),
        ("INSERT INTO t VALUES (1, 1, 'x'", SyntaxProblem),
        ("ALTER TABLE t RENAME TO other", Unsupported),
    ],
)
def test_a_refused_statement_changes_nothing(db: rederive.Database, statement: str, error: type[Exception]) -> None:
    db.sql("CREATE VIEW v AS SELECT a FROM t; INSERT INTO t VALUES (7, 7, 'x')")
    with pytest.raises(error):
        db.sql(statement)
    assert db.rows("t") == [(7, 7, "x")]
    assert db.version == 1


# Views


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("SELECT b FROM t", UnknownName, "unknown column 'b'"),
        ("SELECT x.a FROM t", UnknownName, "unknown table or alias 'x'"),
        ("SELECT a FROM tt", UnknownName, "did you mean 't'"),
        ("SELECT a FROM t, bag", TypeClash, "t.a or bag.a"),
        ("SELECT a, count(*) FROM t GROUP BY s", TypeClash, "neither grouped nor aggregated"),
        ("SELECT k, k FROM t", Redefined, "two columns with the name 'k'"),
        ("SELECT a FROM t WHERE s", TypeClash, "expected a condition"),
        ("SELECT a FROM t WHERE a = DATE '2024-01-01'", TypeClash, "no common type"),
        ("SELECT a FROM t LIMIT k", Unsupported, "LIMIT"),
        ("SELECT frobnicate(a) AS b FROM t", Unsupported, "frobnicate"),
        ("WITH RECURSIVE r AS (SELECT a FROM t EXCEPT SELECT a FROM r) SELECT * FROM r", TypeClash, "no branch to start from"),
    ],
)
def test_a_refused_view_says_where_and_what_to_do(db: rederive.Database, query: str, error: type[Exception], words: str) -> None:
    before = db.pipeline.state.program
    with pytest.raises(error) as refused:
        db.sql(f"CREATE VIEW v AS\n{query}", "views.sql")
    assert words in str(refused.value)
    assert str(refused.value).startswith("views.sql:")
    assert db.pipeline.state.program is before


def test_replacing_and_dropping_views(db: rederive.Database) -> None:
    db.sql("CREATE VIEW v AS SELECT a FROM t WHERE a > 1; CREATE VIEW w AS SELECT DISTINCT a FROM v")
    db.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 2, 'z')")
    (replaced,) = db.sql("CREATE OR REPLACE VIEW v AS SELECT a FROM t WHERE a < 2")
    assert (replaced.changes["v"].plus, replaced.changes["v"].minus) == ([(1,)], [(2,)])
    assert replaced.changes["v"].counts == {"plus": [1], "minus": [2]}
    assert (replaced.changes["w"].plus, replaced.changes["w"].minus) == ([(1,)], [(2,)])
    with pytest.raises(StillNeeded):
        db.sql("DROP VIEW v")
    (dropped,) = db.sql("DROP VIEW w")
    assert dropped.changes["w"].minus == [(1,)]
    db.sql("DROP VIEW v; DROP VIEW IF EXISTS v")
    with pytest.raises(Redefined):
        db.sql("CREATE TABLE t (a INT)")


def test_using_puts_its_columns_first_as_in_spark(db: rederive.Database) -> None:
    db.sql("INSERT INTO t VALUES (1, 5, 'x'); INSERT INTO bag VALUES (5, 'y')")
    assert db.query("SELECT * FROM t JOIN bag USING (a)") == [(5, 1, "x", "y")]
    assert db.query("SELECT t.*, a FROM t JOIN bag USING (a)") == [(5, 1, "x", 5)]


def test_the_first_rows_of_an_order(db: rederive.Database) -> None:
    db.sql("CREATE VIEW best AS SELECT k, a FROM t ORDER BY a DESC LIMIT 2")
    db.sql("INSERT INTO t VALUES (1, 5, 'x'), (2, 7, 'x'), (3, 6, 'y'), (4, NULL, 'y')")
    (result,) = db.sql("DELETE FROM t WHERE k = 2")
    assert (result.changes["best"].plus, result.changes["best"].minus) == ([(1, 5)], [(2, 7)])
    (result,) = db.sql("UPDATE t SET a = 1 WHERE k = 4")
    assert "best" not in result.changes


def test_strict_refuses_what_is_not_incremental(db: rederive.Database) -> None:
    db.sql("CREATE VIEW best AS SELECT k FROM t ORDER BY a LIMIT 2")
    assert "not incremental: all rows are one partition" in db.explain("best")
    strict = rederive.open(strict=True)
    strict.sql(TABLES)
    strict.sql("CREATE VIEW numbered AS SELECT k, row_number() OVER (PARTITION BY s ORDER BY k) AS n FROM t")
    with pytest.raises(Unsupported, match="'best' is not incremental"):
        strict.sql("CREATE VIEW best AS SELECT k FROM t ORDER BY a LIMIT 2")


def test_datalog_over_sql_and_sql_over_datalog(db: rederive.Database) -> None:
    db.sql("CREATE VIEW pairs AS SELECT k AS x, a AS y FROM t WHERE a IS NOT NULL")
    db.define("""
        .decl reach(x: number, y: number)
        reach(x, y) :- pairs(x, y).
        reach(x, y) :- reach(x, z), pairs(z, y).
    """)
    db.sql("CREATE VIEW ends AS SELECT x, max(y) AS far FROM reach GROUP BY x")
    (result,) = db.sql("INSERT INTO t VALUES (1, 2, 'x'), (2, 3, 'y'), (3, NULL, 'z')")
    assert result.changes["reach"].plus == [(1, 2), (1, 3), (2, 3)]
    assert result.changes["ends"].plus == [(1, 3), (2, 3)]
    added = db.definitions.add_rule("reach(x, 9) :- pairs(x, _), x = 2.")
    assert (added.changes["ends"].plus, added.changes["ends"].minus) == ([(2, 9)], [(2, 3)])


def test_subscriptions_to_a_bag(db: rederive.Database) -> None:
    db.sql("CREATE TEMPORARY VIEW v AS SELECT a FROM bag")
    told: list[tuple[list[tuple[object, ...]], dict[str, list[int]] | None]] = []
    db.subscribe("v", lambda change: told.append((list(change.plus), change.counts)), only="plus", a=1)
    db.sql("INSERT INTO bag VALUES (1, 'x'), (1, 'y'), (2, 'x')")
    db.sql("DELETE FROM bag WHERE s = 'y'")
    assert told == [([(1,)], {"plus": [2], "minus": []})]


# Values as in Spark


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("NULL = NULL", None),
        ("NULL <=> NULL", True),
        ("NULL AND false", False),
        ("NULL OR true", True),
        ("NOT NULL", None),
        ("1 IN (2, NULL)", None),
        ("1 NOT IN (1, NULL)", False),
        ("7 / 2", 3.5),
        ("7 div 2", 3),
        ("-7 % 3", -1),
        ("CAST('12' AS INT) + 1", 13),
        ("CAST(3.7 AS INT)", 3),
        ("CAST(1.5 AS STRING)", "1.5"),
        ("CAST(1e10 AS STRING)", "1.0E10"),
        ("TRY_CAST('x' AS INT)", None),
        ("1.10 + 2", Decimal("3.10")),
        ("1.5 * 1.5", Decimal("2.25")),
        ("10.00 / 3", Decimal("3.333333")),
        ("round(2.5)", Decimal("3")),
        ("round(-1.255, 2)", Decimal("-1.26")),
        ("floor(-1.5)", Decimal("-2")),
        ("concat('a', NULL)", None),
        ("concat_ws('-', 'a', NULL, 'b')", "a-b"),
        ("substring('spark', -3, 2)", "ar"),
        ("substring('spark', 0, 2)", "sp"),
        ("instr('spark', 'ar')", 3),
        ("lpad('7', 3, '0')", "007"),
        ("coalesce(NULL, 2, 1 / 0)", 2.0),
        ("CASE WHEN true THEN 1 ELSE 1 div 0 END", 1),
        ("greatest(1, NULL, 3)", 3),
        ("nullif(1, 1)", None),
        ("DATE '2024-01-31' + INTERVAL 1 MONTH", datetime.date(2024, 2, 29)),
        ("date_add(DATE '2024-02-28', 2)", datetime.date(2024, 3, 1)),
        ("datediff(DATE '2024-03-01', DATE '2024-02-01')", 29),
        ("year(DATE '2024-03-01') * 100 + month(DATE '2024-03-01')", 202403),
        ("dayofweek(DATE '2024-03-03')", 1),
        ("trunc(DATE '2024-03-17', 'MM')", datetime.date(2024, 3, 1)),
        ("'abc' LIKE 'a_c'", True),
        ("'abc' RLIKE 'b'", True),
    ],
)
def test_an_expression_has_spark_s_value(db: rederive.Database, expression: str, value: object) -> None:
    ((found,),) = db.query(f"SELECT {expression}")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("a + 2147483647", "overflow"),
        ("k / (a - a)", "division by zero"),
        ("k % (a - a)", "division by zero"),
        ("CAST(s AS INT)", "cannot be cast"),
        ("CAST(k * 1000000000 AS BIGINT)", "overflow"),
    ],
)
def test_an_ansi_error_rejects_the_transaction_and_names_the_view(db: rederive.Database, expression: str, words: str) -> None:
    db.sql(f"CREATE VIEW fragile AS SELECT {expression} AS n FROM t")
    with pytest.raises(EvaluationError, match=words) as refused:
        db.sql("INSERT INTO t VALUES (7, 1, 'seven')")
    assert "fragile" in str(refused.value)
    assert db.rows("t") == []


def test_a_sum_beyond_bigint_is_an_error() -> None:
    db = rederive.open()
    db.sql(
        "CREATE TABLE n (v BIGINT); CREATE VIEW total AS SELECT sum(v) AS s FROM n; INSERT INTO n VALUES (9223372036854775807)"
    )
    with pytest.raises(EvaluationError, match="the sum in 'total' does not fit"):
        db.sql("INSERT INTO n VALUES (1)")
    assert db.rows("total") == [(9223372036854775807,)]


def test_a_filter_guards_what_it_filters(db: rederive.Database) -> None:
    db.sql("CREATE VIEW v AS SELECT k div a AS n FROM t WHERE a <> 0; INSERT INTO t VALUES (6, 0, 'x'), (8, 2, 'y')")
    assert db.rows("v") == [(4,)]


def test_a_scalar_subquery_of_several_rows_refuses_the_transaction_that_reads_them() -> None:
    with rederive.open() as db:
        db.sql("CREATE TABLE one (k INT PRIMARY KEY, g INT); CREATE TABLE many (k INT PRIMARY KEY, g INT, x INT)")
        db.sql("CREATE VIEW v AS SELECT k, (SELECT x FROM many WHERE many.g = one.g) AS x FROM one WHERE k < 10")
        # Two rows for a value that no row of the view needs are no error.
        db.sql("INSERT INTO many VALUES (1, 5, 50), (2, 5, 51), (3, 6, 60); INSERT INTO one VALUES (1, 6), (11, 5)")
        assert db.rows("v") == [(1, 60)]
        with pytest.raises(EvaluationError, match="2 rows"):
            db.sql("INSERT INTO one VALUES (2, 5)")
        assert db.rows("v") == [(1, 60)]


def test_a_recursion_with_union_all_ends_at_the_level_of_spark() -> None:
    with rederive.open() as db:
        db.sql("CREATE TABLE t (most INT PRIMARY KEY)")
        db.sql(
            "CREATE VIEW v AS WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r, t WHERE n < most) SELECT n FROM r"
        )
        db.sql("INSERT INTO t VALUES (100)")
        assert len(db.rows("v")) == 100
        with pytest.raises(EvaluationError, match="more than 100 levels"):
            db.sql("UPDATE t SET most = 1000")
        assert len(db.rows("v")) == 100


def test_explain_of_a_query_and_patterns_of_show() -> None:
    with rederive.open() as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE tx (a INT); CREATE VIEW va AS SELECT v FROM t")

        def shown(text: str) -> list[Any]:
            (result,) = db.sql(text)
            assert result.answer is not None
            return list(result.answer.rows)

        assert any("sum" in line for (line,) in shown("EXPLAIN EXTENDED\n SELECT v, sum(id) AS s FROM t GROUP BY v"))
        assert shown("SHOW TABLES LIKE 't*'") == [("t",), ("tx",)]
        assert shown("SHOW TABLES LIKE 'z|tx'") == [("tx",)]
        assert shown("SHOW VIEWS LIKE 'v'") == []
        with pytest.raises(rederive.RederiveError, match=r"<text>:2:9: .*unknown column 'nope'"):
            db.sql("EXPLAIN\n SELECT nope FROM t")
