"""What a statement says is read, or it is refused by name: no part of it and no argument is ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from sqlglot import exp

import rederive
from rederive.errors import RederiveError, SyntaxProblem, TypeClash, Unsupported, WrongArity
from rederive.ir.rules import Program
from rederive.lang.sql.ddl import add_definition, definition_of
from rederive.lang.sql.functions import FUNCTIONS
from rederive.lang.sql.invocation import AGGREGATES
from rederive.lang.sql.parser import ParsedStatement, parse
from rederive.lang.sql.supported_syntax import PARTS, unsupported_parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
CREATE TABLE s (id INT PRIMARY KEY COMMENT 'c', d BOOLEAN, t STRING NOT NULL, day DATE, at TIMESTAMP) COMMENT 'c';
CREATE TABLE b (a INT, d BOOLEAN, n DECIMAL(10, 2), PRIMARY KEY (a));
"""
# Together they hold every kind of node that the lowering takes.
QUERIES = (
    "WITH q(x) AS (SELECT id FROM s) SELECT q.x AS y, * EXCEPT (id, t) FROM q JOIN s ON x = s.id LEFT JOIN b USING (d)",
    "WITH RECURSIVE r AS (SELECT a FROM b UNION SELECT a + 1 FROM r WHERE a < 5) SELECT a FROM r",
    "(SELECT a FROM b ORDER BY a DESC NULLS FIRST LIMIT 2 OFFSET 1) UNION ALL SELECT id FROM s",
    "SELECT a FROM b INTERSECT SELECT id FROM s",
    "(SELECT a FROM b EXCEPT SELECT id FROM s) ORDER BY 1 LIMIT 3",
    "SELECT v.x FROM (VALUES (1, 'a'), (2, 'b')) AS v(x, y) LEFT ANTI JOIN b ON v.x = b.a",
    "SELECT DISTINCT d, count(*) FILTER (WHERE id > 1) AS n, any(d) AS o FROM s GROUP BY d HAVING sum(id) <> 3",
    "SELECT d, min(t) AS m FROM s GROUP BY ALL",
    "SELECT id, row_number() OVER (PARTITION BY d ORDER BY id) AS n FROM s",
    "SELECT id FROM s WHERE id BETWEEN 1 AND 5 AND NOT d AND t LIKE 'a%' AND t NOT ILIKE 'b' AND t RLIKE 'c'",
    "SELECT id FROM s WHERE id IN (1, 2) OR (id, t) IN (SELECT a, 'x' FROM b) OR d IS NULL OR d <=> true",
    "SELECT id FROM s WHERE EXISTS (SELECT 1 FROM b WHERE b.a = s.id) AND id >= 1 AND id <= 5 AND id < 9 AND -id = -1",
    "SELECT id FROM s WHERE d IS DISTINCT FROM false",
    "SELECT CASE id WHEN 1 THEN 'a' ELSE 'b' END AS c, CAST(t AS DECIMAL(5, 2)) AS n, TRY_CAST(t AS INT) AS i FROM s",
    "SELECT t || 'x' || 'y' 'z' AS c, id + 1 - 2 * 3 / 4 AS p, id % 2 AS m, id div 2 AS v FROM s",
    "SELECT day + INTERVAL 1 DAY AS d, extract(YEAR FROM day) AS y, at AS z, NULL AS n FROM s",
    "SELECT trim(LEADING FROM t) AS a, substring(t FROM 2 FOR 3) AS b, position('a' IN t) AS c, abs(id) AS e FROM s",
    "SELECT id FROM s NATURAL JOIN b WHERE a IS DISTINCT FROM 1",
    "SELECT id & 1 | 2 ^ 3 AS b, ~id AS n, id << 1 >> 2 AS s, t LIKE 'a' ESCAPE '/' AS l FROM s",
    "SELECT at + INTERVAL '1 02' DAY TO HOUR AS z FROM s",
    "SELECT window(at, '1 hour').start AS z FROM s WHERE day > current_date GROUP BY window(at, '1 hour')",
    "SELECT id FROM s WHERE at < current_timestamp",
    "SELECT id, sum(id) OVER w AS n FROM s QUALIFY n > 1 WINDOW w AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
    "SELECT id, lag(id) IGNORE NULLS OVER (ORDER BY id) AS n, lead(id) RESPECT NULLS OVER (ORDER BY id) AS m FROM s",
    "SELECT d, t, count(*) AS n FROM s GROUP BY GROUPING SETS ((d, t), (d)), ROLLUP (day), CUBE (at)",
    "SELECT d, count(*) AS n FROM s GROUP BY d WITH ROLLUP",
    "SELECT d, count(*) AS n FROM s GROUP BY d WITH CUBE",
    "SELECT d, count(*) AS n FROM s GROUP BY d, t GROUPING SETS ((d), ())",
    "SELECT p.* FROM s PIVOT (count(id) FOR t IN ('a' AS x, 'b')) AS p",
    "SELECT * FROM (SELECT a, n FROM b) UNPIVOT INCLUDE NULLS (v FOR m IN (n AS i))",
    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY id) AS p FROM s",
    "SELECT split(t, ',')[0] AS f, e.x FROM s LATERAL VIEW OUTER explode(split(t, ',')) e AS x",
    "SELECT posexplode(split(t, ',')) AS (p, x) FROM s",
    "SELECT transform(split(t, ','), x -> length(x)) AS l, X'00' AS b FROM s",
)
STATEMENTS = (
    "CREATE TABLE r (x INT NOT NULL PRIMARY KEY) USING remote OPTIONS (rows 10)",
    *(statement for statement in TABLES.split(";") if statement.strip()),
    *(f"CREATE VIEW v{i} AS {query}" for i, query in enumerate(QUERIES)),
    "CREATE OR REPLACE TEMPORARY VIEW v (x) AS SELECT 1",
    "CREATE MATERIALIZED VIEW v AS SELECT 1 AS x",
    "DROP VIEW IF EXISTS v",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "INSERT INTO b (a) VALUES (1)",
    "WITH q AS (SELECT 1 AS a) INSERT OVERWRITE b BY NAME SELECT a FROM q",
    "INSERT INTO b REPLACE WHERE a > 1 VALUES (2, true, 1)",
    "INSERT INTO b PARTITION (a = 1) VALUES (true, 1)",
    "UPDATE b SET d = s.d FROM s WHERE b.a = s.id",
    "MERGE INTO b USING s ON b.a = s.id WHEN MATCHED AND s.d THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = 1",
    "TRUNCATE TABLE b",
    "CREATE TABLE x USING DELTA LOCATION 'x'",
    "CREATE TABLE x (a INT DEFAULT 1, c INT CHECK (c > 0), d INT GENERATED ALWAYS AS (a + 1), "
    "UNIQUE (a, c), CONSTRAINT f FOREIGN KEY (a) REFERENCES b)",
    "ALTER TABLE b ADD COLUMNS (x INT AFTER a)",
    "ALTER TABLE b ADD CONSTRAINT p CHECK (a > 0)",
    "ALTER TABLE b RENAME COLUMN d TO e",
    "ALTER TABLE b ALTER COLUMN d SET NOT NULL",
    "COMMENT ON TABLE b IS 'c'",
    "REFRESH TABLE b",
    "DESCRIBE TABLE EXTENDED b",
    "UPDATE b SET a = 1 WHERE a = 2",
    "DELETE FROM b WHERE a = 2",
    "SELECT a FROM b WHERE a = ALL (SELECT 1)",
)
ELSEWHERE = {exp.IndexParameters}  # in a tree only where it is empty


