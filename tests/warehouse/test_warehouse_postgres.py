"""Remote relations in a PostgreSQL server, read over Spark's JDBC reader: exact views, few reads, and a server that goes away."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING

import pytest

from rederive import Warehouse
from rederive.errors import SchemaMismatch, SourceUnavailable
from rederive.ir.terms import Row
from rederive.lake.jdbc import JdbcTable
from rederive.lang import compile_program
from rederive.warehouse.report import MaintenanceReport, MaintenanceStatus
from tests.warehouse.postgres import PASSWORD, Client, Server, programs, server
from tests.warehouse.test_warehouse_stream import TEXT, Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(programs() is None, reason="PostgreSQL's server is not installed: make postgresql")

# What the views are, asked of the server itself.
WITNESS = {
    "customers": "SELECT * FROM customer",
    "items": "SELECT * FROM item",
    "placed": "SELECT o, c, country FROM placed_order JOIN customer USING (c)",
    "supplied": "SELECT o, item, supplier FROM line JOIN item USING (item)",
    "abroad": "SELECT o, c, item FROM placed_order JOIN line USING (o) JOIN customer USING (c) WHERE country = 'FR'",
}
COLUMNS = {"customer": "c, country", "item": "item, supplier", "placed_order": "o, c", "line": "o, item"}
SIZES = {"customer": 40, "item": 30, "placed_order": 400, "line": 500}
Transaction = tuple[dict[str, list[Row]], dict[str, list[Row]]]


@pytest.fixture
def postgres(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    with server() as found:
        yield found


def declared(url: str) -> str:
    """examples/warehouse.dl with every relation in one database, which counts its transactions."""
    views = re.sub(r"(?m)^\.remote.*\n", "", TEXT)
    version = 'version="SELECT n FROM taken"'
    remotes = (f'.remote {name}(source=jdbc, url="{url}", table="{name}", {version}, rows={SIZES[name]})' for name in COLUMNS)
    return "\n".join([views, *remotes])


def texts(row: Row) -> str:
    return "(" + ", ".join("'" + str(value) + "'" for value in row) + ")"


def filled(client: Client, shop: Shop) -> None:
    client.run("CREATE TABLE taken AS SELECT 0::bigint AS n")
    for name, columns in COLUMNS.items():
        client.run(f"CREATE TABLE {name} ({', '.join(f'{column} text NOT NULL' for column in columns.split(', '))})")
        client.run(f"INSERT INTO {name} VALUES {', '.join(map(texts, shop.rows[name]))}")


def committed(client: Client, given: Transaction) -> Transaction:
    """The transaction, on the server."""
    insert, delete = given
    statements = [f"DELETE FROM {name} WHERE ({COLUMNS[name]}) = {texts(row)}" for name, rows in delete.items() for row in rows]
    statements += [f"INSERT INTO {name} VALUES {texts(row)}" for name, rows in insert.items() for row in rows]
    client.run("; ".join(["BEGIN", *statements, "UPDATE taken SET n = n + 1", "COMMIT"]))
    return given


def batches(transactions: int) -> Iterator[range]:
    """One to three transactions at a time."""
    random, start = Random(7), 0
    while start < transactions:
        end = min(start + random.randint(1, 3), transactions)
        yield range(start, end)
        start = end


def access(reports: Iterable[MaintenanceReport]) -> Counter[str]:
    """How many transactions took none, some or all of the sources under the views that they affected."""
    return Counter("none" if not report.reads else "some" if report.avoided else "all" for report in reports)


def check(warehouse: Warehouse, client: Client) -> None:
    assert not warehouse.waiting()
    for view, query in WITNESS.items():
        assert warehouse.rows(view) == sorted(client.run(query)), view


@pytest.mark.parametrize(
    ("transactions", "expected"),
    [(30, {"none": 28, "some": 2}), pytest.param(1000, {"none": 846, "some": 154}, marks=pytest.mark.slow)],
)
def test_stream(postgres: Server, transactions: int, expected: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    """The server is ahead of what is processed: each batch is on it before its first transaction is looked at."""
    shop, reports = Shop(seed=1), list[MaintenanceReport]()
    with postgres.client() as client:
        filled(client, shop)
        warehouse = Warehouse(declared(postgres.url), net=True)
        warehouse.refresh()
        for batch in batches(transactions):
            for number in batch:
                warehouse.receive(*committed(client, shop.transaction(number)))
            reports += warehouse.process()
        check(warehouse, client)
    found = access(reports)
    with capsys.disabled():
        print(f"\nof {transactions} transactions {dict(found)}; reads avoided: {sum(report.avoided for report in reports)}")
    assert found == expected


def test_without_the_server_self_maintainable_transactions_go_through_and_the_others_wait(postgres: Server) -> None:
    shop = Shop(seed=1)
    with postgres.client() as client:
        filled(client, shop)
        warehouse = Warehouse(declared(postgres.url), net=True)
        warehouse.refresh()
        stream = [committed(client, shop.transaction(number)) for number in range(14)]
    postgres.stop()
    reports = [warehouse.apply(*given) for given in stream]
    assert warehouse.version == 14
    assert not any(report.reads for report in reports)
    statuses = Counter(outcome.status for report in reports for outcome in report.views.values())
    assert statuses[MaintenanceStatus.STRICT] > 10
    assert statuses[MaintenanceStatus.WAITING] > 0
    assert list(warehouse.waiting()) == ["abroad"]
    assert re.fullmatch(
        r"at version \d+ of 14: '\w+' cannot be read: Connection to 127\.0\.0\.1:\d+ refused.*", warehouse.waiting()["abroad"]
    )
    postgres.start()
    assert warehouse.retry().views["abroad"].status is MaintenanceStatus.READ
    with postgres.client() as client:
        check(warehouse, client)


R = compile_program(".decl r(x: symbol, n: number)").relations["r"]


def test_rows_and_version_are_of_one_state(postgres: Server) -> None:
    table = JdbcTable(postgres.url, "r", version="SELECT n FROM taken")
    with postgres.client() as client:
        client.run("CREATE TABLE taken AS SELECT 3 AS n; CREATE TABLE r (x text, n int)")
        assert table.read(R) == ([], 3)
        client.run("INSERT INTO r VALUES ('a', 1), (NULL, NULL); UPDATE taken SET n = 4")
        rows, version = table.read(R)
        assert (set(rows), version) == ({("a", 1), (None, None)}, 4)
        assert set(JdbcTable(postgres.url, "r").read(R)[0]) == set(rows)
        client.run("DELETE FROM taken")
        with pytest.raises(SourceUnavailable, match="'SELECT n FROM taken' gives no version"):
            table.read(R)


def test_what_cannot_be_read_says_why(postgres: Server) -> None:
    with pytest.raises(SourceUnavailable, match=r"'r' cannot be read: .*ERROR: relation .r. does not exist"):
        JdbcTable(postgres.url, "r").read(R)
    with pytest.raises(SourceUnavailable, match="names 'SHOP_PASSWORD', which is not an environment variable"):
        JdbcTable(postgres.url, "r").read(R, environment={})
    with pytest.raises(SourceUnavailable, match="password authentication failed"):
        JdbcTable(postgres.url, "r").read(R, environment={"SHOP_PASSWORD": "another"})
    with postgres.client() as client:
        client.run("CREATE TABLE r (x text, n text)")
    with pytest.raises(SchemaMismatch, match="column 'n' is string, which does not fit number"):
        JdbcTable(postgres.url, "r").read(R)
