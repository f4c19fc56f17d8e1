"""Another writer on a table of the lake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pyarrow
import pytest
from delta.exceptions import ConcurrentAppendException
from delta.tables import DeltaTable

from rederive.errors import WriteConflict
from rederive.lake.delta_log import retry_on_conflict
from rederive.lake.tables import Area, Lake
from rederive.lake.types import dataframe
from tests.lake import witness
from tests.lake.test_tables import EDGE


@pytest.mark.slow
def test_a_write_that_was_overtaken_is_done_again(lake: Lake, tmp_path: Path) -> None:
    """The other writer deletes from a file that our merge has read, while the merge waits for its source."""
    lake.replace(Area.BASE, EDGE, dataframe(lake.spark, EDGE, [("a", "b"), ("y", "y"), ("z", "z")]).coalesce(1))
    path = lake.path(Area.BASE, "edge")
    begun, overtaken = tmp_path / "begun", tmp_path / "overtaken"

    def wait_for(file: Path) -> None:  # in here: a worker does not know this module
        end = time.monotonic() + 240
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.05)

    def waiting(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        begun.touch()
        wait_for(overtaken)
        yield from batches

    def other_writer() -> None:
        wait_for(begun)
        lake.spark.newSession().sql(f"DELETE FROM delta.`{path}` WHERE x = 'z'")
        overtaken.touch()

    attempts: list[int] = []

    def merge() -> None:
        attempts.append(len(attempts))
        source = dataframe(lake.spark, EDGE, [("a", "b")]).coalesce(1)  # one task waits, the other core is free
        source = source.mapInArrow(waiting, source.schema)
        DeltaTable.forPath(lake.spark, path).alias("old").merge(
            source.alias("new"), "old.x = new.x"
        ).whenMatchedDelete().execute()

    thread = Thread(target=other_writer)
    thread.start()
    retry_on_conflict(merge, path)
    thread.join()
    assert (attempts, witness.rows(path)) == ([0, 1], [("y", "y")])


def test_after_a_few_attempts_the_other_writer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rederive.lake.delta_log._PAUSE", 0)
    attempts: list[int] = []

    def write() -> None:
        attempts.append(1)
        raise ConcurrentAppendException("overtaken")

    with pytest.raises(WriteConflict, match=r"/lake/base/edge: error.write_conflict.: another writer .* each of 5 attempts"):
        retry_on_conflict(write, "/lake/base/edge")
    assert len(attempts) == 5