def kinds(root: type[exp.Expr]) -> Iterator[type[exp.Expr]]:
    for kind in root.__subclasses__():
        yield kind
        yield from kinds(kind)


def trees() -> list[ParsedStatement]:
    return [parsed for statement in STATEMENTS for parsed in parse(statement)]


def test_the_statements_hold_every_kind_of_node_that_is_taken() -> None:
    found = {type(node) for parsed in trees() for node in parsed.tree.walk()}
    assert set(PARTS) - ELSEWHERE - found == set()


@pytest.mark.parametrize("kind", PARTS, ids=lambda kind: kind.__name__)
def test_a_part_that_is_not_read_is_refused_wherever_it_is_set(kind: type[exp.Expr]) -> None:
    for parsed in trees():
        for node in parsed.tree.find_all(kind):
            if type(node) is not kind or node.find_ancestor(exp.Hint):
                continue
            for part in set(kind.arg_types) - PARTS[kind]:
                before = node.args.get(part)
                for value in (exp.Var(this="x"), "x", [exp.Var(this="x")]):
                    node.set(part, value)
                    assert next(unsupported_parts(parsed.tree), None) is not None, (kind, part)
                node.set(part, before)
        assert next(unsupported_parts(parsed.tree), None) is None


def test_every_other_kind_of_node_is_refused() -> None:
    others = {kind for kind in kinds(exp.Expr) if kind not in PARTS and kind is not exp.Hint}
    assert len(others) > 500
    for kind in others:
        assert next(unsupported_parts(exp.Paren(this=kind())), None) is not None, kind


