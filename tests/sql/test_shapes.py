"""How statements are read: literals, operators, stars, joins in parentheses, keys. Each was found wrong."""

from __future__ import annotations

import pytest

import rederive
from rederive.errors import (
    DuplicateKey,
    Redefined,
    RederiveError,
    SyntaxProblem,
    TypeClash,
    Unstratified,
    Unsupported,
    WrongArity,
)
from rederive.ir.terms import Row

TABLES = """
CREATE TABLE t (a INT, b INT);
CREATE TABLE u (a INT, c INT);
CREATE TABLE named (k INT PRIMARY KEY, name STRING);
CREATE TABLE keys (k INT PRIMARY KEY);
INSERT INTO t VALUES (1, 2), (1, 2), (2, 1);
INSERT INTO u VALUES (1, 7), (3, 8);
"""


@pytest.fixture
def db() -> rederive.Database:
    db = rederive.open()
    db.sql(TABLES)
    return db


def view(db: rederive.Database, query: str) -> list[Row]:
    """The rows of a query, as a view and as a question."""
    db.sql(f"CREATE OR REPLACE VIEW v AS {query}")
    assert db.rows("v") == db.query(query)
    return db.rows("v")


# Literals and operators


def test_a_doubled_quote_is_a_quote(db: rederive.Database) -> None:
    db.sql("INSERT INTO named VALUES (1, 'O''Brien'), (2, \"say \"\"no\"\"\"), (3, '''')")
    assert db.rows("named") == [(1, "O'Brien"), (2, 'say "no"'), (3, "'")]
    assert db.query(r"SELECT k FROM named WHERE name = 'O\'Brien' OR name LIKE '%''%' AND k > 2") == [(1,), (3,)]


def test_strings_beside_each_other_are_one_and_raw_strings_are_strings(db: rederive.Database) -> None:
    assert db.query(r"SELECT 'a' 'b''c', r'\d' '\n', '5' RLIKE r'\d'") == [("ab'c", "\\d\n", True)]


@pytest.mark.parametrize(
    "text", ["1e400", "1e", "9" * 39, f"0.{'1' * 39}", "INT '5'", "STRING 'a'", "'5' + '6'", "5D DIV 2", "+ true"]
)
def test_literals_and_operands_that_spark_refuses(db: rederive.Database, text: str) -> None:
    with pytest.raises((SyntaxProblem, TypeClash)):
        db.query(f"SELECT {text}")


def test_concatenation_binds_as_plus_does(db: rederive.Database) -> None:
    assert db.query("SELECT '5' || 5 + 5, 1 + 2 || 3, 2 * 3 || 4") == [(60, "33", "64")]


def test_comparisons_bind_from_left_to_right_below_everything_else(db: rederive.Database) -> None:
    assert db.query("SELECT 1 = 2 = false, 1 < 2 = true, 3 = 1 + 2 IS NULL, NOT 1 = 2 AND false") == [(True, True, False, False)]
    with pytest.raises(TypeClash):
        db.query("SELECT true = 1 < 2")  # (true = 1) < 2
    with pytest.raises(SyntaxProblem):
        db.query("SELECT 1 IS NULL IS NULL")


# Groupings


def test_the_empty_grouping_set_alone_has_a_row_of_no_rows(db: rederive.Database) -> None:
    query = "SELECT count(*) AS n, max(k) AS m, grouping_id() AS g FROM keys GROUP BY "
    db.sql(f"CREATE VIEW alone AS {query} GROUPING SETS (()); CREATE VIEW more AS {query} GROUPING SETS ((k), ())")
    assert (db.rows("alone"), db.rows("more")) == ([(0, None, 0)], [])
    db.sql("INSERT INTO keys VALUES (3)")
    assert (db.rows("alone"), db.rows("more")) == ([(1, 3, 0)], [(1, 3, 0), (1, 3, 1)])
    db.sql("DELETE FROM keys")
    assert (db.rows("alone"), db.rows("more")) == ([(0, None, 0)], [])
    with pytest.raises(Unsupported, match="without an aggregate"):
        db.query("SELECT 1 FROM keys GROUP BY CUBE ()")


