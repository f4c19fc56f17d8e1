"""Warehouses in SQL: tables USING remote, views over them, and what is refused."""

from __future__ import annotations

import pytest

from rederive import Warehouse
from rederive.errors import RederiveError, StrategyError
from rederive.warehouse.report import MaintenanceStatus

ORDERS = """
    CREATE TABLE customer (c STRING NOT NULL PRIMARY KEY, country STRING NOT NULL) USING remote OPTIONS (rows 100);
    CREATE TABLE placed (o INT NOT NULL PRIMARY KEY, c STRING NOT NULL, amount INT NOT NULL) USING remote;
    CREATE TABLE vip (c STRING NOT NULL PRIMARY KEY);
    CREATE VIEW customers AS SELECT c, country FROM customer;
    CREATE VIEW large AS SELECT o, p.c, country FROM placed p JOIN customer k ON p.c = k.c WHERE amount > 100;
    CREATE VIEW ordinary AS SELECT o, c FROM placed WHERE c NOT IN (SELECT c FROM vip);
    CREATE VIEW buyers AS SELECT DISTINCT c FROM placed;
"""


def test_a_warehouse_in_sql_needs_no_source() -> None:
    warehouse = Warehouse(ORDERS, net=True)
    warehouse.load("customers", [("ada", "UK"), ("bob", "FR")])
    warehouse.load("vip", [("ada",)])
    report = warehouse.apply(insert={"placed": [(1, "ada", 500), (2, "bob", 50)]})
    assert not report.reads
    assert {name: outcome.plus for name, outcome in report.views.items()} == {
        "customers": (),
        "large": ((1, "ada", "UK"),),
        "ordinary": ((2, "bob"),),
        "buyers": (("ada",), ("bob",)),
    }
    report = warehouse.apply(insert={"vip": [("bob",)]}, delete={"placed": [(1, "ada", 500)]})
    assert (report.views["large"].minus, report.views["ordinary"].minus) == (((1, "ada", "UK"),), ((2, "bob"),))
    assert report.views["buyers"].status is MaintenanceStatus.WAITING, "another order of ada may be left"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE r (x INT NOT NULL) USING remote", "not supported: a remote table without a primary key"),
        ("CREATE TABLE r (x INT NOT NULL PRIMARY KEY) OPTIONS (rows 3)", "not supported: OPTIONS"),
        ("CREATE TABLE r (x INT NOT NULL PRIMARY KEY) USING remote OPTIONS (source 'ftp')", "unknown source 'ftp'"),
        ("CREATE TABLE r (x INT NOT NULL PRIMARY KEY) USING remote OPTIONS (path 'a')", "unknown option 'path'"),
        ("CREATE TABLE r (x INT NOT NULL PRIMARY KEY) USING remote OPTIONS (source 'jdbc')", "a jdbc source needs 'table'"),
        ("CREATE TABLE r (x INT NOT NULL PRIMARY KEY) USING remote OPTIONS (rows 'many')", "'many' is not a number of rows"),
        ("CREATE TABLE r (x INT NOT NULL PRIMARY KEY) USING remote OPTIONS (rows 1, rows 2)", "the option 'rows' is given twice"),
        ("CREATE TABLE r (x INT NOT NULL PRIMARY KEY) USING remote LOCATION '/a'", "not supported: LOCATION of something other"),
    ],
)
def test_tables_that_are_refused(statement: str, message: str) -> None:
    with pytest.raises(RederiveError, match=message):
        Warehouse(statement)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ("SELECT y FROM r", "the stored view 'v' may have equal rows"),
        ("SELECT r.x, l.z FROM r JOIN l ON r.y = l.z", "may have equal rows|'v' reads the table 'l', which has no primary key"),
        ("SELECT DISTINCT r.x FROM r JOIN l ON r.y = l.z", "'v' reads the table 'l', which has no primary key"),
    ],
)
def test_bags_are_refused(view: str, message: str) -> None:
    tables = "CREATE TABLE r (x INT NOT NULL PRIMARY KEY, y INT NOT NULL) USING remote; CREATE TABLE l (z INT NOT NULL);"
    with pytest.raises(StrategyError, match=message):
        Warehouse(f"{tables} CREATE VIEW v AS {view}")
