"""`rederive explain`: what it prints about which views. The maintenance programs themselves are golden files."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli, Write

TWO_VIEWS = """.decl e(x: symbol, y: symbol)
.decl hop(x: symbol, y: symbol)
.decl far(x: symbol, y: symbol)
.decl other(x: symbol)
hop(x, z) :- e(x, y), e(y, z).
far(x, y) :- hop(x, y), !e(x, y).
other(x) :- e(x, _).
"""


def test_text_has_the_rules_and_the_network(cli: Cli, closure: str) -> None:
    ran = cli("explain", closure)
    assert (ran.code, ran.err) == (0, "")
    assert "closure^del(x, y) :- edge^del(x, z), closure(z, y)." in ran.out
    assert "edge -> closure" in ran.out


def test_json_is_one_value(cli: Cli, closure: str) -> None:
    data = json.loads(cli("explain", closure, "--format", "json").out)
    assert [section["strategy"] for section in data["sections"]] == ["materialized"]
    assert {"from": "edge", "to": "closure", "through": "join"} in data["network"]["edges"]


def test_dot_is_a_graph(cli: Cli, closure: str) -> None:
    out = cli("explain", closure, "--format", "dot").out
    assert out.startswith("digraph ")
    assert out.endswith("}\n")
    assert '"edge" -> "closure"' in out


def test_a_view_with_what_it_needs_alone(cli: Cli, write: Write) -> None:
    path = write("p.dl", TWO_VIEWS)

    def explained(*options: str) -> set[str]:
        data = json.loads(cli("explain", path, "--format", "json", *options).out)
        return {node["relation"] for node in data["network"]["nodes"]}

    assert explained() == {"e", "hop", "far", "other"}
    assert explained("--view", "far") == {"e", "hop", "far"}
    assert explained("--view", "other") == {"e", "other"}


@pytest.mark.parametrize("strategy", ["recompute", "counting", "materialized"])
def test_the_strategy_is_the_one_asked_for(cli: Cli, write: Write, strategy: str) -> None:
    data = json.loads(cli("explain", write("p.dl", TWO_VIEWS), "--strategy", strategy, "--format", "json").out)
    assert {section["strategy"] for section in data["sections"]} == {strategy}


def test_counting_a_recursive_view_is_refused_with_what_to_do(cli: Cli, closure: str) -> None:
    ran = cli("explain", closure, "--strategy", "counting")
    assert (ran.code, ran.out) == (2, "")
    assert "error[strategy]" in ran.err
    assert "'closure'" in ran.err
    assert "'materialized'" in ran.err
