"""TPC-H's queries, maintained over refreshes: inserts and deletes of orders with their items, as the benchmark has them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import duckdb
import pytest

import rederive
from tests.duck import empty_duckdb, insert_rows
from tests.sql.tpch import QUERIES, TABLES, Generator, Row


def loaded(orders: int) -> tuple[rederive.Database, duckdb.DuckDBPyConnection, Generator, dict[str, list[Row]]]:
    db, duck, generator = rederive.open(), empty_duckdb(), Generator(2, orders)
    db.sql(TABLES)
    duck.execute(TABLES.replace("STRING", "VARCHAR"))
    rows = generator.base()
    for table, members in rows.items():
        db.load(table, members)
        insert_rows(duck, table, members)
    return db, duck, generator, rows


def same(mine: list[Row], theirs: list[Row]) -> bool:
    """Equal as bags. DuckDB's quotients and means are floats: Spark's decimals are compared with them up to their last digit."""
    one, two = (
        sorted(rows, key=lambda row: [str(v) for v in row if not isinstance(v, float | Decimal)]) for rows in (mine, theirs)
    )
    return len(one) == len(two) and all(close(a, b) for r, s in zip(one, two, strict=True) for a, b in zip(r, s, strict=True))


def close(mine: Any, theirs: Any) -> bool:
    return math.isclose(mine, theirs, abs_tol=1e-5) if isinstance(theirs, float) and mine is not None else bool(mine == theirs)


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_is_maintained_over_refreshes(number: int) -> None:
    db, duck, generator, rows = loaded(80)
    db.sql(f"CREATE VIEW q AS {QUERIES[number]}")
    answers = []
    for refresh in range(4):
        new = [generator.order(1000 + refresh * 10 + i) for i in range(6)]
        old = rows["orders"][refresh * 8 : refresh * 8 + 8]
        keys = {order[0] for order in old}
        with db.transaction() as tx:
            tx.insert("orders", [order for order, _ in new])
            tx.insert("lineitem", [item for _, items in new for item in items])
            tx.delete("orders", old)
            tx.delete("lineitem", [item for item in rows["lineitem"] if item[0] in keys])
        insert_rows(duck, "orders", [order for order, _ in new])
        insert_rows(duck, "lineitem", [item for _, items in new for item in items])
        for table, column in (("orders", "o_orderkey"), ("lineitem", "l_orderkey")):
            duck.execute(f"DELETE FROM {table} WHERE {column} IN ({', '.join(map(str, keys))})")
        answers.append(duck.execute(QUERIES[number]).fetchall())
        assert same(db.rows("q"), answers[-1])
    values = [value for answer in answers for row in answer for value in row]
    assert any(value is not None for value in values), "the data must make the query answer something"
