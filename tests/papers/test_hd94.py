"""The examples of HD94 (Harrison, Dietrich: Maintenance of Materialized Views in a Deductive Database), call by call."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import rederive
from rederive.cli.main import main
from rederive.engines.protocol import FilterStep

TC = """.decl edge(x: symbol, y: symbol)
.decl tc(x: symbol, y: symbol)
tc(x, y) :- edge(x, y).
tc(x, y) :- tc(x, w), edge(w, y).
"""
RULE_1 = "tc(x, y) :- edge(x, y)."
RULE_2 = "tc(x, y) :- tc(x, w), edge(w, y)."
N = 40
E = sorted(f"e{i}" for i in range(1, N + 1))
EDGES = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), *(("d", e) for e in E)]
B_E = tuple(("b", e) for e in E)

# rule, updated relation, updates, approximation, disqualified, actual
FIGURE_3 = [
    (RULE_1, "edge", (("b", "d"),), (("b", "d"),), (), (("b", "d"),)),
    (RULE_2, "tc", (("b", "d"),), B_E, (), B_E),
    (RULE_2, "edge", (("b", "d"),), (("a", "d"),), (("a", "d"),), ()),
]


def told(call: FilterStep) -> tuple[Any, ...]:
    assert call.view == "tc"
    return call.rule, call.updated, call.updates, call.approximation, call.disqualified, call.actual


def test_figure_3() -> None:
    db = rederive.open(strategy="filtration")
    db.define(TC)
    db.load("edge", EDGES)
    calls: list[FilterStep] = []
    stop = db.pipeline.state.trace(calls.append)
    with db.transaction() as tx:
        tx.delete("edge", [("b", "d")])
    assert list(map(told, calls)) == FIGURE_3
    assert tx.result.changes["tc"].minus == sorted([("b", "d"), *B_E])
    assert tx.result.changes["tc"].plus == []
    # "at no time are tuples of the form tc(a, e_i) ever considered potentially deleted"
    assert not [row for call in calls for row in call.approximation if row[0] == "a" and row[1] in E]
    stop()
    with db.transaction() as tx:
        tx.insert("edge", [("b", "d")])
    assert len(calls) == 3  # the trace was ended


def test_figure_3_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tc.dl").write_text(TC)
    Path("edge.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in EDGES))
    Path("changes.jsonl").write_text('{"delete": {"edge": [["b", "d"]]}}\n')
    arguments = "run tc.dl --base edge=edge.csv --changes changes.jsonl --strategy filtration --trace trace.jsonl"
    monkeypatch.setattr(sys, "argv", ["rederive", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    lines = [json.loads(line) for line in Path("trace.jsonl").read_text().splitlines()]
    assert [(line["version"], line["view"]) for line in lines] == [(2, "tc")] * 3
    names = ("rule", "updated", "updates", "approximation", "disqualified", "actual")
    assert [[line[name] for name in names] for line in lines] == json.loads(json.dumps(FIGURE_3))


def test_only_the_component_where_the_update_occurred_is_examined() -> None:
    """ "if the graph of the transitive closure relation was comprised of several connected components" ..."""
    db = rederive.open(strategy="filtration")
    db.define(TC)
    db.load("edge", EDGES)
    with db.transaction() as tx:
        tx.delete("edge", [("b", "d")])
    with db.transaction() as other:
        other.insert("edge", [("b", "d")])
    db.load("edge", [(f"far{i}", f"far{i + 1}") for i in range(300)])
    with db.transaction() as again:
        again.delete("edge", [("b", "d")])
    assert again.result.touched == tx.result.touched
    assert again.result.derived == tx.result.derived


NEGATION = """.decl node(x: symbol)
.decl edge(x: symbol, y: symbol)
.decl reached(x: symbol)
.decl dark(x: symbol)
reached(x) :- edge("root", x).
reached(y) :- reached(x), edge(x, y).
dark(x) :- node(x), !reached(x).
"""


def traced(change: str, x: str, y: str) -> list[tuple[Any, ...]]:
    """root -> a -> b, root -> c -> b; d is dark."""
    db = rederive.open(strategy="filtration")
    db.define(NEGATION)
    db.load("node", [(n,) for n in "abcd"])
    db.load("edge", [("root", "a"), ("a", "b"), ("root", "c"), ("c", "b")])
    calls: list[tuple[Any, ...]] = []
    db.pipeline.state.trace(lambda c: calls.append((c.view, c.updated, c.updates, c.approximation, c.disqualified, c.actual)))
    with db.transaction() as tx:
        getattr(tx, change)("edge", [(x, y)])
    return calls


def test_figure_4_removals_from_what_is_negated_are_additions() -> None:
    assert traced("delete", "root", "a") == [
        ("reached", "edge", (("root", "a"),), (("a",),), (), (("a",),)),
        ("reached", "reached", (("a",),), (("b",),), (("b",),), ()),  # c still leads to b, so b is not propagated
        ("dark", "reached", (("a",),), (("a",),), (), (("a",),)),
    ]


def test_figure_4_additions_to_what_is_negated_are_removals() -> None:
    assert traced("insert", "b", "d") == [
        ("reached", "edge", (("b", "d"),), (("d",),), (), (("d",),)),
        ("dark", "reached", (("d",),), (("d",),), (), (("d",),)),
    ]


def test_figure_4_a_disqualified_update_goes_no_further() -> None:
    assert traced("delete", "a", "b") == [("reached", "edge", (("a", "b"),), (("b",),), (("b",),), ())]


@pytest.mark.parametrize(("strategy", "view"), [("filtration", "tc"), ("on_demand", "tc"), ("materialized", "tc")])
def test_section_3_5_rules_come_and_go(strategy: str, view: str) -> None:
    """A rule's body is a query over one state, filtered in the other; what is actual is propagated."""
    db = rederive.open(strategy=strategy)
    db.define(TC + '.decl from_a(y: symbol) from_a(y) :- tc("a", y). .decl off(x: symbol) off(x) :- edge(_, x), !from_a(x).')
    db.load("edge", [("a", "b"), ("b", "c"), ("x", "c"), ("x", "y")])
    gone = db.definitions.remove_rule(RULE_2)
    assert gone.changes[view].minus == [("a", "c")]
    assert gone.changes["from_a"].minus == [("c",)]
    assert gone.changes["off"].plus == [("c",)]
    assert (gone.version, [c.plus for c in (gone.changes[view], gone.changes["from_a"])]) == (2, [[], []])
    back = db.definitions.add_rule("tc(x, y) :- edge(x, w), tc(w, y).")
    assert back.changes[view].plus == [("a", "c")]
    assert back.changes["off"].minus == [("c",)]
    assert back.version == db.version == 3
    idle = db.definitions.add_rule(RULE_2)
    assert (idle.version, idle.changes) == (4, {})
