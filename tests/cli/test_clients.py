"""`rederive watch` and `rederive apply` against a real server, through a network that breaks."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import rederive
from rederive.cli.live_table import table
from rederive.cli.main import app
from rederive.errors import Refused, UnknownName, Unreachable, Unsupported
from tests.client.proxy import Proxy
from tests.service.conftest import Served, start
from tests.service.test_rules import STOCK

COMMAND = [sys.executable, "-m", "rederive.cli.main"]


@pytest.fixture(scope="module")
def module_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = start(tmp_path_factory.mktemp("clients") / "project", settings="[bounds]\nheartbeat = 0.2")
    yield running
    running.end()


@pytest.fixture
def served(module_served: Served) -> Served:
    """The same server for all, with empty relations."""
    for relation in ("edge", "stock"):
        rows = module_served.get(f"/v1/relations/{relation}/rows").json()["rows"]
        module_served.delete(relation, *rows)
    return module_served


def run(*arguments: str) -> list[str]:
    """What a command prints; its errors are raised."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


@pytest.fixture
def changes(tmp_path: Path) -> Path:
    lines = [{"insert": {"edge": [[f"n{i}", f"n{i + 1}"]]}} for i in range(250)]
    file = tmp_path / "changes.jsonl"
    file.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    return file


def version(served: Served) -> int:
    found: int = served.get("/v1/health").json()["version"]
    return found


def test_a_query_of_a_service(served: Served) -> None:
    served.insert("edge", ["a", "b"], ["b", "a"], ["x", "é"])
    assert run("query", served.url, 'closure("x", y)') == ['["x","é"]']
    assert run("query", served.url, "closure(x, x)") == ['["a","a"]', '["b","b"]']
    served.insert("stock", ["bolt", 3])
    assert run("query", f"{served.url}/", "stock(item, 3)") == ['["bolt",3]']
    assert run("query", served.url, "stock(item, 4)") == []
    with pytest.raises(UnknownName, match="did you mean 'closure'"):
        run("query", served.url, "closur(x, y)")
    with pytest.raises(Unsupported, match="define a view for it"):
        run("query", served.url, "SELECT 1")


def test_once_shows_what_there_is(served: Served) -> None:
    at = served.insert("edge", ["a", "b"], ["b", "c"], ["x", "é"])
    assert run("watch", served.url, "closure", "--once", "--where", "x=a") == [f'{at} + ["a", "b"]', f'{at} + ["a", "c"]']
    (line,) = run("watch", served.url, "closure", "--once", "--json", "--where", "y=é")
    assert json.loads(line) == {
        "version": at,
        "kind": "snapshot",
        "view": "closure",
        "columns": ["x", "y"],
        "plus": [["x", "é"]],
        "minus": [],
    }


