"""Streams in, on Spark: one version for each micro-batch, exactly once; what cannot be read ends the stream or is set aside."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.errors import (
    DuplicateKey,
    IllTypedRow,
    MalformedInput,
    Mismatch,
    MissingDependency,
    MissingFile,
    NoStore,
    NotABase,
    NotATable,
    RederiveError,
    SchemaMismatch,
    StreamError,
    UnknownColumn,
    UnknownOption,
    UnknownRelation,
)
from rederive.ingest.ingestion import MicroBatch, StreamProgress, ingest
from rederive.ir.terms import Row
from rederive.service.http.status import stream_reports
from rederive.sources import ChangeFeed, ChangeFiles, CsvFiles, KafkaTopics, ParquetFiles, StreamSource
from rederive.store.backup import restore
from tests.ingest.conftest import CLOSURE, STOCK, Folder, closure_of
from tests.lake import witness

ONE_FILE = {"maxFilesPerTrigger": "1"}


def quarantined(path: Path) -> list[dict[str, object]]:
    """As an independent reader finds them."""
    return (
        deltalake.DeltaTable(str(path)).to_pyarrow_table().sort_by([("batch", "ascending"), ("source", "ascending")]).to_pylist()
    )


def forget(checkpoint: Path, batch: int) -> None:
    """As if the process had been killed just before Spark wrote down that the batch is done."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)


def test_files_of_changes(spark: SparkSession, db: rederive.Database, folder: Folder, tmp_path: Path) -> None:
    """Also after the batch is replayed, and after the database was opened again."""
    folder.add("2.jsonl", '{"insert": {"edge": [["a", "b"], ["b", "c"]]}}\n\n{"delete": {"edge": [["b", "c"]]}}\n')
    folder.add("1.jsonl", '{"insert": {"edge": [{"y": "c", "x": "b"}]}}\n{"insert": {"edge": [["x"]]}}\n{\n')
    checkpoint, table = tmp_path / "checkpoint", tmp_path / "store" / "quarantine"
    told: list[MicroBatch] = []

    def run() -> StreamProgress:
        source = ChangeFiles(str(folder.path), ONE_FILE)
        options = {"checkpoint": checkpoint, "on_error": "quarantine", "on_batch": told.append, "spark": spark}
        return ingest(db.pipeline, source, **options).wait()  # type: ignore[arg-type]

    def report() -> dict[str, object]:
        """What the status of a service says about the stream."""
        state = db.pipeline.state
        assert state.store is not None
        cursors = {name: (version, at) for name, version, at in state.store.journal.cursors()}
        (found,) = stream_reports(state, cursors)
        return {key: found[key] for key in ("state", "version", "batches", "rows", "quarantined")}

    assert run() == StreamProgress(batches=2, rows=4, quarantined=2, repeated=0, version=2)
    assert report() == {"state": "ended", "version": 2, "batches": 2, "rows": 4, "quarantined": 2}
    assert [batch.number for batch in told] == [0, 1]
    assert [batch.result and batch.result.changes["closure"].plus for batch in told] == [[("a", "b")], [("a", "c"), ("b", "c")]]
    assert db.rows("closure") == closure_of({("a", "b"), ("b", "c")})
    assert [(row["batch"], row["code"], row["raw"]) for row in quarantined(table)] == [
        (1, "ill_typed", '{"insert": {"edge": [["x"]]}}'),
        (1, "malformed", "{"),
    ]
    assert str(quarantined(table)[1]["source"]).endswith("incoming/1.jsonl:3:2")

    # The last batch once more: its version and its quarantine stand already.
    forget(checkpoint, 1)
    assert run() == StreamProgress(batches=1, rows=1, quarantined=2, repeated=1, version=2)
    assert told[-1].result is not None
    assert told[-1].result.changes["closure"].plus == [("a", "c"), ("b", "c")]
    assert (db.version, len(quarantined(table))) == (2, 2)

    # A file that changed under a batch that was committed is another transaction.
    forget(checkpoint, 1)
    before = (folder.path / "1.jsonl").read_bytes()
    (folder.path / "1.jsonl").write_bytes(before.replace(b'"c"', b'"d"'))
    with pytest.raises(RederiveError, match="conflict"):
        run()
    assert report() == {"state": "failed", "version": 2, "batches": 0, "rows": 0, "quarantined": 0}
    (folder.path / "1.jsonl").write_bytes(before)
    folder.add("3.jsonl", '{"delete": {"edge": [["a", "b"]]}}')
    assert run() == StreamProgress(batches=2, rows=2, quarantined=2, repeated=1, version=3)
    assert db.rows("closure") == [("b", "c")]
    assert run() == StreamProgress()


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_of_one_relation(spark: SparkSession, tmp_path: Path, folder: Folder, form: str) -> None:
    rows = [("I", "bolt", 3), ("U", "nut", 4), ("insert", "gear", 50), ("delete", "gear", 50), ("U", "nut", 40)]
    if form == "csv":
        folder.add("s.csv", "_op,item,n\n" + "".join(f"{op},{item},{n}\n" for op, item, n in rows))
        source: StreamSource = CsvFiles(str(folder.path))
    else:
        columns = dict(zip(("what", "item", "n"), map(list, zip(*rows, strict=True)), strict=True))
        pyarrow.parquet.write_table(pyarrow.table(columns), folder.path / "s.parquet")
        source = ParquetFiles(str(folder.path), operation="what")
    with rederive.open(tmp_path / "store") as db:
        db.migrate(STOCK)
        assert ingest(db.pipeline, source, relation="stock", spark=spark).wait().rows == 5
        assert (db.version, db.rows("stock"), db.rows("low")) == (1, [("bolt", 3), ("nut", 40)], [("bolt",)])


