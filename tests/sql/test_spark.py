"""SQL on the Spark engine: every view and every change is the resident engine's, copy by copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rederive
from rederive.commit.transaction import requested_rows
from rederive.delta import sort_rows
from rederive.errors import EvaluationError
from rederive.ir.terms import Kind, Row
from tests.sql.grammar import RECURSIONS, TABLES, transaction, view
from tests.sql.test_differential import CHOSEN, Transactions
from tests.sql.tpch import QUERIES, Generator
from tests.sql.tpch import TABLES as TPCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = {Kind.NUMBER: "INT", Kind.SYMBOL: "STRING", Kind.DECIMAL: "DECIMAL(15,2)", Kind.DATE: "DATE"}
STEPS: Transactions = [
    [("insert", "t", (i, i % 3, "ab"[i % 2])) for i in range(4)] + [("insert", "t", (5, None, None))],
    [("insert", "u", (i % 3, i % 2, "ab"[i % 2])) for i in range(5)] + [("insert", "u", (None, 1, "a"))] * 2,
    [("insert", "w", (1, 2, None)), ("insert", "w", (0, 1, "b")), ("delete", "u", (None, 1, "a"))],
    [("delete", "t", (1, 1, "b")), ("delete", "u", (0, 0, "a")), ("insert", "u", (2, None, "a"))],
]


class Both:
    """The same statements on both engines."""

    def __init__(self, spark: SparkSession, strategy: str = "auto") -> None:
        self.databases = (rederive.open(strategy=strategy), rederive.open(strategy=strategy, engine="spark", spark=spark))

    def sql(self, text: str) -> None:
        told = [[shown(result) for result in db.sql(text)] for db in self.databases]
        assert told[0] == told[1]

    def commit(self, steps: Sequence[tuple[str, str, Row]]) -> None:
        told = []
        for db in self.databases:
            with db.transaction() as tx:
                for action, table, row in steps:
                    (tx.insert if action == "insert" else tx.delete)(table, [row])
            told.append(shown(tx.result))
        assert told[0] == told[1]

    def check(self, *names: str) -> None:
        for name in names:
            one, other = (db.rows(name) for db in self.databases)
            assert one == other


def shown(result: rederive.Result) -> dict[str, object]:
    return {view: (c.plus, c.minus, c.counts) for view, c in result.changes.items()}


def run(spark: SparkSession, views: Sequence[str], transactions: Transactions, strategy: str) -> None:
    both = Both(spark, strategy)
    for table in TABLES.values():
        both.sql(table.format(text="STRING"))
    for i, query in enumerate(views):
        both.sql(f"CREATE VIEW v{i} AS {query}")
    keys: dict[object, Row] = {}
    for steps in transactions:
        both.commit(feasible(steps, keys))
        both.check(*(f"v{i}" for i in range(len(views))))


def feasible(steps: Sequence[tuple[str, str, Row]], keys: dict[object, Row]) -> list[tuple[str, str, Row]]:
    """A row of `t` replaces the one with its key."""
    done: list[tuple[str, str, Row]] = []
    for action, table, row in steps:
        if table == "t":
            old = keys.pop(row[0], None)
            done += [("delete", "t", old)] if old is not None else []
            if action == "delete":
                continue
            keys[row[0]] = row
        done.append((action, table, row))
    return done


TABLES_SOLD = """
CREATE TABLE sold (item STRING NOT NULL, n INT, price DECIMAL(10, 2), on_day DATE);
CREATE TABLE item (name STRING PRIMARY KEY, kind STRING);
"""
VIEWS = {
    "priced": """
        SELECT item, CASE WHEN n IS NULL THEN 'none' ELSE upper(substring(item, -2)) END AS c, n * price AS total,
               date_add(on_day, n) AS due, CAST(price AS INT) AS whole FROM sold WHERE coalesce(n, 1) / 2 > 0.4""",
    "kinds": """
        SELECT kind, count(*) AS rows, count(n) AS n, sum(n) AS s, avg(price) AS mean, sum(price) AS p,
               count(DISTINCT price) AS d FROM sold LEFT JOIN item ON name = item GROUP BY kind""",
    "best": "SELECT item, price FROM sold ORDER BY price DESC NULLS LAST, item LIMIT 2",
    "ranked": """
        SELECT item, price, row_number() OVER (PARTITION BY item ORDER BY price) AS r,
               lag(n) OVER (PARTITION BY item ORDER BY price) AS before,
               sum(price) OVER (PARTITION BY item) AS total FROM sold""",
}


@pytest.mark.parametrize(
    "name", ["priced", *(pytest.param(name, marks=pytest.mark.slow) for name in ("best", "kinds", "ranked"))]
)
def test_nulls_bags_decimals_functions_aggregates_and_windows(spark: SparkSession, name: str) -> None:
    both = Both(spark)
    both.sql(f"{TABLES_SOLD} CREATE VIEW {name} AS {VIEWS[name]}")
    both.sql("""
        BEGIN;
        INSERT INTO item VALUES ('bolt', 'metal'), ('nut', NULL);
        INSERT INTO sold VALUES ('bolt', 1, 0.55, DATE'2024-02-29'), ('bolt', 1, 0.55, DATE'2024-02-29'),
          ('nut', NULL, 2.005, NULL), ('washer', 3, NULL, DATE'2024-12-31');
        COMMIT;
    """)
    both.sql("BEGIN; UPDATE sold SET price = 7 WHERE item = 'nut'; DELETE FROM item WHERE kind IS NULL; COMMIT")
    both.check("sold", "item", name)


def test_an_error_rejects_the_transaction_on_both_engines(spark: SparkSession) -> None:
    both = Both(spark)
    both.sql(
        "CREATE TABLE t (k INT PRIMARY KEY, n INT, s STRING); CREATE VIEW v AS SELECT k, 10 / n AS q FROM t WHERE n IS NOT NULL"
    )
    both.sql("INSERT INTO t VALUES (1, 5, 'x'), (2, NULL, 'y')")
    said = []
    for db in both.databases:
        with pytest.raises(EvaluationError) as refused:
            db.sql("INSERT INTO t VALUES (3, 0, 'z')")
        said.append(refused.value.message)
    assert said[0] == said[1]
    both.check("t", "v")


@pytest.mark.slow
@pytest.mark.parametrize("query", CHOSEN.values(), ids=CHOSEN)
def test_chosen_views(spark: SparkSession, query: str) -> None:
    run(spark, [query], STEPS, "auto")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["counting", "materialized", "on_demand", "filtration", "differencing", "recompute"])
def test_strategies(spark: SparkSession, strategy: str) -> None:
    names = ("full using", "not in under case", "group by expression", "limit inside", "correlated in select")
    run(spark, [CHOSEN[name] for name in names], STEPS, strategy)


@pytest.mark.slow
@pytest.mark.parametrize("query", RECURSIONS)
def test_recursions(spark: SparkSession, query: str) -> None:
    run(spark, [query], STEPS, "auto")


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_views(spark: SparkSession, data: st.DataObject) -> None:
    first = data.draw(view())
    views = [first, data.draw(view(("v0",)))] if data.draw(st.booleans()) else [first]
    run(
        spark,
        views,
        data.draw(st.lists(transaction(), min_size=1, max_size=3)),
        data.draw(st.sampled_from(["auto", "on_demand"])),
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3, 4, 13, 16, 22])
def test_tpch(spark: SparkSession, number: int) -> None:
    """After a refresh, the view on the Spark engine is what Spark answers to the query over the same rows."""
    db, generator = rederive.open(engine="spark", spark=spark), Generator(2, 40)
    db.sql(TPCH)
    rows = generator.base()
    db.pipeline.load(
        {table: requested_rows(db.pipeline.state.program.relations[table], members, "UTC") for table, members in rows.items()}
    )
    db.sql(f"CREATE VIEW q AS {QUERIES[number]}")
    new, old = [generator.order(1000 + i) for i in range(6)], rows["orders"][:8]
    with db.transaction() as tx:
        tx.insert("orders", [order for order, _ in new])
        tx.insert("lineitem", [item for _, items in new for item in items])
        tx.delete("orders", old)
        tx.delete("lineitem", [item for item in rows["lineitem"] if item[0] in {order[0] for order in old}])
    session = spark.newSession()
    for table in rows:
        columns = ", ".join(f"{c.name} {SPARK[c.type.kind]}" for c in db.pipeline.state.program.relations[table].columns)
        session.createDataFrame(db.rows(table), columns).createOrReplaceTempView(table)
    assert db.rows("q") == sort_rows(tuple(row) for row in session.sql(QUERIES[number]).collect())
