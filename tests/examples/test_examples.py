"""Every example runs as the comment at its top says."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console
from typer.testing import CliRunner

import rederive
from rederive.cli.main import app
from tests.service.conftest import start

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(path for ending in ("dl", "sql") for path in (ROOT / "examples").glob(f"*.{ending}"))
COMMANDS = [
    pytest.param(command, marks=pytest.mark.slow if path.stem == "debian" else (), id=command)
    for path in PROGRAMS
    for line in path.read_text(encoding="utf-8").splitlines()
    for prefix, _, command in [line.partition("--   rederive " if path.suffix == ".sql" else "//   rederive ")]
    if command and not prefix
]


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(command, monkeypatch)


def test_every_program_shows_how_it_is_run() -> None:
    text = "\n".join(str(parameter.values[0]) for parameter in COMMANDS)
    assert all(f"examples/{path.name}" in text for path in PROGRAMS)


def test_the_stock_example_orders_what_falls_below_its_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run("run examples/stock.dl --changes examples/stock.jsonl", monkeypatch).splitlines()
    orders = [change for change in map(json.loads, lines) if change["view"] == "order"]
    assert [(change["plus"], change["minus"]) for change in orders] == [
        ([["nut", 7220]], []),
        ([["bolt", 4910]], [["nut", 7220]]),
        ([["nut", 7200]], []),
    ]


def test_datalog_and_sql_read_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run("run examples/orders.sql examples/orders.dl examples/orders_report.sql", monkeypatch).splitlines()
    changes = {(change["version"], change["view"]): change for change in map(json.loads, lines)}
    assert changes[2, "receipt"]["counts"] == {"plus": [3, 1, 1], "minus": []}
    assert changes[5, "together"]["plus"] == [["ann", "cid"], ["bob", "cid"], ["cid", "ann"], ["cid", "bob"]]
    assert changes[6, "around"]["minus"][1] == ["bob", 2, "1.10"]


def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """The part of Debian's graph that the services of the demo need."""
    module = demo()
    needs: dict[str, list[str]] = {}
    with gzip.open(module.DATA, "rt") as file:
        for package, on in csv.reader(file):
            needs.setdefault(package, []).append(on)
    waiting = [package for _, packages in module.SERVICES.values() for package in packages]
    reached: dict[str, list[str]] = {}
    while waiting:
        if (package := waiting.pop()) not in reached:
            reached[package] = needs.get(package, [])
            waiting += reached[package]
    rows = [(package, on) for package, those in reached.items() for on in those]
    small = tmp_path / "depends.csv.gz"
    with gzip.open(small, "wt") as file:
        csv.writer(file).writerows([("src", "dst"), *rows])
    return small


def test_the_demo_in_memory(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = demo()
    assert module.main(["--memory"], graph) == 0
    printed = capsys.readouterr().out
    # The same services as over all of Debian: what they do not need affects nobody.
    assert "+   6 affected  (build, libexpat1, CVE-2024-45492), (checkout, libexpat1, CVE-2024-45492)" in printed
    assert "+   3 exposure  (office, 2, 98), (payments, 2, 98), (platform, 2, 98)" in printed
    assert "-   2 affected  (ledger, libexpat1, CVE-2024-45492), (queue, libexpat1, CVE-2024-45492)" in printed
    assert printed.count("is paged, once") == 3
    assert 'depends("python3.11", "python3.11-minimal")' in printed


def test_the_demo_s_check_finds_a_wrong_row(graph: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = demo()
    db = module.rederive.open()
    db.rules.register(module.page)
    with db.setup():
        module.define(db)
        db.load("depends", module.read_depends(graph))
        for relation, rows in module.invented_rows().items():
            db.load(relation, rows)
    for one in module.STORY:
        with db.transaction() as tx:
            for relation, rows in one.delete.items():
                tx.delete(relation, rows)
            for relation, rows in one.insert.items():
                tx.insert(relation, rows)
    tables = {name: db.rows(name).to_arrow() for name in (*module.BASES, *module.VIEWS)}
    assert module.check(tables)
    assert "Every view is right." in capsys.readouterr().out
    assert not module.check({**tables, "affected": tables["affected"].slice(1)})
    assert "1 are missing, 0 should not be there" in capsys.readouterr().out


def test_a_step_of_the_demo_counts_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    module, printed = demo(), StringIO()
    monkeypatch.setattr(module, "console", Console(force_terminal=True, width=100, file=printed))
    counts = iter([0, *[2_000] * 1000])
    with module.step("deriving", lambda: module.Count(next(counts), None, "tuples")) as say:
        time.sleep(1)
        say("all of it")
    shown = printed.getvalue()
    assert "deriving" in shown
    assert "2,000 tuples" in shown
    assert "all of it" in shown
    assert str(module.Count(3, 7, "views")) == "3 of 7 views"


def test_a_mistake_in_a_line_does_not_end_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = demo()
    served = start(tmp_path, "CREATE TABLE advisory (id STRING PRIMARY KEY, severity INT)")
    try:
        with rederive.connect(served.url) as service:
            for i, line in enumerate(("no JSON", '["x"]', '{"insrt": {}}', '{"insert": {"advisry": [["a", 1]]}}')):
                module.commit_line(service, line, f"key {i}")
            module.commit_line(service, '{"insert": {"advisory": [["a", 1]]}}', "key")
            assert service.rows("advisory") == [("a", 1)]
    finally:
        served.end()
    printed = capsys.readouterr().out
    assert printed.count("refused: ") == 4
    assert printed.endswith("a change of yours\n")


@pytest.mark.slow
def test_the_whole_demo() -> None:
    """In a process of its own, as Spark's log goes to a file there."""
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", "no noise of Spark's"
    assert "Every view is right." in done.stdout
    assert re.search(r"The page is open at http://127\.0\.0\.1:\d+/", done.stdout)
