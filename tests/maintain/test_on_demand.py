"""SJ96's Algorithms 2 and 3: the rules of Figure 3, and what is derived, when, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rederive
from rederive.engines.protocol import Action, Operation, Propagation
from rederive.ir.printing import show_rule
from rederive.ir.rules import Variant
from rederive.lang import compile_program
from rederive.maintain.plan import plan
from rederive.maintain.requested_queries import requested_queries

CLOSURE = """
.decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
"""
SMALL: list[tuple[str, ...]] = [tuple(pair) for pair in "fe ed ea ab dc bc cg".split()]
FAR = 500
# G', "the rest of relation edge": a cycle with chords, and edges from it to g, but none into it
REST: list[tuple[str, ...]] = [(f"G{i}", f"G{j % FAR}") for i in range(FAR) for j in (i + 1, i * 7 + 3)]
REST += [(f"G{i}", "g") for i in range(0, FAR, 50)]


@pytest.fixture
def graph() -> rederive.Database:
    db = rederive.open(strategy="on_demand")
    db.define(CLOSURE)
    db.load("edge", SMALL + REST)
    return db


def derived(db: rederive.Database, view: str) -> set[tuple[str, ...]]:
    """The rows of a view that the engine has derived so far, in either state."""
    tables, codes = db.pipeline.state.engine.installed.tables, db.pipeline.state.engine.codes  # type: ignore[attr-defined]
    types = db.pipeline.state.program.relations[view].types
    found: set[tuple[str, ...]] = set()
    for state in (Variant.OLD, Variant.NEW):
        table = tables.derived(view, state)
        if table is not None:
            found |= set(codes.decode_rows(types, ((key, last) for key, leaf in table.items() for last in leaf)))
    return found


def propagate(db: rederive.Database, *operations: Operation) -> Propagation:
    return db.pipeline.state.engine.propagate(db.pipeline.state.engine.net_effect(operations))


def test_only_the_complement_of_the_untouched_subgraph_is_rederived(graph: rederive.Database) -> None:
    """Example 4: "exactly the relevant part of closure that represents the complement of subgraph G' is rederived"."""
    found = propagate(
        graph,
        Operation(Action.DELETE, "edge", (("b", "c"),)),
        Operation(Action.INSERT, "edge", (("h", "d"),)),
    )
    rows = derived(graph, "closure")
    small = {"a", "b", "c", "d", "e", "f", "g", "h"}
    assert rows
    assert {x for row in rows for x in row} <= small
    assert sorted(found.views["closure"].plus) == [("h", "c"), ("h", "d"), ("h", "g")]
    assert sorted(found.views["closure"].minus) == [("a", "c"), ("a", "g"), ("b", "c"), ("b", "g")]
    assert sum(found.derived.values()) == len(rows)
    assert found.touched < 200  # of a closure with more than 250,000 rows
    graph.pipeline.state.engine.commit()
    assert_nothing_is_left(graph)


def test_insertions_alone_and_deletions_alone(graph: rederive.Database) -> None:
    for operation in (Operation(Action.DELETE, "edge", (("b", "c"),)), Operation(Action.INSERT, "edge", (("h", "d"),))):
        propagate(graph, operation)
        assert not any(x.startswith("G") for row in derived(graph, "closure") for x in row)
        graph.pipeline.state.engine.commit()
        assert_nothing_is_left(graph)


def test_a_rollback_leaves_nothing_either(graph: rederive.Database) -> None:
    propagate(graph, Operation(Action.DELETE, "edge", (("b", "c"),)))
    graph.pipeline.state.engine.rollback()
    assert_nothing_is_left(graph)
    assert graph.rows("closure", x="b") == [("b", "c"), ("b", "g")]


def assert_nothing_is_left(db: rederive.Database) -> None:
    """No view, no intermediate result: only base relations have rows between transactions."""
    tables = db.pipeline.state.engine.installed.tables  # type: ignore[attr-defined]
    for view in db.pipeline.state.program.views:
        for variant in Variant:
            assert not tables.table(view, variant), (view, variant)
    for base in db.pipeline.state.program.bases:
        for variant in set(Variant) - {Variant.OLD}:
            assert not tables.table(base, variant), (base, variant)
    assert all(not table for table in tables.transient)
    for answers in (*tables.answers.values(), *db.pipeline.state.engine.installed.queries.answers.values()):  # type: ignore[attr-defined]
        assert all(not target.table and not target.pending for target in getattr(answers, "targets", {}).values())
        assert not getattr(answers, "requested", None)
        assert not getattr(answers, "view", None)


LAYERS = """
.decl node(x: symbol) .decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol) .decl apart(x: symbol, y: symbol) .decl reach(x: symbol, n: number) .decl far(n: number)
closure(x, y) :- edge(x, y). closure(x, y) :- edge(x, z), closure(z, y).
apart(x, y) :- node(x), node(y), !closure(x, y), !closure(y, x), x < y.
reach(x, n) :- node(x), n = count : { closure(x, _) }.
far(n) :- n = max m : { reach(_, m) }.
"""


@pytest.mark.parametrize("strategy", ["on_demand", "filtration", "recompute"])
def test_nothing_is_kept_with_negation_and_aggregates(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(LAYERS)
    db.load("node", [(x,) for x in "abcd"])
    db.load("edge", [("a", "b"), ("b", "c")])
    assert_nothing_is_left(db)
    for action, edge in (("insert", "cd"), ("delete", "ab"), ("insert", "da"), ("delete", "bc"), ("insert", "bc")):
        with db.transaction() as tx:
            getattr(tx, action)("edge", [tuple(edge)])
        assert tx.result.changes
        assert_nothing_is_left(db)
        db.rows("reach", x="a")
        db.query("apart(x, y)")
        assert_nothing_is_left(db)


def test_nothing_is_left_by_a_transaction_that_failed() -> None:
    db = rederive.open(strategy="on_demand")
    db.define(
        ".decl s(x: number) .decl v(x: number) .decl w(x: number) .decl c(k: number)\n"
        "v(10 / x) :- s(x). w(x) :- v(x), !s(x). c(k) :- k = count : { w(_) }."
    )
    db.load("s", [(3,), (5,)])
    with pytest.raises(rederive.RederiveError), db.transaction() as tx:
        tx.insert("s", [(0,), (1,), (2,)])
    assert_nothing_is_left(db)
    assert db.rows("w") == [(2,)]


# Lookups, rule by rule

DECLARATIONS = (
    ".decl b(x: symbol, y: symbol) .decl v(x: symbol, y: symbol) .decl w(x: symbol, y: symbol) .decl n(x: symbol)\n"
    ".decl p(x: symbol, y: symbol) v(x, y) :- b(x, y). w(x, y) :- b(y, x). n(x) :- b(x, x).\n"
)


def lookups(rule: str) -> list[str]:
    program = compile_program(DECLARATIONS + rule)
    planned = plan(program, program.views, "on_demand")  # all of them: a view that only p reads would be put into it
    (section,) = [s for s in planned.sections if s.component.relations == ("p",)]
    found = requested_queries(replace(planned, sections=(section,))).lookups
    return [show_rule(m.rule) for m in found]


def test_bindings_pass_from_the_changed_literal_to_the_others() -> None:
    found = lookups("p(x, u) :- v(x, y), b(y, z), w(z, u).")
    assert "m_w^bf(z) :- v^del(x, y), b(y, z)." in found
    assert "m_v^fb(y) :- w^del(z, u), b(y, z)." in found
    assert "m_w^bf(z) :- v^ins(x, y), b^new(y, z)." in found


def test_base_relations_are_not_requested() -> None:
    assert not [rule for rule in lookups("p(x, y) :- v(x, y), b(y, x).") if "m_b" in rule]


def test_negated_literals_come_last_and_are_requested_with_all_columns() -> None:
    """Section 4.2."""
    found = lookups("p(x, y) :- !n(x), v(x, y), !w(x, y).")
    assert "m_n^b(x) :- v^del(x, y)." in found
    assert any(rule.startswith("m_w^bb(x, y) :- v^del(x, y)") for rule in found)
    for rule in found:
        body = rule.partition(" :- ")[2]
        positives = [i for i, literal in enumerate(body.split("), ")) if not literal.startswith("!")]
        negatives = [i for i, literal in enumerate(body.split("), ")) if literal.startswith("!")]
        assert not negatives or max(positives) < min(negatives), rule


def test_idle_insertions_are_checked_by_a_lookup() -> None:
    """(M_E1)."""
    assert "m_p^bb(x, y) :- p^ins(x, y)." in lookups("p(x, y) :- v(x, y), b(y, x).")
