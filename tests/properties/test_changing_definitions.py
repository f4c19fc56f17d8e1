"""Rules and views come and go between transactions: each step yields the oracle's difference between before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.errors import RederiveError
from rederive.ir.rules import Program
from rederive.lang import compile_program
from tests.oracle import Rows, evaluate
from tests.properties.programs import Draw
from tests.properties.test_maintained_equals_recomputed import GENERAL, PLAIN, apply, changed, examples, recursive

BASES = ".decl e(x: symbol, y: symbol)\n.decl n(x: symbol)\n.decl h(x: symbol)\n"
VIEWS = {
    "a": ".decl a(x: symbol, y: symbol)",
    "b": ".decl b(x: symbol)",
    "c": ".decl c(x: symbol, k: number)",
    "d": ".decl d(k: number)",
    "f": ".decl f(x: symbol, y: symbol)",
}
FLAT = (
    "a(x, y) :- e(x, y).",
    "a(x, x) :- n(x).",
    "a(x, z) :- e(x, y), e(y, z).",
    "b(x) :- n(x), !a(x, x).",
    "b(x) :- a(x, _), !n(x).",
    "b(x) :- e(x, y), x != y ; n(x), e(_, x).",
    "c(x, k) :- n(x), k = count : { a(x, _) }.",
    "c(x, 7) :- b(x).",
    "d(k) :- k = count : { b(_) }.",
    "d(k) :- c(_, k), k > 1.",
    "f(x, y) :- a(x, y), b(x).",
    'f(x, "q") :- d(k), n(x), !b(x), k > 0.',
)
RECURSIVE = (
    "a(x, y) :- e(x, z), a(z, y).",
    "a(x, y) :- a(x, z), a(z, y).",
    "b(y) :- b(x), e(x, y).",
    "f(x, y) :- f(y, x).",
    "a(x, y) :- f(x, y).",  # with the rules of f above: through a view, through a negation, through an aggregate
)
REFUSED = ("b(y) :- n(x).", "b(x) :- nowhere(x).", "b(x, x) :- n(x).", "d(x) :- n(x).", "h(x) :- n(x).")  # h has a row


def view_of(rule: str) -> str:
    return rule[0]


@dataclass(frozen=True)
class Model:
    """The program as text: declared views and their rules, in any order."""

    views: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return BASES + "\n".join([*(VIEWS[view] for view in self.views), *self.rules]) + "\n"


Step = tuple[str, Any]


@st.composite
def steps(draw: Draw, pool: tuple[str, ...]) -> list[Step]:
    rules = st.sampled_from(pool)
    some = st.lists(rules, min_size=1, max_size=3, unique=True)
    rows = {"e": st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), "n": st.tuples(st.sampled_from("abc"))}
    calls = [
        st.tuples(st.sampled_from(["insert", "insert", "delete"]), st.just(name), st.lists(row, max_size=4, unique=True))
        for name, row in rows.items()
    ]
    step = st.one_of(
        st.tuples(st.just("transaction"), st.lists(st.one_of(calls), max_size=3)),
        st.tuples(st.just("define"), some),
        st.tuples(st.just("add_rule"), some),
        st.tuples(st.just("add_rule"), st.sampled_from(REFUSED).map(lambda rule: [rule])),
        st.tuples(st.just("remove_rule"), st.lists(rules, min_size=1, max_size=2, unique=True)),
        st.tuples(st.just("remove_rule"), st.integers(0, 9)),
        st.tuples(st.just("replace_view"), some),
        st.tuples(st.just("drop_view"), st.sampled_from(list(VIEWS))),
    )
    loaded = ("transaction", [("insert", "e", draw(st.lists(rows["e"], max_size=5))), ("insert", "n", [("a",), ("b",)])])
    first = draw(st.one_of(some, st.just([FLAT[i] for i in (0, 3, 6, 9, 10)])))
    return [loaded, ("define", first), *draw(st.lists(step, min_size=1, max_size=8))]


@dataclass
class Session:
    """A database, and the text that it should have."""

    strategy: str
    model: Model = Model()
    base: Rows = field(default_factory=lambda: {"e": set(), "n": set(), "h": {("a",)}})
    version: int = 1  # the load of h

    def __post_init__(self) -> None:
        self.db = rederive.open(strategy=self.strategy)
        self.db.define(BASES)
        self.db.load("h", self.base["h"])
        self.program: Program = compile_program(self.model.text)
        self.rows = evaluate(self.program, self.base)
        self.received: list[Any] = []

    def step(self, kind: str, argument: Any) -> None:
        if kind == "remove_rule" and isinstance(argument, int):  # one that is there, where any is
            argument = [self.model.rules[argument % len(self.model.rules)]] if self.model.rules else [FLAT[0]]
        if kind == "transaction":
            self.base = changed(self.base, argument)
            with self.db.transaction() as tx:
                apply(tx, argument)
            self.version += 1
            self.check(tx.result, self.program)
        else:
            getattr(self, kind)(argument)

    def define(self, rules: list[str]) -> None:
        new = tuple(dict.fromkeys(view_of(rule) for rule in rules if view_of(rule) not in self.model.views))
        rules = [rule for rule in rules if view_of(rule) in new]
        if not rules:
            return
        text = "\n".join([*(VIEWS[view] for view in new), *rules])
        after = Model(self.model.views + new, self.model.rules + tuple(rules))
        self.edit(after, lambda: self.db.define(text), True)
        for view in set(new) & set(self.db.pipeline.state.program.views):
            self.db.subscribe(view, self.hear)

    def hear(self, change: rederive.Change) -> None:
        self.received.append((change.version, change.view, change.plus, change.minus))

    def add_rule(self, rules: list[str]) -> None:
        after = replace(self.model, rules=self.model.rules + tuple(rules))
        self.edit(after, lambda: self.db.definitions.add_rule("\n".join(rules)), all(rule[0] in VIEWS for rule in rules))

    def remove_rule(self, rules: list[str]) -> None:
        left = list(self.model.rules)
        there = all(rule in left for rule in rules)
        for rule in rules if there else ():
            left.remove(rule)
        self.edit(replace(self.model, rules=tuple(left)), lambda: self.db.definitions.remove_rule(" ".join(rules)), there)

    def replace_view(self, rules: list[str]) -> None:
        view = view_of(rules[0])
        rules = [rule for rule in rules if view_of(rule) == view]
        kept = tuple(rule for rule in self.model.rules if view_of(rule) != view)
        after = replace(self.model, rules=(*kept, *rules))
        self.edit(after, lambda: self.db.definitions.replace_view(view, " ".join(rules)), view in self.program.views)

    def drop_view(self, view: str) -> None:
        kept = tuple(rule for rule in self.model.rules if view_of(rule) != view)
        after = Model(tuple(each for each in self.model.views if each != view), kept)
        self.edit(after, lambda: self.db.definitions.drop_view(view), view in self.program.views)

    def edit(self, after: Model, call: Callable[[], Any], allowed: bool) -> None:
        """Refused or not is for the compiler to say, and for what the step itself needs; what follows is checked here."""
        try:
            program = compile_program(after.text)
            allowed = allowed and not (self.strategy in PLAIN and recursive(program))
        except RederiveError:
            allowed = False
        if not allowed:
            with pytest.raises(RederiveError):
                call()
            self.check_state()
            return
        result = call()
        self.model = after
        if result is not None:
            self.version += 1
        self.check(result, program)

    def check(self, result: Any, program: Program) -> None:
        before, was = self.rows, self.program
        self.program, self.rows = program, evaluate(program, self.base)
        expected = {}
        for view in {*was.monitored, *program.monitored}:
            old = before[view] if view in was.views else set()
            new = self.rows[view] if view in program.views else set()
            if old != new:
                expected[view] = (sorted(new - old), sorted(old - new))
        found = {view: (c.plus, c.minus) for view, c in result.changes.items()} if result is not None else {}
        assert found == expected
        assert result is None or result.version == self.version
        heard = {view: (plus, minus) for version, view, plus, minus in self.received if version == self.version}
        assert all(heard.get(view) == expected.get(view) for view in self.subscribed)
        self.received.clear()
        self.check_state()

    @property
    def subscribed(self) -> set[str]:
        return {subscription.view for subscription in self.db.pipeline.state.subscriptions.active}

    def check_state(self) -> None:
        names = [name for name, relation in self.program.relations.items() if not relation.is_auxiliary]
        assert sorted(n for n, r in self.db.pipeline.state.program.relations.items() if not r.is_auxiliary) == sorted(names)
        assert {name: self.db.rows(name) for name in names} == {name: sorted(self.rows[name]) for name in names}
        assert self.db.version == self.version
        assert sorted(self.db.pipeline.state.monitored) == sorted(self.program.monitored)
        assert self.received == []


def play(strategy: str, all_steps: list[Step]) -> None:
    session = Session(strategy)
    for kind, argument in all_steps:
        session.step(kind, argument)


@pytest.mark.parametrize("strategy", GENERAL)
@examples(50)
@given(all_steps=steps(FLAT + RECURSIVE))
def test_definitions_change_between_transactions(strategy: str, all_steps: list[Step]) -> None:
    play(strategy, all_steps)


@pytest.mark.parametrize("strategy", PLAIN)
@examples(50)
@given(all_steps=steps((*FLAT, RECURSIVE[0])))
def test_without_recursion(strategy: str, all_steps: list[Step]) -> None:
    play(strategy, all_steps)


@pytest.mark.parametrize("strategy", [*GENERAL, *PLAIN])
def test_the_last_rule_of_a_view_is_removed(strategy: str) -> None:
    session = Session(strategy)
    session.step("transaction", [("insert", "n", [("a",)])])
    session.step("define", [FLAT[1], "b(x) :- a(x, _), !n(x)."])
    session.step("remove_rule", [FLAT[1]])
    session.step("add_rule", [FLAT[1]])


@pytest.mark.parametrize("strategy", GENERAL)
def test_the_facts_of_a_view_stay_when_its_rules_go(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define('.decl e(x: symbol) .decl v(x: symbol) v("q"). v(x) :- e(x). e("a").')
    db.definitions.remove_rule("v(x) :- e(x).")
    assert db.rows("v") == [("q",)]


def test_a_deleted_fact_does_not_come_back_with_a_rule() -> None:
    db = rederive.open()
    db.define('.decl n(x: symbol) .decl e(x: symbol) e("q").')
    with db.transaction() as tx:
        tx.delete("e", [("q",)])
    assert db.rows("e") == []
    assert db.definitions.add_rule("e(x) :- n(x).").changes == {}
    assert db.rows("e") == []
