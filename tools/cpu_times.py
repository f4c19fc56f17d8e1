"""Record what each test costs in CPU time, which a busy machine does not change.

    python -m pytest -p tools.cpu_times --cpu-times=times.tsv tests/store
    python tools/cpu_times.py times.tsv          the most expensive tests, files and folders

A test's cost is the CPU time of the pytest process and of all its descendants (servers, and Spark's Java process)
from the start of its set-up to the end of its teardown. The first test that uses Spark pays for starting it.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU time of this process, of its descendants, and of the children that have ended."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The command's name is in parentheses and may contain spaces: the fields are counted from the last ")".
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process ended meanwhile
        children[int(fields[1])].append(int(folder.name))
        # utime, stime, and the same of children that were waited for: fields 14 to 17 of proc(5).
        used[int(folder.name)] = sum(map(int, fields[11:15])) / _TICK
    total, open_ = 0.0, [os.getpid()]
    while open_:
        process = open_.pop()
        total += used.get(process, 0.0)
        open_ += children[process]
    return total


class Recorder:
    """Appends one line for each test to a file: CPU seconds, wall seconds, the test's id."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure around set-up, call and teardown."""
        cpu, wall = cpu_seconds(), time.monotonic()
        result = yield
        line = f"{cpu_seconds() - cpu:.2f}\t{time.monotonic() - wall:.2f}\t{item.nodeid}\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)
        return result


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--cpu-times=FILE`."""
    parser.addoption("--cpu-times", type=Path, help="append each test's CPU and wall seconds to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Record if the option is given."""
    if (path := config.getoption("--cpu-times")) is not None:
        config.pluginmanager.register(Recorder(path))


def report(path: Path, most: int = 200) -> None:
    """Print the most expensive tests, and the sums of files and folders."""
    times: dict[str, tuple[float, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t", 2)
        times[fields[2]] = (float(fields[0]), float(fields[1]))
    for level, name in ((1, "folders"), (2, "files")):
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for test, (cpu, wall) in times.items():
            file = test.partition("::")[0]
            entry = sums[str(Path(file).parent) if level == 1 else file]
            entry[0], entry[1], entry[2] = entry[0] + cpu, entry[1] + wall, entry[2] + 1
        print(f"\n{name}: CPU seconds, wall seconds, tests")
        for key, (cpu, wall, count) in sorted(sums.items(), key=lambda item: -item[1][0]):
            print(f"{cpu:9.1f} {wall:9.1f} {count:6.0f}  {key}")
    print(f"\nthe {most} most expensive tests: CPU seconds, wall seconds")
    for test, (cpu, wall) in sorted(times.items(), key=lambda item: -item[1][0])[:most]:
        print(f"{cpu:9.2f} {wall:9.2f}  {test}")
    print(f"\n{len(times)} tests, {sum(cpu for cpu, _ in times.values()):.0f} CPU seconds")


if __name__ == "__main__":
    report(Path(sys.argv[1]))
