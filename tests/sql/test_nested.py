"""Columns of ARRAY, STRUCT, MAP, BINARY and INTERVAL: every way in and out, equality, order, and maintained views over them."""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rederive
from rederive.arrow_types import from_arrow_column, to_arrow_column
from rederive.client.json_rows import JsonObject, json_row
from rederive.errors import EvaluationError, IllTypedRow, RederiveError, TypeClash, Unsupported
from rederive.ir.nested import Array, Map, struct
from rederive.service.http.row_formats import VersionedRows, as_arrow, as_csv, as_json
from rederive.store.codec import decode_relation, decode_rows, encode_columns, encode_rows
from rederive.values import column_value, from_json, from_text
from tests.selection import fast_only

TABLE = """CREATE TABLE t (k INT PRIMARY KEY, a ARRAY<INT>, s STRUCT<x: INT, y: ARRAY<STRING>>, m MAP<STRING, DOUBLE>,
    b BINARY, i INTERVAL DAY TO SECOND)"""
ROWS: list[tuple[Any, ...]] = [
    (1, [1, 2, None], {"x": 1, "y": ["a", None]}, {"p": 1.5, "q": None}, b"\x00\xff", timedelta(days=1, hours=2)),
    (2, [], (None, None), {}, b"", timedelta(microseconds=-1)),
    (3, None, None, None, None, None),
    (4, [3], {"x": 1, "y": []}, {"q": 0.0}, b"abc", timedelta()),
]


def opened(**options: Any) -> rederive.Database:
    db = rederive.open(**options)
    db.sql(TABLE)
    with db.transaction() as tx:
        tx.insert("t", ROWS)
    return db


# In and out


def test_rows_of_python() -> None:
    db = opened()
    names = ("x", "y")
    assert db.rows("t")[0] == (
        1, Array((1, 2, None)), struct(names, (1, ("a", None))), Map((("p", 1.5), ("q", None))), b"\x00\xff", timedelta(1, 7200),
    )  # fmt: skip
    assert repr(db.rows("t")[0][2:4]) == "(Struct(x=1, y=('a', None)), Map({'p': 1.5, 'q': None}))"
    assert pickle.loads(pickle.dumps(db.rows("t"))) == db.rows("t")


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("a", [2**31], "out of range for an integer of 32 bits"),
        ("a", ["x"], '"x" is not a number'),
        ("a", "text", "is not a array"),
        ("s", {"z": 1}, "has no field 'z'"),
        ("s", [1], "has 2 fields, not 1"),
        ("m", {None: 1.0}, "null is not a key"),
        ("m", [("a", 1.0), ("a", 2.0)], "two equal keys"),
        ("b", "?", "not text in base64"),
        ("i", "soon", "not an interval"),
    ],
)
def test_what_does_not_fit(column: str, value: Any, reason: str) -> None:
    db = rederive.open()
    db.sql(TABLE)
    row = {"k": 1, "a": None, "s": None, "m": None, "b": None, "i": None, column: value}
    with pytest.raises(IllTypedRow, match=reason), db.transaction() as tx:
        tx.insert("t", [row])


def test_json_csv_and_arrow() -> None:
    db = opened()
    relation, rows = db.pipeline.state.program.relations["t"], db.rows("t")
    answer = VersionedRows(1, relation, rows)
    shown = json.loads(as_json(answer))["rows"]
    assert shown[0][1:] == [
        [1, 2, None], {"x": 1, "y": ["a", None]}, {"p": 1.5, "q": None}, "AP8=", "INTERVAL '1 02:00:00' DAY TO SECOND",
    ]  # fmt: skip
    back = [tuple(column_value(v, c, from_json) for v, c in zip(row, relation.columns, strict=True)) for row in shown]
    assert back == rows
    line = as_csv(answer).decode().splitlines()[1]
    assert line.startswith('1,"[1,2,null]","{""x"":1,""y"":[""a"",null]}"')
    assert from_text('{"p":1.5,"q":null}', relation.columns[3].type) == rows[0][3]
    table = pa.ipc.open_stream(as_arrow(answer)).read_all()
    assert [str(field.type) for field in table.schema][1:4] == [
        "list<element: int32>", "struct<x: int32, y: list<element: string>>", "map<string, double>",
    ]  # fmt: skip
    with db.transaction() as tx:
        tx.delete("t", table)
    assert db.rows("t") == []
    with db.transaction() as tx:
        tx.insert("t", table)
    assert db.rows("t") == rows
    assert json_row(shown[0])[2] == JsonObject(x=1, y=("a", None))


