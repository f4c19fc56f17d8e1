"""Path analysis (HD94, section 4): which signs must be propagated, and that nothing else is."""

from __future__ import annotations

import pytest

import rederive
from rederive.analysis.polarity import needed_signs
from rederive.delta import BOTH, Sign
from rederive.errors import UnknownOption
from rederive.lang import compile_program

PLUS, MINUS = frozenset({Sign.PLUS}), frozenset({Sign.MINUS})
DECLARATIONS = " ".join(f".decl {name}(x: number)" for name in "a b c d e p q r s t".split()) + "\n"


def signs(rules: str, view: str, wanted: frozenset[Sign]) -> dict[str, frozenset[Sign]]:
    program = compile_program(DECLARATIONS + rules)
    found = needed_signs(program, {view: wanted})
    return {name: found[name] for name in found if not program.relations[name].is_auxiliary}


@pytest.mark.parametrize("sign", [PLUS, MINUS])
@pytest.mark.parametrize(("negations", "rules"), [
    (0, "p(x) :- a(x)."),
    (0, "q(x) :- a(x). r(x) :- q(x). p(x) :- r(x), x > 3."),
    (1, "p(x) :- b(x), !a(x)."),
    (1, "q(x) :- b(x), !a(x). p(x) :- q(x)."),
    (2, "q(x) :- b(x), !a(x). p(x) :- b(x), !q(x)."),
    (3, "q(x) :- b(x), !a(x). r(x) :- b(x), !q(x). p(x) :- b(x), !r(x)."),
])  # fmt: skip
def test_the_sign_turns_with_each_negation(sign: frozenset[Sign], negations: int, rules: str) -> None:
    """Rules 1 to 3."""
    (only,) = sign
    expected = frozenset({only.opposite}) if negations % 2 else sign
    assert signs(rules, "p", sign)["a"] == expected


def test_paths_of_both_kinds_want_both_signs() -> None:
    assert signs("p(x) :- a(x), !b(x). p(x) :- b(x), x > 2.", "p", PLUS) == {"p": PLUS, "a": PLUS, "b": BOTH}
    assert signs("q(x) :- a(x). p(x) :- a(x), !q(x).", "p", MINUS) == {"p": MINUS, "q": PLUS, "a": BOTH}


def test_both_stay_both() -> None:
    assert signs("q(x) :- b(x), !a(x). p(x) :- q(x).", "p", BOTH) == {"p": BOTH, "q": BOTH, "a": BOTH, "b": BOTH}


def test_an_aggregate_needs_both() -> None:
    """A row that leaves changes a count as well as one that enters: the old count leaves, another one enters."""
    assert signs("q(x) :- a(x), !b(x). p(k) :- k = count : { q(_) }.", "p", PLUS) == {"p": PLUS, "q": BOTH, "a": BOTH, "b": BOTH}
    assert signs("q(k) :- k = count : { a(_) }. p(x) :- b(x), !q(x).", "p", MINUS)["a"] == BOTH


def test_recursion_keeps_the_sign() -> None:
    rules = "q(x) :- a(x). q(y) :- r(x), y = x + 1, y < 9. r(x) :- q(x), b(x). p(x) :- c(x), !q(x)."
    assert signs(rules, "p", PLUS) == {"p": PLUS, "c": PLUS, "q": MINUS, "r": MINUS, "a": MINUS, "b": MINUS}


def test_several_wanted_views_add_up() -> None:
    program = compile_program(DECLARATIONS + "p(x) :- a(x), b(x). q(x) :- a(x), !c(x). r(x) :- d(x).")
    assert needed_signs(program, {"p": PLUS, "q": MINUS}) == {"p": PLUS, "q": MINUS, "a": BOTH, "b": PLUS, "c": PLUS}


def test_what_is_not_wanted_is_not_in_it() -> None:
    program = compile_program(DECLARATIONS + "p(x) :- a(x). q(x) :- p(x).")
    assert needed_signs(program, {"p": PLUS}) == {"p": PLUS, "a": PLUS}
    assert needed_signs(program, {}) == {}
    assert needed_signs(program, {"a": MINUS}) == {"a": MINUS}


# What is left out

CLOSURE = ".decl edge(x: symbol, y: symbol) .decl closure(x: symbol, y: symbol)\n"
CLOSURE += "closure(x, y) :- edge(x, y). closure(x, y) :- edge(x, z), closure(z, y).\n"


