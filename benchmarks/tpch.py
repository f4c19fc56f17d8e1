"""TPC-H Q1, Q3, Q5 and Q18 while orders enter and leave, with DuckDB computing the four queries again as the peer.

    python -m benchmarks.tpch --scale 0.1

A refresh is 0.1 % of the orders with their lines, as the benchmark's RF1 and RF2. The rows come from a generator of this file,
with the sizes, key ranges and value ranges of the specification; only the columns that the four queries read are there. Process
CPU time on one thread, medians.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import typer

import rederive
from benchmarks.star import resident_set, seconds, show

TABLES = """
CREATE TABLE region (r_regionkey BIGINT PRIMARY KEY, r_name {text} NOT NULL);
CREATE TABLE nation (n_nationkey BIGINT PRIMARY KEY, n_name {text} NOT NULL, n_regionkey BIGINT NOT NULL);
CREATE TABLE supplier (s_suppkey BIGINT PRIMARY KEY, s_nationkey BIGINT NOT NULL);
CREATE TABLE customer (c_custkey BIGINT PRIMARY KEY, c_name {text} NOT NULL, c_nationkey BIGINT NOT NULL,
  c_mktsegment {text} NOT NULL);
CREATE TABLE orders (o_orderkey BIGINT PRIMARY KEY, o_custkey BIGINT NOT NULL, o_totalprice DECIMAL(12,2) NOT NULL,
  o_orderdate DATE NOT NULL, o_shippriority BIGINT NOT NULL);
CREATE TABLE lineitem (l_orderkey BIGINT NOT NULL, l_linenumber BIGINT NOT NULL, l_suppkey BIGINT NOT NULL,
  l_quantity DECIMAL(12,2) NOT NULL, l_extendedprice DECIMAL(12,2) NOT NULL, l_discount DECIMAL(12,2) NOT NULL,
  l_tax DECIMAL(12,2) NOT NULL, l_returnflag {text} NOT NULL, l_linestatus {text} NOT NULL, l_shipdate DATE NOT NULL,
  PRIMARY KEY (l_orderkey, l_linenumber));
"""
QUERIES = {
    "q1": """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
  sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
  avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus""",
    "q3": """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority""",
    "q5": """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
  AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
  AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
GROUP BY n_name""",
    "q18": """SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
FROM customer, orders, lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
  AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice""",
}
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
FIRST_DAY, DAYS, NOW = datetime.date(1992, 1, 1), 2406, datetime.date(1995, 6, 17)


@dataclass(frozen=True, slots=True)
class Refresh:
    """Orders and their lines."""

    orders: pa.Table
    lineitem: pa.Table


class Generator:
    """Random rows in the ranges of TPC-H's specification, section 4.2.3."""

    def __init__(self, scale: float, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.suppliers, self.customers = round(10_000 * scale), round(150_000 * scale)
        self.next_order = 1

    def dimensions(self) -> dict[str, pa.Table]:
        nations = range(25)
        customers, suppliers = np.arange(1, self.customers + 1), np.arange(1, self.suppliers + 1)
        return {
            "region": pa.table({"r_regionkey": range(5), "r_name": REGIONS}),
            "nation": pa.table(
                {"n_nationkey": nations, "n_name": [f"NATION {i}" for i in nations], "n_regionkey": [i % 5 for i in nations]}
            ),
            "supplier": pa.table({"s_suppkey": suppliers, "s_nationkey": self.random.integers(0, 25, len(suppliers))}),
            "customer": pa.table(
                {
                    "c_custkey": customers,
                    "c_name": [f"Customer#{i:09}" for i in customers],
                    "c_nationkey": self.random.integers(0, 25, len(customers)),
                    "c_mktsegment": [SEGMENTS[i] for i in self.random.integers(0, 5, len(customers))],
                }
            ),
        }

    def orders(self, count: int) -> Refresh:
        """New orders with one to seven lines each."""
        random = self.random
        # Eight keys of each 32 are used, and no customer whose number three divides has orders.
        numbers = np.arange(self.next_order, self.next_order + count)
        self.next_order += count
        keys = numbers // 8 * 32 + numbers % 8
        customer = random.integers(0, self.customers // 3, count) * 3 + 1
        day = random.integers(0, DAYS - 151, count)
        lines = random.integers(1, 8, count)
        of = np.repeat(np.arange(count), lines)
        total = len(of)
        quantity = random.integers(1, 51, total)
        price = quantity * random.integers(90_000, 210_000, total)
        discount, tax = random.integers(0, 11, total), random.integers(0, 9, total)
        ship = day[of] + random.integers(1, 122, total)
        receipt = ship + random.integers(1, 31, total)
        now = (NOW - FIRST_DAY).days
        flag = np.where(receipt <= now, np.where(random.integers(0, 2, total) > 0, "R", "A"), "N")
        orders = {
            "o_orderkey": keys,
            "o_custkey": customer,
            "o_totalprice": decimals(np.bincount(of, weights=price, minlength=count).astype(np.int64)),
            "o_orderdate": dates(day),
            "o_shippriority": np.zeros(count, np.int64),
        }
        starts = np.cumsum(lines) - lines
        lineitem = {
            "l_orderkey": keys[of],
            "l_linenumber": np.arange(total) - starts[of] + 1,
            "l_suppkey": random.integers(1, self.suppliers + 1, total),
            "l_quantity": decimals(quantity * 100),
            "l_extendedprice": decimals(price),
            "l_discount": decimals(discount),
            "l_tax": decimals(tax),
            "l_returnflag": flag,
            "l_linestatus": np.where(ship > now, "O", "F"),
            "l_shipdate": dates(ship),
        }
        return Refresh(pa.table(orders), pa.table(lineitem))


def decimals(cents: Any) -> Any:
    """DECIMAL(12,2): 128 bits each, least significant first."""
    words = np.zeros(2 * len(cents), np.int64)
    words[::2] = cents
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(words.tobytes())])


