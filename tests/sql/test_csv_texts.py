"""CSV texts in expressions: what is refused by name, texts that have no answer, and views over them."""

from __future__ import annotations

from datetime import date, datetime

import pytest

import rederive
from rederive.errors import EvaluationError, TypeClash, Unsupported


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("from_csv('1', 'a INT', map('quote', '|'))", "the option 'quote' of from_csv"),
        ("from_csv('1', 'a INT', map('dateFormat', 'dd.MM.yyyy'))", "the option 'dateformat' of from_csv"),
        ("from_csv('1', 'a INT', map('mode', 'DROPMALFORMED'))", "the mode DROPMALFORMED of from_csv"),
        ("from_csv('1', 'a INT', map('sep', '||'))", "the separator '||' of from_csv"),
        ("from_csv('1', 'a INT', map('sep', '\"'))", "the separator '\"' of from_csv"),
        ("from_csv('1', 'a INT', map('sep', ';', 'SEP', ','))", "an option that is given twice"),
        ("from_csv('1', 'a INT', map('sep', concat(';', '')))", "an option that is not a literal"),
        ("from_csv('1', 'a INT', map_from_arrays(array('sep'), array(';')))", "options that are not a map of literals"),
        ("from_csv('1', 'a ARRAY<INT>')", "from_csv with the column 'a' of the type ARRAY<INT>"),
        ("from_csv('1', 'a INTERVAL DAY TO SECOND')", "from_csv with the column 'a' of the type INTERVAL DAY TO SECOND"),
        ("from_csv('1', 'a INT, _corrupt_record STRING')", "from_csv with the column '_corrupt_record'"),
        ("from_csv('1', 'a TIMESTAMP_NTZ')", "TIMESTAMP_NTZ in a schema"),
        ("from_json('{}', 'a ARRAY<TIMESTAMP_NTZ>')", "TIMESTAMP_NTZ in a schema"),
        ("to_csv(struct(1), map('mode', 'FAILFAST'))", "the option 'mode' of to_csv"),
        ("to_csv(struct(1), map('nullValue', ' '))", "a nullValue of to_csv that is white space"),
        ("to_csv(struct(array(1)))", "to_csv of the field 'col1' of the type ARRAY<INT>"),
        ("to_csv(struct(X'00'))", "to_csv of the field 'col1' of the type BINARY"),
        ("schema_of_csv('12:30')", "schema_of_csv of this text: the time '12:30' has no date"),
        ("schema_of_csv(concat('1', ''))", "a CSV text of schema_of_csv that is not a literal"),
    ],
)
def test_what_is_not_exact_is_refused_by_name(call: str, what: str) -> None:
    with rederive.open() as db, pytest.raises(Unsupported) as refused:
        db.query(f"SELECT {call}")
    assert what in str(refused.value)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        (r'"a"\\b', "STRING"),
        ("a\\0", "STRING"),
        ("a\\uffffb", "STRING"),
        ("0x1p3", "DOUBLE"),
        ("T12:30", "TIMESTAMP"),
        ("12345-01-01", "DATE"),
        ("12345-01-01", "TIMESTAMP"),
        ("999GMT99-01-01", "DATE"),
    ],
)
def test_a_text_that_spark_reads_in_its_own_way_fails(text: str, type: str) -> None:
    with rederive.open() as db, pytest.raises(EvaluationError):
        db.query(f"SELECT from_csv('{text}', 'a {type}')")


def test_white_space_that_separates_does_not_follow_a_quote() -> None:
    with rederive.open() as db:
        with pytest.raises(EvaluationError, match="separator that is white space"):
            db.query("SELECT from_csv('\"a\"\\tb', 'a STRING, b STRING', map('sep', ' '))")
        assert db.query("SELECT from_csv('\"a\" b', 'a STRING, b STRING', map('sep', ' ')).b") == [("b",)]


