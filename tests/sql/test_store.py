"""SQL in a store: tables, views and the changes of both are there again, bags with their copies."""

from __future__ import annotations

import datetime
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import rederive
from rederive.cli.main import app
from rederive.errors import CorruptStore, LateLoad, Mismatch, Redefined, SyntaxProblem
from rederive.failpoints import VARIABLE
from rederive.store.journal.file import FILE, FORMAT
from rederive.store.journal.reader import JournalReader

TABLES = """
CREATE TABLE sold (item STRING NOT NULL, n INT, price DECIMAL(10, 2), on_day DATE);
CREATE TABLE item (name STRING PRIMARY KEY, kind STRING);
"""
BOLT = "('bolt', 1, 0.50, DATE'2024-02-29')"
BOLTS = f"INSERT INTO sold VALUES {BOLT}, {BOLT}, ('nut', NULL, NULL, NULL)"
ROW = ("bolt", 1, Decimal("0.50"), datetime.date(2024, 2, 29))


def test_a_store_has_its_tables_and_views_again(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.sql(f"{TABLES} CREATE VIEW v AS SELECT item, price FROM sold; {BOLTS}")
        program = db.pipeline.state.program
    with rederive.open(tmp_path) as db:
        assert db.pipeline.state.program == program
        assert db.rows("sold") == [ROW, ROW, ("nut", None, None, None)]
        assert db.rows("v") == [("bolt", Decimal("0.50")), ("bolt", Decimal("0.50")), ("nut", None)]
        (result,) = db.sql("DELETE FROM sold WHERE item = 'bolt'")
        assert (result.version, result.changes["v"].counts) == (2, {"plus": [], "minus": [2]})
        assert [(c.version, c.plus, c.minus, c.counts) for c in db.changes("v", since=0)] == [
            (1, [("bolt", Decimal("0.50")), ("nut", None)], [], {"plus": [2, 1], "minus": []}),
            (2, [], [("bolt", Decimal("0.50"))], {"plus": [], "minus": [2]}),
        ]


def test_one_copy_less_is_there_again(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.sql(f"{TABLES} CREATE VIEW v AS SELECT item FROM sold; {BOLTS}")
        with db.transaction(key="once") as tx:
            tx.delete("sold", [ROW])
        assert tx.result.changes["v"].minus == [("bolt",)]
    with rederive.open(tmp_path) as db:
        assert db.rows("v") == [("bolt",), ("nut",)]
        with db.transaction(key="once") as tx:
            tx.delete("sold", [ROW])
        assert tx.result.repeated
        assert db.rows("v") == [("bolt",), ("nut",)]


def test_a_view_that_is_replaced_is_recorded_with_the_columns_that_its_rows_have(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.sql(f"{TABLES} CREATE VIEW v AS SELECT n FROM sold; {BOLTS}")
        db.sql("CREATE OR REPLACE VIEW v AS SELECT DISTINCT item, n FROM sold")
        db.sql("CREATE OR REPLACE VIEW v AS SELECT DISTINCT n FROM sold")
        db.sql("CREATE OR REPLACE VIEW v AS SELECT n FROM sold")
        told = [(c.version, c.plus, c.minus, c.counts) for c in db.changes("v", since=1)]
    assert told == [
        (2, [("bolt", 1), ("nut", None)], [(None,), (1,)], {"plus": [1, 1], "minus": [1, 2]}),
        (3, [(None,), (1,)], [("bolt", 1), ("nut", None)], None),
        (4, [(1,)], [], None),
    ]
    with rederive.open(tmp_path) as db:
        assert db.rows("v") == [(None,), (1,), (1,)]
        db.sql("DROP VIEW v")
    with rederive.open(tmp_path) as db:
        assert "v" not in db.pipeline.state.program.relations


def test_both_languages_are_kept_in_one_store(tmp_path: Path) -> None:
    with rederive.open(tmp_path) as db:
        db.sql(f"{TABLES} CREATE TEMPORARY VIEW pairs AS SELECT DISTINCT item, n FROM sold WHERE n > 0")
        db.define(".decl big(i: symbol)  big(i) :- pairs(i, n), n > 1.")
        db.sql("CREATE VIEW bigger AS SELECT upper(i) AS i FROM big")
        db.definitions.add_rule("big(i) :- pairs(i, n), n < 0.")
        db.sql("INSERT INTO sold VALUES ('bolt', 7, NULL, NULL)")
        program, rows = db.pipeline.state.program, db.rows("bigger")
    with rederive.open(tmp_path) as db:
        assert rows == [("BOLT",)]
        assert db.pipeline.state.program == program
        assert db.rows("bigger") == rows


def test_ensure_takes_sql(tmp_path: Path) -> None:
    view = "CREATE VIEW v AS SELECT item FROM sold"
    with rederive.open(tmp_path) as db:
        db.migrate(TABLES)
        db.migrate(f"-- again, and more\n{TABLES} create  view V as select ITEM from sold;")
        with pytest.raises(Mismatch, match="CREATE TABLE sold"):
            db.migrate("CREATE TABLE item (name STRING PRIMARY KEY, kind STRING)")
        with pytest.raises(Redefined):
            db.migrate(f"{TABLES} {view}; CREATE VIEW v AS SELECT n FROM sold")
        with pytest.raises(SyntaxProblem, match="expected CREATE"):
            db.migrate(f"{TABLES} {view}; {BOLTS}")
    with rederive.open(tmp_path) as db:
        assert db.migrate(f"{TABLES} {view}") is None
        db.migrate(f"{TABLES} CREATE OR REPLACE VIEW v AS SELECT n FROM sold")
        assert [column.name for column in db.pipeline.state.program.relations["v"].columns] == ["n"]


VIEWS = (
    "SELECT item FROM sold",
    "SELECT DISTINCT item FROM sold",
    "SELECT item, sum(n) AS n, avg(price) AS p FROM sold GROUP BY item",
    "SELECT item, kind FROM sold LEFT JOIN item ON name = item",
)
STEPS = st.one_of(
    st.sampled_from(VIEWS).map(lambda query: f"CREATE OR REPLACE VIEW v AS {query}"),
    st.just("DROP VIEW IF EXISTS v"),
    st.tuples(st.sampled_from("ab"), st.sampled_from(["1", "2", "NULL"])).map(
        lambda row: f"INSERT INTO sold VALUES ('{row[0]}', {row[1]}, {row[1]}, NULL)"
    ),
    st.sampled_from("ab").map(lambda item: f"DELETE FROM sold WHERE item = '{item}' AND n = 1"),
    st.tuples(st.sampled_from("ab"), st.sampled_from("xy")).map(
        lambda row: f"DELETE FROM item WHERE name = '{row[0]}'; INSERT INTO item VALUES ('{row[0]}', '{row[1]}')"
    ),
)


def shown(result: rederive.Result) -> tuple[object, ...]:
    return result.version, {view: (c.plus, c.minus, c.counts) for view, c in result.changes.items()}


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.tuples(STEPS, st.booleans()), max_size=8))
def test_closed_and_opened_anywhere_it_goes_on(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool]]) -> None:
    folder, beside = tmp_path_factory.mktemp("store"), rederive.open()
    db = rederive.open(folder)
    beside.sql(TABLES)
    db.sql(TABLES)
    for text, closes in steps:
        told, expected = db.sql(text), beside.sql(text)
        assert list(map(shown, told)) == list(map(shown, expected))
        if closes:
            db.close()
            db = rederive.open(folder)
        for name in ("sold", "item", *(["v"] if "v" in beside.pipeline.state.program.relations else [])):
            assert db.rows(name) == beside.rows(name)
    db.close()


