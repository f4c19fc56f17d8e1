"""Active rules and constraints on the command line."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli, Write

PROGRAM = """
.decl stock(item: symbol, n: number) key(item)
.decl orders(item: symbol)
.decl ordered(item: symbol)
ordered(x) :- orders(x).
.decl low(item: symbol)
low(x) :- stock(x, n), n < 5.
.decl negative(item: symbol)
negative(x) :- stock(x, n), n < 0.
.output ordered
.constraint negative
.rule reorder(when=low, do="INSERT INTO orders SELECT item FROM firing", priority=1)
"""
CALLING = '.rule tell(when=low, do="CALL tell(item)")'


def test_check_lists_them_and_needs_no_function(cli: Cli, write: Write) -> None:
    ran = cli("check", write("p.dl", PROGRAM + CALLING))
    assert ran.code == 0
    assert ran.out.endswith(
        "constraints\n  negative (reject)\nrules, in the order in which they fire\n  reorder\n  tell\n",
    )


def test_run_fires_rules_and_counts_them(cli: Cli, write: Write, tmp_path: Path) -> None:
    changes = write("c.jsonl", '{"insert": {"stock": [["bolt", 1], ["nut", 9]]}}\n{"insert": {"orders": [["gear"]]}}\n')
    stats = tmp_path / "stats.json"
    ran = cli("run", write("p.dl", PROGRAM), "--changes", changes, "--stats", str(stats))
    assert ran.lines == [
        {"version": 1, "view": "ordered", "plus": [["bolt"]], "minus": []},
        {"version": 1, "rule": "reorder", "action": "write", "plus": [["bolt"]], "minus": []},
        {"version": 2, "view": "ordered", "plus": [["gear"]], "minus": []},
    ]
    versions = json.loads(stats.read_text())["versions"]
    assert [version.get("fired") for version in versions] == [None, {"reorder": 1}, {}]


def test_run_ends_where_a_constraint_rejects(cli: Cli, write: Write) -> None:
    changes = write("c.jsonl", '{"insert": {"stock": [["bolt", -1]]}}\n')
    ran = cli("run", write("p.dl", PROGRAM), "--changes", changes)
    assert (ran.code, ran.out) == (2, "")
    assert "c.jsonl:1: error[violated]: the transaction violates 'negative': ('bolt')" in ran.err


def test_run_refuses_a_rule_whose_function_it_cannot_know(cli: Cli, write: Write) -> None:
    ran = cli("run", write("p.dl", PROGRAM + CALLING))
    assert (ran.code, "unknown function 'tell'" in ran.err) == (2, True)


def test_explain_a_rule(cli: Cli, write: Write) -> None:
    out = cli("explain", write("p.dl", PROGRAM + CALLING), "--rule", "tell").out
    assert "tell.condition^ins(c0) :- low^ins(c0)" in out
    assert "low -> tell.condition (join)" in out
    assert "negative" not in out