def test_csv_functions_take_structs() -> None:
    with rederive.open() as db:
        with pytest.raises(TypeClash, match="from_csv gives a struct, not INT"):
            db.query("SELECT from_csv('1', 'INT')")
        with pytest.raises(TypeClash, match="to_csv takes a struct, not ARRAY<INT>"):
            db.query("SELECT to_csv(array(1))")


def test_a_view_over_csv_texts_is_maintained() -> None:
    with rederive.open(zone="Europe/Berlin") as db:
        db.sql("CREATE TABLE line (n INT PRIMARY KEY, text STRING)")
        db.sql("CREATE VIEW sale AS SELECT n, s.* FROM (SELECT n, from_csv(text, 'at TIMESTAMP, paid INT') AS s FROM line)")
        db.sql("CREATE VIEW total AS SELECT sum(paid) AS paid FROM sale")
        db.sql("CREATE VIEW back AS SELECT n, to_csv(struct(at, paid), map('sep', ';', 'nullValue', '-')) AS text FROM sale")
        db.sql("INSERT INTO line VALUES (1, '2024-07-01 12:00:00,5'), (2, '2024-07-01T00:00:00Z,x'), (3, NULL)")
        assert db.rows("sale") == [(1, datetime(2024, 7, 1, 10), 5), (2, datetime(2024, 7, 1), None), (3, None, None)]
        assert db.rows("back") == [(1, "2024-07-01T12:00:00.000+02:00;5"), (2, "2024-07-01T02:00:00.000+02:00;-"), (3, "-;-")]
        db.sql("UPDATE line SET text = ',7' WHERE n = 2")
        assert db.rows("total") == [(12,)]


# Intervals of parts


def test_intervals_of_parts_are_added_to_columns() -> None:
    with rederive.open() as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, d DATE, m INT); INSERT INTO t VALUES (1, DATE '2024-01-31', 1), (2, NULL, 1)")
        db.sql("CREATE VIEW v AS SELECT k, d + make_ym_interval(0, m) AS a, d - make_interval(m, 0, m) AS b FROM t")
        assert db.rows("v") == [(1, date(2024, 2, 29), date(2023, 1, 24)), (2, None, None)]
        db.sql("CREATE VIEW g AS SELECT d, d + make_interval(0, sum(m), 0, max(m)) AS e FROM t GROUP BY d HAVING d IS NOT NULL")
        assert db.rows("g") == [(date(2024, 1, 31), date(2024, 3, 1))]
        assert db.query("SELECT d + make_ym_interval((SELECT max(m) FROM t)) AS e FROM t WHERE k = 1") == [(date(2025, 1, 31),)]


def test_an_interval_of_parts_follows_the_clocks_of_its_zone() -> None:
    with rederive.open(zone="Europe/Berlin") as db:
        query = "SELECT TIMESTAMP '2024-02-29 12:00:00' + make_interval(0, 1, 0, 2, 1)"
        assert db.query(query) == [(datetime(2024, 3, 31, 11),)]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT make_interval(1)", "make_interval"),
        ("SELECT make_ym_interval(1)", "make_ym_interval"),
        ("SELECT DATE '2024-01-01' + make_interval(0, 0, 0, 0, 1)", "DATE and make_interval with a time of day"),
        ("SELECT '2024-01-01' + make_interval(0, 0, 0, 1)", "STRING and make_interval"),
        ("SELECT now() + 2 * make_interval(1)", "make_interval"),
        ("SELECT DATE '2024-01-01' + 2 * make_interval(1)", "a multiple of this interval"),
        ("SELECT DATE '2024-01-01' + (make_interval(1) + INTERVAL 1 DAY)", "a sum of make_interval and another interval"),
        ("SELECT sequence(DATE '2024-01-01', DATE '2024-02-01', make_interval(0, 0, 0, 1))", "a step of several units"),
    ],
)
def test_an_interval_of_parts_is_only_added_to_a_time(query: str, what: str) -> None:
    with rederive.open() as db, pytest.raises(Unsupported) as refused:
        db.query(query)
    assert what in str(refused.value)
