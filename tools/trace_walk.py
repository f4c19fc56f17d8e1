"""Trace which files an operation passes through.

    python tools/trace_walk.py                    all four walks, each in a process of its own
    python tools/trace_walk.py memory store       two of them
    python tools/trace_walk.py --steps memory     also the walk itself, file by file
    python tools/trace_walk.py --check            exit code 1 if a walk exceeds its goal

A file is *entered* when one of its functions is called and the nearest caller of `src/rederive` on the stack is in another
file. Resuming a generator or a coroutine does not enter its file again; generated code has no file. A *crossing* is an entry
that does not repeat the entry before it.

The *level of the pipeline* is `database.py` and `commit/`: what they enter, and what enters them, except calls from outside of
the package. The modules of PLAIN_DATA hold values and no steps, and those of WRAPPERS only wrap steps: their entries do not
count there. No file should be entered more than twice.

Only public names are used: `rederive.open`, `Database`, the command line's `serve`, and HTTP.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import rederive

ROOT = Path(rederive.__file__).parent
PIPELINE = ("database.py", "commit/")
PLAIN_DATA = ("errors.py", "values.py", "delta.py", "limits.py", "rows.py", "records.py", "result.py", "locations.py", "ir/")
WRAPPERS = ("boundary.py", "failpoints.py")
MOST_ENTRIES = 2

CLOSURE = """
.decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
.output closure
"""
JOIN = """
.decl edge(x: symbol, y: symbol)
.decl two(x: symbol, y: symbol)
two(x, y) :- edge(x, z), edge(z, y).
.output two
"""
ROWS = 4_000
WARM = 20  # transactions before the traced one: plans follow the sizes of relations, and are compiled at their first use
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PREFIX = f"{ROOT}{os.sep}"


@dataclass
class Walk:
    """The entries of one operation in their order: the file that calls, and the file that is entered."""

    entries: list[tuple[str, str]] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """The files in the order of their first entry."""
        return list(dict.fromkeys(file for _, file in self.entries))

    @property
    def crossings(self) -> int:
        """The number of entries that do not repeat the one before."""
        return len(_without_repetitions([file for _, file in self.entries]))

    def pipeline_entries(self) -> Counter[str]:
        """Count the entries that the pipeline makes, or that are made into it."""
        seen = [
            file
            for caller, file in self.entries
            if caller and (_is_pipeline(caller) or _is_pipeline(file)) and not file.startswith(PLAIN_DATA + WRAPPERS)
        ]
        return Counter(_without_repetitions(seen))


def _is_pipeline(file: str) -> bool:
    return file.startswith(PIPELINE)


def _without_repetitions(files: list[str]) -> list[str]:
    return [file for at, file in enumerate(files) if at == 0 or files[at - 1] != file]


class Tracer:
    """A profile function for all threads, which records while it is on."""

    def __init__(self) -> None:
        self.walk = Walk()
        self._is_on = False
        self._resumable: dict[int, FrameType] = {}  # held, so that no id is used twice

    def install(self) -> None:
        """Profile this thread and those that start from now on."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def trace(self, operation: Callable[[], object]) -> Walk:
        """Run the operation and return its walk."""
        self.walk, self._is_on = Walk(), True
        operation()
        self._is_on = False
        return self.walk

    def _profile(self, frame: FrameType, event: str, arg: object) -> None:
        if event != "call":
            return
        name = frame.f_code.co_filename
        if not name.startswith(_PREFIX):
            return
        if frame.f_code.co_flags & _RESUMABLE:
            if id(frame) in self._resumable:
                return
            self._resumable[id(frame)] = frame
        if self._is_on:
            caller = _caller(frame)
            if caller != name:
                self.walk.entries.append((caller.removeprefix(_PREFIX), name.removeprefix(_PREFIX)))


def _caller(frame: FrameType) -> str:
    """Return the nearest file of the package on the stack that is not a wrapper, or an empty text."""
    above = frame.f_back
    while above is not None:
        name = above.f_code.co_filename
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX) not in WRAPPERS:
            return name
        above = above.f_back
    return ""


def _edges(first: int, count: int) -> list[tuple[str, str]]:
    return [(f"n{first + n}", f"n{first + n + 1}") for n in range(count)]


def _insert(db: Any, *rows: tuple[str, str]) -> None:
    with db.transaction() as tx:
        tx.insert("edge", list(rows))


def _local(tracer: Tracer, path: Path | None) -> Walk:
    with rederive.open(path) as db:
        db.define(CLOSURE)
        changes: list[object] = []
        db.subscribe("closure", changes.append)
        for edge in _edges(0, WARM):
            _insert(db, edge)
        walk = tracer.trace(lambda: _insert(db, *_edges(WARM, 1)))
        assert len(changes) == WARM + 1, changes
    return walk


def in_memory(tracer: Tracer, folder: Path) -> Walk:
    """Trace a transaction of one edge, with a subscription, in memory."""
    return _local(tracer, None)