# What is read

MEANINGLESS = {  # parts that a query means the same without, here
    ("Column", "table"),  # the name is not ambiguous
    ("Identifier", "this"),  # of such a table
    ("Intersect", "distinct"),
    ("Except", "distinct"),
    ("Join", "side"),  # an ANTI JOIN is a LEFT one
    ("Window", "over"),
    ("Pivot", "columns"),
    ("Pivot", "pivot_column_naming"),
    ("Lateral", "view"),  # only LATERAL VIEW is among the laterals
    ("Select", "expressions"),  # of EXISTS
}


def lowered(parsed: ParsedStatement, known: Program) -> object:
    """What a definition adds to a program; or the error, where a tree lacks what it needs."""
    try:
        found = add_definition(known, definition_of(parsed))
    except Exception as error:
        return repr(error)
    added = [str(one) for one in found.definitions[len(known.definitions) :]]
    return added, [(r.columns, r.key) for r in found.relations.values()]


@pytest.mark.parametrize("query", QUERIES)
def test_a_part_that_is_listed_is_read(query: str) -> None:
    """Without it the same rules would come out, if nobody read it."""
    db = rederive.open()
    db.sql(TABLES)
    (parsed,) = parse(f"CREATE VIEW v AS {query}")
    whole = lowered(parsed, db.pipeline.state.program)
    assert isinstance(whole, tuple), whole
    for node in list(parsed.tree.walk()):
        for part in PARTS[type(node)]:
            before = node.args.get(part)
            if before in (None, False, []) or (type(node).__name__, part) in MEANINGLESS:
                continue
            node.set(part, None)
            assert lowered(parsed, db.pipeline.state.program) != whole, (type(node), part)
            node.args[part] = before


# What is said to whoever writes it


