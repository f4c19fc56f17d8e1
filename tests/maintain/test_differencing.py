"""SR's Table 1 as properties: the partial differentials of the relational operators, strict and nervous."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.errors import StrategyError, UnknownOption
from rederive.lang import compile_program
from rederive.maintain.plan import plan
from tests.oracle import evaluate, initial
from tests.properties.programs import scenarios
from tests.properties.test_maintained_equals_recomputed import Scenario, apply, changed, examples, loading

Set = set[tuple[Any, ...]]
PAIRS = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=8)


@dataclass(frozen=True)
class States:
    """A relation before and after, and its Δ-set."""

    old: Set
    new: Set

    @property
    def plus(self) -> Set:
        return self.new - self.old

    @property
    def minus(self) -> Set:
        return self.old - self.new


@dataclass(frozen=True)
class Operator:
    """The view, its value, and the columns of Table 1: ΔP/Δ+Q, ΔP/Δ+R, ΔP/Δ-Q, ΔP/Δ-R."""

    arity: int
    rules: str
    value: Callable[[Set, Set], Set]
    plus: Callable[[States, States], tuple[Set, Set]]
    minus: Callable[[States, States], tuple[Set, Set]]


def select(q: Set) -> Set:
    return {row for row in q if row[0] < row[1]}


def project(q: Set) -> Set:
    return {(x,) for x, _ in q}


def product(q: Set, r: Set) -> Set:
    return {a + b for a in q for b in r}


def join(q: Set, r: Set) -> Set:
    return {(*a, b[1]) for a in q for b in r if a[1] == b[0]}


def minus_of(q: States, r: States) -> tuple[Set, Set]:
    """The last two columns for Q - R: what enters R leaves, what leaves Q leaves."""
    return q.minus - r.old, q.old & r.plus


TABLE_1: Mapping[str, Operator] = {
    "selection": Operator(
        2, "p(x, y) :- q(x, y), x < y.", lambda q, r: select(q),
        lambda q, r: (select(q.plus), set()), lambda q, r: (select(q.minus), set()),
    ),
    "projection": Operator(
        1, "p(x) :- q(x, _).", lambda q, r: project(q),
        lambda q, r: (project(q.plus), set()), lambda q, r: (project(q.minus), set()),
    ),
    "union": Operator(
        2, "p(x, y) :- q(x, y). p(x, y) :- r(x, y).", lambda q, r: q | r,
        lambda q, r: (q.plus - r.old, r.plus - q.old), lambda q, r: (q.minus - r.new, r.minus - q.new),
    ),
    "difference": Operator(
        2, "p(x, y) :- q(x, y), !r(x, y).", lambda q, r: q - r,
        lambda q, r: (q.plus - r.new, q.new & r.minus), minus_of,
    ),
    "product": Operator(
        4, "p(x, y, z, u) :- q(x, y), r(z, u).", product,
        lambda q, r: (product(q.plus, r.new), product(q.new, r.plus)),
        lambda q, r: (product(q.minus, r.old), product(q.old, r.minus)),
    ),
    "join": Operator(
        3, "p(x, y, z) :- q(x, y), r(y, z).", join,
        lambda q, r: (join(q.plus, r.new), join(q.new, r.plus)), lambda q, r: (join(q.minus, r.old), join(q.old, r.minus)),
    ),
    "intersection": Operator(
        2, "p(x, y) :- q(x, y), r(x, y).", lambda q, r: q & r,
        lambda q, r: (q.plus & r.new, q.new & r.plus), lambda q, r: (q.minus & r.old, q.old & r.minus),
    ),
}  # fmt: skip


def change(operator: Operator, q: States, r: States, **options: str) -> tuple[Set, Set]:
    """What differencing reports for the step between the states."""
    db = rederive.open(strategy="differencing", **options)  # type: ignore[arg-type]
    columns = ", ".join(f"c{i}: number" for i in range(operator.arity))
    db.define(f".decl q(x: number, y: number) .decl r(x: number, y: number) .decl p({columns}) {operator.rules}")
    db.load("q", q.old)
    db.load("r", r.old)
    with db.transaction() as tx:
        for name, states in (("q", q), ("r", r)):
            tx.delete(name, states.minus)
            tx.insert(name, states.plus)
    found = tx.result.changes.get("p")
    return (set(found.plus), set(found.minus)) if found else (set(), set())


@pytest.mark.parametrize("name", TABLE_1)
@examples(40)
@given(q=st.builds(States, PAIRS, PAIRS), r=st.builds(States, PAIRS, PAIRS))
def test_table_1(name: str, q: States, r: States) -> None:
    operator = TABLE_1[name]
    p = States(operator.value(q.old, r.old), operator.value(q.new, r.new))
    table = [set().union(*column(q, r)) for column in (operator.plus, operator.minus)]
    # The table itself: nothing is missed; what is too much was, or is, there.
    assert p.plus <= table[0] <= p.new
    assert p.minus <= table[1] <= p.old
    # strict is exact
    assert change(operator, q, r) == (p.plus, p.minus)
    # nervous is the table; only a union is not even filtered against its other part
    nervous = change(operator, q, r, precision="nervous")
    if name == "union":
        assert nervous == (q.plus | r.plus, q.minus | r.minus)
    else:
        assert nervous == tuple(table)


@examples(60)
@given(scenario=scenarios(recursive=False))
def test_nervous_reports_a_superset_of_the_change(scenario: Scenario) -> None:
    for old, new, plus, minus, view in nervous_changes(scenario):
        assert new - old <= plus, view
        assert old - new <= minus, view


@examples(60)
@given(scenario=scenarios(recursive=False))
def test_what_nervous_reports_too_much_was_there_or_stays(scenario: Scenario) -> None:
    for old, new, plus, minus, view in nervous_changes(scenario):
        assert plus <= new, view
        assert minus <= old, view


@pytest.mark.parametrize("call", ["insert", "delete"])
def test_nervous_through_a_negated_view(call: str) -> None:
    """r(1) stays, for s(1, 1) is there all the time; p(1) never was."""
    db = rederive.open(strategy="differencing", precision="nervous")
    db.define(".decl q(x: number) .decl s(x: number, y: number) .decl r(x: number) .decl p(x: number)\n"
              "r(x) :- s(x, _). p(x) :- q(x), !r(x). .output p")  # fmt: skip
    db.load("q", [(1,)])
    db.load("s", [(1, 1), (1, 2)] if call == "delete" else [(1, 1)])
    with db.transaction() as tx:
        getattr(tx, call)("s", [(1, 2)])
    assert tx.result.changes == {}


def nervous_changes(scenario: Scenario) -> list[tuple[Set, Set, Set, Set, str]]:
    sample, start, transactions = scenario
    program = compile_program(sample.text)
    db = rederive.open(strategy="differencing", precision="nervous")
    db.define(sample.text)
    base = initial(program)
    rows = evaluate(program, base)
    found = []
    for step in [loading(start), *transactions]:
        base = changed(base, step)
        before, rows = rows, evaluate(program, base)
        with db.transaction() as tx:
            apply(tx, step)
        for view in program.monitored:
            told = tx.result.changes.get(view)
            plus, minus = (set(told.plus), set(told.minus)) if told else (set(), set())
            found.append((before[view], rows[view], plus, minus, view))
            assert db.rows(view) == sorted(rows[view])
    return found


def test_nervous_may_report_what_was_there_before_and_what_stays() -> None:
    nervous = change(
        TABLE_1["projection"], States({(1, 1), (2, 1)}, {(1, 2), (2, 1), (2, 2)}), States(set(), set()), precision="nervous"
    )
    assert nervous == ({(1,), (2,)}, {(1,)})


@pytest.mark.parametrize("strategy", ["auto", "recompute", "counting", "materialized", "on_demand", "filtration"])
def test_nervous_goes_with_differencing_alone(strategy: str) -> None:
    with pytest.raises(StrategyError) as caught:
        rederive.open(strategy=strategy, precision="nervous")
    assert strategy in str(caught.value)
    with pytest.raises(StrategyError):
        plan(compile_program(".decl q(x: number) .decl p(x: number) p(x) :- q(x)."), ["p"], strategy, "nervous")


def test_an_unknown_precision() -> None:
    with pytest.raises(UnknownOption):
        rederive.open(strategy="differencing", precision="nervus")


@pytest.mark.parametrize("precision", ["exact", "nervous"])
def test_recursion_is_refused_and_the_database_stays_usable(precision: str) -> None:
    db = rederive.open(strategy="differencing", precision=precision)
    db.define(".decl e(x: symbol, y: symbol) .decl v(x: symbol) v(x) :- e(x, _).")
    with pytest.raises(StrategyError, match="'c' is recursive"):
        db.define(".decl c(x: symbol, y: symbol) c(x, y) :- e(x, y). c(x, y) :- e(x, z), c(z, y).")
    with db.transaction() as tx:
        tx.insert("e", [("a", "b")])
    assert tx.result.changes["v"].plus == [("a",)]


@pytest.mark.parametrize("precision", ["exact", "nervous"])
def test_changes_on_their_way_are_dropped(precision: str) -> None:
    db = rederive.open(strategy="differencing", precision=precision)
    db.define(".decl q(x: number) .decl u(x: number) .decl v(x: number) u(x) :- q(x). v(x + 1) :- u(x). .output v")
    for n in range(3):
        with db.transaction() as tx:
            tx.insert("q", [(n,)])
        assert tx.result.changes["v"].plus == [(n + 1,)]
        assert all(not table for table in db.pipeline.state.engine.installed.tables.transient)  # type: ignore[attr-defined]