def test_the_journal_and_arrow_hold_every_value() -> None:
    db = opened()
    relation = db.pipeline.state.program.relations["t"]
    assert decode_rows(encode_rows(db.rows("t")), relation) == db.rows("t")
    assert decode_relation("t", encode_columns(relation)).columns == relation.columns
    for i, type in enumerate(relation.types):
        column = [row[i] for row in db.rows("t")]
        assert from_arrow_column(to_arrow_column(column, type), type) == column
    # There is one zero, also inside of arrays.
    assert encode_rows([(Array((-0.0,)),)]) == "[[[0.0]]]"


def test_a_store_is_reopened(tmp_path: Path) -> None:
    db = opened(store=tmp_path / "s")
    db.sql("CREATE VIEW v AS SELECT k, s.y AS y, map_keys(m) AS ks FROM t WHERE exists(a, x -> x > 1)")
    rows, found = db.rows("t"), db.rows("v")
    db.close()
    db = rederive.open(tmp_path / "s")
    assert (db.rows("t"), db.rows("v")) == (rows, found)
    (result,) = db.sql("UPDATE t SET a = array_append(a, 9), i = i * 2 WHERE k = 2")
    assert list(result.changes["v"].plus) == [(2, None, ())]
    db.close()


def test_a_struct_and_an_array_can_be_a_key() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (p STRUCT<x: INT, y: INT> PRIMARY KEY, n INT); INSERT INTO t VALUES (struct(1, 2), 1)")
    with pytest.raises(RederiveError):
        db.sql("INSERT INTO t VALUES (struct(1, 2), 2)")
    db.sql("UPDATE t SET n = 5 WHERE p = named_struct('x', 1, 'y', 2)")
    assert db.rows("t") == [((1, 2), 5)]


def test_tables_are_shown_as_they_are_declared() -> None:
    db = rederive.open()
    db.sql(TABLE)
    (shown,) = db.sql("SHOW CREATE TABLE t")
    text = str(shown.answer.rows[0][0])  # type: ignore[union-attr]
    assert "STRUCT<x: INT, y: ARRAY<STRING>>" in text
    assert "INTERVAL DAY TO SECOND" in text


# Equality and order


def test_null_inside_is_equal_to_null_and_less_than_all_values() -> None:
    db = opened()
    assert db.query("SELECT s.x, count(*) FROM t GROUP BY s.x") == [(None, 2), (1, 2)]
    assert db.query("SELECT DISTINCT struct(s.x AS x) AS p FROM t") == [((None,),), ((1,),)]
    assert db.query("SELECT k FROM t WHERE a > array(1, 2)") == [(1,), (4,)]
    assert db.query("SELECT array(1, NULL) = array(1, NULL) AS e, array(1, NULL) < array(1, 0) AS l") == [(True, True)]
    assert db.query("SELECT k FROM t ORDER BY a NULLS LAST, k LIMIT 2") == [(1,), (2,)]
    assert db.query("SELECT max(a) AS x, min(s) AS y FROM t") == [((3,), (None, None))]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT m FROM t", "SELECT count(*) FROM t GROUP BY m", "SELECT k FROM t WHERE m = m", "SELECT max(m) FROM t",
        "SELECT k FROM t WHERE m IN (map('a', 1D))", "SELECT m FROM t UNION SELECT m FROM t",
        "SELECT k FROM t ORDER BY m LIMIT 1",
        "SELECT t.k FROM t JOIN t AS u USING (m)", "SELECT array_distinct(array(m)) FROM t", "SELECT collect_set(m) FROM t",
        "SELECT row_number() OVER (PARTITION BY m ORDER BY k) FROM t",
    ],
)  # fmt: skip
def test_maps_cannot_be_compared(query: str) -> None:
    db = rederive.open()
    db.sql(TABLE)
    with pytest.raises(TypeClash, match="cannot be compared or grouped"):
        db.query(query)


def test_the_order_of_the_entries_of_a_map_counts() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (m MAP<STRING, INT>); INSERT INTO t VALUES (map('b', 1, 'a', 2)), (map('a', 2, 'b', 1))")
    assert sorted(db.query("SELECT map_keys(m) AS k FROM t")) == [(("a", "b"),), (("b", "a"),)]


# Expressions


def test_names_of_fields() -> None:
    db = opened()
    db.sql("CREATE TABLE s (x INT PRIMARY KEY); INSERT INTO s VALUES (7)")
    assert db.query("SELECT t.s.x, T.S.Y[0] AS y, s.* FROM t WHERE k = 1") == [(1, "a", 1, ("a", None))]
    # A source comes before a column of the same name.
    assert db.query("SELECT s.x FROM s") == [(7,)]
    with pytest.raises(RederiveError, match="unknown field 'z'"):
        db.query("SELECT t.s.z FROM t")
    with pytest.raises(TypeClash, match="INT has no field 'z'"):
        db.query("SELECT k.z FROM t")


