"""Debezium's envelopes from a real broker: read once, also when the driver is killed in the middle of a batch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

import rederive
from rederive.failpoints import VARIABLE
from tests.ingest.broker import broker, fetched, with_kafka
from tests.ingest.conftest import CLOSURE, STOCK, closure_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven fetches the broker"),
]
ROOT = Path(__file__).parents[2]
FIRST = [
    ["shop.stock", {"op": "r", "before": None, "after": {"item": "bolt", "n": 3}}],
    ["shop.stock", {"op": "c", "before": None, "after": {"item": "nut", "n": 40}}],
    ["shop.stock", {"op": "c", "before": None, "after": {"item": "gear", "n": "many"}}],
    ["graph.edge", {"op": "c", "before": None, "after": {"x": "a", "y": "b"}}],
    ["graph.edge", {"op": "c", "before": None, "after": {"x": "b", "y": "c"}}],
]
SECOND = [
    ["shop.stock", {"op": "u", "before": None, "after": {"item": "nut", "n": 4}}],
    ["shop.stock", {"op": "d", "before": {"item": "bolt", "n": None}, "after": None}],
    ["shop.stock", None],
    ["graph.edge", {"op": "u", "before": {"x": "b", "y": "c"}, "after": {"x": "b", "y": "d"}}],
]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fetched(tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def servers(tmp_path: Path, libraries: Path) -> Iterator[str]:
    with broker(tmp_path, libraries) as address:
        yield address


def test_envelopes_from_a_broker(tmp_path: Path, libraries: Path, servers: str) -> None:
    jars = with_kafka(tmp_path / "jars", libraries)
    program, store = tmp_path / "program.dl", tmp_path / "store"
    program.write_text(CLOSURE + STOCK)

    def python(*arguments: str, fault: str = "", code: int = 0) -> str:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src", "REDERIVE_JARS": str(jars), VARIABLE: fault}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout

    def produce(messages: object) -> None:
        (tmp_path / "messages.json").write_text(json.dumps(messages))
        python(str(Path(__file__).with_name("produce.py")), servers, "messages.json")

    def stream(fault: str = "", code: int = 0) -> list[dict[str, object]]:
        topics = ("--topic", "shop.stock=stock", "--topic", "graph.edge=edge")
        options = ("--store", str(store), "--once", "--on-error", "quarantine", "--master", "local[1]")
        out = python(
            "-m", "rederive.cli.main", "stream", str(program), *options, "--kafka", servers, *topics, fault=fault, code=code
        )
        return [json.loads(line) for line in out.splitlines()]

    produce(FIRST)
    plus = {str(line["view"]): line["plus"] for line in stream()}
    assert plus == {"low": [["bolt"]], "closure": [["a", "b"], ["a", "c"], ["b", "c"]]}

    produce(SECOND)
    assert stream(fault="stream:committed", code=-9) == []
    again = {(line["version"], line["view"]): (line["plus"], line["minus"]) for line in stream()}
    assert again == {
        (2, "low"): ([["nut"]], [["bolt"]]),
        (2, "closure"): ([["a", "d"], ["b", "d"]], [["a", "c"], ["b", "c"]]),
    }
    with rederive.open(store) as db:
        assert (db.version, db.rows("stock"), db.rows("edge")) == (2, [("nut", 4)], [("a", "b"), ("b", "d")])
        assert db.rows("closure") == closure_of({("a", "b"), ("b", "d")})
    (rejected,) = deltalake.DeltaTable(str(store / "quarantine")).to_pyarrow_table().to_pylist()
    assert (rejected["source"], rejected["code"]) == ("shop.stock[0]@2", "ill_typed")
    assert '"many"' in rejected["raw"]
