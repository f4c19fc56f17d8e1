"""MERGE, UPDATE ... FROM, INSERT OVERWRITE, savepoints and answers in a text of statements; DuckDB is the witness of MERGE."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest

import rederive
from rederive.errors import (
    DuplicateKey,
    EvaluationError,
    Redefined,
    RederiveError,
    StillNeeded,
    SyntaxProblem,
    UnknownName,
    UnknownRelation,
    Unsupported,
)

TABLES = """
CREATE TABLE t (a INT PRIMARY KEY, b STRING, n INT);
CREATE TABLE u (a INT PRIMARY KEY, b STRING, n INT);
"""
VIEW = "CREATE VIEW v AS SELECT b, count(*) AS c, sum(n) AS s FROM t GROUP BY b"
CONDITIONS = ("", "AND s.n > 2", "AND t.n < s.n", "AND t.b = s.b")
BY_TARGET = ("", "AND s.n > 2", "AND s.b IS NOT NULL")
BY_SOURCE = ("", "AND t.n > 2", "AND t.b IS NULL")


def database() -> rederive.Database:
    db = rederive.open()
    db.sql(TABLES)
    db.sql(VIEW)
    return db


def some_rows(random: random.Random) -> list[tuple[Any, ...]]:
    return [
        (a, random.choice(["x", "y", None]), random.choice([None, 1, 2, 3, 4]))
        for a in random.sample(range(6), random.randrange(6))
    ]


def some_merge(random: random.Random) -> str:
    matched = [f"WHEN MATCHED {c} THEN {random.choice(['DELETE', 'UPDATE SET b = s.b, n = t.n + s.n', 'UPDATE SET n = 9'])}"
               for c in random.sample(CONDITIONS[1:], random.randrange(3))]  # fmt: skip
    inserted = [
        f"WHEN NOT MATCHED {c} THEN INSERT (a, n) VALUES (s.a, s.n * 10)" for c in random.sample(BY_TARGET, random.randrange(2))
    ]
    missing = [f"WHEN NOT MATCHED BY SOURCE {c} THEN {random.choice(['DELETE', 'UPDATE SET b = coalesce(t.b, chr(33))'])}"
               for c in random.sample(BY_SOURCE, random.randrange(2))]  # fmt: skip
    last = ["WHEN MATCHED THEN UPDATE SET b = 'm'"] if random.random() < 0.5 or not (matched or inserted or missing) else []
    return f"MERGE INTO t USING u AS s ON t.a = s.a {' '.join((*matched, *last, *inserted, *missing))}"


@pytest.mark.parametrize("seed", range(25))
def test_merge_is_what_duckdb_does(seed: int) -> None:
    """The tables are equal after each statement, and the view is what its query gives."""
    chosen = random.Random(seed)
    db, other = database(), duckdb.connect()
    other.execute(TABLES.replace("STRING", "VARCHAR"))
    for table in ("t", "u"):
        rows = some_rows(chosen)
        db.load(table, rows)
        if rows:
            other.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
    for _ in range(3):
        statement = some_merge(chosen)
        db.sql(statement)
        other.execute(statement)
        assert set(db.rows("t")) == set(other.execute("SELECT * FROM t").fetchall()), statement
        assert db.rows("v") == db.query("SELECT b, count(*) AS c, sum(n) AS s FROM t GROUP BY b")


def test_merge_with_stars() -> None:
    db = database()
    db.sql("INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2); INSERT INTO u VALUES (2, 'z', 5), (3, 'w', 6)")
    (result,) = db.sql("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert db.rows("t") == [(1, "x", 1), (2, "z", 5), (3, "w", 6)]
    assert set(result.changes["v"].plus) == {("z", 1, 5), ("w", 1, 6)}


def test_two_rows_that_match_one_row_are_refused() -> None:
    db = database()
    db.sql("INSERT INTO t VALUES (1, 'x', 1)")
    source = "(SELECT 1 AS a, 'p' AS b UNION ALL SELECT 1, 'q') s"
    with pytest.raises(EvaluationError, match="several rows of the source match the row"):
        db.sql(f"MERGE INTO t USING {source} ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = s.b")
    with pytest.raises(EvaluationError, match="several rows of the source match the row"):
        db.sql(f"UPDATE t SET b = s.b FROM {source} WHERE t.a = s.a")
    assert db.rows("t") == [(1, "x", 1)]


def test_merge_and_update_from_change_each_copy_of_a_row() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE bag (k INT, v INT); INSERT INTO bag VALUES (1, 10), (1, 10), (2, 20), (3, 30)")
    db.sql("CREATE TABLE s (k INT, v INT); INSERT INTO s VALUES (1, 11), (4, 40), (4, 40)")
    db.sql("""MERGE INTO bag USING s ON bag.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *
              WHEN NOT MATCHED BY SOURCE AND bag.k = 3 THEN DELETE""")
    assert sorted(db.rows("bag")) == [(1, 11), (1, 11), (2, 20), (4, 40), (4, 40)]
    db.sql("UPDATE bag SET v = s.v + 1 FROM s WHERE bag.k = s.k AND s.k = 1")
    assert sorted(db.rows("bag")) == [(1, 12), (1, 12), (2, 20), (4, 40), (4, 40)]
    for statement in (
        "UPDATE bag SET v = 0 FROM s WHERE bag.k = s.k",
        "MERGE INTO bag USING s ON bag.k = s.k WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(EvaluationError, match="several rows of the source match the row \\(4, 40\\)"):
            db.sql(statement)


def test_overwrite_replaces_and_truncates() -> None:
    db = database()
    db.sql("INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2), (3, 'y', 3)")
    db.sql("INSERT INTO t REPLACE WHERE n >= 2 SELECT a + 10, b, n FROM t WHERE n = 3")
    assert db.rows("t") == [(1, "x", 1), (13, "y", 3)]
    with pytest.raises(EvaluationError, match="does not fulfil the condition"):
        db.sql("INSERT INTO t REPLACE WHERE n >= 2 VALUES (5, 'z', 0)")
    db.sql("WITH q AS (SELECT 7 AS n, 8 AS a) INSERT OVERWRITE t BY NAME SELECT n, a FROM q")
    assert db.rows("t") == [(8, None, 7)]
    db.sql("TRUNCATE TABLE t")
    assert (db.rows("t"), db.rows("v")) == ([], [])


def test_update_from_another_table() -> None:
    db = database()
    db.sql("INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2); INSERT INTO u VALUES (2, 'z', 5)")
    db.sql("UPDATE t SET n = t.n + u.n, b = upper(u.b) FROM u WHERE t.a = u.a")
    assert db.rows("t") == [(1, "x", 1), (2, "Z", 7)]


def test_a_condition_may_be_assigned() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE c (k INT PRIMARY KEY, yes BOOLEAN, n INT)")
    db.sql("INSERT INTO c VALUES (1, true, 5), (2, false, 5), (3, NULL, 7)")
    db.sql("UPDATE c SET yes = NOT yes, n = n + 1 WHERE k < 3")
    assert db.rows("c") == [(1, False, 6), (2, True, 6), (3, None, 7)]
    db.sql("UPDATE c SET yes = n = 6 AND k = 1 OR n IS NULL")
    assert db.rows("c") == [(1, True, 6), (2, False, 6), (3, False, 7)]
    db.sql("MERGE INTO c USING c AS s ON c.k = s.k WHEN MATCHED THEN UPDATE SET c.yes = NOT s.yes AND s.k IN (2, 3)")
    assert db.rows("c") == [(1, False, 6), (2, True, 6), (3, True, 7)]
    with pytest.raises(SyntaxProblem, match="'=' is missing after the column"):
        db.sql("UPDATE c SET yes")
    with pytest.raises(Unsupported, match="help: write the time as a value") as refused:
        db.sql("INSERT INTO c VALUES (4, now() > TIMESTAMP '2024-01-01 00:00:00', 1)")
    assert "outside of the WHERE" in str(refused.value)


def test_savepoints() -> None:
    db = database()
    insert = "INSERT INTO t VALUES ({0}, 'x', 1);"
    results = db.sql(
        f"START TRANSACTION; {insert.format(1)} SAVEPOINT one; {insert.format(2)} SAVEPOINT two; {insert.format(3)}"
        "SELECT a FROM t; ROLLBACK TO SAVEPOINT one; SELECT a FROM t; ROLLBACK TO one; RELEASE SAVEPOINT one; COMMIT"
    )
    answers = [result.answer.rows for result in results if result.answer is not None]
    assert answers == [[(1,), (2,), (3,)], [(1,)]]
    assert db.rows("t") == [(1, "x", 1)]
    with pytest.raises(UnknownName, match="unknown savepoint 'two'"):
        db.sql("BEGIN; SAVEPOINT one; ROLLBACK TO two; COMMIT")
    with pytest.raises(SyntaxProblem, match="SAVEPOINT without BEGIN"):
        db.sql("SAVEPOINT one")


def test_statements_that_answer() -> None:
    db = database()
    found = {}
    for statement in ("SHOW TABLES", "SHOW VIEWS", "SHOW COLUMNS IN t", "DESCRIBE t", "SELECT 1 AS x, 'a' AS y", "EXPLAIN v"):
        (result,) = db.sql(statement)
        assert result.answer is not None
        found[statement] = result.answer
    assert found["SHOW TABLES"].rows == [("t",), ("u",)]
    assert found["SHOW VIEWS"].rows == [("v", True)]
    assert found["SHOW COLUMNS IN t"].rows == [("a",), ("b",), ("n",)]
    assert found["DESCRIBE t"].rows == [("a", "int", False, True), ("b", "string", True, False), ("n", "int", True, False)]
    assert (found["SELECT 1 AS x, 'a' AS y"].columns, found["SELECT 1 AS x, 'a' AS y"].rows) == (("x", "y"), [(1, "a")])
    assert any("strategy" in str(line) for (line,) in found["EXPLAIN v"].rows)
    with pytest.raises(RederiveError, match="unknown table or view 'w'"):
        db.sql("DESCRIBE w")


def test_a_table_is_dropped_with_its_rows_when_nothing_reads_it() -> None:
    db = database()
    db.sql("INSERT INTO t VALUES (1, 'x', 1)")
    with pytest.raises(StillNeeded):
        db.sql("DROP TABLE t")
    db.sql("DROP VIEW v; DROP TABLE t; DROP TABLE IF EXISTS t")
    with pytest.raises(UnknownRelation):
        db.sql("DROP TABLE t")
    db.sql("CREATE TABLE t (a INT PRIMARY KEY, c DATE)")
    assert db.rows("t") == []


@pytest.mark.parametrize(
    "statements",
    [
        "INSERT INTO k VALUES (1, 1), (1, 2); UPDATE k SET y = 1",
        "INSERT INTO k VALUES (1, 5); UPDATE k SET y = 7 WHERE y = 5",
    ],
)
def test_an_update_inside_a_transaction_merges_no_rows_that_share_a_key(statements: str) -> None:
    db = rederive.open()
    db.sql("CREATE TABLE k (x INT PRIMARY KEY, y INT)")
    if "SET y = 7" in statements:
        db.sql("INSERT INTO k VALUES (1, 7)")
    before = db.rows("k")
    with pytest.raises(DuplicateKey):
        db.sql(f"BEGIN; {statements}; COMMIT")
    assert db.rows("k") == before
    # a conflict that a later statement ends is none
    db.sql("BEGIN; INSERT INTO k VALUES (3, 1), (3, 2); UPDATE k SET x = 4 WHERE y = 2; COMMIT")
    assert db.rows("k") == [*before, (3, 1), (4, 2)]


def test_insert_into_a_partition() -> None:
    """PARTITION fixes columns; with OVERWRITE the rows of that partition alone are replaced."""
    with rederive.open() as db:
        db.sql("CREATE TABLE t (id INT, day DATE, hour INT) PARTITIONED BY (day, hour)")
        db.sql("CREATE VIEW per_day AS SELECT string(day) AS day, count(*) AS n FROM t GROUP BY day")
        db.sql("INSERT INTO t PARTITION (day = DATE '2024-01-01', hour = 1) VALUES (1), (2)")
        db.sql("INSERT INTO t PARTITION (day = '2024-01-02', hour) WITH x AS (SELECT 3 AS id) SELECT id, 7 FROM x")
        assert sorted(db.rows("per_day")) == [("2024-01-01", 2), ("2024-01-02", 1)]
        db.sql("INSERT OVERWRITE TABLE t PARTITION (day = DATE '2024-01-01', hour = 1) SELECT 9")
        assert {row[0] for row in db.rows("t")} == {3, 9}
        db.sql("INSERT OVERWRITE t PARTITION (day, hour) SELECT 5, DATE '2024-05-05', 2")
        assert db.rows("per_day") == [("2024-05-05", 1)]
        for part in ("id", "day = DATE '2024-01-01', id", "hour, day", "day = 1, day"):
            with pytest.raises((Unsupported, Redefined)):
                db.sql(f"INSERT INTO t PARTITION ({part}) VALUES (1)")


def test_create_or_replace_table_as_replaces_the_rows() -> None:
    with rederive.open() as db:
        db.sql("CREATE TABLE t AS SELECT 1 AS a, 2 AS b; CREATE VIEW v AS SELECT sum(a) AS s FROM t")
        (same,) = db.sql("CREATE OR REPLACE TABLE t AS SELECT a + 1 AS a, b FROM t")
        assert (same.changes["v"].plus, same.changes["v"].minus) == ([(2,)], [(1,)])
        db.sql("CREATE OR REPLACE TABLE t AS SELECT 5L AS a, 'x' AS c UNION ALL SELECT 6, 'y'")
        assert (sorted(db.rows("t")), db.rows("v")) == ([(5, "x"), (6, "y")], [(11,)])
        with pytest.raises(StillNeeded, match="column 'a'"):
            db.sql("CREATE OR REPLACE TABLE t AS SELECT 1 AS other")
        with pytest.raises(Unsupported, match="is a view"):
            db.sql("CREATE OR REPLACE TABLE v AS SELECT 1 AS s")
        db.sql("CREATE OR REPLACE TABLE u AS SELECT 1 AS a")
        assert db.rows("u") == [(1,)]