def test_a_predicate_about_the_function_exists() -> None:
    """Found: `exists(array, test) IS TRUE` was read as EXISTS (query), which takes no predicate."""
    db = opened()
    query = "SELECT k FROM t WHERE exists(a, e -> e > 2) {} AND NOT EXISTS (SELECT 1 FROM t AS o WHERE o.k > t.k + 2)"
    assert [db.query(query.format(test)) for test in ("IS TRUE", "= false", "IS NULL")] == [[(4,)], [(2,)], [(3,)]]


def test_lambdas_capture_columns_and_parameters() -> None:
    db = opened()
    assert db.query("SELECT transform(a, x -> transform(array(x, k), y -> x * 10 + y + k)) AS r FROM t WHERE k = 4") == [
        (((37, 38),),)]  # fmt: skip
    assert db.query("SELECT k FROM t WHERE exists(a, x -> x = k)") == [(1,)]
    assert db.query("SELECT aggregate(collect_list(k), CAST(0 AS INT), (s, x) -> s + x) + count(*) AS n FROM t") == [(14,)]
    with pytest.raises(RederiveError, match="has 1 parameter, not 3"):
        db.query("SELECT filter(a, (x, y, z) -> true) FROM t")
    with pytest.raises(Unsupported, match="a lambda here"):
        db.query("SELECT upper(x -> x) FROM t")
    with pytest.raises(TypeClash, match="gives BIGINT, but its start is INT"):
        db.query("SELECT aggregate(array(1L), 0, (s, x) -> s + x)")


def test_lambdas_of_update_delete_and_generated_columns_capture_the_row() -> None:
    db = rederive.open()
    db.sql(
        "CREATE TABLE t (x INT PRIMARY KEY, y INT, z INT GENERATED ALWAYS AS (element_at(transform(array(x), c1 -> c1 + y), 1)))"
    )
    db.sql("INSERT INTO t (x, y) VALUES (1, 2), (4, 3), (5, 9)")
    assert db.rows("t") == [(1, 2, 3), (4, 3, 7), (5, 9, 14)]
    # The parameter is not the column of the row whose variable has that name.
    db.sql("UPDATE t SET y = element_at(transform(array(x), c1 -> c1 * 10 + y), 1) WHERE exists(array(x, y), e -> e < y)")
    assert db.rows("t") == [(1, 12, 13), (4, 3, 7), (5, 59, 64)]
    db.sql("DELETE FROM t WHERE size(filter(array(x, y), e -> e > y)) > 0")
    assert db.rows("t") == [(1, 12, 13), (5, 59, 64)]


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ('{"x":1,"x":2}', "MAP<STRING, INT>"),
        ('{"t":99999999999999}', "t TIMESTAMP"),
        ('{"d":"20240229"}', "d DATE"),
    ],
)
def test_json_whose_value_in_spark_is_none_of_ours_is_refused(text: str, schema: str) -> None:
    db = rederive.open()
    with pytest.raises(EvaluationError):
        db.query(f"SELECT from_json('{text}', '{schema}')")
    assert db.query("SELECT from_json('{\"d\":\"2024-2\"}', 'd DATE').d") == [(date(2024, 2, 1),)]


def test_a_lambda_is_evaluated_where_a_filter_guards_it() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, a ARRAY<INT>); INSERT INTO t VALUES (1, array(2)), (2, array(0))")
    db.sql("CREATE VIEW v AS SELECT k, transform(a, x -> 10 div x) AS r FROM t WHERE k < 2")
    assert db.rows("v") == [(1, (5,))]
    with pytest.raises(EvaluationError, match="division by zero"):
        db.sql("INSERT INTO t VALUES (0, array(1, 0))")


def test_collected_values_are_in_order() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (g INT, x INT);CREATE VIEW v AS SELECT g, collect_list(x) AS l, collect_set(x) AS s FROM t GROUP BY g")
    db.sql("INSERT INTO t VALUES (1, 3), (1, 1), (1, 3), (1, NULL), (2, NULL)")
    assert db.rows("v") == [(1, (1, 3, 3), (1, 3)), (2, (), ())]
    (result,) = db.sql("DELETE FROM t WHERE x = 3")
    assert list(result.changes["v"].plus) == [(1, (1,), (1,))]
    assert db.query("SELECT array_agg(x) FILTER (WHERE x > 9) AS a, collect_list(DISTINCT x) AS b FROM t") == [((), (1,))]


# Maintained views