# Stars


def test_a_star_beside_group_by_is_its_columns(db: rederive.Database) -> None:
    assert view(db, "SELECT *, count(*) AS n FROM t GROUP BY a, b") == [(1, 2, 2), (2, 1, 1)]
    assert view(db, "SELECT * FROM t GROUP BY a, b") == [(1, 2), (2, 1)]
    assert view(db, "SELECT count(*) AS n, t.* FROM t GROUP BY ALL HAVING count(*) > 1") == [(2, 1, 2)]
    assert view(db, "SELECT *, max(b) OVER (PARTITION BY a) AS m FROM t GROUP BY a, b") == [(1, 2, 2), (2, 1, 1)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t GROUP BY a",
        "SELECT *, count(*) FROM t",
        "SELECT *, 1 FROM t GROUP BY 1, 2",
        "SELECT FROM t",
        "SELECT max(*) FROM t",
        "SELECT * EXCEPT (a) FROM t, u",
    ],
)
def test_stars_that_spark_refuses(db: rederive.Database, query: str) -> None:
    with pytest.raises((TypeClash, Unsupported, SyntaxProblem, WrongArity)):
        db.query(query)


# Joins


def test_a_join_in_parentheses_that_starts_with_a_query(db: rederive.Database) -> None:
    assert view(db, "SELECT a FROM ((SELECT a FROM t) JOIN (SELECT b AS k FROM t) ON a = k)") == [(1,), (1,), (2,), (2,)]
    assert view(db, "SELECT x.a, c FROM (((SELECT a FROM t) AS x LEFT JOIN u ON x.a = u.a))") == [(1, 7), (1, 7), (2, None)]


def test_a_join_in_parentheses_is_joined_by_itself(db: rederive.Database) -> None:
    """The right join inside keeps all rows of u, also where the table outside is empty or filters them."""
    query = "SELECT keys.k, t.b, u.c FROM keys RIGHT JOIN (t RIGHT JOIN u ON t.a = u.a) ON keys.k = t.b"
    assert view(db, query) == [(None, None, 8), (None, 2, 7), (None, 2, 7)]
    assert view(db, "SELECT x.b, x.n FROM (t JOIN u USING (a)) AS x(a, b, n)") == [(2, 7), (2, 7)]


def test_columns_of_chained_using_come_in_the_order_of_spark(db: rederive.Database) -> None:
    db.sql("CREATE TABLE w (c INT, d INT); INSERT INTO w VALUES (7, 9)")
    assert view(db, "SELECT * FROM t JOIN u USING (a) JOIN w USING (c)") == [(7, 1, 2, 9), (7, 1, 2, 9)]
    assert view(db, "SELECT * FROM t NATURAL JOIN u NATURAL FULL JOIN w") == [(7, 1, 2, 9), (7, 1, 2, 9)]
    with pytest.raises(TypeClash, match="ambiguous"):
        db.query("SELECT a FROM t JOIN u USING (a) JOIN (SELECT a FROM u) AS x ON x.a = t.a")


@pytest.mark.parametrize("kind", ["RIGHT SEMI", "RIGHT ANTI", "FULL SEMI", "NATURAL LEFT SEMI", "LEFT INNER", "OUTER"])
def test_joins_that_spark_does_not_know(db: rederive.Database, kind: str) -> None:
    with pytest.raises(Unsupported, match="join"):
        db.query(f"SELECT * FROM t {kind} JOIN u {'' if 'NATURAL' in kind else 'ON t.a = u.a'}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t LIMIT 1 BY a",
        "(SELECT a FROM t) JOIN u",
        "SELECT a FROM ((SELECT a FROM t) UNION ALL (SELECT a FROM u) JOIN t)",
        "SELECT a FROM t ORDER BY a LIMIT 1 UNION ALL SELECT a FROM u",
        "SELECT * FROM t JOIN u JOIN t AS x ON x.a = u.a ON t.a = u.a",
    ],
)
def test_parts_of_queries_that_are_read_and_not_kept(db: rederive.Database, query: str) -> None:
    with pytest.raises(Unsupported):
        db.query(query)


