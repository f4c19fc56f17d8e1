"""A warehouse behind the service: views are maintained without their sources where that is possible, and wait where not."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rederive.errors import ProjectError, SourceUnavailable, StrategyError
from tests.service.conftest import Serve, Served, until

CHAIN = """
.decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .decl t(z: symbol)  .decl size(z: symbol, q: number)
.remote r(source=parquet, path="{folder}/r.parquet", rows=1000)
.remote s(source=parquet, path="{folder}/s.parquet", rows=100)
.remote t(source=parquet, path="{folder}/t.parquet", rows=10)
.decl v(x: symbol, y: symbol, z: symbol)  v(x, y, z) :- r(x, y), s(y, z), t(z).
.decl w(z: symbol, q: number)             w(z, q) :- t(z), size(z, q).
.stored v, w
"""
SETTINGS = "[warehouse]\nretry = 0.1\n"


class RemoteSources:
    """Parquet files, which can go away and come back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(r=[("a1", "b1")], s=[("b1", "c1"), ("b", "c2")], t=[("c1",), ("c2",)])

    def write(self, **rows: list[tuple[str, ...]]) -> None:
        for name, given in rows.items():
            columns = {"r": "xy", "s": "yz", "t": "z"}[name]
            table = pa.table({column: [row[i] for row in given] for i, column in enumerate(columns)})
            pq.write_table(table, self.folder / f"{name}.new")
            (self.folder / f"{name}.new").replace(self.folder / f"{name}.parquet")

    def hide(self) -> None:
        for path in self.folder.glob("*.parquet"):
            path.rename(path.with_suffix(".hidden"))

    def show(self) -> None:
        for path in self.folder.glob("*.hidden"):
            path.rename(path.with_suffix(".parquet"))


@pytest.fixture
def sources(tmp_path: Path) -> RemoteSources:
    return RemoteSources(tmp_path)


def served(serve: Serve, sources: RemoteSources, settings: str = SETTINGS) -> Served:
    return serve(CHAIN.format(folder=sources.folder), settings)


def how(warehouse: Served) -> dict[str, list[object]]:
    """Each view's last report."""
    return {str(row[0]): row[1:] for row in warehouse.rows("warehouse_report")}


def metric(warehouse: Served, name: str) -> float:
    text = warehouse.get("/v1/metrics").text
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def test_views_are_maintained_and_told(serve: Serve, sources: RemoteSources, caplog: pytest.LogCaptureFixture) -> None:
    warehouse = served(serve, sources)
    assert warehouse.rows("v") == [["a1", "b1", "c1"]]
    with warehouse.events("/v1/views/v/changes") as events, caplog.at_level(logging.INFO, "rederive.warehouse"):
        assert next(events)["event"] == "snapshot"
        sources.write(r=[])
        version = warehouse.delete("r", ["a1", "b1"])
        change = next(events)
        assert (change["event"], change["minus"], change["id"]) == ("change", [["a1", "b1", "c1"]], str(version))
    assert how(warehouse)["v"] == [1, "maintained without a source", "", ""]
    sources.write(s=[("b1", "c1"), ("b", "c2"), ("b", "c1")])
    warehouse.insert("s", ["b", "c1"])
    assert how(warehouse)["v"][1:3] == ["maintained with sources read", "t, r"]
    assert how(warehouse)["w"] == [2, "unaffected", "", ""]
    assert [row[2:] for row in warehouse.rows("warehouse_reads")] == [["t, r", 1]]
    assert "transaction 1: v maintained without a source; w unaffected; 3 reads avoided" in caplog.messages
    assert metric(warehouse, "rederive_warehouse_reads_avoided_total") == 4
    assert metric(warehouse, 'rederive_warehouse_reads_total{relation="t"}') == 1
    assert metric(warehouse, 'rederive_warehouse_views_total{how="strict",view="v"}') == 1


def test_a_view_waits_with_its_reason_and_goes_on_when_the_source_is_back(serve: Serve, sources: RemoteSources) -> None:
    warehouse = served(serve, sources)
    warehouse.insert("size", ["c1", 7], ["c2", 8])
    sources.write(r=[("a1", "b1"), ("a2", "b")])
    sources.hide()
    warehouse.insert("r", ["a2", "b"])
    warehouse.delete("size", ["c2", 8])
    at, status, _, why = how(warehouse)["v"]
    assert (at, status) == (1, "waiting")
    assert str(why).startswith("'t' cannot be read")
    assert how(warehouse)["w"][1] == "maintained without a source"
    assert warehouse.rows("w") == [["c1", 7]]
    assert metric(warehouse, "rederive_warehouse_waiting") == 1
    sources.show()
    until(lambda: how(warehouse)["v"][1] == "maintained with sources read")
    assert warehouse.rows("v") == [["a1", "b1", "c1"], ["a2", "b", "c2"]]