# The file


def older(folder: Path) -> None:
    """What a rederive before SQL has written."""
    with rederive.open(folder) as db:
        db.define(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        with db.transaction() as tx:
            tx.insert("n", [(7,), (11,)])
    connection = sqlite3.connect(folder / FILE)
    connection.executescript("""
        ALTER TABLE text DROP COLUMN language; ALTER TABLE change DROP COLUMN counts; PRAGMA user_version = 1;
    """)
    connection.close()


def test_a_store_from_before_sql_is_read_and_opened(tmp_path: Path) -> None:
    older(tmp_path)
    with JournalReader.read(tmp_path) as journal:
        assert [entry.views[0].delta.plus for entry in journal.since(0)] == [[(11,)]]
        assert journal.catalog.texts[0].language == "datalog"
        with rederive.open(tmp_path) as db:
            db.sql("CREATE VIEW twice AS SELECT x FROM n UNION ALL SELECT x FROM big")
            assert [c.counts for c in db.changes("twice", since=0)] == [{"plus": [1, 2], "minus": []}]
        assert [changed.delta.counts for changed in next(journal.since(1)).views] == [([1, 2], [])]  # it sees the new format


def test_killed_while_the_format_changes(tmp_path: Path) -> None:
    older(tmp_path)
    command = [sys.executable, "-c", "import rederive, sys; rederive.open(sys.argv[1])", str(tmp_path)]
    environment = {**os.environ, VARIABLE: "journal.renew:written"}
    assert subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False).returncode == -9
    with JournalReader.read(tmp_path) as journal:
        assert journal._connection.execute("PRAGMA user_version").fetchone() == (1,)
    with rederive.open(tmp_path) as db:
        assert db.rows("big") == [(11,)]
        assert db.pipeline.state.durable("test").journal._connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)