def dates(days: Any) -> Any:
    epoch = (FIRST_DAY - datetime.date(1970, 1, 1)).days
    return pa.array((days + epoch).astype(np.int32), pa.date32())


class Peer:
    """DuckDB on one thread."""

    def __init__(self) -> None:
        self.duck = duckdb.connect(config={"threads": 1})
        # Without keys: no index has to be kept.
        tables = TABLES.format(text="VARCHAR").replace(",\n  PRIMARY KEY (l_orderkey, l_linenumber)", "")
        self.duck.execute(tables.replace(" PRIMARY KEY", ""))

    def insert(self, name: str, rows: pa.Table) -> None:
        self.duck.register("given", rows)
        self.duck.execute(f"INSERT INTO {name} SELECT * FROM given")

    def change(self, action: str, refresh: Refresh) -> None:
        if action == "insert":
            self.insert("orders", refresh.orders)
            self.insert("lineitem", refresh.lineitem)
            return
        self.duck.register("given", refresh.orders)
        self.duck.execute("DELETE FROM lineitem WHERE l_orderkey IN (SELECT o_orderkey FROM given)")
        self.duck.execute("DELETE FROM orders WHERE o_orderkey IN (SELECT o_orderkey FROM given)")

    def answers(self) -> dict[str, list[Any]]:
        return {name: self.duck.execute(query).fetchall() for name, query in QUERIES.items()}


class Ours:
    """The four views, monitored."""

    def __init__(self) -> None:
        self.db = rederive.open()
        self.db.sql(TABLES.format(text="STRING"))
        self.result: Any = None

    def change(self, action: str, refresh: Refresh) -> None:
        with self.db.transaction() as tx:
            getattr(tx, action)("orders", refresh.orders)
            getattr(tx, action)("lineitem", refresh.lineitem)
        self.result = tx.result


def main(scale: Annotated[float, typer.Option()] = 0.1, seed: int = 1, repeats: int = 9, refresh: float = 0.001) -> None:
    """Print each figure, and that of DuckDB's four queries."""
    made, ours, peer = Generator(scale, seed), Ours(), Peer()
    count = round(1_500_000 * scale)
    loaded = made.orders(count)
    tables = {**made.dimensions(), "orders": loaded.orders, "lineitem": loaded.lineitem}
    before = resident_set()
    show("load", sum(seconds(lambda n=n, t=t: ours.db.load(n, t)) for n, t in tables.items()))  # type: ignore[misc]
    for name, query in QUERIES.items():
        took = seconds(lambda n=name, q=query: ours.db.sql(f"CREATE VIEW {n} AS {q}"))  # type: ignore[misc]
        show(f"{name}, first evaluation", took)
    print(f"memory: {(resident_set() - before) / 1e6:.0f} MB more than before the load, transient memory included")
    for name, table in tables.items():
        peer.insert(name, table)
    refreshes = [made.orders(round(count * refresh)) for _ in range(repeats)]
    print(f"a refresh: {len(refreshes[0].orders):,} orders and about {len(refreshes[0].lineitem):,} lines")
    # By turns: what else the machine does slows both alike.
    times: dict[str, list[float]] = {"insert": [], "delete": [], "peer": []}
    for action in ("insert", "delete", "insert"):
        for one in refreshes:
            times[action].append(seconds(lambda a=action, r=one: ours.change(a, r)))  # type: ignore[misc]
            peer.change(action, one)
            times["peer"].append(seconds(peer.answers))
    for action in ("insert", "delete"):
        show(f"a refresh, {action}", *times[action])
    show("DuckDB: the four queries again", *times["peer"])
    print(f"in the last refresh, {ours.result.by_column} views changed by column and {ours.result.touched:,} tuples were touched")
    for name, rows in peer.answers().items():
        expected = sorted(tuple(map(plain, row)) for row in rows)
        assert sorted(tuple(map(plain, row)) for row in ours.db.rows(name)) == expected, f"{name} differs"
        print(f"{name}: {len(expected):,} rows, equal to DuckDB's")


def plain(value: Any) -> Any:
    """Means are decimals in Spark's SQL and floats in DuckDB's."""
    return round(float(value), 2) if not isinstance(value, str | int | datetime.date) else value


if __name__ == "__main__":
    typer.run(main)
