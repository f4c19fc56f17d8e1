"""Every example runs as the comment at its top says."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from rederive.cli.main import app

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
    spec.loader.exec_module(module)
    return module


def test_the_demo_tells_the_paper_s_change(capsys: pytest.CaptureFixture[str]) -> None:
    demo().graph_example()
    printed = capsys.readouterr().out
    assert "plus   h -> c, h -> d, h -> g\n" in printed
    assert "minus  a -> c, a -> g, b -> c, b -> g\n" in printed


def test_the_demo_fails_when_the_view_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    module = demo()
    db = module.rederive.open()
    db.define(module.NEEDS)
    db.load("depends", [("a", "b"), ("b", "c")])
    assert module.check(db, {("a", "b"), ("b", "c")})
    assert not module.check(db, {("a", "b"), ("c", "d")})
    assert "Rows missing from the maintained view: 1; rows that should not be there: 2." in capsys.readouterr().out


@pytest.mark.slow
def test_the_whole_demo() -> None:
    assert demo().main() == 0
