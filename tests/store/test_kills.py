"""kill -9 at every fault point and at random moments: what was acknowledged is there, once, and agrees with the oracle."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import rederive
from rederive.failpoints import POINTS, VARIABLE
from rederive.ir.terms import Row
from rederive.lang import compile_program
from rederive.store.journal.file import FILE
from rederive.store.journal.writer import Journal
from tests.oracle import Rows, evaluate
from tests.selection import fast_only
from tests.store.load import EXTRA, PROGRAM, edits, transaction

LOAD = Path(__file__).with_name("load.py")
COMMITS = ("commit:propagated", "journal.append:begun", "journal.append:written", "journal.append:after", "commit:applied")
STARTS = tuple(point for point in POINTS if "create" in point or "amend" in point)
SETTLES = ("journal.settle:begun", "journal.settle:written", "journal.settle:after")


def test_every_point_is_tried() -> None:
    """Those of the lake, of tables in place, of streams, of webhooks and of a new format are tried there."""
    elsewhere = ("lake.", "refresh:", "stream:", "webhook:", "journal.renew", "journal.attach")
    assert {point for point in POINTS if not point.startswith(elsewhere)} == {*COMMITS, *STARTS, *SETTLES}


class Client:
    """Drives the load through kills, as a client would: what is not acknowledged is sent again."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.acknowledged = 0

    def run(self, steps: int, fault: str | None = None, kill_after: float | None = None) -> int:
        """Apply steps until done or killed; the exit code."""
        first, last = self.acknowledged + 1, self.acknowledged + steps
        code, self.acknowledged = loaded([LOAD, self.folder, first, last, self.seed], self.acknowledged, fault, kill_after)
        self.check()
        return code

    def check(self) -> None:
        """The store against the oracle: it has what was acknowledged, and at most the one step that was on its way."""
        with rederive.open(self.folder) as db:
            connection = db.pipeline.state.durable("test").journal._connection
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            if not db.version:
                assert self.acknowledged == 0
                return
            step = db.version - 1
            assert self.acknowledged <= step <= self.acknowledged + 1
            rows = self.expected(step)
            assert {name: set(db.rows(name)) for name in rows} == rows
            entries = list(db.pipeline.state.durable("test").journal.since(0))
            assert [entry.number for entry in entries] == list(range(1, db.version + 1))
            keys = [None if edits(number) else f"t{number}" for number in range(1, step + 1)]
            assert [entry.key for entry in entries] == [None, *keys]
            for view in ("closure", "sinks"):
                assert replayed(db, view) == rows[view]

    def expected(self, step: int) -> Rows:
        edges: set[Row] = set()
        for number in range(1, step + 1):
            for call, changed in [] if edits(number) else transaction(self.seed, number):
                edges = edges | set(changed) if call == "insert" else edges - set(changed)
        extra = EXTRA if step % 20 >= 10 else ""
        return {name: rows for name, rows in evaluate(compile_program(PROGRAM + extra), {"e": edges}).items() if "." not in name}


def loaded(command: Sequence[object], before: int, fault: str | None, kill_after: float | None) -> tuple[int, int]:
    """Run a load until it is done or killed: its exit code, and the last step that it acknowledged."""
    environment = {**os.environ, **({VARIABLE: fault} if fault else {})}
    arguments = [sys.executable, *map(str, command)]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    if kill_after is not None:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(kill_after)
        child.kill()
    out, err = outcome(child)
    assert "Traceback" not in err, err
    acknowledged = [int(line.split()[1]) for line in out.splitlines() if line.startswith("ack")]
    return child.returncode, acknowledged[-1] if acknowledged else before


