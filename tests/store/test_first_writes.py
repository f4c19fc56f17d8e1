"""First writes that were stopped before their commit: what they left is found and written over; what is somebody's is refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rederive
from rederive.errors import NotATable
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import NUMBER
from rederive.lake.tables import Area, Lake
from rederive.sources import ChangeFiles
from tests.lake import witness
from tests.store.first_load import PROGRAM, ROWS

LOAD = Path(__file__).with_name("first_load.py")
TABLES = ("base/log", "changes/two", "views/two", "state/settled")
DATA = "part-00000-34a2be8e-c8d9-43be-af89-9ff4ec7c1302-c000.snappy.parquet"
UNFINISHED: dict[str, tuple[str, ...]] = {  # as a kill of Spark 4.2 and Delta 4.4 leaves a folder, from one moment to the next
    "a folder": (),
    "a log": ("_delta_log/",),
    "a folder in the log": ("_delta_log/_staged_commits/",),
    "data": ("_delta_log/_staged_commits/", DATA, f".{DATA}.crc"),
    "a commit on its way": (
        "_delta_log/_staged_commits/",
        DATA,
        "_delta_log/.00000000000000000000.json.2252d2ac.tmp",
        "_delta_log/..00000000000000000000.json.2252d2ac.tmp.crc",
    ),
}


def leave(folder: Path, *names: str) -> None:
    """Files, and folders where the name ends in a slash."""
    folder.mkdir(parents=True)
    for name in names:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if name.endswith("/") else place.write_bytes(b"PAR1, and no more")


def opened(spark: SparkSession, lake: Path) -> rederive.Database:
    return rederive.open(lake=lake, spark=spark, engine="resident")


def insert(db: rederive.Database, *rows: tuple[int, int]) -> None:
    db.migrate(PROGRAM)
    with db.transaction() as tx:
        tx.insert("log", rows)


def check(lake: Path) -> None:
    assert witness.rows(f"{lake}/base/log") == [(1, 2), (2, 3)]
    assert witness.rows(f"{lake}/views/two") == [(1, 3)]
    assert witness.rows(f"{lake}/changes/two") == [(1, "plus", 1, 1, 3)]
    assert witness.rows(f"{lake}/state/settled") == [(1,)]


FAST = "a commit on its way"


@pytest.mark.parametrize("left", [pytest.param(left, marks=() if left == FAST else pytest.mark.slow) for left in UNFINISHED])
def test_every_table_is_finished(spark: SparkSession, tmp_path: Path, left: str) -> None:
    """Before this, `error[not_a_table]: there is something else than a Delta table` at `base/log`, for ever."""
    lake = tmp_path / "lake"
    for table in TABLES:
        leave(lake / table, *UNFINISHED[left])
    with opened(spark, lake) as db:
        insert(db, (1, 2), (2, 3))
        db.settle()
    check(lake)
    with opened(spark, lake) as db:
        assert (db.version, db.rows("two")) == (1, [(1, 3)])


@pytest.mark.slow
def test_a_stream_finishes_what_a_killed_one_left(spark: SparkSession, tmp_path: Path) -> None:
    lake, left = tmp_path / "lake", UNFINISHED["a commit on its way"]
    with opened(spark, lake) as db:
        db.migrate(PROGRAM)
    for table in ("changes/two", "quarantine"):
        leave(lake / table, *left)
    shutil.rmtree(lake / "base" / "log", ignore_errors=True)
    leave(lake / "base" / "log", *left)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.jsonl").write_text('{"insert": {"log": [[1, 2], [2, 3]]}}\n{"insert": {"log": ["?"]}}\n')
    with opened(spark, lake) as db:
        db.ingest(ChangeFiles(str(tmp_path / "in")), on_error="quarantine").wait()
        db.settle()
    check(lake)
    assert len(witness.rows(f"{lake}/quarantine")) == 1


@pytest.mark.slow
def test_the_table_of_a_view_is_written_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Not with the rows of the last versions alone, as if a table had been there."""
    lake = tmp_path / "lake"
    with opened(spark, lake) as db:
        insert(db, (1, 2), (2, 3))
        db.settle()
    shutil.rmtree(lake / "views/two")
    leave(lake / "views/two", *UNFINISHED["data"])
    with opened(spark, lake) as db:
        insert(db, (3, 4))
        db.settle()
    assert witness.rows(f"{lake}/views/two") == [(1, 3), (2, 4)]


def test_rows_on_their_way_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with opened(spark, lake) as db:
        insert(db, (1, 2), (2, 3))
        db.settle()
    leave(lake / "_rows-x7", "a.parquet")
    leave(lake / "_scratch" / "b", "1.parquet")
    for version in (1, 2):  # settled, and never committed
        leave(lake / "_staged" / str(version), "base/log/a.parquet")
    leave(lake / "notes", "mine.txt")
    opened(spark, lake).close()
    left = {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}
    assert not [name for name in left if name.startswith(("_rows", "_scratch", "_staged"))]
    assert "notes/mine.txt" in left
    check(lake)


FOREIGN = (
    (DATA, "_SUCCESS"),
    (DATA,),
    ("_delta_log/", "notes.txt"),
    ("_delta_log/00000000000000000010.checkpoint.parquet", "_delta_log/_last_checkpoint", DATA),
    ("_delta_log/readme.txt",),
)


def test_what_is_somebodys_is_refused_and_left(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, str(tmp_path))
    for number, names in enumerate(FOREIGN):
        relation = Relation(f"r{number}", (Column("x", NUMBER),))
        leave(tmp_path / "base" / relation.name, *names)
        with pytest.raises(NotATable, match=r"something other|cannot be read"):
            lake.has_table(Area.BASE, relation.name)
        with pytest.raises(NotATable, match=r"something other|cannot be read"):
            lake.create(Area.BASE, relation)
        folder = tmp_path / "base" / relation.name
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert files == {name for name in names if not name.endswith("/")}


def killed_in_the_first_write(command: list[str], table: Path) -> bool:
    """Run a process and kill it, Spark's too, between the folder of a table and the first commit; whether it came to that."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        while child.poll() is None and not table.exists():
            time.sleep(0.001)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    _, error = child.communicate()
    assert child.returncode in (0, -signal.SIGKILL), error
    return table.exists() and not (table / "_delta_log/00000000000000000000.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True], ids=["transactions", "a stream"])
def test_killed_in_the_first_write_of_every_table(spark: SparkSession, tmp_path: Path, streams: bool) -> None:
    """Each start finishes what the one before left, and is killed in the first write of the next table."""
    lake, folder = tmp_path / "lake", tmp_path / "in"
    folder.mkdir()
    for number, row in enumerate(ROWS):
        (folder / f"{number}.jsonl").write_text(f'{{"insert": {{"log": [[{row[0]}, {row[1]}]]}}}}\n')
    command = [sys.executable, str(LOAD), str(lake), *([str(folder)] if streams else [])]
    for table in ("views/two", "base/log", "changes/two", "state/settled"):
        assert killed_in_the_first_write(command, lake / table)
    assert not killed_in_the_first_write(command, tmp_path / "nothing is here")  # it comes to its end
    assert witness.rows(f"{lake}/base/log") == ROWS
    assert witness.rows(f"{lake}/views/two") == [(1, 3)]
    version = 2 if streams else 1
    assert witness.rows(f"{lake}/changes/two") == [(version, "plus", 1, 1, 3)]
    with opened(spark, lake) as db:
        assert (db.version, db.rows("log"), db.rows("two")) == (version, ROWS, [(1, 3)])
