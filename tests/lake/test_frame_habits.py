"""What users of PySpark do with frames: extra columns, tables without keys, keys to delete, batches of streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas  # type: ignore[import-untyped]
import pyarrow
import pytest
from pyspark.sql import functions as F

import rederive
from rederive.errors import SchemaMismatch, UnknownOption
from tests.selection import fast_only

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES = """
    CREATE TABLE stock (item STRING PRIMARY KEY, n INT);
    CREATE TABLE seen (item STRING, n INT);
    CREATE VIEW low AS SELECT item FROM stock WHERE n < 3;
    CREATE VIEW often AS SELECT item, count(*) AS times FROM seen GROUP BY item;
"""
ENGINES = fast_only(["resident", "spark", "auto"], "resident")


@pytest.mark.parametrize("engine", ENGINES)
def test_frames_of_a_table_without_a_key(spark: SparkSession, engine: str) -> None:
    db = rederive.open(spark=spark, engine=engine)
    db.sql(TABLES)
    frame = spark.sql("SELECT * FROM VALUES ('a', 1), ('a', 1), ('b', CAST(NULL AS INT)) AS v(item, n)")
    assert db.apply("seen", inserts=frame).changes["often"].plus == [("a", 2), ("b", 1)]
    assert db.apply("seen", inserts=frame, deletes=frame.limit(1)).changes["often"].plus == [("a", 3), ("b", 2)]
    gone = spark.sql("SELECT * FROM VALUES ('a', 1), ('b', CAST(NULL AS INT)), ('c', 9) AS v(item, n)")
    assert db.apply("seen", deletes=gone).changes["often"].plus == [("a", 2), ("b", 1)]
    assert db.rows("seen") == [("a", 1), ("a", 1), ("b", None)]
    db.load("seen", frame)
    assert db.rows("often") == [("a", 4), ("b", 2)]


def test_extra_columns_are_left_out_if_asked_for(spark: SparkSession) -> None:
    db = rederive.open(spark=spark, engine="resident")
    db.sql(TABLES)
    wide = {"item": ["bolt"], "n": [2], "loaded_at": ["noon"]}
    for rows in (spark.createDataFrame(pandas.DataFrame(wide)), pandas.DataFrame(wide), pyarrow.table(wide)):
        with pytest.raises((SchemaMismatch, rederive.errors.DataError)):
            db.apply("stock", upserts=rows)
        assert db.apply("stock", upserts=rows, extra="ignore").changes["low"].plus == [("bolt",)]
        # The key and columns of no use here: a frame of keys alone.
        keys = rows.select(["item", "loaded_at"]) if not isinstance(rows, pandas.DataFrame) else rows[["item", "loaded_at"]]
        if not isinstance(rows, pyarrow.Table):
            assert db.apply("stock", deletes=keys, extra="ignore").changes["low"].minus == [("bolt",)]
        else:
            db.apply("stock", deletes=rows, extra="ignore")
    with pytest.raises(UnknownOption, match="ignore"):
        db.apply("stock", upserts=[("nut", 1)], extra="drop")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_of_a_stream_is_read_once(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Counted by a function that runs for each row that is read: with a key, three queries read the frame."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"item": "bolt", "n": 2}\n{"item": "nut", "n": 7}\n', encoding="utf-8")
    read = spark.sparkContext.accumulator(0)

    # A lambda has no annotations, from which Spark would infer another kind of function.
    noted = F.udf(lambda item: (read.add(1), item)[1], "string").asNondeterministic()  # type: ignore[func-returns-value]
    with rederive.open(tmp_path / "store", spark=spark, engine=engine) as db:
        db.sql(TABLES)

        def apply(batch: DataFrame, number: int) -> None:
            db.apply("stock", upserts=batch.select(noted("item").alias("item"), "n"), key=f"batch:{number}")

        stream = spark.readStream.schema("item STRING, n INT").json(f"{tmp_path}/in").writeStream.foreachBatch(apply)
        stream.trigger(availableNow=True).option("checkpointLocation", f"{tmp_path}/checkpoint").start().awaitTermination()
        assert db.rows("low") == [("bolt",)]
        assert read.value == 2


def test_a_frame_that_the_user_has_cached_stays_so(spark: SparkSession) -> None:
    db = rederive.open(spark=spark, engine="resident")
    db.sql(TABLES)
    frame = spark.sql("SELECT 'bolt' AS item, 2 AS n")
    other = spark.sql("SELECT 'nut' AS item, 1 AS n").cache()
    db.apply("stock", inserts=frame, upserts=other)
    assert not frame.storageLevel.useMemory
    assert other.storageLevel.useMemory
    other.unpersist()