def test_the_change_feed_of_a_table(spark: SparkSession, db: rederive.Database, tmp_path: Path) -> None:
    path = str(tmp_path / "edges")

    def run() -> StreamProgress:
        return ingest(db.pipeline, ChangeFeed(path), relation="edge", spark=spark, on_error="quarantine").wait()

    spark.sql(f"CREATE TABLE delta.`{path}` (y STRING, x STRING) USING delta")
    with pytest.raises(NotATable, match="enableChangeDataFeed"):
        run()
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.sql(f"INSERT INTO delta.`{path}` (x, y) VALUES ('a', 'b'), ('b', 'c'), ('d', NULL)")
    first = run()
    assert (first.rows, first.quarantined, db.rows("closure")) == (2, 1, closure_of({("a", "b"), ("b", "c")}))
    spark.sql(f"UPDATE delta.`{path}` SET y = 'd' WHERE x = 'b'")
    spark.sql(f"UPDATE delta.`{path}` SET y = 'e' WHERE y = 'd'")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE x = 'a'")
    spark.sql(f"INSERT INTO delta.`{path}` (x, y) VALUES ('e', 'a')")
    run()
    edges: set[Row] = {("b", "e"), ("e", "a")}
    assert (db.rows("edge"), db.rows("closure")) == (sorted(edges), closure_of(edges))
    assert run() == StreamProgress()

    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (z STRING)")
    with pytest.raises(UnknownColumn, match="'z'"):
        run()


@pytest.mark.slow
def test_a_database_with_a_lake(spark: SparkSession, folder: Folder, tmp_path: Path) -> None:
    """From a file to the change table, which an independent reader reads; the quarantine is beside it."""
    folder.add("1.jsonl", '{"insert": {"edge": [["a", "b"], ["b", "c"]]}}\n')
    folder.add("2.jsonl", '{"delete": {"edge": [["b", "c"]]}}\n?\n')
    lake = tmp_path / "lake"
    with rederive.open(tmp_path / "store", lake=lake, spark=spark) as db:
        db.migrate(CLOSURE)
        ingest(db.pipeline, ChangeFiles(str(folder.path), ONE_FILE), on_error="quarantine", spark=spark).wait()
        assert db.settle(wait=False) <= 2  # as after every batch: in the background, until the database is closed
    assert witness.rows(str(lake / "changes" / "closure")) == [
        (1, "plus", 1, "a", "b"),
        (1, "plus", 1, "a", "c"),
        (1, "plus", 1, "b", "c"),
        (2, "minus", 1, "a", "c"),
        (2, "minus", 1, "b", "c"),
    ]
    assert [row["raw"] for row in quarantined(lake / "quarantine")] == ["?"]


def test_what_cannot_be_read_ends_the_stream(spark: SparkSession, db: rederive.Database, folder: Folder) -> None:
    folder.add("1.jsonl", '{"insert": {"edge": [["a", "b"]]}}\n{"insert": {"edge": [["b", 7]]}}\n')
    source = ChangeFiles(str(folder.path))
    running = ingest(db.pipeline, source, spark=spark)
    with pytest.raises(IllTypedRow, match=r"1.jsonl:2: insert.edge\[0\](.|\n)*on_error=quarantine"):
        running.wait()
    assert (db.version, db.rows("edge"), running.running, running.progress) == (0, [], False, StreamProgress())
    # The same stream goes on once it is allowed to leave it out.
    assert ingest(db.pipeline, source, spark=spark, on_error="quarantine").wait() == StreamProgress(1, 1, 1, 0, 1)


def test_a_transaction_that_is_refused_ends_the_stream_in_any_case(spark: SparkSession, tmp_path: Path, folder: Folder) -> None:
    folder.add("1.jsonl", '{"insert": {"stock": [["bolt", 3], ["bolt", 4]]}}\n')
    with rederive.open(tmp_path / "store") as db:
        db.migrate(STOCK)
        with pytest.raises(DuplicateKey):
            ingest(db.pipeline, ChangeFiles(str(folder.path)), spark=spark, on_error="quarantine").wait()
        assert (db.version, db.rows("stock")) == (0, [])