def test_two_with_queries_of_one_name_are_refused(db: rederive.Database) -> None:
    with pytest.raises(Redefined) as error:
        db.query("WITH x AS (SELECT a FROM t), X AS (SELECT c FROM u) SELECT * FROM x")
    assert "<query>:1:3" in str(error.value)


# Views


def test_a_question_through_recursion_is_checked_as_a_view_is(db: rederive.Database) -> None:
    with pytest.raises(Unstratified):
        db.query("WITH RECURSIVE r(x) AS (SELECT 1 UNION SELECT count(*) FROM r) SELECT * FROM r")


def test_a_subquery_may_be_looked_for_in_another_one(db: rederive.Database) -> None:
    """Found at random: 'v' has 2 columns, but 3 arguments here."""
    having = "(SELECT max(c) FROM u WHERE u.a = t.a) IN (SELECT c FROM u)"
    assert view(db, f"SELECT a, count(*) AS n FROM t GROUP BY a HAVING {having}") == [(1, 2)]
    assert view(db, "SELECT a, sum(b) OVER () AS n FROM t WHERE (SELECT min(c) FROM u) IN (SELECT c FROM u)")[0] == (1, 5)


def test_windows_over_constants(db: rederive.Database) -> None:
    chosen = "sum(1) OVER (PARTITION BY a) AS n, max(5) OVER (PARTITION BY a) AS m, min('x') OVER () AS s"
    assert view(db, f"SELECT a, {chosen} FROM t") == [(1, 2, 5, "x"), (1, 2, 5, "x"), (2, 1, 5, "x")]
    assert view(db, "SELECT sum(a) OVER (PARTITION BY b) AS n FROM t WHERE a = 2") == [(2,)]
    (result,) = db.sql("INSERT INTO t VALUES (2, 1)")
    assert (result.changes["v"].plus, result.changes["v"].minus) == ([(4,)], [(2,)])


# Changes of data


@pytest.mark.parametrize(
    "text", ["TABLE u", "FROM u", "-- of all\n/* (rows) */ (SELECT * FROM u)", "select\r\n* FROM u", "SELECT*FROM u", "TABLE `u`"]
)
def test_a_query_begins_with_comments_and_any_of_its_words(db: rederive.Database, text: str) -> None:
    assert db.query(text) == db.query("SELECT * FROM u")


def test_a_text_of_comments_is_read_in_one_pass(db: rederive.Database) -> None:
    with pytest.raises(RederiveError):
        db.query("/**/" * 5000 + "-- x\n" * 5000 + "u")


def test_insert_takes_a_table_or_values_with_queries(db: rederive.Database) -> None:
    db.sql("INSERT INTO u TABLE t; INSERT INTO t VALUES ((SELECT max(c) FROM u), 0)")
    assert len(db.rows("u")) == 5
    assert (8, 0) in db.rows("t")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE t WHERE a = 1",
        "UPDATE u SET",
        "UPDATE u SET a = 1, a = 2",
        "UPDATE u SET other.a = 1",
        "INSERT INTO u (a, a) VALUES (1, 1)",
        "INSERT INTO other.u VALUES (1, 1)",
        "DELETE FROM other.u",
        "DROP VIEW other.v",
        "DROP VIEW v, w",
    ],
)
def test_statements_that_were_half_read(db: rederive.Database, statement: str) -> None:
    db.sql("CREATE VIEW v AS SELECT a FROM t")
    before = db.rows("u"), db.rows("t"), db.version
    with pytest.raises(RederiveError):
        db.sql(statement)
    assert (db.rows("u"), db.rows("t"), db.version) == before


