"""Streams out: changes as Spark's data source `rederive`, its columns, ranges, resumption, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

import rederive
from rederive.errors import Mismatch
from rederive.ingest import change_data_source
from rederive.ingest.change_data_source import ChangeDataSource, register
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER, Row
from rederive.lake.change_table import change_schema
from rederive.store.backup import restore
from tests.ingest.conftest import CLOSURE

TYPES = "s: symbol, n: number, u: unsigned, f: float, b: boolean, d: date, t: timestamp, p: decimal(9,2)"
TYPED = f".decl given({TYPES})  .decl all({TYPES})  all(s, n, u, f, b, d, t, p) :- given(s, n, u, f, b, d, t, p)."
ROW: Row = ("ä", -(2**63), 2**64 - 1, 0.5, True, date(2024, 2, 29), datetime(2024, 2, 29, 12, 0, 0, 7), Decimal("1.50"))


@pytest.fixture
def reading(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[rederive.Database]:
    """Three versions of the closure; the second changes nothing. The store stays open for writing all the time."""
    with rederive.open(tmp_path / "store", retention=3) as db:
        db.migrate(CLOSURE)
        for edges in ([("a", "b"), ("b", "c")], [("a", "b")], [("c", "d")]):
            insert(db, *edges)
        yield db


def insert(db: rederive.Database, *edges: Row) -> None:
    with db.transaction() as tx:
        tx.insert("edge", edges)


def changes(db: rederive.Database, view: str = "closure", since: int = 0, until: int = 99) -> list[tuple[object, ...]]:
    """What the database itself says."""
    found = (change for change in db.changes(view, since) if change.version <= until)
    return sorted(
        (change.version, sign, 1, *row)
        for change in found
        for sign, rows in (("plus", change.plus), ("minus", change.minus))
        for row in rows
    )


def load(spark: SparkSession, db: rederive.Database, view: str = "closure", **options: int) -> DataFrame:
    given: Mapping[str, str] = {
        "store": str(db.pipeline.state.folder),
        "view": view,
        **{name: str(value) for name, value in options.items()},
    }
    return spark.read.format("rederive").options(**given).load()


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_ranges_of_versions(reading: SparkSession, stored: rederive.Database) -> None:
    frame = load(reading, stored)
    assert frame.schema == change_schema(stored.pipeline.state.program.relations["closure"])
    assert rows(frame) == changes(stored)
    assert rows(load(reading, stored, since=1, until=2)) == []
    assert rows(load(reading, stored, since=2)) == changes(stored, since=2)
    assert rows(load(reading, stored, until=1)) == changes(stored, until=1)
    assert rows(load(reading, stored, since=3)) == []
    with stored.transaction() as tx:
        tx.delete("edge", [("b", "c")])
    assert rows(load(reading, stored, since=3)) == changes(stored, since=3)
    assert {row[1] for row in changes(stored, since=3)} == {"minus"}


def test_values_of_every_type_and_views_without_columns(reading: SparkSession, tmp_path: Path) -> None:
    with rederive.open(tmp_path / "typed") as db:
        db.migrate(f"{TYPED} .decl any() any() :- given(_, _, _, _, _, _, _, _).")
        with db.transaction() as tx:
            tx.insert("given", [ROW])
        assert rows(load(reading, db, "all")) == [(1, "plus", 1, *ROW)]
        assert rows(load(reading, db, "any")) == [(1, "plus", 1, True)]


def test_a_stream_goes_on_where_it_was(reading: SparkSession, stored: rederive.Database, tmp_path: Path) -> None:
    seen: list[tuple[object, ...]] = []

    def follow() -> None:
        frame = (
            reading.readStream.format("rederive")
            .option("store", str(stored.pipeline.state.folder))
            .option("view", "closure")
            .load()
        )
        writer = frame.writeStream.foreachBatch(lambda batch, _: seen.extend(rows(batch)))
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()

    follow()
    assert sorted(seen) == changes(stored)
    insert(stored, ("d", "e"))
    insert(stored, ("x", "y"))
    follow()
    follow()
    assert sorted(row for row in seen if row[0] != 1) == changes(stored, since=2)
    # Beyond the retention there is no going on: a stream that was away for too long is told.
    for node in "123":
        insert(stored, (node, node))
    insert(stored, ("4", "4"))
    with pytest.raises(PySparkException, match=r"expired(.|\n)*version 5"):
        follow()


def test_an_offset_of_another_history_is_refused(stored: rederive.Database, tmp_path: Path) -> None:
    """A checkpoint from before a restore: its offset is a version that the store has again, and another one."""
    reader = change_data_source._StreamReader(ChangeDataSource({"store": str(stored.pipeline.state.folder), "view": "closure"}))
    first = reader.initialOffset()
    assert first == {"epoch": stored.pipeline.state.epoch, "version": 0}
    assert stored.pipeline.state.folder is not None
    rederive.backup(stored.pipeline.state.folder, tmp_path / "backup")
    insert(stored, ("lost", "row"))
    last = reader.latestOffset(first, ReadAllAvailable())
    assert last == {"epoch": stored.pipeline.state.epoch, "version": 4}
    assert len(reader.partitions({**first, "version": 1}, last)) == 1
    restore(tmp_path / "backup", tmp_path / "again")
    with rederive.open(tmp_path / "again") as db:
        insert(db, ("d", "e"))
        insert(db, ("e", "f"))
        place = {"store": str(tmp_path / "again"), "view": "closure"}
        again = change_data_source._StreamReader(ChangeDataSource(place))
        new = again.latestOffset(last, ReadAllAvailable())
        with pytest.raises(Mismatch, match="is of another history"):
            again.partitions(last, new)
        with pytest.raises(Mismatch, match="may be of another history"):
            again.partitions({"version": 4}, {"version": 5})  # as offsets were before there were epochs
        for since in (f"{stored.pipeline.state.epoch}-3", "4"):
            with pytest.raises(Mismatch, match="of another history"):
                ChangeDataSource({**place, "since": since}).begin()
        assert (
            len(
                again.partitions(
                    {"epoch": db.pipeline.state.epoch, "version": 4}, {"epoch": db.pipeline.state.epoch, "version": 5}
                )
            )
            == 1
        )
        assert ChangeDataSource({**place, "since": db.position}).begin() == {"epoch": db.pipeline.state.epoch, "version": 5}


def test_the_copies_of_a_bag_are_counted(tmp_path: Path) -> None:
    """By way of the partitions, as Spark's workers read them."""
    with rederive.open(tmp_path) as db:
        db.sql("CREATE TABLE t (a INT, s STRING); CREATE VIEW v AS SELECT s, a FROM t")
        db.sql("INSERT INTO t VALUES (1, 'x'), (1, 'x'), (NULL, 'y')")
        db.sql("DELETE FROM t WHERE a = 1")
        source = ChangeDataSource({"store": str(tmp_path), "view": "v"})
        parts = [batch.to_pylist() for part in source.slices(0, None) for batch in change_data_source._unpacked(part)]
    told = [tuple(row.values()) for rows in parts for row in rows]
    assert told == [(1, "plus", 2, "x", 1), (1, "plus", 1, "y", None), (2, "minus", 2, "x", 1)]