@pytest.mark.parametrize("only", ["plus", "minus"])
def test_three_of_six_paths_of_the_closure_are_left_out(only: str) -> None:
    """For each sign there is a rule for each literal: one of R1, two of R2."""
    db = rederive.open(strategy="filtration", only=only)
    db.define(CLOSURE)
    with db.transaction() as tx:
        tx.insert("edge", [("a", "b"), ("b", "c")])
    assert tx.result.skipped == 3
    with db.transaction() as other:
        other.delete("edge", [("a", "b")])
    changes = {"plus": ([("a", "b"), ("a", "c"), ("b", "c")], []), "minus": ([], [("a", "b"), ("a", "c")])}
    assert [(r.changes["closure"].plus if r.changes else [], r.changes["closure"].minus if r.changes else [])
            for r in (tx.result, other.result)] == (
        [(changes["plus"][0], []), ([], [])] if only == "plus" else [([], []), ([], changes["minus"][1])]
    )  # fmt: skip


@pytest.mark.parametrize(("only", "idle"), [("plus", "delete"), ("minus", "insert")])
def test_updates_of_the_other_sign_are_ignored(only: str, idle: str) -> None:
    """ "Any update classified as one of these types is ignored and will not be propagated"."""
    db = rederive.open(strategy="filtration", only=only)
    db.define(CLOSURE)
    db.load("edge", [("a", "b"), ("b", "c"), ("c", "d")])
    with db.transaction() as tx:
        getattr(tx, idle)("edge", [("b", "c") if idle == "delete" else ("d", "e")])
    assert (tx.result.changes, tx.result.touched, tx.result.derived) == ({}, 0, {})


def test_through_negation_the_other_half_is_left_out() -> None:
    db = rederive.open(strategy="filtration", only="plus")
    db.define(CLOSURE + '.decl node(x: symbol) .decl off(x: symbol) off(x) :- node(x), !closure("r", x). .output off')
    db.load("node", [("a",), ("b",)])
    db.load("edge", [("r", "a"), ("a", "b")])
    with db.transaction() as tx:
        tx.insert("edge", [("r", "b")])
    assert (tx.result.changes, tx.result.touched) == ({}, 0)
    with db.transaction() as tx:
        tx.delete("edge", [("r", "a"), ("r", "b")])
    assert tx.result.changes["off"].plus == [("a",), ("b",)]
    assert tx.result.skipped == 5  # of closure the three insertions, of off the two deletions


def test_both_signs_leave_nothing_out() -> None:
    db = rederive.open(strategy="filtration")
    db.define(CLOSURE)
    with db.transaction() as tx:
        tx.insert("edge", [("a", "b")])
    assert tx.result.skipped == 0


@pytest.mark.parametrize("strategy", ["recompute", "materialized", "on_demand", "filtration", "auto"])
def test_a_subscription_to_one_sign(strategy: str) -> None:
    db = rederive.open(strategy=strategy)
    db.define(CLOSURE + ".decl start(x: symbol) start(x) :- edge(x, _). .output start")
    seen: list[tuple[int, str, object, object]] = []
    db.subscribe("closure", lambda c: seen.append((c.version, "minus", c.plus, c.minus)), only="minus")
    gained: list[tuple[int, object, object]] = []
    db.subscribe("start", lambda c: gained.append((c.version, c.plus, c.minus)), only="plus")
    with db.transaction() as tx:
        tx.insert("edge", [("a", "b"), ("b", "c")])
    with db.transaction() as tx:
        tx.delete("edge", [("b", "c")])
        tx.insert("edge", [("c", "a")])
    assert seen == [(2, "minus", [], [("a", "c"), ("b", "c")])]
    assert gained == [(1, [("a",), ("b",)], []), (2, [("c",)], [])]
    assert tx.result.changes["start"].minus == [("b",)]  # the result tells what .output asked for


def test_a_subscription_to_one_sign_skips_paths() -> None:
    db = rederive.open(strategy="filtration")
    db.define(CLOSURE + ".decl start(x: symbol) start(x) :- edge(x, _). .output start")
    db.subscribe("closure", lambda _: None, only="minus")
    with db.transaction() as tx:
        tx.insert("edge", [("a", "b")])
    assert tx.result.skipped == 3
    db.subscribe("closure", lambda _: None, only="plus")
    with db.transaction() as tx:
        tx.insert("edge", [("b", "c")])
    assert tx.result.skipped == 0


def test_an_unknown_sign() -> None:
    with pytest.raises(UnknownOption):
        rederive.open(only="both")
    db = rederive.open()
    db.define(CLOSURE)
    with pytest.raises(UnknownOption):
        db.subscribe("closure", lambda _: None, only="pluss")
    with db.transaction() as tx:
        tx.insert("edge", [("a", "b")])
    assert tx.result.changes["closure"].plus == [("a", "b")]
