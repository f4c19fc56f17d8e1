"""SJ96's Algorithm 1, rule by rule, with negation as in section 4.2."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import rederive
from rederive.analysis.graph import components
from rederive.errors import UnknownOption
from rederive.ir.printing import show_rule
from rederive.ir.rules import Atom, Program, Rule, Variant
from rederive.lang import compile_program
from rederive.maintain.maintenance_rule import MaintenanceRule, State, state_rules
from rederive.maintain.plan import plan
from rederive.maintain.program import Strategy
from rederive.maintain.strategies.materialized import deletion_rules, insertion_rules, net_rules, rederivation_rule

DECLARATIONS = ".decl r(x: symbol, y: symbol) .decl s(x: symbol) .decl n(x: symbol, k: number) .decl p(x: symbol, y: symbol)\n"


def compiled(rules: str) -> tuple[Program, Rule]:
    program = compile_program(DECLARATIONS + rules)
    rule = program.definitions[-1]
    assert isinstance(rule, Rule)
    return program, rule


def shown(rules: Iterable[MaintenanceRule]) -> list[str]:
    return [f"{m.label} {show_rule(m.rule)}" for m in rules]


def test_a_join() -> None:
    _, rule = compiled("p(x, z) :- r(x, y), r(y, z).")
    assert shown(deletion_rules(rule)) == [
        "D1 p^del(x, z) :- r^del(x, y), r(y, z).",
        "D2 p^del(x, z) :- r(x, y), r^del(y, z).",
    ]
    assert shown(insertion_rules(rule)) == [
        "I1 p^ins(x, z) :- r^ins(x, y), r^new(y, z).",
        "I2 p^ins(x, z) :- r^new(x, y), r^ins(y, z).",
    ]


def test_a_negated_literal_changes_with_the_opposite_sign() -> None:
    """What enters r takes away from p, and what leaves r adds to it; elsewhere the negation stays, in its state."""
    program, rule = compiled("p(x, y) :- r(x, y), !s(x), !s(y).")
    assert shown(deletion_rules(rule)) == [
        "D1 p^del(x, y) :- r^del(x, y), !s(x), !s(y).",
        "D2 p^del(x, y) :- r(x, y), s^ins(x), !s(y).",
        "D3 p^del(x, y) :- r(x, y), !s(x), s^ins(y).",
    ]
    assert shown(insertion_rules(rule)) == [
        "I1 p^ins(x, y) :- r^ins(x, y), !s^new(x), !s^new(y).",
        "I2 p^ins(x, y) :- r^new(x, y), s^del(x), !s^new(y).",
        "I3 p^ins(x, y) :- r^new(x, y), !s^new(x), s^del(y).",
    ]
    (component,) = components(program)
    assert shown([rederivation_rule(rule, component)]) == ["R p^red(x, y) :- p^del(x, y), r^new(x, y), !s^new(x), !s^new(y)."]


def test_comparisons_stay_and_have_no_change_of_their_own() -> None:
    _, rule = compiled('p(x, "c") :- n(x, k), k > 3, s(x), k % 2 = 0.')
    assert shown(deletion_rules(rule)) == [
        'D1 p^del(x, "c") :- n^del(x, k), k > 3, s(x), k % 2 = 0.',
        'D2 p^del(x, "c") :- n(x, k), k > 3, s^del(x), k % 2 = 0.',
    ]


@pytest.mark.parametrize("rules", ["p(x, z) :- r(x, y), r(y, z).", "p(x, y) :- r(x, y), !s(x), x != y."])
def test_joins_start_at_the_changed_literal(rules: str) -> None:
    _, rule = compiled(rules)
    for made in (*deletion_rules(rule), *insertion_rules(rule)):
        (driver,) = made.drivers
        assert driver is not None
        literal = made.rule.body[driver]
        assert isinstance(literal, Atom)
        assert literal.variant in (Variant.DEL, Variant.INS)
        changed = [a for a in made.rule.body if isinstance(a, Atom) and a.variant in (Variant.DEL, Variant.INS)]
        assert changed == [literal]


def test_rederivation_starts_from_the_deleted_and_from_what_is_put_back() -> None:
    program, rule = compiled("p(x, y) :- r(x, y). p(x, z) :- p(x, y), !s(y), p(y, z).")
    (component,) = components(program)
    made = rederivation_rule(rule, component)
    assert show_rule(made.rule) == "p^red(x, z) :- p^del(x, z), p^new(x, y), !s^new(y), p^new(y, z)."
    assert made.drivers == (0, 1, 3)


def test_net_effect_drops_the_idle_and_the_phantom() -> None:
    program, _ = compiled("p(x, y) :- r(x, y).")
    assert shown(net_rules(program, "p")) == [
        "E1 p^plus(x, y) :- p^ins(x, y), !p(x, y).",
        "E2 p^minus(x, y) :- p^del(x, y), !p^ins(x, y), !p^red(x, y).",
    ]


def test_new_states() -> None:
    program, _ = compiled("p(x, y) :- r(x, y). p(x, y) :- r(y, x).")
    assert shown(state_rules(State("r"), program.relations["r"])) == [
        "N1 r^new(x, y) :- r(x, y), !r^del(x, y).",
        "N2 r^new(x, y) :- r^ins(x, y).",
    ]
    view = plan(program, ["p"], "materialized").states["p"]
    assert shown(state_rules(view, program.relations["p"])) == [
        "N1 p^new(x, y) :- p(x, y), !p^del(x, y).",
        "N2 p^new(x, y) :- p^red(x, y).",
        "N3 p^new(x, y) :- p^ins(x, y).",
    ]


def test_a_row_that_has_one_derivation_is_never_put_back() -> None:
    program, _ = compiled("p(x, y) :- r(x, y).")
    maintenance = plan(program, ["p"], "materialized")
    assert [phase.name for phase in maintenance.sections[0].phases] == ["deletions", "insertions", "net effect"]
    assert shown(state_rules(maintenance.states["p"], program.relations["p"])) == [
        "N1 p^new(x, y) :- p(x, y), !p^del(x, y).",
        "N2 p^new(x, y) :- p^ins(x, y).",
    ]


def test_a_fact_of_a_view_is_rederived_always() -> None:
    program = compile_program(DECLARATIONS + 'p("a", "b"). p(x, y) :- r(x, y).')
    (section,) = plan(program, ["p"], "materialized").sections
    red = [show_rule(m.rule) for phase in section.phases if phase.name == "rederivations" for m in phase.rules]
    assert 'p^red("a", "b") :- p^del("a", "b").' in red


def test_phases_of_a_mutual_recursion_run_together() -> None:
    text = ".decl e(x: symbol, y: symbol) .decl odd(x: symbol, y: symbol) .decl even(x: symbol, y: symbol)\n"
    program = compile_program(f"{text}odd(x, y) :- e(x, y) ; even(x, z), e(z, y).\neven(x, y) :- odd(x, z), e(z, y).")
    (section,) = plan(program, ["odd"], "materialized").sections
    assert section.component.relations == ("odd", "even")
    assert [phase.name for phase in section.phases] == ["deletions", "rederivations", "insertions", "net effect"]
    heads = [{m.rule.head.name for m in phase.rules} for phase in section.phases]
    assert heads == [
        {"odd^del", "even^del"},
        {"odd^red", "even^red"},
        {"odd^ins", "even^ins"},
        {"odd^plus", "odd^minus", "even^plus", "even^minus"},
    ]


# From views to their plan

LAYERS = """.decl e(x: symbol, y: symbol)
.decl a(x: symbol) .decl b(x: symbol) .decl c(x: symbol) .decl d(k: number) .decl z(x: symbol)
a(x) :- e(x, _).
b(x) :- a(x), !z(x).
z(x) :- e(_, x), e(x, x).
c(x) :- b(x), e(x, _).
d(k) :- k = count : { b(_) }.
"""


@pytest.mark.parametrize("strategy", ["recompute", "counting", "materialized", "auto"])
@pytest.mark.parametrize(
    ("targets", "views"),
    [
        (["a"], {"a"}),
        (["z"], {"z"}),
        (["b"], {"a", "b", "z"}),
        (["c"], {"a", "b", "c", "z"}),
        (["d"], {"a", "b", "d", "z"}),
        (["a", "z"], {"a", "z"}),
        (["e"], set()),
        ([], set()),
    ],
)
def test_the_plan_covers_what_is_needed_and_no_more(strategy: str, targets: list[str], views: set[str]) -> None:
    program = compile_program(LAYERS)
    found = [name for section in plan(program, targets, strategy).sections for name in section.component.relations]
    assert {name for name in found if not program.relations[name].is_auxiliary} == views
    assert len(found) == len(set(found))


@pytest.mark.parametrize("strategy", ["recompute", "counting", "materialized", "auto"])
def test_the_plan_goes_bottom_up(strategy: str) -> None:
    order = [s.component.relations[0] for s in plan(compile_program(LAYERS), ["c", "d"], strategy).sections]
    for below, above in [("a", "b"), ("z", "b"), ("b", "c"), ("b", "d")]:
        assert order.index(below) < order.index(above)


def test_the_strategy_of_every_section() -> None:
    program = compile_program(LAYERS)
    for strategy in Strategy:
        assert {section.strategy for section in plan(program, program.views, strategy.value).sections} == {strategy}


def test_unknown_strategies_are_refused() -> None:
    with pytest.raises(UnknownOption) as caught:
        plan(compile_program(LAYERS), ["a"], "materialised")
    assert caught.value.code == "unknown_option"
    assert caught.value.hint == "did you mean 'materialized'?"


def test_a_view_that_was_defined_over_an_empty_relation_is_not_evaluated_anew_for_ever() -> None:
    """The estimate follows the sizes: of a thousand rows, one changed row touches few."""
    db = rederive.open()
    db.define(
        ".decl stock(item: number, n: number) key(item)  .decl low(item: number, n: number)  low(i, n) :- stock(i, n), n < 10."
    )
    touched = []
    for step in range(1050):
        with db.transaction() as tx:
            tx.upsert("stock", [(step % 1000, step // 1000)])
        touched.append(tx.result.touched)
    assert max(touched[1000:]) <= 4
    assert sum(touched) < 20_000
