"""kill -9 while a warehouse waits for a source: no transaction is lost or applied twice, and what waits goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rederive.failpoints import VARIABLE
from rederive.warehouse.bridge import RetryWaitingViews
from tests.selection import fast_only
from tests.store.test_kills import COMMITS
from tests.warehouse.warehouse_load import opened

LOAD = Path(__file__).with_name("warehouse_load.py")
LAST = 6


def write(folder: Path, r: list[int], s: list[tuple[int, int]]) -> None:
    pq.write_table(pa.table({"x": pa.array(r, pa.int64())}), folder / "r.parquet")
    columns = {"x": pa.array([x for x, _ in s], pa.int64()), "y": pa.array([y for _, y in s], pa.int64())}
    pq.write_table(pa.table(columns), folder / "s.parquet")


def run(folder: Path, fault: str = "") -> int:
    environment = {**os.environ, VARIABLE: fault}
    command = [sys.executable, str(LOAD), str(folder), str(LAST)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


@pytest.mark.parametrize("point", fast_only(COMMITS, "journal.append:after"))
def test_a_kill(tmp_path: Path, point: str) -> None:
    write(tmp_path, [], [])
    with opened(tmp_path):
        pass
    for name in ("r", "s"):
        (tmp_path / f"{name}.parquet").unlink()
    assert run(tmp_path, f"{point}@4") == -signal.SIGKILL
    assert run(tmp_path) == 0
    with opened(tmp_path) as db:
        assert db.version == LAST + 1
        assert db.rows("copy") == [(1,), (3,), (5,)]
        assert db.pipeline.state.bridge is not None
        assert list(db.pipeline.state.bridge.waiting) == ["both"]
        write(tmp_path, [1, 3, 5], [(1, 2), (3, 4), (5, 6)])
        (outcome,) = db.pipeline.commit_together([[RetryWaitingViews(())]])
        assert outcome.error is None
        assert db.rows("both") == [(1, 2), (3, 4), (5, 6)]
        assert not db.rows("warehouse_pending__stored")