def test_a_stream_that_goes_on_until_it_is_stopped(spark: SparkSession, db: rederive.Database, folder: Folder) -> None:
    folder.add("1.jsonl", '{"insert": {"edge": [["a", "b"]]}}\n')
    seen: list[int] = []
    running = ingest(
        db.pipeline,
        ChangeFiles(str(folder.path)),
        spark=spark,
        once=False,
        trigger="100 milliseconds",
        on_batch=lambda b: seen.append(b.number),
    )
    assert running.wait(0.01) == running.progress
    while not seen:
        assert running.running
    folder.add("2.jsonl", '{"insert": {"edge": [["b", "c"]]}}\n')
    while len(seen) < 2:
        assert running.running
    assert running.stop().batches == 2
    assert not running.running
    assert db.rows("closure") == closure_of({("a", "b"), ("b", "c")})


def test_a_checkpoint_from_before_a_restore_is_refused(
    spark: SparkSession, db: rederive.Database, folder: Folder, tmp_path: Path
) -> None:
    """Its batches are committed, and the restored store may not have them."""
    folder.add("1.jsonl", '{"insert": {"edge": [["a", "b"]]}}\n')
    source = ChangeFiles(str(folder.path))
    ingest(db.pipeline, source, checkpoint=tmp_path / "checkpoint", spark=spark).wait()
    assert db.pipeline.state.folder is not None
    rederive.backup(db.pipeline.state.folder, tmp_path / "backup")
    folder.add("2.jsonl", '{"insert": {"edge": [["b", "c"]]}}\n')
    ingest(db.pipeline, source, checkpoint=tmp_path / "checkpoint", spark=spark).wait()
    restore(tmp_path / "backup", tmp_path / "again")
    with rederive.open(tmp_path / "again") as again:
        with pytest.raises(Mismatch, match="batches of a history that the store no longer has"):
            ingest(again.pipeline, source, checkpoint=tmp_path / "checkpoint", spark=spark)
        ingest(again.pipeline, source, checkpoint=tmp_path / "another", spark=spark).wait()
        assert again.rows("closure") == closure_of({("a", "b"), ("b", "c")})


def test_a_checkpoint_belongs_to_its_store_and_source(
    spark: SparkSession, db: rederive.Database, folder: Folder, tmp_path: Path
) -> None:
    folder.add("1.jsonl", '{"insert": {"edge": [["a", "b"]]}}\n')
    checkpoint = tmp_path / "checkpoint"
    ingest(db.pipeline, ChangeFiles(str(folder.path)), checkpoint=checkpoint, spark=spark).wait()
    folder.add("2.jsonl", '{"insert": {"edge": [["b", "c"]]}}\n')
    with rederive.open(tmp_path / "other") as other:
        other.migrate(".decl edge(x: symbol, y: symbol)")
        with pytest.raises(Mismatch, match="not in this store"):
            ingest(other.pipeline, ChangeFiles(str(folder.path)), checkpoint=checkpoint, spark=spark)
        assert other.version == 0
    elsewhere = Folder(tmp_path / "elsewhere")
    elsewhere.add("3.jsonl", '{"insert": {"edge": [["x", "y"]]}}\n')
    with pytest.raises(Mismatch, match="elsewhere"):
        ingest(db.pipeline, ChangeFiles(str(elsewhere.path)), checkpoint=checkpoint, spark=spark)
    assert db.version == 1
    ingest(db.pipeline, ChangeFiles(str(folder.path)), checkpoint=checkpoint, spark=spark).wait()
    assert db.version == 2


def test_what_is_refused_before_anything_starts(
    spark: SparkSession, db: rederive.Database, folder: Folder, tmp_path: Path
) -> None:
    there = str(folder.path)
    floats = str(tmp_path / "floats")
    spark.sql(f"CREATE TABLE delta.`{floats}` (x STRING, y DOUBLE) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    cases: list[tuple[StreamSource, str | None, type[RederiveError], str]] = [
        (ChangeFiles(f"{there}/absent"), None, MissingFile, "absent"),
        (ChangeFiles(there), "edge", MalformedInput, "is named too"),
        (CsvFiles(there), None, MalformedInput, "--relation"),
        (CsvFiles(there), "egde", UnknownRelation, "did you mean 'edge'"),
        (ParquetFiles(there), "closure", NotABase, "is a view"),
        (ChangeFeed(there), "edge", NotATable, "not a Delta table"),
        (ChangeFeed(floats), "edge", SchemaMismatch, "'y'.*symbol.*float"),
        (KafkaTopics("localhost:1", {"t": "closure"}), None, NotABase, "topic 't'"),
        (KafkaTopics("localhost:1", {"t": "edge"}), None, MissingDependency, "rederive.lake.jars kafka"),
    ]
    for source, relation, error, words in cases:
        with pytest.raises(error, match=words):
            ingest(db.pipeline, source, relation=relation, spark=spark)
    with pytest.raises(UnknownOption, match="on_error 'ignore'"):
        ingest(db.pipeline, ChangeFiles(there), on_error="ignore", spark=spark)
    with pytest.raises(NoStore):
        ingest(rederive.open().pipeline, ChangeFiles(there), spark=spark)
    (tmp_path / "file").write_text("")
    with pytest.raises(StreamError):
        ingest(db.pipeline, ChangeFiles(there), checkpoint=tmp_path / "file" / "checkpoint", spark=spark).wait()
    assert db.version == 0
    assert not (tmp_path / "store" / "streams").exists()