def test_what_waits_is_kept(serve: Serve, sources: RemoteSources) -> None:
    """A restart while the sources are away: views, local rows and the transactions that a view lacks are on disk."""
    warehouse = served(serve, sources)
    warehouse.insert("size", ["c1", 7])
    sources.write(r=[("a1", "b1"), ("a2", "b")])
    sources.hide()
    warehouse.insert("r", ["a2", "b"])
    warehouse.end()
    warehouse = served(serve, sources)
    assert how(warehouse)["v"][:2] == [1, "waiting"]
    warehouse.delete("t", ["c1"])
    assert warehouse.rows("w") == []
    sources.show()
    sources.write(t=[("c2",)])
    until(lambda: how(warehouse)["v"][1] == "maintained with sources read")
    assert warehouse.rows("v") == [["a2", "b", "c2"]]


def test_a_repeated_transaction_is_applied_once(serve: Serve, sources: RemoteSources) -> None:
    warehouse = served(serve, sources)
    delete = {"delete": {"r": [["a1", "b1"]]}}
    first = warehouse.commit(delete, **{"Idempotency-Key": "k"}).json()
    again = warehouse.commit(delete, **{"Idempotency-Key": "k"}).json()
    assert (again["version"], again["repeated"]) == (first["version"], True)
    assert how(warehouse)["v"][0] == 1
    other = warehouse.commit({"delete": {"r": [["a", "b"]]}}, **{"Idempotency-Key": "k"})
    assert other.status_code == 409


def test_a_transaction_that_is_refused_leaves_the_warehouse_as_it_was(serve: Serve, sources: RemoteSources) -> None:
    text = CHAIN.replace("q: number)  v", "q: number) key(z)  v", 1).replace(
        ".decl size(z: symbol, q: number)", ".decl size(z: symbol, q: number) key(z)"
    )
    warehouse = serve(text.format(folder=sources.folder), SETTINGS)
    warehouse.insert("size", ["c1", 1])
    refused = warehouse.commit({"insert": {"size": [["c1", 2]]}, "delete": {"t": [["c1"]]}})
    assert refused.status_code == 409
    assert warehouse.rows("w") == [["c1", 1]]
    sources.write(t=[("c2",)])
    warehouse.delete("t", ["c1"])
    assert (warehouse.rows("w"), warehouse.rows("v")) == ([], [])
    assert how(warehouse)["w"][0] == 2


def test_projects_that_cannot_be_a_warehouse(serve: Serve, sources: RemoteSources, tmp_path: Path) -> None:
    sources.hide()
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        served(serve, sources)
    with pytest.raises(ProjectError, match=r"warehouse\.retries: error\[project\]: unknown key 'retries'"):
        serve(CHAIN, "[warehouse]\nretries = 3\n", folder="other")


SQL_CHAIN = """
CREATE TABLE r (x STRING NOT NULL, y STRING NOT NULL, PRIMARY KEY (x, y))
  USING remote OPTIONS (source 'parquet', path '{folder}/r.parquet');
CREATE TABLE s (y STRING NOT NULL, z STRING NOT NULL, PRIMARY KEY (y, z))
  USING remote OPTIONS (source 'parquet', path '{folder}/s.parquet');
CREATE TABLE size (z STRING NOT NULL PRIMARY KEY, n INT NOT NULL);
CREATE VIEW chain AS SELECT r.x, r.y, s.z FROM r JOIN s ON r.y = s.y;
CREATE VIEW sized AS SELECT s.y, s.z, size.n FROM s JOIN size ON s.z = size.z WHERE size.n > 5;
"""


def test_a_warehouse_in_sql(serve: Serve, sources: RemoteSources) -> None:
    warehouse = serve(SQL_CHAIN.format(folder=sources.folder), SETTINGS)
    assert warehouse.rows("chain") == [["a1", "b1", "c1"]]
    warehouse.delete("r", ["a1", "b1"])
    assert (warehouse.rows("chain"), how(warehouse)["chain"][1]) == ([], "maintained without a source")
    warehouse.insert("size", ["c1", 7])
    assert (warehouse.rows("sized"), how(warehouse)["sized"][1:3]) == ([["b1", "c1", 7]], ["maintained with sources read", "s"])


def test_a_warehouse_in_sql_that_cannot_be_stored(serve: Serve) -> None:
    table = "CREATE TABLE r (x INT NOT NULL PRIMARY KEY, y INT) USING remote; CREATE VIEW v AS SELECT x, y FROM r"
    with pytest.raises(StrategyError, match="the column 'y' of 'r' may be NULL"):
        serve(table, SETTINGS)
