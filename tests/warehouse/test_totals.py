"""Counts and sums by group, moved by the rows that enter and leave their query."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from rederive import Warehouse
from rederive.errors import EvaluationError
from rederive.warehouse.report import MaintenanceStatus

SQL = """
    CREATE TABLE placed (o INT NOT NULL PRIMARY KEY, c STRING NOT NULL, amount INT NOT NULL) USING remote;
    CREATE TABLE customer (c STRING NOT NULL PRIMARY KEY, country STRING NOT NULL) USING remote;
    CREATE TABLE ignored (c STRING NOT NULL PRIMARY KEY);
    CREATE VIEW customers AS SELECT c, country FROM customer;
    CREATE VIEW totals AS SELECT country, count(*) AS n, sum(amount) AS total FROM placed p JOIN customer k ON p.c = k.c
      WHERE amount > 10 AND p.c NOT IN (SELECT c FROM ignored) GROUP BY country;
"""
DATALOG = """
    .decl r(x: number, y: number)  .remote r
    .decl many(x: number, n: number)  many(x, n) :- r(x, _), n = count : { r(x, _) }.
    .decl total(x: number, n: number)  total(x, n) :- r(x, _), n = sum y : { r(x, y) }.
"""


def test_a_stream_of_net_changes_gives_the_sums_of_the_rows() -> None:
    random = Random(7)
    warehouse = Warehouse(SQL, net=True)
    countries = {"ada": "UK", "bob": "FR", "eve": "FR"}
    warehouse.load("customers", list(countries.items()))
    placed: dict[int, tuple[int, str, int]] = {}
    for number in range(60):
        new = (number, random.choice(sorted(countries)), random.randint(1, 30))
        gone = random.sample(sorted(placed), k=min(len(placed), random.randint(0, 2)))
        report = warehouse.apply(insert={"placed": [new]}, delete={"placed": [placed[o] for o in gone]})
        assert report.views["totals"].status is MaintenanceStatus.STRICT
        placed |= {number: new}
        placed = {o: row for o, row in placed.items() if o not in gone}
        expected: dict[str, list[int]] = defaultdict(list)
        for _, c, amount in placed.values():
            if amount > 10:
                expected[countries[c]].append(amount)
        assert warehouse.rows("totals") == sorted((country, len(found), sum(found)) for country, found in expected.items())
    # Which orders of ada there are, only the source knows.
    assert warehouse.apply(insert={"ignored": [("ada",)]}).waiting == ("totals",)


def test_without_a_count_a_deletion_waits() -> None:
    warehouse = Warehouse(DATALOG, net=True)
    assert not warehouse.apply(insert={"r": [(1, 5), (1, 7), (2, 3)]}).waiting
    assert (warehouse.rows("many"), warehouse.rows("total")) == ([(1, 2), (2, 1)], [(1, 12), (2, 3)])
    report = warehouse.apply(delete={"r": [(1, 7), (2, 3)]})
    assert (report.waiting, warehouse.rows("many")) == (("total",), [(1, 1)])


def test_changes_that_are_not_net_are_not_counted() -> None:
    assert Warehouse(DATALOG).apply(insert={"r": [(1, 5)]}).waiting == ("many", "total")


def test_a_sum_that_does_not_fit_is_refused() -> None:
    warehouse = Warehouse(DATALOG, net=True)
    warehouse.apply(insert={"r": [(1, 2**63 - 1)]})
    with pytest.raises(EvaluationError, match="the sum of a group does not fit 64 bits"):
        warehouse.apply(insert={"r": [(1, 1)]})