def stored(tracer: Tracer, folder: Path) -> Walk:
    """Trace the same transaction with a store."""
    return _local(tracer, folder / "store")


def over_http(tracer: Tracer, folder: Path) -> Walk:
    """Trace the same transaction posted to a service, until a subscriber has the event."""
    from rederive.cli.main import app

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    (folder / "views.dl").write_text(CLOSURE)
    (folder / "rederive.toml").write_text('programs = ["views.dl"]\n')
    arguments = ["serve", str(folder), "--address", f"127.0.0.1:{port}"]
    threading.Thread(target=lambda: app(arguments, standalone_mode=False), daemon=True).start()
    _wait_until(lambda: urllib.request.urlopen(f"{url}/v1/health").status == 200)

    def post(rows: list[tuple[str, str]]) -> None:
        body = json.dumps({"insert": {"edge": rows}}).encode()
        request = urllib.request.Request(f"{url}/v1/transactions", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request).read()

    request = urllib.request.Request(f"{url}/v1/views/closure/changes", headers={"Accept": "text/event-stream"})
    stream = urllib.request.urlopen(request)

    def read_event(kind: str) -> None:
        while f"event: {kind}" not in stream.readline().decode():
            pass
        while stream.readline().strip():
            pass

    read_event("snapshot")

    def operation(first: int) -> None:
        post(_edges(first, 1))
        read_event("change")

    for first in range(WARM):
        operation(first)
    return tracer.trace(lambda: operation(WARM))


def _wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        assert time.monotonic() < end, "the service does not answer"
        time.sleep(0.05)


def frame_on_spark(tracer: Tracer, folder: Path) -> Walk:
    """Trace a data frame of 4,000 rows, on Spark with a lake."""
    with rederive.open(lake=folder / "lake", engine="spark") as db:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        assert session is not None
        db.define(JOIN)
        for first in (0, ROWS):
            frame = session.createDataFrame(_edges(first, ROWS), "x string, y string")
            walk = tracer.trace(lambda frame=frame: db.apply("edge", inserts=frame))  # type: ignore[misc]
    return walk


@dataclass(frozen=True)
class Goal:
    """A walk, the files it had before the redesign (as issue 17 states, and by this script), and those it may have."""

    run: Callable[[Tracer, Path], Walk]
    title: str
    stated: int
    before: int
    most: int


GOALS = {
    "memory": Goal(in_memory, "a transaction in memory", 22, 24, 14),
    "store": Goal(stored, "a stored transaction", 28, 31, 18),
    "http": Goal(over_http, "an HTTP post to a pushed event", 42, 46, 26),
    "spark": Goal(frame_on_spark, f"a frame of {ROWS:,} rows on Spark with a lake", 61, 77, 35),
}


def print_walk(goal: Goal, walk: Walk, with_steps: bool) -> bool:
    """Print a walk and its goal; return whether it meets it."""
    files = walk.files
    print(
        f"\n{goal.title}: {len(files)} files (goal {goal.most}; before {goal.before}, stated as {goal.stated}), "
        f"{walk.crossings} crossings"
    )
    print("\n".join(f"  {at:3} {file}" for at, file in enumerate(files, 1)))
    entries = walk.pipeline_entries()
    print("  entries at the level of the pipeline:")
    for file, count in entries.most_common():
        print(f"  {count:3}{'  over' if count > MOST_ENTRIES else '      '} {file}")
    if with_steps:
        print("  every entry:")
        last: tuple[str, str] | None = None
        for entry in walk.entries:
            if entry != last:
                print(f"      {entry[0] or '(outside)'} -> {entry[1]}")
            last = entry
    return len(files) <= goal.most and all(count <= MOST_ENTRIES for count in entries.values())


def main() -> int:
    """Run each walk in a process of its own, and print it: one walk warms no cache of another, and leaves no thread."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("walks", nargs="*", help=f"some of: {', '.join(GOALS)}")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a walk exceeds its goal")
    parser.add_argument("--steps", action="store_true", help="print every entry")
    options = parser.parse_args()
    unknown = set(options.walks) - set(GOALS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    names = options.walks or list(GOALS)
    if len(names) == 1:
        _run(names[0], options.steps, options.check)
    flags = [flag for flag, is_set in (("--check", options.check), ("--steps", options.steps)) if is_set]
    return max([subprocess.run([sys.executable, __file__, *flags, name], check=False).returncode for name in names])


def _run(name: str, with_steps: bool, check: bool) -> NoReturn:
    """Trace one walk in this process, and end it."""
    tracer = Tracer()
    tracer.install()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        walk = GOALS[name].run(tracer, Path(folder))
    meets = print_walk(GOALS[name], walk, with_steps)
    sys.stdout.flush()
    # The server's thread is still running: leave without waiting for it.
    os._exit(0 if meets or not check else 1)


if __name__ == "__main__":
    sys.exit(main())
