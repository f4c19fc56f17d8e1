"""What docs/service.md shows is what a server sends."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rederive.errors import RederiveError
from rederive.service.http.openapi_schemas import SCHEMAS
from rederive.service.http.problems import status_of
from rederive.service.project_file import TomlTable, project_from
from rederive.service.settings import ServiceLimits
from tests.service.conftest import CLIENT, Served

TEXT = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL)


def test_the_events_of_a_stream(graph: Served) -> None:
    (shown,) = (text for _, text in BLOCKS if text.startswith("event: snapshot"))
    graph.insert("edge", ["a", "b"])
    with CLIENT.stream("GET", f"{graph.url}/v1/views/closure/changes") as response:
        lines = response.iter_lines()
        assert [next(lines), next(lines)] == ["retry: 1000", ""]
        read = [next(lines) for _ in range(4)]
        graph.insert("edge", ["b", "c"])
        read += [next(lines) for _ in range(4)]
    graph.insert("stock", ["bolt", 30])
    with CLIENT.stream("GET", f"{graph.url}/v1/views/closure/changes?since=2") as response:
        lines = response.iter_lines()
        read += [line for _, line in zip(range(6), lines, strict=False)][2:]
    assert re.sub(r"id: [0-9a-f]{16}-", "id: 9f86d081884c7d65-", "\n".join(read)) == shown


def test_a_coalesced_change_and_one_of_several_views(graph: Served) -> None:
    lines = [json.loads(text.removeprefix("data: ")) for _, text in BLOCKS if text.startswith("data: ")]
    coalesced, together = lines
    for name in "bc":
        graph.insert("edge", ["a", name])
    for i in range(3):
        graph.insert("stock", [f"s{i}", 30])
    with graph.events("/v1/views/closure/changes?every=2s&since=5") as events:
        assert next(events)["event"] == "progress"
        for changes in (
            {"insert": {"edge": [["a", "e"]]}},
            {"delete": {"edge": [["a", "e"]]}},
            {"insert": {"edge": [["a", "d"]]}},
        ):
            graph.commit(changes)
        assert without(next(events)) == coalesced
    with graph.events("/v1/changes?view=closure&view=low&since=8") as events:
        assert next(events)["event"] == "progress"
        graph.commit({"insert": {"edge": [["a", "e"]], "stock": [["bolt", 3]]}})
        assert without(next(events)) == together


def without(event: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in ("event", "id")}


def test_the_transaction_and_the_problem(graph: Served) -> None:
    transaction, firing, problem = (json.loads(text) for kind, text in BLOCKS if kind == "json")
    assert list(firing) == SCHEMAS["Firing"]["required"]
    assert graph.commit(transaction).status_code == 200
    assert graph.get("/v1/views/closures/rows").json() == problem


def test_the_client_in_python(graph: Served, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "python")
    told = "print(change.version, change.plus, change.minus)"
    assert told in text
    exec(text.replace("http://127.0.0.1:8420", graph.url).replace(told, f"{told}; break"), {})
    assert capsys.readouterr().out == "2 (('b', 'c'),) ()\n"


def test_the_token_is_one(tmp_path: Path) -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "toml")
    read = tomllib.loads(f'programs = ["a.dl"]\n{text}')
    (token,) = project_from(tmp_path, TomlTable(read), {"DASHBOARD_TOKEN": "x" * 16}).tokens
    assert (token.name, token.rows) == ("dashboard", {"closure": {"x": "a"}})


def test_the_table_of_bounds() -> None:
    default = ServiceLimits()
    shown = re.findall(r"\| `bounds\.(\w+)`(?:, `\.(\w+)`)? \| ([\d, ]+) \|", TEXT)
    for one, other, values in shown:
        numbers = [float(value) for value in values.split(",")]
        names = [name for name in (one, other) if name]
        for name, number in zip(names, numbers * 2, strict=False):
            assert getattr(default, name) == number, name
    assert {name for one, other, _ in shown for name in (one, other) if name} == set(ServiceLimits.__dataclass_fields__)


def test_the_table_of_codes() -> None:
    known: dict[str, set[int]] = {}
    kinds = [RederiveError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        error = kind.__new__(kind)
        known.setdefault(kind.code, set()).add(status_of(error))
    section = TEXT[TEXT.index("| status | codes |") : TEXT.index("## Access")]
    for statuses, codes in re.findall(r"\| ([\d, ]+) \| (.*) \|", section):
        for code in re.findall(r"`(\w+)`", codes):
            assert known[code] <= {int(status) for status in statuses.split(",")}, code