VIEWS = {
    "exploded": "SELECT k, x FROM t LATERAL VIEW explode(a) e AS x",
    "outer_exploded": "SELECT k, p, x FROM t LATERAL VIEW OUTER posexplode(a) e AS p, x",
    "entries": "SELECT k, key, value FROM t LATERAL VIEW explode(m) e WHERE value > 0",
    "stacked": "SELECT k, stack(2, 'n', size(a), 'k', k) AS (c, v) FROM t",
    "inlined": "SELECT k, x, y FROM t LATERAL VIEW inline(array(s, named_struct('x', k, 'y', array('z')))) e AS x, y",
    "counted": "SELECT x, count(*) AS n, collect_set(k) AS ks FROM t, LATERAL explode(a) AS e(x) GROUP BY x",
    "subquery": "SELECT t.k, u.n FROM t, LATERAL (SELECT count(*) AS n FROM t AS o WHERE o.k < t.k) u",
    "left_lateral": "SELECT t.k, u.j FROM t LEFT JOIN LATERAL (SELECT o.k AS j FROM t AS o WHERE o.a = t.a AND o.k <> t.k) u",
    "correlated": "SELECT k, (SELECT max(x) FROM explode(t.a) AS e(x)) AS m FROM t",
    "ranged": "SELECT k, id FROM t JOIN range(4) ON id < size(a)",
    "mapped": "SELECT k, transform(a, (x, i) -> x + i) AS f, map_filter(m, (n, v) -> v > 0) AS p, s.x FROM t",
    "grouped": "SELECT s, collect_list(a) AS l, sum(k) AS n FROM t GROUP BY s",
    "distinct_arrays": "SELECT DISTINCT a FROM t",
    "joined": "SELECT t.k, o.k AS j FROM t JOIN t AS o ON t.a = o.a AND t.k < o.k",
    "intervals": "SELECT k, i + INTERVAL 1 HOUR AS i, i > INTERVAL 1 DAY AS l FROM t",
}


def some_row(chosen: random.Random, k: int) -> tuple[Any, ...]:
    def maybe(value: Any) -> Any:
        return None if chosen.random() < 0.2 else value

    array = [maybe(chosen.randrange(3)) for _ in range(chosen.randrange(6))]
    struct_ = {"x": maybe(chosen.randrange(2)), "y": maybe(["a"] * chosen.randrange(2))}
    entries = {name: maybe(float(chosen.randrange(3))) for name in "abc" if chosen.random() < 0.5}
    return (
        k,
        maybe(array),
        maybe(struct_),
        maybe(entries),
        maybe(bytes([chosen.randrange(3)])),
        maybe(timedelta(chosen.randrange(3))),
    )


@pytest.mark.parametrize("strategy", fast_only(("materialized", "on_demand", "recompute"), "materialized"))
def test_views_are_maintained(strategy: str) -> None:
    chosen = random.Random(7)
    db = rederive.open(strategy=strategy)
    db.sql(TABLE)
    for name, query in VIEWS.items():
        db.sql(f"CREATE VIEW {name} AS {query}")
    for _ in range(5):
        with db.transaction() as tx:
            for k in chosen.sample(range(5), 2):
                old = [row for row in db.rows("t") if row[0] == k]
                tx.delete("t", old)
                if chosen.random() < 0.7:
                    tx.insert("t", [some_row(chosen, k)])
    fresh = rederive.open(strategy="recompute")
    fresh.sql(TABLE)
    with fresh.transaction() as tx:
        tx.insert("t", db.rows("t"))
    for name, query in VIEWS.items():
        assert bag(db, name) == Counter(fresh.query(query)), name


def bag(db: rederive.Database, view: str) -> Counter[Any]:
    return Counter(db.query(f"SELECT * FROM {view}"))


def test_positions_double_in_each_round() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (n INT PRIMARY KEY)")
    db.sql("CREATE VIEW v AS SELECT count(*) AS c, sum(x) AS s FROM t LATERAL VIEW explode(sequence(1, n)) e AS x")
    db.sql("INSERT INTO t VALUES (1000), (1)")
    assert db.rows("v") == [(1001, 500501)]


def test_decimals_and_dates_inside() -> None:
    db = rederive.open()
    db.sql("CREATE TABLE t (k INT PRIMARY KEY, p ARRAY<STRUCT<d: DATE, n: DECIMAL(9,2)>>)")
    row: tuple[Any, ...] = (1, [{"d": date(2026, 1, 2), "n": Decimal("1.5")}, None])
    with db.transaction() as tx:
        tx.insert("t", [row])
    assert db.query("SELECT p.n AS n, to_json(p) AS j FROM t") == [
        ((Decimal("1.50"), None), '[{"d":"2026-01-02","n":1.50},null]')]  # fmt: skip