@pytest.mark.parametrize("counts", ["[[1]]", "[[2],[1]]", "[[0],[]]", '[["2"],[]]', "x"])
def test_damaged_counts_are_found(tmp_path: Path, counts: str) -> None:
    with rederive.open(tmp_path) as db:
        db.sql(f"{TABLES} CREATE VIEW v AS SELECT item FROM sold WHERE n > 0; {BOLTS}")
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("UPDATE change SET counts = ? WHERE kind = 'view'", (counts,))
    connection.commit()
    connection.close()
    with JournalReader.read(tmp_path) as journal, pytest.raises(CorruptStore, match="copies cannot be read"):
        list(journal.since(0))


# The command line


def lines(*arguments: object) -> list[dict[str, object]]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_run_goes_on_in_a_store_and_log_tells_the_copies(tmp_path: Path) -> None:
    program = tmp_path / "program.sql"
    program.write_text(f"{TABLES} CREATE VIEW v AS SELECT item FROM sold; {BOLTS};", encoding="utf-8")
    first = lines("run", program, "--store", tmp_path / "kept")
    assert first == [
        {"version": 1, "view": "v", "plus": [["bolt"], ["nut"]], "minus": [], "counts": {"plus": [2, 1], "minus": []}}
    ]
    second = lines("run", program, "--store", tmp_path / "kept")
    assert [line["version"] for line in second] == [2]
    program.write_text("DELETE FROM sold WHERE n IS NULL", encoding="utf-8")
    third = lines("run", program, "--store", tmp_path / "kept")
    assert third == [{"version": 3, "view": "v", "plus": [], "minus": [["nut"]], "counts": {"plus": [], "minus": [2]}}]
    assert lines("log", tmp_path / "kept") == [*first, *second, *third]


def test_initial_rows_of_a_bag_are_kept(tmp_path: Path) -> None:
    program, rows = tmp_path / "program.sql", tmp_path / "t.csv"
    program.write_text("CREATE TABLE t (a INT, b STRING); CREATE VIEW v AS SELECT a FROM t;", encoding="utf-8")
    rows.write_text("a,b\n1,x\n1,x\n,y\n", encoding="utf-8")
    for version in (1, 2):  # a script that is run again makes its changes again, and so do its initial rows
        told = lines("run", program, "--store", tmp_path / "kept", "--base", f"t={rows}")
        counts = {"plus": [1, 2], "minus": []}
        assert told == [{"version": version, "view": "v", "plus": [[None], [1]], "minus": [], "counts": counts}]
    with rederive.open(tmp_path / "kept") as db:
        assert Counter(db.rows("t")) == {(None, "y"): 2, (1, "x"): 4}
        assert [db.rows("v", as_of=version) for version in (0, 1)] == [[], [(None,), (1,), (1,)]]


def test_initial_rows_for_a_table_that_comes_too_late_are_refused(tmp_path: Path) -> None:
    program, rows = tmp_path / "program.sql", tmp_path / "t.csv"
    program.write_text("CREATE TABLE s (a INT); INSERT INTO s VALUES (1); CREATE TABLE t (a INT);", encoding="utf-8")
    rows.write_text("a\n1\n", encoding="utf-8")
    with pytest.raises(LateLoad, match="'t' is created after a data change"):
        lines("run", program, "--base", f"t={rows}")
