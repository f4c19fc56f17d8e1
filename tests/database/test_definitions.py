"""Definitions come in several texts; rows are asked for with bindings and with queries."""

from __future__ import annotations

import pytest

import rederive
from rederive.errors import EvaluationError, ProgramError, RederiveError, UnknownColumn, UnknownRelation

STRATEGIES = ["recompute", "materialized", "auto"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_second_text_adds_views_over_the_rows_that_are_there(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(".decl edge(x: symbol, y: symbol)")
    with db.transaction() as tx:
        tx.insert("edge", [("a", "b"), ("b", "c")])
    assert not tx.result.changes
    db.define(".decl closure(x: symbol, y: symbol) closure(x, y) :- edge(x, y) ; edge(x, z), closure(z, y).")
    assert db.version == 2  # the first rows of a new view are a version
    assert db.rows("closure") == [("a", "b"), ("a", "c"), ("b", "c")]
    db.define(".decl ends(y: symbol) ends(y) :- closure(_, y), !edge(y, _).")
    assert db.rows("ends") == [("c",)]
    with db.transaction() as tx:
        tx.insert("edge", [("c", "d")])
    assert tx.result.changes["ends"].plus == [("d",)]
    assert tx.result.changes["ends"].minus == [("c",)]


def test_a_second_text_may_bring_facts(graph: rederive.Database) -> None:
    graph.define('edge("c", "d"). .decl colour(x: symbol) colour("red").')
    assert graph.rows("edge", x="c") == [("c", "d")]
    assert graph.rows("closure", x="a") == [("a", "b"), ("a", "c"), ("a", "d")]
    assert graph.rows("colour") == [("red",)]
    with graph.transaction() as tx:
        tx.delete("edge", [("c", "d")])
    graph.define(".decl more(x: symbol)")
    assert not graph.rows("edge", x="c")  # a fact that was deleted does not come back with the next text


def test_output_of_an_earlier_view(graph: rederive.Database) -> None:
    graph.define(".decl loop(x: symbol) loop(x) :- closure(x, x).")
    assert list(graph.pipeline.state.monitored) == ["closure", "loop"]
    graph.define(".output loop")
    assert list(graph.pipeline.state.monitored) == ["loop"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (".decl edge(x: symbol)", "redefined"),
        ("closure(x, x) :- edge(x, _).", "redefined"),
        ("edge(x, y) :- closure(y, x).", "redefined"),
        (".decl p(x: symbol) p(x) :- egde(x, _).", "unknown_name"),
        (".decl p(x: symbol) p(y) :- edge(x, _).", "unsafe"),
        ('.decl p(x: number) p(x) :- edge(x, _). edge("n", "m").', "type_clash"),
        ('edge("n", "m"). edge("o").', "wrong_arity"),
        ('edge("n", "m"). .decl p(x: symbol) p(x) :- edge(x, _), !p(x).', "unstratified"),
    ],
)
def test_a_refused_text_changes_nothing(graph: rederive.Database, text: str, code: str) -> None:
    def state() -> list[object]:
        return [
            graph.pipeline.state.program,
            graph.rows("edge"),
            graph.rows("closure"),
            graph.pipeline.state.monitored,
            graph.version,
        ]

    before = state()
    with pytest.raises(ProgramError) as caught:
        graph.define(text)
    assert caught.value.code == code
    assert caught.value.span is not None
    assert state() == before


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_text_that_fails_on_the_rows_changes_nothing(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(".decl s(n: number)")
    db.load("s", [(0,), (1,)])
    with pytest.raises(EvaluationError):
        db.define("s(7). .decl v(n: number) v(10 / n) :- s(n).")
    assert (db.rows("s"), db.pipeline.state.program.views) == ([(0,), (1,)], ())
    db.define(".decl v(n: number) v(10 * n) :- s(n).")
    assert db.rows("v") == [(0,), (10,)]


def test_a_first_text_that_is_refused_leaves_an_empty_database() -> None:
    db = rederive.open()
    with pytest.raises(ProgramError):
        db.define(".decl p(x: symbol) p(x) :- q(x).")
    assert not db.pipeline.state.program.relations
    with pytest.raises(UnknownRelation):
        db.rows("p")


def test_errors_call_the_text_by_its_name() -> None:
    with pytest.raises(ProgramError) as caught:
        rederive.open().define("\n  .decl p(x: what)", "views.dl")
    assert str(caught.value).startswith("views.dl:2:14: error[unknown_name]")


# Rows


def test_rows_with_bindings(graph: rederive.Database) -> None:
    assert graph.rows("closure") == [("a", "b"), ("a", "c"), ("b", "c")]
    assert graph.rows("closure", x="a") == [("a", "b"), ("a", "c")]
    assert graph.rows("closure", y="c") == [("a", "c"), ("b", "c")]
    assert graph.rows("closure", x="a", y="c") == [("a", "c")]
    assert graph.rows("closure", x="c") == []
    assert graph.rows("closure", x="never seen") == []
    assert graph.rows("edge", y="b") == [("a", "b")]


def test_a_column_may_have_the_name_of_a_parameter() -> None:
    db = rederive.open()
    db.define('.decl r(relation: symbol, self: number) r("a", 1). r("b", 2).')
    assert db.rows("r", relation="b") == [("b", 2)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_of_a_view_that_is_not_monitored(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(
        ".decl e(x: number) .decl v(x: number) .decl w(x: number)\n"
        "v(x) :- e(x), x > 1. w(x) :- v(x), x > 2. .output v e(1). e(2). e(3)."
    )
    assert db.rows("w") == [(3,)]
    with db.transaction() as tx:
        tx.insert("e", [(4,)])
    assert db.rows("w") == [(3,), (4,)]
    assert db.rows("w", x=4) == [(4,)]
    assert set(tx.result.changes) == {"v"}


def test_rows_are_a_copy(graph: rederive.Database) -> None:
    graph.rows("edge").clear()
    assert len(graph.rows("edge")) == 2


def test_rows_that_cannot_be_asked_for(graph: rederive.Database) -> None:
    with pytest.raises(UnknownRelation) as relation:
        graph.rows("egde")
    assert relation.value.hint == "did you mean 'edge'?"
    with pytest.raises(UnknownColumn) as column:
        graph.rows("edge", z="a")
    assert column.value.code == "unknown_column"


def test_a_binding_of_the_wrong_type_is_one_of_our_errors(graph: rederive.Database) -> None:
    with pytest.raises(RederiveError) as caught:
        graph.rows("edge", x=3)
    assert caught.value.code == "ill_typed"


def test_query(graph: rederive.Database) -> None:
    assert graph.query('closure("a", y)') == [("a", "b"), ("a", "c")]
    assert graph.query("closure(x, x)") == []
    assert graph.query("closure(_, _)") == graph.rows("closure")
    with pytest.raises(ProgramError):
        graph.query("closure(a)")
