"""What is said about a text that is not SQL, or not supported: in words of SQL, never in names of the parser's classes."""

from __future__ import annotations

import pytest

import rederive
from rederive.errors import SyntaxProblem, Unsupported

NOT_SQL = {
    "SELECT id FROM t WHERE": "an expression is missing at 'WHERE'",
    "SELECT id FROM t WHERE v = = 1": "an expression is missing at '='",
    "SELECT v // 2 FROM t": "an expression is missing at '/'",
    "SELECT TOP 3 * FROM t": "unexpected '3'",
    "SELECT 'abc FROM t": "a text, a quoted name or a comment does not end",
    "SELECT CEIL(v TO DAY) FROM t": "expected )",
    "SELECT CASE END FROM t": "expected END after CASE",
    "FROM": "expected table name",
    "END": "the text is not a statement",
}
REFUSED = {
    "SELECT lag(v) FROM t": "'lag' without OVER",
    "WITH x AS MATERIALIZED (SELECT 1 AS a) SELECT * FROM x": "MATERIALIZED in WITH",
    "DESCRIBE HISTORY t": "HISTORY in DESCRIBE",
    "OPTIMIZE t": "the statement OPTIMIZE",
}


@pytest.fixture(scope="module")
def db() -> rederive.Database:
    found = rederive.open()
    found.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, s STRING)")
    return found


@pytest.mark.parametrize("text", [*NOT_SQL, *REFUSED])
def test_a_message_has_words_of_sql(db: rederive.Database, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(rederive.RederiveError) as raised:
        db.sql(text)
    message = str(raised.value)
    assert (NOT_SQL | REFUSED)[text] in message
    assert not any(word in message for word in ("sqlglot", "Token", "class "))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("source", ["USING u", "u dt", "USING u ON"])
def test_a_merge_without_a_condition_is_a_syntax_error(source: str) -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (x INT PRIMARY KEY); CREATE TABLE u (x INT PRIMARY KEY); CREATE TABLE dt (x INT PRIMARY KEY)")
    with pytest.raises(SyntaxProblem, match="MERGE has no condition"):
        db.sql(f"MERGE INTO t {source} WHEN MATCHED THEN DELETE")


@pytest.mark.parametrize(
    "text",
    ["SHOW DATABASES", "USE default", "SET x = 1", "RESET", "CACHE TABLE t", "UNCACHE TABLE t",
     "ANALYZE TABLE t COMPUTE STATISTICS", "OPTIMIZE t", "EXECUTE IMMEDIATE 'SELECT 1'", "LOAD DATA INPATH 'x' INTO TABLE t"],
)  # fmt: skip
def test_a_refused_statement_says_what_to_do(text: str) -> None:
    with rederive.open() as db, pytest.raises(Unsupported, match=f"the statement {text.split()[0]}") as refused:
        db.sql(text)
    assert refused.value.hint