REFUSED = {
    "SELECT regexp_like(t, 'p', 'i') FROM s": "'regexp_like' takes 2 arguments, not 3",
    "SELECT s.id FROM s ASOF JOIN b ON s.id = b.a": "an ASOF join",
    "SELECT id FROM s LIMIT 50 PERCENT": "PERCENT",
    "SELECT id FROM s FETCH FIRST 2 PERCENT ROWS ONLY": "FETCH",
    "SELECT id FROM s ORDER BY id FETCH NEXT ROW WITH TIES": "FETCH",
    "SELECT id FROM s WHERE id BETWEEN SYMMETRIC 3 AND 1": "BETWEEN SYMMETRIC",
    "SELECT id FROM s TABLESAMPLE (10 PERCENT)": "SAMPLE",
    "SELECT id FROM s VERSION AS OF 1": "VERSION",
    "SELECT sum(id) OVER (ORDER BY id GROUPS 1 PRECEDING) FROM s": "a frame other than ROWS and RANGE",
    "SELECT approx_count_distinct(id) FROM s": "'approx_count_distinct'",
    "SELECT approx_percentile(id, 0.5) FROM s": "'approx_percentile'",
    "SELECT abs(id AS x) FROM s": "id AS x in an expression",
    "SELECT abs(DISTINCT id) FROM s": "DISTINCT",
    "SELECT abs(id) FILTER (WHERE d) FROM s": "FILTER",
    "SELECT substring(t, 1, 2, 3) FROM s": "SUBSTRING",
    "SELECT if(d, 1, 2, 3) FROM s": "'if' takes 3 arguments, not 4",
    "SELECT charindex('a', t) FROM s": "'charindex'",
    "SELECT date_add(day, 1.5) FROM s": "needs a number of days as INT",
    "SELECT id FROM other.s": "a name with a schema",
    "SELECT * REPLACE (1 AS id) FROM s": "REPLACE",
    "VALUES (1), (2) LIMIT 1": "LIMIT in VALUES",
    "INSERT OR REPLACE INTO b VALUES (1, true, 1)": "INSERT OR",
    "DELETE FROM b WHERE a = 1 RETURNING a": "RETURNING",
    "DROP VIEW x, y": "several names",
    "DROP VIEW x CASCADE": "CASCADE",
    "BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE": "a transaction mode",
    "CREATE TABLE x (v CHAR(3))": "CHAR(3)",
    "CREATE TABLE x (v CHAR(2))": "CHAR(2)",
    "CREATE TABLE x (v CHAR)": "CHAR",
    "CREATE TABLE x (v INT(5))": "INT(5)",
    "CREATE TABLE x (v TIMESTAMP(3))": "TIMESTAMP",
    "CREATE TABLE x (v DECIMAL(5, 2, 1))": "DECIMAL(5, 2, 1)",
    "SELECT position('a', 'b', 1, 2)": "'position' takes 2 to 3 arguments, not 4",
    "SELECT position('a' IN)": "an argument is missing",
    "SELECT overlay('a' PLACING)": "an argument is missing",
    "CREATE TABLE x (v INT) USING csv": "USING",
    "CREATE TABLE x (v INT) PARTITIONED BY (w)": "PARTITIONED BY",
    "CREATE TEMPORARY TABLE x (v INT)": "temporary table",
    "CREATE VIEW x (y INT) AS SELECT id FROM s": "view's column",
    "SELECT v.x FROM (VALUES (1)) AS v(x DATE)": "in a column alias",
    "WITH q(x DATE) AS (SELECT id FROM s) SELECT x FROM q": "in a column alias",
    "SELECT FROM s": "SELECT without columns",
    "SELECT id, FROM s": "unexpected ','",
    "SELECT , id FROM s": "unexpected ','",
    "SELECT id FROM s WHERE id IN (1,, 2)": "unexpected ','",
    "SELECT CAST(t AS INT AS i FROM s": "a parenthesis is missing",
    "SELECT extract(YEAR FROM day AS y FROM s": "a parenthesis is missing",
    "SELECT t - 'x' AS c FROM s": "'-' does not accept STRING and STRING",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_a_statement_is_refused_by_name_and_place(statement: str) -> None:
    db = rederive.open()
    db.sql(TABLES)
    before = db.pipeline.state.program
    with pytest.raises((Unsupported, WrongArity, TypeClash, SyntaxProblem)) as refused:
        db.query(statement) if statement.startswith(("SELECT", "VALUES", "WITH")) else db.sql(statement)
    assert REFUSED[statement] in str(refused.value)
    assert ":1:" in str(refused.value)
    assert db.pipeline.state.program is before


def test_parentheses_do_not_hide_a_limit() -> None:
    db = rederive.open()
    db.sql(TABLES)
    db.sql("INSERT INTO b VALUES (1, true, 1), (2, true, 1)")
    assert db.query("SELECT a FROM b WHERE a IN ((SELECT a FROM b ORDER BY a) LIMIT 1)") == [(1,)]


# Of the first three Spark ignores what is behind the first argument; the others have forms that are refused here.
MORE_FORMS = (
    "hour", "minute", "second", "make_timestamp", "try_make_timestamp", "make_timestamp_ltz", "try_make_timestamp_ltz",
    "make_timestamp_ntz", "try_make_timestamp_ntz", "arrays_zip", "struct", "named_struct", "mode",
)  # fmt: skip


@pytest.mark.slow
def test_functions_take_as_many_arguments_as_spark_s(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    def takes(name: str, count: int) -> bool:
        try:
            spark.sql(f"SELECT {name}({', '.join(['NULL'] * count)})")
        except AnalysisException as error:
            return not any(one in str(error) for one in ("WRONG_NUM_ARGS", "UNRESOLVED_ROUTINE", "REQUIRED_PARAMETER_NOT_FOUND"))
        return True

    db = rederive.open()
    for name in (*FUNCTIONS, *AGGREGATES):
        for count in range(5):
            try:
                db.query(f"SELECT {name}({', '.join(['NULL'] * count)})")
            except WrongArity:
                assert name in MORE_FORMS or not takes(name, count), (name, count)
            except RederiveError:
                pass
            else:
                assert name == "product" or takes(name, count), (name, count)  # only PySpark's functions have it


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE VIEW v AS SELECT :p AS x", "a parameter"),
        ("CREATE VIEW v AS SELECT (id, t) AS x FROM s", "(id, t) in an expression"),
        ("CREATE VIEW v AS SELECT * FROM s TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("CREATE VIEW v AS s", "the name of a table as a query"),
        ("CREATE VIEW v AS FROM s |> TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
        ("CREATE TABLE x (a INT) PARTITIONED BY (b)", "PARTITIONED BY"),
        ("DELETE b WHERE a = 1", "DELETE without FROM"),
    ],
)
def test_the_words_of_a_refusal_are_those_of_sql(statement: str, what: str) -> None:
    db = rederive.open()
    db.sql(TABLES)
    with pytest.raises(Unsupported) as refused:
        db.sql(statement)
    assert refused.value.message == f"not supported: {what}"