def outcome(child: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process says until it ends. `communicate` would lose lines that came together with one that was read before."""
    assert child.stdout is not None
    assert child.stderr is not None
    with child.stdout, child.stderr:
        said = child.stdout.read(), child.stderr.read()
    child.wait(timeout=60)
    return said


def replayed(db: rederive.Database, view: str) -> set[Row]:
    """The changes from the beginning, applied one after the other: none twice, none missing."""
    rows: set[Row] = set()
    for change in db.changes(view, since=0):
        assert rows.issuperset(change.minus)
        assert rows.isdisjoint(change.plus)
        rows = (rows - set(change.minus)) | set(change.plus)
    return rows


@pytest.mark.parametrize("point", fast_only(STARTS, "journal.create:written", "journal.amend:begun"))
def test_killed_while_the_store_is_made(tmp_path: Path, point: str) -> None:
    client = Client(tmp_path / "store", seed=1)
    assert client.run(3, fault=point) == -9
    assert client.run(3) == 0
    assert client.acknowledged == 3


@pytest.mark.parametrize("point", fast_only(COMMITS, "journal.append:written", "commit:applied"))
def test_killed_at_every_step_of_a_commit(tmp_path: Path, point: str) -> None:
    """At the first version of a process, and at later ones."""
    client = Client(tmp_path / "store", seed=2)
    for passing in (1, 4, 7):
        assert client.run(40, fault=f"{point}@{passing}") == -9
    assert client.run(5) == 0
    assert client.acknowledged >= 13  # the first kill may be that of the definition


@pytest.mark.parametrize("point", fast_only((p for p in COMMITS if p.startswith("journal")), "journal.append:written"))
def test_killed_while_a_definition_is_committed(tmp_path: Path, point: str) -> None:
    client = Client(tmp_path / "store", seed=3)
    assert client.run(12, fault=f"{point}@11") == -9
    assert client.acknowledged == 9
    assert client.run(12) == 0


SETTLE = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from rederive.records import VersionRecord
from rederive.store.journal.writer import Journal

with Journal.open(Path(sys.argv[1]), retention=1) as journal:
    if journal.lake is None:
        journal.attach_lake("lake")
    for number in range(journal.version + 1, 5):
        journal.append_bulk(VersionRecord(number, datetime.now(UTC), "spark", staged=f"stage/{number}"))
    for entry in journal.unsettled():
        journal.settle_to(entry.number)
"""


@pytest.mark.parametrize("point", fast_only(SETTLES, "journal.settle:written"))
def test_killed_while_versions_are_settled(tmp_path: Path, point: str) -> None:
    """Killed while the second is settled: what was not settled is found again, and nothing else."""
    command = [sys.executable, "-c", SETTLE, str(tmp_path)]
    environment = {**os.environ, VARIABLE: f"{point}@2"}
    assert subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False).returncode == -9
    with Journal.open(tmp_path) as journal:
        settled = 2 if point == SETTLES[-1] else 1
        assert (journal.settled, [entry.staged for entry in journal.unsettled()]) == (
            settled,
            [f"stage/{number}" for number in range(settled + 1, 5)],
        )
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    with Journal.open(tmp_path) as journal:
        assert (journal.settled, journal.version, list(journal.unsettled())) == (4, 4, [])


@pytest.mark.parametrize("kills", fast_only([2, 5], 2))
def test_killed_at_random_moments(tmp_path: Path, kills: int) -> None:
    chance = random.Random(5)
    client = Client(tmp_path / "store", seed=5)
    for _ in range(kills):
        client.run(100_000, kill_after=chance.random() * 0.15)
    assert client.run(5) == 0


@pytest.mark.slow
def test_two_hundred_kills(tmp_path: Path) -> None:
    chance = random.Random(6)
    for store in range(8):
        client = Client(tmp_path / str(store), seed=100 + store)
        for _ in range(15):
            client.run(100_000, kill_after=chance.random() * 0.1)
        for _ in range(10):
            assert client.run(100_000, fault=f"{chance.choice(COMMITS)}@{chance.randrange(1, 30)}") == -9
        assert client.run(5) == 0


def test_a_store_of_a_killed_process_has_its_tail_in_the_log(tmp_path: Path) -> None:
    """The kill leaves a write-ahead log behind, which the next start folds in."""
    client = Client(tmp_path / "store", seed=7)
    command = [sys.executable, str(LOAD), str(client.folder), "1", "9", "7"]
    environment = {**os.environ, VARIABLE: "commit:applied@7"}  # two definitions, then the fifth transaction
    assert subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False).returncode == -9
    assert (client.folder / f"{FILE}-wal").stat().st_size > 0
    client.acknowledged = 4
    client.check()