@pytest.mark.parametrize("statement", ["UPDATE keys SET k = 7", "UPDATE keys SET k = 2 WHERE k = 1", "UPDATE named SET k = 7"])
def test_an_update_that_makes_two_rows_the_same_is_refused(db: rederive.Database, statement: str) -> None:
    db.sql("INSERT INTO keys VALUES (1), (2); INSERT INTO named VALUES (1, 'x'), (2, 'x')")
    with pytest.raises(DuplicateKey):
        db.sql(statement)
    assert (db.rows("keys"), db.rows("named")) == ([(1,), (2,)], [(1, "x"), (2, "x")])
    db.sql("UPDATE keys SET k = k + 1")
    assert db.rows("keys") == [(2,), (3,)]


def test_keys_are_checked_at_commit_also_where_a_query_comes_before(db: rederive.Database) -> None:
    db.sql("INSERT INTO named VALUES (1, 'x')")
    db.sql(
        "BEGIN; INSERT INTO named VALUES (1, 'y'); INSERT INTO t SELECT k, 5 FROM named;"
        " DELETE FROM named WHERE name IN (SELECT max(name) FROM named); COMMIT"
    )
    assert db.rows("named") == [(1, "x")]
    assert [row for row in db.rows("t") if row[1] == 5] == [(1, 5), (1, 5)]
    with pytest.raises(DuplicateKey):
        db.sql("BEGIN; INSERT INTO named VALUES (1, 'y'); INSERT INTO t SELECT k, 5 FROM named; COMMIT")


def test_null_moves_through_the_columns_of_a_recursion() -> None:
    """Nullability is a fixpoint with as many rounds as columns: NULL moves by one column in each."""
    db = rederive.open()
    db.sql("""
        CREATE TABLE t (x INT NOT NULL, PRIMARY KEY (x));
        CREATE VIEW v AS
          WITH RECURSIVE r(a, b, c, d, e, f, g) AS (
            SELECT x, x, x, x, x, x, CAST(NULL AS INT) FROM t UNION SELECT b, c, d, e, f, g, g FROM r)
          SELECT a FROM r;
        INSERT INTO t VALUES (1);
    """)
    assert db.rows("v") == [(None,), *[(1,)] * 6]


def test_percentiles_of_several_percentages_are_an_array() -> None:
    with rederive.open() as db:
        db.sql("CREATE TABLE m (id INT PRIMARY KEY, k INT, v INT); INSERT INTO m VALUES (1, 1, 10), (2, 1, 20), (3, 2, NULL)")
        db.sql("CREATE VIEW p AS SELECT k, percentile(v, array(0.25, 0.5)) AS a FROM m GROUP BY k")
        assert db.rows("p") == [(1, (12.5, 15.0)), (2, None)]
        db.sql("INSERT INTO m VALUES (4, 2, 5); DELETE FROM m WHERE id = 2")
        assert db.rows("p") == [(1, (10.0, 10.0)), (2, (5.0, 5.0))]


def test_elements_are_joined_as_texts_and_a_precision_cuts_null(db: rederive.Database) -> None:
    joined = "SELECT array_join(array(1, null, 2), ',', '?'), array_join(array(1.50, 2), ' '), array_join(array(true), '-')"
    assert db.query(joined) == [("1,?,2", "1.50 2.00", "true")]
    with pytest.raises(TypeClash, match="array_join takes ARRAY<STRING>, not ARRAY<BINARY>"):
        db.query("SELECT array_join(array(X'1F'), ',')")
    null = "CAST(NULL AS DOUBLE)"
    assert db.query(f"SELECT format_string('%.2f|%5.1f|%d', {null}, {null}, CAST(NULL AS INT))") == [("nu|    n|null",)]
