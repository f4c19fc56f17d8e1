"""Two peers in Rust that maintain the closure: differential-dataflow, and DBSP, the engine of Feldera.

Their programs are in `benchmarks/peers/differential` and `benchmarks/peers/dbsp`. They are built once, where `cargo` is there.
This takes minutes for the first and an hour for the second on a busy machine. Each runs in a process and one thread of its own,
and measures its CPU time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.closure_query import Pair

HERE = Path(__file__).resolve().parent
TARGET = HERE / "target"
PEERS = {"differential": "differential-dataflow 0.25.1", "dbsp": "DBSP 0.349.0"}
Operation = tuple[str, Pair]  # "D" or "I", and the edge


@dataclass(frozen=True, slots=True)
class RustRun:
    """One run: seconds from scratch, the pairs found, bytes then; for each operation its seconds and the rows that changed."""

    name: str
    initial: float
    pairs: int
    memory: int
    seconds: list[float]
    changes: list[set[Pair]]


def is_built(peer: str) -> bool:
    """Whether the program is there, or could be built just now."""
    return _program(peer).exists() or _build(peer)


def run(peer: str, edges: Sequence[Pair], operations: Sequence[Operation]) -> RustRun:
    """Load the edges, evaluate the closure, then apply the operations one by one."""
    codes: dict[object, int] = {}
    coded = [(codes.setdefault(x, len(codes)), codes.setdefault(y, len(codes))) for x, y in edges]
    values = list(codes)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("edges", "operations", "changes")]
        files[0].write_text("".join(f"{x} {y}\n" for x, y in coded), encoding="utf-8")
        files[1].write_text("".join(f"{kind} {codes[x]} {codes[y]}\n" for kind, (x, y) in operations), encoding="utf-8")
        done = subprocess.run([_program(peer), *files], check=True, capture_output=True, text=True)
        (_, initial, pairs, kilobytes), *times = (line.split() for line in done.stdout.splitlines())
        changes: list[set[Pair]] = [set() for _ in operations]
        for line in files[2].read_text(encoding="utf-8").splitlines():
            number, x, y, weight = map(int, line.split())
            # An inserted edge only adds pairs, a deleted one only removes them, each once.
            if weight != (1 if operations[number][0] == "I" else -1):
                raise AssertionError(f"{peer} changed ({values[x]}, {values[y]}) by {weight}")
            changes[number].add((values[x], values[y]))
    return RustRun(
        PEERS[peer], int(initial) / 1e9, int(pairs), 1024 * int(kilobytes), [int(time) / 1e9 for (time,) in times], changes
    )


def _program(peer: str) -> Path:
    return TARGET / "release" / f"{peer}_closure"


def _build(peer: str) -> bool:
    if shutil.which("cargo") is None:
        return False
    # Politely: the other figures of the run are not measured at this time, but other work on the machine may be.
    command = ["nice", "-n", "10", "cargo", "build", "--release", "--quiet", "--jobs", "1"]
    done = subprocess.run(command, cwd=HERE / peer, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)}, check=False)
    return done.returncode == 0
