"""Memory: for the Debian graph and its closure, how a fresh process grows; for relations of some columns, bytes for each row."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.closure import DATA, evaluated, loaded, read_edges
from benchmarks.peers import DuckDB
from benchmarks.report import Check, Figure, Goal, Section, Unit

ROOT = Path(__file__).parent.parent
LIMIT = 500e6
WIDTHS = (2, 5, 20)
STORED = 500_000  # rows


@dataclass(frozen=True, slots=True)
class Growth:
    """A process's resident set, in bytes, before and after; its peak on the way; the rows of the view that it then holds."""

    before: int
    after: int
    peak: int
    rows: int


def run() -> Iterator[Section]:
    ours, peer = measured("rederive"), measured("duckdb")
    goal = Goal("< 500 MB", ours.after - ours.before < LIMIT)
    yield Section(
        "Debian closure: memory",
        (
            Figure("base and view", ours.after - ours.before, peer.after - peer.before, goal, Unit.BYTES),
            Figure("peak on the way there", ours.peak - ours.before, peer.peak - peer.before, None, Unit.BYTES),
            Figure("the whole process", ours.after, peer.after, None, Unit.BYTES),
        ),
        (Check(f"both hold {ours.rows:,} pairs", ours.rows == peer.rows),),
        ("Growth of the resident set of a fresh process; DuckDB stores the closure in a table, without an index.",),
    )

    yield Section(
        f"A stored relation of {STORED:,} rows: bytes for each row",
        tuple(Figure(f"{width} columns", bytes_per_row(width), None, None, Unit.COUNT) for width in WIDTHS),
        (),
        (
            "BIGINT columns from Arrow, the first one the primary key, the others of a million values; no view reads them.",
            "What is allocated and not freed after the load (`mallinfo2`), with the index on the key.",
        ),
    )


def bytes_per_row(width: int) -> float:
    return float(in_process("benchmarks.memory", "columns", width, PYTHONMALLOC="malloc")) / STORED


def _column_bytes(width: int) -> int:
    """The bytes that a relation of so many columns takes."""
    import numpy as np
    import pyarrow as pa

    import rederive

    chance = np.random.default_rng(1)
    rows = pa.table({f"c{i}": chance.integers(0, 10**6, STORED) if i else np.arange(STORED) for i in range(width)})
    db = rederive.open()
    db.sql(f"CREATE TABLE t ({', '.join(f'c{i} BIGINT' for i in range(width))}, PRIMARY KEY (c0))")
    before = allocated()
    db.load("t", rows)
    return allocated() - before


def measured(engine: str) -> Growth:
    return Growth(**in_process("benchmarks.memory", engine))


def in_process(module: str, *arguments: object, **environment: str) -> Any:
    """`python -m MODULE ARGUMENTS` in a process of its own: the JSON that it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    variables = {**os.environ, **environment}
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, env=variables).stdout)


def _hold_rederive() -> Callable[[], int]:
    db = evaluated(loaded(read_edges()))
    return lambda: db.pipeline.state.engine.size("closure")


def _hold_duckdb() -> Callable[[], int]:
    graph = DuckDB.of_csv(DATA)
    graph.store_closure()
    return graph.stored_size


HOLDERS = {"rederive": _hold_rederive, "duckdb": _hold_duckdb}


def status(field: str) -> int:
    """A field of this process's status, in bytes, as Linux tells it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def resident() -> int:
    """This process's resident set when garbage is collected and the allocator has given back what it does not use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return status("VmRSS")


class _Heap(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in "arena free_n fast_n mapped_n mapped _ fast used free top".split())


def allocated() -> int:
    """The bytes that are allocated and not freed: all of them where Python runs with `PYTHONMALLOC=malloc`."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Heap
    heap = mallinfo()
    return int(heap.used) + int(heap.mapped)


def _measure(engine: str) -> Growth:
    before = status("VmRSS")
    rows = HOLDERS[engine]()
    return Growth(before, status("VmRSS"), status("VmHWM"), rows())


if __name__ == "__main__":
    engine, *width = sys.argv[1:]
    print(json.dumps(_column_bytes(int(width[0])) if width else asdict(_measure(engine))))
