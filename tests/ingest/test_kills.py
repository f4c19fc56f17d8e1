"""kill -9 of the driver at every point of a micro-batch: what a batch did is there once, and agrees with the oracle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import deltalake
import pytest

import rederive
from rederive.failpoints import POINTS, VARIABLE
from rederive.ir.terms import Row
from tests.ingest.conftest import Folder, closure_of

STREAM = tuple(point for point in POINTS if point.startswith("stream:"))
ROOT = Path(__file__).parents[2]
FILES = 5


def run(store: Path, folder: Path, fault: str = "") -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}", VARIABLE: fault}
    command = [sys.executable, "-m", "tests.ingest.load", str(store), str(folder)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode, done.stdout


def edges(number: int) -> tuple[list[list[str]], list[list[str]]]:
    """What the file of this number inserts and deletes: each file takes back a part of the one before."""
    return [[f"n{number}", f"n{number + 1}"], [f"n{number}", f"m{number}"]], [[f"n{number - 1}", f"m{number - 1}"]]


@pytest.mark.slow
def test_killed_at_every_point_of_a_batch(folder: Folder, tmp_path: Path) -> None:
    for number in range(FILES):
        inserted, deleted = edges(number)
        lines = [{"insert": {"edge": inserted}}, {"delete": {"edge": deleted}}, {"insert": {"edge": [number]}}]
        folder.add(f"{number}.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    store = tmp_path / "store"

    # Each start finishes the batch that the kill before it left, and is killed in the next one.
    for killed, (point, passing) in enumerate(zip(STREAM, (1, 2, 2), strict=True)):
        assert run(store, folder.path, f"{point}@{passing}") == (-9, "")
        committed = killed + (point != "stream:batch")
        check(store, committed, quarantined=killed + (point == "stream:quarantined"))
    assert run(store, folder.path) == (0, f"done {FILES - 2} 1\n")
    check(store, FILES, quarantined=FILES)


def check(store: Path, version: int, quarantined: int) -> None:
    with rederive.open(store) as db:
        assert db.version == version
        present: set[Row] = set()
        for number in range(version):
            inserted, deleted = edges(number)
            present = (present | {tuple(edge) for edge in inserted}) - {tuple(edge) for edge in deleted}
        assert db.rows("edge") == sorted(present)
        assert db.rows("closure") == closure_of(present)
        rows: set[Row] = set()
        for change in db.changes("closure", since=0):
            assert rows.issuperset(change.minus)
            assert rows.isdisjoint(change.plus)
            rows = (rows - set(change.minus)) | set(change.plus)
        assert sorted(rows) == closure_of(present)
    table = store / "quarantine"
    batches = deltalake.DeltaTable(str(table)).to_pyarrow_table().column("batch").to_pylist() if table.exists() else []
    assert sorted(batches, key=str) == list(range(quarantined))
