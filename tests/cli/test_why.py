"""`rederive why`: the same explanation of a program, a store and a service, whichever way the row is written."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli, Write
from tests.cli.test_bad_input import refused
from tests.service.conftest import start

PROOF = """closure("d", "g")
  by closure(x, y) :- edge(x, z), closure(z, y).
    edge("d", "c")
    closure("c", "g")
      by closure(x, y) :- edge(x, y).
        edge("c", "g")
"""


def test_a_program_and_a_store(cli: Cli, closure: str) -> None:
    assert cli("run", closure, "--facts", ".", "--store", "kept").code == 0
    for row in (['closure("d", "g")'], ["closure", '["d", "g"]'], ["closure", '{"y": "g", "x": "d"}']):
        assert cli("why", "kept", *row).out == PROOF
        assert cli("why", closure, *row, "--facts", ".").out == PROOF
    assert cli("why", "kept", 'closure("g", "d")').out.startswith('closure("g", "d") is not there\n')
    assert json.loads(cli("why", "kept", 'closure("d", "g")', "--json").out)["row"] == ["d", "g"]
    refused(cli("why", "kept", 'closure("d", "g")', "--facts", "."), "malformed", "initial rows belong to a program")


def test_a_row_that_is_not_one_is_refused(cli: Cli, closure: str, write: Write) -> None:
    at = ("--facts", ".")
    refused(cli("why", closure, 'closure("d", y)', *at), "malformed", "a row has constants alone", "write each value")
    refused(cli("why", closure, "closure", "d", *at), "malformed", "as an atom", "as a JSON array")
    refused(cli("why", closure, "closure", '["d"]', *at), "ill_typed", "has 2 columns, the row has 1")
    refused(cli("why", closure, 'closur("d", "g")', *at), "unknown_name", "did you mean 'closure'?")
    refused(cli("why", closure, "closure", *at), "malformed", "'closure' names no row", "as an atom")
    dated = write("t.dl", '.decl t(d: date, n: number)  t("2024-02-29", 1).')
    assert cli("why", dated, 't("2024-02-29", 1)').out == cli("why", dated, "t", '["2024-02-29", 1]').out != ""


def test_a_service(cli: Cli, tmp_path: Path) -> None:
    served = start(tmp_path / "project")
    try:
        served.insert("edge", ["d", "c"], ["c", "g"], ["é", "&"])
        for row in (['closure("d", "g")'], ["closure", '["d", "g"]']):
            assert cli("why", served.url, *row).out == PROOF
        local = cli("why", str(tmp_path / "project"), 'closure("é", "&")', "--json")
        assert json.loads(local.out) == json.loads(cli("why", served.url, 'closure("é", "&")', "--json").out)
        assert cli("why", served.url, 'closure("g", "d")').out.startswith('closure("g", "d") is not there\n')
        assert len(cli("why", served.url, 'closure("d", "g")', "--depth", "1").out.splitlines()) < len(PROOF.splitlines())
        refused(cli("why", served.url, 'closur("d", "g")'), "unknown_name", "did you mean 'closure'?")
        refused(cli("why", served.url, "closure", '["d"]'), "ill_typed", "has 2 columns, the row has 1")
        refused(cli("why", served.url, "closure", '["d", "g"]', "--base", "edge=x.csv"), "malformed", "initial rows")
    finally:
        served.end()