def test_partitions_are_cut_and_joined(stored: rederive.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark: no more rows in one than can be sent, and none lost."""
    monkeypatch.setattr(change_data_source, "_PARTITION_ROWS", 2)
    slices = ChangeDataSource({"store": str(stored.pipeline.state.folder), "view": "closure"}).slices(0, None)
    batches = [[batch.to_pylist() for batch in change_data_source._unpacked(part)] for part in slices]
    assert [sum(map(len, part)) for part in batches] == [2, 1, 2, 1]
    assert sorted(tuple(row.values()) for part in batches for batch in part for row in batch) == changes(stored)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"view": "closure"}, "'store' is missing"),
        ({"store": "STORE"}, "'view' is missing"),
        ({"store": "/nowhere", "view": "closure"}, "not_a_store"),
        ({"store": "STORE", "view": "closrue"}, "did you mean 'closure'"),
        ({"store": "STORE", "view": "edge"}, "not monitored"),
        ({"store": "STORE", "view": "closure", "since": "-1"}, "'since' must be a version"),
        ({"store": "STORE", "view": "closure", "since": "9"}, "the last version is 3"),
        ({"store": "STORE", "view": "closure", "until": "9"}, "the last version is 3"),
        ({"store": "STORE", "view": "closure", "since": "3", "until": "2"}, "no versions from 3 to 2"),
    ],
)
def test_what_is_refused(options: dict[str, str], words: str, stored: rederive.Database) -> None:
    """Without Spark, which would only put its own words around these."""
    given = {name: value.replace("STORE", str(stored.pipeline.state.folder)) for name, value in options.items()}
    source = ChangeDataSource(given)
    with pytest.raises(rederive.RederiveError, match=words):
        source.reader(source.schema()).partitions()


def test_what_is_refused_reaches_the_caller(reading: SparkSession, stored: rederive.Database) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'closure'"):
        load(reading, stored, "closrue")
    insert(stored, ("d", "e"))
    with pytest.raises(PySparkException, match="expired"):
        load(reading, stored, since=0).collect()


def test_a_view_that_had_other_columns(stored: rederive.Database) -> None:
    stored.definitions.drop_view("closure")
    stored.define(".decl closure(n: number)  closure(n) :- n = count : { edge(_, _) }.")
    source = ChangeDataSource({"store": str(stored.pipeline.state.folder), "view": "closure"})
    assert source.schema() == change_schema(Relation("closure", (Column("n", NUMBER),)))
    with pytest.raises(rederive.RederiveError, match=r"other columns at version (.|\n)*since="):
        source.slices(stored.version - 3, None)
    insert(stored, ("p", "q"))
    assert len(source.slices(stored.version - 1, None)) == 1
