"""Definitions of tables: defaults, generated columns, constraints, CREATE TABLE ... AS, ALTER TABLE, COMMENT ON."""

from __future__ import annotations

from pathlib import Path

import pytest

import rederive
from rederive.database import Database
from rederive.errors import RederiveError, StillNeeded, Unsupported, Violated

TABLES = """
CREATE TABLE u (x INT PRIMARY KEY);
CREATE TABLE t (k INT PRIMARY KEY, a INT DEFAULT 3, b INT GENERATED ALWAYS AS (a + 1), d INT REFERENCES u,
                e VARCHAR(3), CONSTRAINT small CHECK (a < 100));
"""


def opened(folder: Path | None = None, *statements: str) -> Database:
    db = rederive.open(folder) if folder is not None else rederive.open()
    for statement in statements:
        db.sql(statement)
    return db


@pytest.mark.parametrize("strategy", ["materialized", "on_demand", "auto", "recompute"])
def test_what_a_statement_leaves_out_has_its_default(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.sql(TABLES)
    db.sql("INSERT INTO t (k) VALUES (1); INSERT INTO t (k, a, b) VALUES (2, 7, DEFAULT); INSERT INTO t (a, k) SELECT 5, 3")
    db.sql("UPDATE t SET a = 20 WHERE k = 1; UPDATE t SET a = DEFAULT WHERE k = 2")
    db.sql("MERGE INTO t USING (SELECT 3 AS k UNION ALL SELECT 4) s ON t.k = s.k "
           "WHEN MATCHED THEN UPDATE SET a = DEFAULT WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)")  # fmt: skip
    assert [row[:3] for row in db.rows("t")] == [(1, 20, 21), (2, 3, 4), (3, 3, 4), (4, 3, 4)]


VIOLATIONS = {
    "INSERT INTO t VALUES (2, 1, 7, NULL, NULL)": "GENERATED ALWAYS AS (a + 1)",
    "INSERT INTO t (k, a) VALUES (2, 100)": "CHECK (a < 100)",
    "INSERT INTO t (k, e) VALUES (2, 'abcd')": "VARCHAR(3)",
    "INSERT INTO t (k, d) VALUES (2, 9)": "FOREIGN KEY (d) REFERENCES u (x)",
    "UPDATE t SET d = 6": "FOREIGN KEY",
    "DELETE FROM u": "FOREIGN KEY",
}


@pytest.mark.parametrize("strategy", ["materialized", "on_demand", "auto", "recompute"])
def test_a_row_that_breaks_a_condition_is_refused_by_its_words(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.sql(TABLES)
    db.sql("INSERT INTO u VALUES (5); INSERT INTO t (k, d, e) VALUES (1, 5, 'abc')")
    before = db.rows("t"), db.rows("u"), db.version
    for statement, words in VIOLATIONS.items():
        with pytest.raises(Violated) as refused:
            db.sql(statement)
        assert words in refused.value.message
        assert refused.value.view == "t"
    with pytest.raises(Violated), db.transaction() as tx:
        tx.insert("t", [(9, 1, 1, None, None)])
    assert (db.rows("t"), db.rows("u"), db.version) == before
    db.sql("BEGIN; DELETE FROM u; DELETE FROM t; COMMIT")


def test_initial_rows_are_checked_against_what_the_table_declares() -> None:
    db = opened(None, "CREATE TABLE n (x INT CHECK (x > 0))")
    with pytest.raises(Violated):
        db.load("n", [(1,), (-1,)])
    db.load("n", [(1,), (1,)])
    assert db.rows("n") == [(1,), (1,)]


def test_of_many_rows_that_break_a_condition_the_refusal_names_some() -> None:
    db = opened(None, "CREATE TABLE n (x INT PRIMARY KEY CHECK (x > 0))")
    with pytest.raises(Violated, match="and 1495 more") as refused:
        db.apply("n", inserts=[(-x,) for x in range(1_500)])
    assert len(refused.value.rows) == 1_000
    assert list(refused.value.rows) == sorted(refused.value.rows)


def test_unique_columns_differ_unless_one_is_null() -> None:
    db = opened(None, "CREATE TABLE n (x INT UNIQUE, y INT, z DATE, CONSTRAINT pair UNIQUE (y, z))")
    db.sql("INSERT INTO n VALUES (1, 1, NULL), (2, 1, NULL), (NULL, 1, '2026-01-01'), (NULL, 2, '2026-01-01')")
    for row in ("(2, 5, NULL)", "(3, 2, '2026-01-01')"):
        with pytest.raises(Violated, match="UNIQUE"):
            db.sql(f"INSERT INTO n VALUES {row}")
    db.sql("ALTER TABLE n DROP CONSTRAINT pair; INSERT INTO n VALUES (3, 2, '2026-01-01')")
    db.sql("CREATE TABLE m (x INT, UNIQUE (x) NOT ENFORCED); INSERT INTO m VALUES (1), (1)")


def test_the_default_schema_and_what_arranges_files_have_no_effect() -> None:
    db = opened(
        None,
        """CREATE TABLE spark_catalog.default.n (x INT, d DATE) USING DELTA PARTITIONED BY (d) CLUSTER BY (x)
                         TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')""",
    )
    db.sql("INSERT INTO default.n VALUES (1, '2026-01-01'); CREATE VIEW default.w AS SELECT default.n.x FROM default.n")
    assert db.rows("w") == [(1,)]


REFUSED = {
    "CREATE TABLE x (a INT CHECK (a > (SELECT 1)))": "a subquery in CHECK",
    "CREATE TABLE x (a DATE DEFAULT current_date)": "the current time in DEFAULT",
    "CREATE TABLE x (a INT REFERENCES bag)": "primary key of 'bag'",
    "CREATE TABLE x (a INT, UNIQUE (b))": "unknown column 'b'",
    "CREATE TABLE x (a INT) PARTITIONED BY (b)": "PARTITIONED BY",
    "CREATE TABLE x (a INT) PARTITIONED BY (b DATE)": "PARTITIONED BY",
    "CREATE TABLE x (a INT) TBLPROPERTIES ('delta.appendOnly' = 'true')": "a property that restricts changes",
    "CREATE TABLE mart.x (a INT)": "a name with a schema other than default",
    "CREATE TABLE x (a CHAR(3))": "CHAR(3)",
    "CREATE TABLE x (a INT) AS SELECT 1 AS a": "columns in CREATE TABLE ... AS",
    "ALTER TABLE t DROP COLUMN k": "a column of the key",
    "ALTER TABLE t ALTER COLUMN a TYPE SMALLINT": "changing the type of 'a'",
    "ALTER TABLE t RENAME TO x": "RENAME TO",
    "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')": "ALTER TABLE ... SET",
    "ALTER TABLE v ADD COLUMN x INT": "unknown table 'v'",
    "ALTER TABLE t ADD COLUMN a INT": "two columns",
    "ALTER TABLE t DROP COLUMN nope": "unknown column 'nope'",
    "ALTER TABLE t DROP COLUMN a": "column 'a' of 't' is still read in 't'",
    "ALTER TABLE u RENAME COLUMN x TO y": "column 'x' of 'u' is still read in 'v'",
    "DROP TABLE u": "'u' is still read in 't'",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_a_definition_is_refused_by_name_and_changes_nothing(statement: str) -> None:
    db = opened(None, TABLES, "CREATE VIEW v AS SELECT x AS y FROM u", "CREATE TABLE bag (n INT)", "INSERT INTO u VALUES (1)")
    before = db.pipeline.state.catalog
    with pytest.raises(RederiveError) as refused:
        db.sql(statement)
    assert REFUSED[statement] in refused.value.message
    assert db.pipeline.state.catalog is before


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""], ids=["set", "bag"])
def test_altered_columns_survive_reopening(tmp_path: Path, key: str) -> None:
    rows = "(1, 10), (2, 20)" if key else "(1, 10), (1, 10), (2, 20)"
    view = "CREATE VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k"
    db = opened(tmp_path, f"CREATE TABLE t (k INT {key}, a INT)", f"INSERT INTO t VALUES {rows}", view)
    before = db.rows("v")
    (result,) = db.sql("ALTER TABLE t ADD COLUMNS (c STRING DEFAULT 'x' FIRST, d INT)")
    assert not result.changes
    db.sql("ALTER TABLE t RENAME COLUMN a TO b; ALTER TABLE t DROP COLUMN d; ALTER TABLE t ALTER COLUMN b TYPE BIGINT")
    db.sql("INSERT INTO t VALUES ('y', 3, 9999999999)")
    expected = [("x", *row) for row in eval(f"[{rows}]")] + [("y", 3, 9999999999)]
    db.close()
    for _ in range(2):
        db = rederive.open(tmp_path)
        assert db.rows("t") == expected
        assert db.rows("v") == [*before, (3, 1)]
        assert db.rows("v", as_of=2) == before
        db.close()
    db = opened(tmp_path, "DELETE FROM t WHERE k = 1")
    assert db.rows("t") == [row for row in expected if row[1] != 1]
    db.close()


def test_a_view_whose_columns_would_change_is_named() -> None:
    db = opened(None, "CREATE TABLE t (k INT PRIMARY KEY)", "CREATE VIEW w AS SELECT * FROM t")
    with pytest.raises(StillNeeded, match="the columns of 'w'"):
        db.sql("ALTER TABLE t ADD COLUMN a INT")


def test_constraints_are_added_where_the_rows_fulfil_them() -> None:
    db = opened(None, "CREATE TABLE t (k INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 5)")
    with pytest.raises(Violated):
        db.sql("ALTER TABLE t ADD CONSTRAINT small CHECK (a < 5)")
    db.sql("UPDATE t SET a = 4; ALTER TABLE t ADD CONSTRAINT small CHECK (a < 5)")
    with pytest.raises(Violated):
        db.sql("UPDATE t SET a = 5")
    db.sql("ALTER TABLE t DROP CONSTRAINT small; UPDATE t SET a = 5")


def test_a_table_of_a_query_has_its_columns_and_rows(tmp_path: Path) -> None:
    db = opened(tmp_path, "CREATE TABLE t (k INT PRIMARY KEY, a DECIMAL(5,2))", "INSERT INTO t VALUES (1, 5), (2, 5)")
    db.sql("CREATE TABLE c AS SELECT a, count(*) AS n FROM t GROUP BY a; CREATE TABLE s (PRIMARY KEY (k)) AS SELECT k FROM t")
    (shown,) = db.sql("SHOW CREATE TABLE c")
    assert shown.answer is not None
    assert shown.answer.rows == [("CREATE TABLE `c` (`a` DECIMAL(5,2), `n` BIGINT NOT NULL)",)]
    found = db.rows("c"), db.rows("s")
    db.sql("INSERT INTO t VALUES (3, 1)")
    db.close()
    db = rederive.open(tmp_path)
    assert (db.rows("c"), db.rows("s")) == found
    assert len(found[0]) == 1
    db.close()


def test_comments_make_no_version() -> None:
    db = opened(None, "CREATE TABLE t (k INT PRIMARY KEY)", "CREATE VIEW v AS SELECT k FROM t")
    assert list(db.sql("COMMENT ON TABLE t IS 'all'; COMMENT ON COLUMN t.k IS 'key'; COMMENT ON VIEW v IS 'copy'")) == []
    shown = [result.answer.rows for result in db.sql("SHOW CREATE TABLE t; SHOW CREATE TABLE v") if result.answer]
    assert "COMMENT 'key'" in str(shown[0])
    assert "COMMENT 'copy'" in str(shown[1])


def test_a_program_that_alters_its_tables_runs_again(tmp_path: Path) -> None:
    from rederive.commit.sql_statements import SqlRun

    text = "CREATE TABLE t (k INT); ALTER TABLE t ADD COLUMN a INT; CREATE TABLE c AS SELECT 1 AS x; INSERT INTO t VALUES (1, 2)"
    for times in (1, 2):
        db = rederive.open(tmp_path)
        list(SqlRun(db.pipeline, again=True).run(text))
        assert db.rows("t") == [(1, 2)] * times
        assert db.rows("c") == [(1,)]
        db.close()


def test_fetch_first_is_limit() -> None:
    db = opened(None, "CREATE TABLE t (k INT PRIMARY KEY)", "INSERT INTO t VALUES (3), (1), (2)")
    assert db.query("SELECT k FROM t ORDER BY k OFFSET 1 ROWS FETCH NEXT 1 ROW ONLY") == [(2,)]
    with pytest.raises(Unsupported, match="WITH TIES"):
        db.query("SELECT k FROM t ORDER BY k FETCH FIRST 2 ROWS WITH TIES")
