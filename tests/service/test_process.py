"""`rederive init` and `rederive serve` as processes: what a user sees, how they end, and what is there after a kill."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rederive.cli.service_commands import init, serve
from rederive.errors import RederiveError
from rederive.failpoints import VARIABLE
from rederive.rules.webhook import Webhooks
from rederive.service.project import read_project
from rederive.service.settings import DEFAULT_BUDGETS, ServiceLimits
from tests.service.conftest import CLIENT

COMMAND = [sys.executable, "-m", "rederive.cli.main"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init(tmp_path / "graph")
    return tmp_path / "graph"


@contextmanager
def serving(project: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    arguments = [*COMMAND, "serve", str(project), "--address", "127.0.0.1:0"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.fullmatch(r"rederive serves (http://127\.0\.0\.1:\d+)/v1\n", line)
        assert found, line
        yield process, found[1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def insert(url: str, *row: str, key: str = "") -> int:
    headers = {"Idempotency-Key": key} if key else {}
    answer = CLIENT.post(f"{url}/v1/transactions", json={"insert": {"edge": [row]}}, headers=headers)
    version: int = answer.json()["version"]
    return version


def test_it_ends_when_it_is_told_to_and_starts_where_it_was(project: Path) -> None:
    with serving(project) as (process, url):
        assert insert(url, "a", "b") == 1
        with CLIENT.stream("GET", f"{url}/v1/views/closure/changes") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 1000"
            process.send_signal(signal.SIGTERM)
            assert "event: problem" in list(lines)
        process.wait(20)
        assert process.stderr is not None
        assert process.stderr.read() == ""
    with serving(project) as (process, url):
        assert insert(url, "b", "c") == 2
        rows = CLIENT.get(f"{url}/v1/views/closure/rows").json()["rows"]
        assert rows == [["a", "b"], ["a", "c"], ["b", "c"]]


def test_two_servers_do_not_share_a_store(project: Path) -> None:
    with serving(project) as (process, _):
        second = run("serve", str(project), "--address", "127.0.0.1:0")
    assert (second.returncode, "error[locked]" in second.stderr, str(process.pid) in second.stderr) == (2, True, True)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("journal.append:written", marks=pytest.mark.slow),
        "journal.append:after",
        pytest.param("commit:applied", marks=pytest.mark.slow),
    ],
)
def test_after_a_kill_what_was_acknowledged_is_there_and_nothing_twice(project: Path, point: str) -> None:
    """The key tells what became of the transaction that nobody answered."""
    with serving(project, **{VARIABLE: f"{point}@2"}) as (process, url):
        assert insert(url, "a", "b", key="one") == 1
        with pytest.raises(Exception, match=r"disconnected|reset"):
            insert(url, "b", "c", key="two")
        process.wait(20)
        assert process.returncode == -signal.SIGKILL
    with serving(project) as (_, url):
        assert (insert(url, "a", "b", key="one"), insert(url, "b", "c", key="two")) == (1, 2)
        headers = {"Accept": "application/x-ndjson"}
        told = CLIENT.get(f"{url}/v1/views/closure/changes?since=0", headers=headers).text.splitlines()
        assert len(told) == 2


def test_projects_that_are_refused(project: Path, tmp_path: Path) -> None:
    assert refused(lambda: init(project)) == ("project", "the file exists")
    assert refused(lambda: serve(tmp_path, None))[0] == "project"
    code, message = refused(lambda: serve(project, "0.0.0.0:0"))
    assert (code, "has no token" in message) == ("project", True)
    assert refused(lambda: serve(project, "nowhere")) == ("project", "'nowhere' is not HOST:PORT")
    (project / "views.dl").unlink()
    assert refused(lambda: serve(project, "127.0.0.1:0"))[0] == "missing_file"
    assert not (project / "store").exists()


def test_what_the_first_project_shows_can_be_switched_on(project: Path) -> None:
    file = project / "rederive.toml"
    shown = re.sub(r"^# (?=\[|[a-z_]+ = )", "", file.read_text(), flags=re.MULTILINE)
    file.write_text(shown)
    secret = "sixteen characters"
    read = read_project(project, {"DASHBOARD_TOKEN": secret, "WEBHOOK_SECRET": secret})
    assert read.webhooks == Webhooks(secret, ("hooks.example.com",))
    assert (read.bounds, read.budgets, read.tokens[0].read) == (ServiceLimits(), DEFAULT_BUDGETS, frozenset({"closure"}))
    assert (read.engine, read.strategy, read.lake) == ("resident", "auto", str(project / "lake"))


def refused(call: Callable[[], None]) -> tuple[str, str]:
    with pytest.raises(RederiveError) as caught:
        call()
    return caught.value.code, caught.value.message
