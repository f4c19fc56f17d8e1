"""Transitive closures in every form: linearize, specialised and walked, they are what the oracle evaluates as written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.lang import compile_program
from rederive.maintain.passes.linearize import linearize
from rederive.maintain.passes.push_constants import push_constants
from rederive.maintain.passes.unfold import unfold
from tests.oracle import evaluate
from tests.properties.test_maintained_equals_recomputed import apply, changed, examples, loading

DECLARED = """
.decl e(x: symbol, y: symbol) .decl f(x: symbol, y: symbol) .decl n(x: symbol)
.decl g(a: symbol, b: symbol, c: symbol, d: symbol)
.decl p(x: symbol, y: symbol)
"""
EXITS = (
    "{}(x, y) :- e(x, y).",
    "{}(x, y) :- f(y, x).",
    "{}(x, y) :- e(x, y), n(x).",
    "{}(x, y) :- e(x, z), f(z, y).",
    "{}(x, y) :- f(x, y), !n(y), x != y.",
    '{}("a", y) :- n(y).',
    "{}(x, x) :- n(x).",
)
LINEAR = {
    "right": "p(x, y) :- e(x, y). p(x, y) :- e(x, z), p(z, y).",
    "left": "p(x, y) :- e(x, y). p(x, y) :- p(x, z), e(z, y).",
    "compound right": "p(x, y) :- e(x, w), f(w, y). p(x, y) :- e(x, w), f(w, z), p(z, y).",
    "a middle that an exit uses": "p(x, y) :- e(x, z), f(z, y). p(x, y) :- p(x, z), e(z, w), f(w, y).",
    "compound left": "p(x, y) :- e(x, y), !n(x). p(x, y) :- p(x, z), e(z, y), !n(z).",
}
WIDE = """.decl w(a: symbol, b: symbol, c: symbol, d: symbol) .decl v(c: symbol, d: symbol)
w(a, b, c, d) :- g(a, b, c, d). w(a, b, c, d) :- w(a, b, u, v), w(u, v, c, d). v(c, d) :- w("a", "b", c, d)."""
ABOVE = (
    ".decl off(x: symbol, y: symbol) off(x, y) :- n(x), n(y), !p(x, y).",
    ".decl far(x: symbol, k: number) far(x, k) :- n(x), k = count : { p(x, _) }.",
    '.decl from_a(y: symbol) from_a(y) :- p("a", y).',
    '.decl to_b(x: symbol) to_b(x) :- p(x, "b").',
    '.decl there(x: symbol) there(x) :- n(x), p("a", "b").',
    ".decl pp(x: symbol, y: symbol) pp(x, y) :- p(y, x). pp(x, y) :- pp(x, z), pp(z, y).",
    ".decl mine(x: symbol, y: symbol) mine(x, y) :- p(x, z), f(z, y).",
)
NODES = "abcd"
PAIRS = st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)), max_size=6, unique=True)
ROWS = {
    "e": PAIRS,
    "f": PAIRS,
    "n": st.lists(st.tuples(st.sampled_from(NODES)), max_size=3, unique=True),
    "g": st.lists(st.tuples(*[st.sampled_from("ab")] * 4), max_size=5, unique=True),
}
CHANGES = st.lists(
    st.one_of([st.tuples(st.sampled_from(["insert", "delete"]), st.just(name), rows) for name, rows in ROWS.items()]), max_size=4
)
TRANSACTIONS = st.lists(CHANGES, min_size=1, max_size=4)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A closure in some form, views over it, and seldom one of halves of two columns; not all views are monitored."""
    exits = "".join(rule.format("p") for rule in draw(st.lists(st.sampled_from(EXITS), min_size=1, max_size=3, unique=True)))
    closure = draw(st.sampled_from([exits + "p(x, y) :- p(x, z), p(z, y)."] * 4 + list(LINEAR.values())))
    above = draw(st.lists(st.sampled_from(ABOVE), max_size=3, unique=True))
    wide = WIDE if draw(st.integers(1, 4)) == 4 else ""
    monitored = [text.split("(")[0].removeprefix(".decl ") for text in above if draw(st.booleans())]
    outputs = "".join(f" .output {name}" for name in monitored)
    return "\n".join([DECLARED, closure, *above, wide, outputs])


@pytest.mark.parametrize("strategy", ["recompute", "materialized", "on_demand", "filtration", "auto"])
def test_every_strategy_maintains_what_is_written(strategy: str) -> None:
    @examples(60)
    @given(text=programs(), start=st.fixed_dictionaries(ROWS), transactions=TRANSACTIONS)
    def check(text: str, start: dict[str, Any], transactions: list[Any]) -> None:
        program = compile_program(text)
        db = rederive.open(strategy=strategy)
        db.define(text)
        base: dict[str, set[Any]] = {name: set() for name in program.bases}
        rows = evaluate(program, base)
        for change in [loading(start), *transactions]:
            base = changed(base, change)
            with db.transaction() as tx:
                apply(tx, change)
            before, rows = rows, evaluate(program, base)
            for view in program.monitored:
                found = tx.result.changes.get(view)
                plus, minus = (found.plus, found.minus) if found else ([], [])
                assert (set(plus), set(minus)) == (rows[view] - before[view], before[view] - rows[view]), view
        for x in NODES:
            assert db.rows("p", x=x) == sorted(row for row in rows["p"] if row[0] == x)
            assert db.rows("p", y=x) == sorted(row for row in rows["p"] if row[1] == x)
            assert db.rows("p", x=x, y="b") == sorted(rows["p"] & {(x, "b")})
        assert db.rows("p") == sorted(rows["p"])

    check()


@examples(100)
@given(text=programs(), start=st.fixed_dictionaries(ROWS))
def test_the_rewritten_programs_mean_the_same(text: str, start: dict[str, Any]) -> None:
    program = compile_program(text)
    base = {name: set(start[name]) for name in program.bases}
    rows = evaluate(program, base)
    linear = linearize(program)
    special = push_constants(linear, program.monitored)
    for rewritten in (linear, special, unfold(special, program.monitored)):
        found = evaluate(rewritten, base)
        assert {view: found[view] for view in program.monitored} == {view: rows[view] for view in program.monitored}
