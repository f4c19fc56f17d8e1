"""Write the result of a run of the tests into docs/testing.md.

    make test; python tools/record_run.py .pytest_cache/test.xml "make test"      `make test-all` does it by itself

The table between the two markers of the page gets one line for each run, the newest first.
"""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "testing.md"
HEAD = "| when | run | commit | machine | passed | failed | skipped | duration |\n|---|---|---|---|---|---|---|---|\n"
BEGIN, END = "<!-- runs -->\n", "<!-- end of runs -->"


def line_of(report: Path, run: str, commit: str) -> str:
    """Return the line of the table for a report of pytest.

    >>> from tempfile import TemporaryDirectory
    >>> text = '<testsuites><testsuite tests="3" failures="1" errors="0" skipped="1" time="90" timestamp="2026-11-17T10:00:00"/>'
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.xml")
    ...     _ = path.write_text(text + "</testsuites>")
    ...     line_of(path, "make test", "abc").split(" | ")[4:]
    ['1', '1', '1', '1 min 30 s |\\n']
    """
    suite = ElementTree.parse(report).getroot().find("testsuite")
    if suite is None:
        raise SystemExit(f"{report} has no test suite")
    tests, failed, errors, skipped = (int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped"))
    minutes, seconds = divmod(round(float(suite.get("time", "0"))), 60)
    when = datetime.datetime.fromisoformat(suite.get("timestamp", "")).strftime("%Y-%m-%d %H:%M")
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    passed = tests - failed - errors - skipped
    return f"| {when} | {run} | {commit} | {machine} | {passed} | {failed + errors} | {skipped} | {minutes} min {seconds} s |\n"


def with_line(page: str, line: str) -> str:
    """Return the page with one more line in its table.

    >>> print(with_line("# Runs\\n<!-- runs -->\\n<!-- end of runs -->\\n", "| today |\\n"), end="")
    # Runs
    <!-- runs -->
    | when | run | commit | machine | passed | failed | skipped | duration |
    |---|---|---|---|---|---|---|---|
    | today |
    <!-- end of runs -->
    """
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    return f"{before}{BEGIN}{HEAD}{line}{table.removeprefix(HEAD)}{END}{after}"


def main() -> None:
    """Record the run that the report describes."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    line = line_of(Path(sys.argv[1]), sys.argv[2], commit)
    PAGE.write_text(with_line(PAGE.read_text(encoding="utf-8"), line), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {line}", end="")


if __name__ == "__main__":
    main()
