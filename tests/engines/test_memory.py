"""What rows take in memory: estimated figures against the growth of a process, and limits of machines and containers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

import rederive
from rederive.engines.machine_memory import available_memory
from rederive.engines.memory_budget import BYTES_PER_ROW, Footprint
from rederive.engines.resident.storage.memory import Memory
from tests.selection import fast_only

LOAD = Path(__file__).with_name("memory_load.py")
GIB = 2**30


ROWS = {"edges": 100_000, "closure": 50_000, "wide": 50_000, "star": 30_000}


@pytest.mark.parametrize("shape", fast_only(ROWS, "closure"))
def test_the_estimate_is_the_growth_of_the_process(shape: str) -> None:
    """Before this, 100 bytes a base row: `why` said 106 MiB where the process held 3.1 GB."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONMALLOC": "malloc"}
    command = [sys.executable, str(LOAD), shape, str(ROWS[shape])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0.5 < found["estimated"] / found["grown"] < 2, found
    said = re.search(r"take about ([\d.]+) MiB", found["why"])
    assert said is not None, found
    assert float(said[1]) == pytest.approx(found["estimated"] / 2**20, rel=0.1)


@pytest.mark.parametrize(("memory", "kept"), [(150_000, False), (3_000_000, True)])
def test_a_view_that_does_not_fit_is_derived_on_demand(memory: int, kept: bool) -> None:
    """By what it takes, with the relations below it: 400 edges and 80,200 pairs are about 700 KB."""
    db = rederive.open(limits=rederive.Limits(memory=memory))
    db.define(".decl e(x: number, y: number)  .decl c(x: number, y: number)  c(x, y) :- e(x, y).  c(x, y) :- e(x, z), c(z, y).")
    db.load("e", [(i, i + 1) for i in range(400)])
    assert ("stores the view" in db.explain("c")) == kept, db.explain("c")
    assert len(db.rows("c")) == 80_200


def test_explain_says_what_the_rows_take() -> None:
    """As `why` does, and also where the engine was not chosen; of the whole database, and only where it has rows."""
    program = ".decl e(x: number, y: number)  .decl v(x: number)  v(x) :- e(x, y), y > 0."
    for engine in ("resident", "auto"):
        db = rederive.open(engine=engine)
        db.define(program)
        assert "memory" not in db.explain()
        result = db.load("e", [(i, i) for i in range(5_000)])
        said = json.loads(db.explain(form="json"))["memory"]
        assert re.match(r"5,000 base rows with their indexes and views take about [\d.]+ [KM]iB, and fit the ", said)
        assert f"memory: {said}\n\n" in db.explain()
        assert "memory" not in db.explain("v")
        assert result is not None
        assert engine == "resident" or result.engine_reason == said


# The machine and its containers


def machine(root: Path, available: int, groups: str, files: dict[str, str]) -> Path:
    """A system's files under a folder."""
    contents = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:   {available // 1024} kB\n", "proc/self/cgroup": groups, **files}
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v2(folder: str, limit: str, used: int, inactive: int = 0) -> dict[str, str]:
    top = f"sys/fs/cgroup{folder}"
    stat = f"anon 5\nfile 7\ninactive_file {inactive}\n"
    return {f"{top}/memory.max": f"{limit}\n", f"{top}/memory.current": f"{used}\n", f"{top}/memory.stat": stat}


def v1(folder: str, limit: int, used: int, inactive: int = 0) -> dict[str, str]:
    top = f"sys/fs/cgroup/memory{folder}"
    stat = f"inactive_file 1\ntotal_inactive_file {inactive}\n"
    return {f"{top}/memory.limit_in_bytes": f"{limit}", f"{top}/memory.usage_in_bytes": f"{used}", f"{top}/memory.stat": stat}


def test_of_the_machine(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == inf
    assert available_memory(machine(tmp_path, 6 * GIB, "0::/\n", {})) == 6 * GIB
    assert 0 < available_memory() < inf


def test_of_a_container(tmp_path: Path) -> None:
    """Caches of files are given back; a limit holds for all groups below it."""
    inside = machine(tmp_path / "v2", 60 * GIB, "0::/\n", v2("", str(4 * GIB), 3 * GIB, GIB // 2))
    assert available_memory(inside) == 1.5 * GIB
    nested = {**v2("/a", str(8 * GIB), 7 * GIB), **v2("/a/b", "max", GIB)}
    assert available_memory(machine(tmp_path / "nested", 60 * GIB, "0::/a/b\n", nested)) == GIB
    old = machine(tmp_path / "v1", 60 * GIB, "4:cpu,memory:/docker/x\n0::/\n", v1("/docker/x", 2 * GIB, GIB, GIB // 4))
    assert available_memory(old) == 1.25 * GIB
    unlimited = machine(tmp_path / "no", 60 * GIB, "4:memory:/\n", v1("", 9223372036854771712, GIB))
    assert available_memory(unlimited) == 60 * GIB
    seen_from_inside = machine(tmp_path / "host", 60 * GIB, "4:memory:/docker/x\n", v1("", 2 * GIB, 3 * GIB))
    assert available_memory(seen_from_inside) == 0


def test_what_rows_may_take() -> None:
    footprint = Footprint(8 * GIB, lambda: 10 * GIB)
    assert footprint.need(1000) == 1000 * BYTES_PER_ROW
    assert footprint.has_room(2 * GIB // BYTES_PER_ROW)
    assert not footprint.has_room(6 * GIB // BYTES_PER_ROW)  # more than half of what is available
    footprint.record(10**6, Memory({"r": 3 * GIB}, {}, GIB, 10**6))  # 4 GiB, and 5 more may come: the limit comes first
    assert footprint.need(2 * 10**6) == 8 * GIB
    assert footprint.has_room(2 * 10**6)
    assert not footprint.has_room(2 * 10**6 + 1)
    assert footprint.describe(10**6) == (
        "1,000,000 base rows with their indexes and views take about 4.0 GiB, and fit the 8.0 GiB of memory that they may take"
    )


def test_what_the_machine_has_left_counts() -> None:
    footprint = Footprint(8 * GIB, lambda: 2 * GIB)
    footprint.record(10**6, Memory({"r": GIB}, {}, GIB, 10**6))
    assert footprint.has_room(1.4 * 10**6)
    assert not footprint.has_room(1.6 * 10**6)
    footprint.is_resident = False
    assert footprint.describe(2 * 10**6).endswith(
        "would take about 4.0 GiB, and do not fit the 3.0 GiB of memory that this machine has for them"
    )


def test_measured_again_when_much_has_changed() -> None:
    footprint = Footprint(8 * GIB, lambda: inf)
    footprint.record(10**6, Memory({"r": GIB}, {}, 0, 10**6))
    assert not any(footprint.is_old(10**4) for _ in range(10))
    assert footprint.is_old(1)