def test_lines_go_on_through_lost_connections(served: Served) -> None:
    """As a process, into a pipe."""
    with Proxy(served.url) as proxy:
        command = [*COMMAND, "watch", proxy.url, "closure"]
        first = served.insert("edge", ["a", "b"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f'{first} + ["a", "b"]\n'
            for i in range(3):
                proxy.cut()
                at = served.insert("edge", ["z", f"{i}"])
                assert process.stdout.readline() == f'{at} + ["z", "{i}"]\n'
            at = served.delete("edge", ["a", "b"])
            assert process.stdout.readline() == f'{at} - ["a", "b"]\n'
            process.terminate()


def test_the_table_shows_the_rows_and_marks_what_came(served: Served) -> None:
    served.insert("edge", *([f"{i:02}", "[red]end"] for i in range(20)))
    with rederive.connect(served.url) as db, db.subscribe("closure") as changes:
        next(changes)
        at = served.insert("edge", ["new", "end"])
        console = Console(file=io.StringIO(), width=80)
        console.print(table("closure", changes, next(changes), 5))
        shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"closure at version {at}: 21 rows, +1 -0" in shown
    assert "and 16 more" in shown
    assert shown.index("new") < shown.index("00")
    assert "[red]end" in shown


def test_on_a_terminal_it_is_a_table(served: Served) -> None:
    at = served.insert("edge", ["a", "b"])
    terminal, end = pty.openpty()
    command = ["env", "--default-signal=INT", *COMMAND, "watch", served.url, "closure"]  # whoever runs the tests may ignore it
    with subprocess.Popen(command, stdout=end) as process:
        try:
            os.close(end)
            assert read_until(terminal, f"closure at version {at}: 1 rows")
            at = served.insert("edge", ["b", "c"])
            assert read_until(terminal, f"closure at version {at}: 3 rows, +2 -0")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()
    os.close(terminal)


def read_until(terminal: int, text: str) -> bool:
    shown = ""
    while text not in shown:
        shown += os.read(terminal, 4096).decode(errors="replace")
    return True


def test_a_file_is_applied_once_whatever_happens_to_the_answers(served: Served, changes: Path) -> None:
    before = version(served)
    with Proxy(served.url) as proxy:
        proxy.lose_answers(2)
        printed = [json.loads(line) for line in run("apply", proxy.url, str(changes), "--key", f"monday-{before}")]
    assert [one["version"] for one in printed] == list(range(before + 1, before + 251))
    assert [one["repeated"] for one in printed] == [True] * 100 + [False] * 150
    again = [json.loads(line) for line in run("apply", served.url, str(changes), "--key", f"monday-{before}")]
    assert [one["version"] for one in again] == [one["version"] for one in printed]
    assert all(one["repeated"] for one in again)
    assert version(served) == before + 250


def test_what_is_refused_names_the_line_of_the_file(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    lines: list[Any] = [{"insert": {"stock": [["a", 1]]}}, {"insert": {"stock": [["a", 2]]}}]
    file.write_text("\n\n".join(map(json.dumps, lines)))
    before = version(served)
    with pytest.raises(Refused) as caught:
        run("apply", served.url, str(file))
    assert (caught.value.code, caught.value.place) == ("duplicate_key", f"{file}:3")
    assert version(served) == before + 1  # what stood before it
    file.write_text(json.dumps({"insert": {"stock": [["a", "x"]]}}))
    with pytest.raises(Refused) as caught:
        run("apply", served.url, str(file))
    assert (caught.value.code, str(caught.value.place).startswith(f"{file}:1")) == ("ill_typed", True)


def test_a_silent_address_is_reported_before_the_client_gives_up(tmp_path: Path) -> None:
    (tmp_path / "changes.jsonl").write_text("{}\n")
    for command in (["watch", "http://127.0.0.1:1", "closure"], ["apply", "http://127.0.0.1:1", str(tmp_path / "changes.jsonl")]):
        result = CliRunner().invoke(app, [*command, "--patience", "0"])
        assert isinstance(result.exception, Unreachable)
        assert "http://127.0.0.1:1 does not answer (" in result.stderr


def test_mistakes(served: Served) -> None:
    """Errors end a process with exit code 2 and a line on standard error, as of every command."""
    with pytest.raises(Refused, match="closures"):
        run("watch", served.url, "closures", "--once")
    with pytest.raises(Unreachable):
        run("watch", "http://127.0.0.1:1", "closure", "--once", "--patience", "0")
    assert CliRunner().invoke(app, ["watch", served.url]).exit_code == 2


def test_rules(tmp_path: Path) -> None:
    running = start(tmp_path / "project", STOCK, "[bounds]\nheartbeat = 0.2")
    try:
        running.insert("stock", ["bolt", 3])
        assert run("watch", running.url, "--rules", "--once") == ['1 reorder write done: +["bolt", 3]']
        assert json.loads(run("watch", running.url, "reorder", "--rules", "--once", "--json")[0])["plus"] == [["bolt", 3]]
        with Proxy(running.url) as proxy:
            command = [*COMMAND, "watch", proxy.url, "--rules"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                proxy.until_asked()
                for i in range(3):
                    if i:  # it has read where the stream stands
                        proxy.cut()
                    at = running.insert("stock", [f"s{i}", i])
                    assert process.stdout.readline() == f'{at} reorder write done: +["s{i}", {i}]\n'
                process.terminate()
    finally:
        running.end()
