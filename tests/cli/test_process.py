"""A few commands in a process of their own: the installed program, its exit code and its byte-exact output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CLOSURE

PROGRAM = Path(sys.executable).parent / "rederive"
CHANGES = '{"insert": {"edge": [["h","d"]]}, "delete": {"edge": [["b","c"]]}}\n'
EDGES = "f\te\ne\td\ne\ta\na\tb\nd\tc\nb\tc\nc\tg\n"
INITIAL_LINE = (
    b'{"version": 1, "view": "closure", "plus": [["a","b"],["a","c"],["a","g"],["b","c"],["b","g"],["c","g"],'
    b'["d","c"],["d","g"],["e","a"],["e","b"],["e","c"],["e","d"],["e","g"],'
    b'["f","a"],["f","b"],["f","c"],["f","d"],["f","e"],["f","g"]], "minus": []}\n'
)
ISSUE_LINE = (
    b'{"version": 2, "view": "closure", "plus": [["h","c"],["h","d"],["h","g"]], '
    b'"minus": [["a","c"],["a","g"],["b","c"],["b","g"]]}\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "closure.dl").write_text(CLOSURE)
    (tmp_path / "edge.facts").write_text(EDGES)
    (tmp_path / "changes.jsonl").write_text(CHANGES)
    return tmp_path


def rederive(folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([PROGRAM, *arguments], cwd=folder, input=stdin, capture_output=True, timeout=60, check=False)


def test_the_line_of_the_issue_byte_by_byte(folder: Path) -> None:
    done = rederive(folder, "run", "closure.dl", "--facts", ".", "--changes", "changes.jsonl")
    assert (done.returncode, done.stdout, done.stderr) == (0, INITIAL_LINE + ISSUE_LINE, b"")


WITHOUT_SQL_AND_SPARK = """
import sys
import rederive
from rederive.cli.main import app
assert not {"sqlglot", "pyspark"} & sys.modules.keys(), "imported by rederive"
app(sys.argv[1:], standalone_mode=False)
assert not {"sqlglot", "pyspark"} & sys.modules.keys(), "imported by the command"
"""


@pytest.mark.parametrize("store", [(), ("--store", "kept")])
def test_datalog_needs_neither_the_parser_of_sql_nor_spark(folder: Path, store: tuple[str, ...]) -> None:
    command = ("run", "closure.dl", "--facts", ".", "--changes", "changes.jsonl", *store)
    for _ in store or ("once",):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_SQL_AND_SPARK, *command], cwd=folder, capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
        command = ("run", "closure.dl", *store)


def test_changes_from_standard_input(folder: Path) -> None:
    done = rederive(folder, "run", "closure.dl", "--facts", ".", "--no-initial", "--changes", "-", stdin=CHANGES.encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, ISSUE_LINE, b"")


def test_the_module_is_the_program_and_prints_utf8_in_any_locale(folder: Path) -> None:
    command = [sys.executable, "-m", "rederive.cli.main", "run", "closure.dl", "--changes", "-", "--no-initial"]
    stdin = '{"insert": {"edge": [["é", "💥"]]}}'.encode()
    done = subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, env={"LC_ALL": "C", "PYTHONUTF8": "0"}, timeout=60, check=False
    )
    assert done.stdout.decode() == '{"version": 2, "view": "closure", "plus": [["é","💥"]], "minus": []}\n'


def test_a_mistake_ends_with_two_and_an_empty_standard_output(folder: Path) -> None:
    (folder / "changes.jsonl").write_text(CHANGES + '{"insert": {"edge": [["x"]]}}\n' + CHANGES)
    done = rederive(folder, "run", "closure.dl", "--facts", ".", "--initial", "--changes", "changes.jsonl")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"changes.jsonl:2")


def test_a_reader_that_closes_early_is_no_error(folder: Path) -> None:
    rows = "".join(f'{{"insert": {{"edge": [["n{i}", "m{i}"]]}}}}\n' for i in range(2000))
    (folder / "changes.jsonl").write_text(rows)
    command = f"{PROGRAM} run closure.dl --changes changes.jsonl | head -n 1"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, timeout=60, check=False)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""
