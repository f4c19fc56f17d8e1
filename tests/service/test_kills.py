"""kill -9 under load: writers and subscribers over HTTP, while the server dies at every step of a commit and at random moments.

Afterwards no acknowledged transaction is lost, none is applied twice, and each subscriber's copy is the answer of a fresh query.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import pytest

import rederive
from rederive.client.blocking import Connection
from rederive.delta import Row
from tests.service.serving import free_port, started

COMMITS = ("commit:propagated", "journal.append:begun", "journal.append:written", "journal.append:after", "commit:applied")
PROGRAM = """
.decl edge(x: number, y: number)
.decl closure(x: number, y: number)
.decl tick(writer: number, step: number)
.decl ticks(writer: number, step: number)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
ticks(w, s) :- tick(w, s), s >= 0.
.output closure
.output ticks
"""
NODES = 7
LAST_EDGE, LAST_TICK = (99, 100), (99, 0)
Edges = list[tuple[int, int]]


@dataclass
class Load:
    """Writers and subscribers of one service, each in a thread of its own."""

    url: str
    stop: Event = field(default_factory=Event)
    done: dict[int, tuple[int, int, Edges, Edges]] = field(default_factory=dict)  # what each acknowledged version was
    acknowledged: list[int] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)

    def run(self, target: Callable[[Connection], None]) -> Thread:
        def body() -> None:
            try:
                with rederive.connect(self.url, patience=60) as db:
                    target(db)
            except BaseException as error:
                self.errors.append(error)

        thread = Thread(target=body, daemon=True)
        thread.start()
        self.threads.append(thread)
        return thread

    def write(self, writer: int, seed: int) -> Thread:
        """Transactions one after the other, each of them a row that no other has."""

        def target(db: Connection) -> None:
            chance, step = random.Random(seed), 0
            while not self.stop.is_set():
                plus, minus = ([(chance.randrange(NODES), chance.randrange(NODES))] for _ in range(2))
                committed = db.apply(insert={"edge": plus, "tick": [(writer, step)]}, delete={"edge": minus})
                self.done[committed.version] = (writer, step, plus, minus)
                self.acknowledged.append(committed.version)
                step += 1
                time.sleep(0.002)

        return self.run(target)

    def expected(self) -> tuple[set[Row], set[Row]]:
        """The edges and ticks after all versions, in their order."""
        edges: set[Row] = set()
        for version in sorted(self.done):
            _, _, plus, minus = self.done[version]
            edges = (edges - set(minus)) | set(plus)
        return edges, {(writer, step) for writer, step, _, _ in self.done.values()}


@dataclass
class Copy:
    """What a subscriber heard."""

    views: tuple[str, ...]
    versions: list[int] = field(default_factory=list)
    ticks: list[Row] = field(default_factory=list)
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def follow(self) -> Callable[[Connection], None]:
        """Until the last transaction of all is told."""

        def target(db: Connection) -> None:
            with db.subscribe(*self.views) as changes:
                for change in changes:
                    self.versions.append(change.version)
                    self.ticks += change.deltas["ticks"].plus if "ticks" in change.deltas else ()
                    if not {LAST_EDGE, LAST_TICK}.isdisjoint(change.plus):
                        break
                self.rows = {view: changes.rows_of(view) for view in self.views}

        return target


def closure(edges: set[Row]) -> set[Row]:
    found: set[Row] = set()
    new = set(edges)
    while new:
        found |= new
        new = {(x, z) for x, y in found for other, z in edges if y == other} - found
    return found


def survive(folder: Path, kills: int, seed: int) -> None:
    """Kill the server so often, and see what is there in the end."""
    folder.mkdir()
    (folder / "views.dl").write_text(PROGRAM)
    (folder / "rederive.toml").write_text('programs = ["views.dl"]\n[bounds]\nheartbeat = 0.2\nrate = 100000')
    chance, port = random.Random(seed), free_port()
    load = Load(f"http://127.0.0.1:{port}")
    copies = [Copy(("closure",)), Copy(("ticks",)), Copy(("closure", "ticks"))]
    for writer in range(3):
        load.write(writer, seed + writer)
    subscribers = [load.run(copy.follow()) for copy in copies]
    for kill in range(kills):
        fault = f"{COMMITS[kill // 2 % len(COMMITS)]}@{chance.randrange(1, 25)}" if kill % 2 else ""
        process = started(folder, port, fault)
        if not fault:
            time.sleep(chance.random() * 0.3)
            process.kill()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL, (fault, load.errors)
    process = started(folder, port)
    try:
        before = len(load.acknowledged)
        while len(load.acknowledged) < before + 20 and not load.errors:
            time.sleep(0.01)
        load.stop.set()
        for thread in load.threads:
            if thread not in subscribers:
                thread.join(60)
        with rederive.connect(load.url) as db:
            last = db.apply(insert={"edge": [LAST_EDGE], "tick": [LAST_TICK]}).version
            load.done[last] = (*LAST_TICK, [LAST_EDGE], [])
            for thread in subscribers:
                thread.join(60)
            check(load, copies, db, last)
    finally:
        process.kill()
        process.join(60)


def check(load: Load, copies: list[Copy], db: Connection, last: int) -> None:
    assert load.errors == []
    assert not any(thread.is_alive() for thread in load.threads)
    # Every version is one acknowledged transaction, and every acknowledged transaction one version.
    assert sorted(load.done) == list(range(1, last + 1))
    assert len(load.acknowledged) + 1 == last
    edges, ticks = load.expected()
    fresh = {"closure": set(db.rows("closure")), "ticks": set(db.rows("ticks"))}
    assert (set(db.rows("edge")), set(db.rows("tick"))) == (edges, ticks)
    assert fresh == {"closure": closure(edges), "ticks": ticks}
    for copy in copies:
        assert copy.versions == sorted(set(copy.versions))
        assert all(len(rows) == len(set(rows)) and set(rows) == fresh[view] for view, rows in copy.rows.items())
        if "ticks" in copy.views:
            assert len(copy.ticks) == len(set(copy.ticks)) == len(ticks)


def test_killed_at_every_step_of_a_commit_and_at_random_moments(tmp_path: Path) -> None:
    survive(tmp_path / "project", 10, seed=1)


@pytest.mark.slow
def test_two_hundred_kills_under_load(tmp_path: Path) -> None:
    survive(tmp_path / "project", 200, seed=2)
