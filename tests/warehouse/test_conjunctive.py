"""Which class a view belongs to, once the views that it reads are unfolded."""

from __future__ import annotations

import pytest

from rederive.ir.printing import show_rule
from rederive.ir.rules import Rule
from rederive.warehouse.selfmaint.conjunctive import MAX_QUERIES, ViewClass
from tests.warehouse.checks import Setting

BASE = ".decl r(x: number, y: number)  .decl s(y: number)  .remote r, s  "


def unfolded(rules: str) -> tuple[ViewClass, list[str]]:
    view = Setting(BASE + rules).views[-1]
    return view.kind, [show_rule(Rule(query.head, query.body + query.conditions)) for query in view.queries]


@pytest.mark.parametrize(
    ("rules", "kind", "queries"),
    [
        (
            ".decl v(x: number, y: number) v(x, y) :- r(x, y), s(y), y = 3.",
            ViewClass.PLAIN,
            ["v(x, 3) :- r(x, 3), s(3)."],
        ),
        (
            ".decl p(x: number, z: number) p(x, z) :- r(x, y), r(y, z). .decl v(x: number) .stored v v(x) :- p(x, 1), p(x, 2).",
            ViewClass.PROJECTION,
            ["v(x) :- r(x, y), r(y, 1), r(x, y1), r(y1, 2)."],
        ),
        (
            ".decl e(x: number) e(x) :- s(x). e(x) :- r(x, x). .decl v(x: number) .stored v v(x) :- e(x), s(x).",
            ViewClass.UNION,
            ["v(x) :- s(x).", "v(x) :- r(x, x), s(x)."],
        ),
        (".decl v(x: number) v(x) :- s(x), x = 1. v(x) :- s(x), x = 2, x = 3.", ViewClass.PLAIN, ["v(1) :- s(1)."]),
        (".decl v(x: number) v(x) :- s(x), x > 1.", ViewClass.CONDITIONAL, ["v(x) :- s(x), x > 1."]),
        (".decl v(x: number) v(x) :- s(x), !r(x, _).", ViewClass.OTHER, []),
        (".decl v(x: number) v(x) :- s(x). v(x) :- r(x, y), v(y).", ViewClass.OTHER, []),
        (".decl v(n: number) v(n) :- n = count : { s(_) }.", ViewClass.OTHER, []),
        (
            ".decl p(x: number) p(x) :- s(x), x > 1. .decl v(x: number) .stored v v(x) :- p(x).",
            ViewClass.CONDITIONAL,
            ["v(x) :- s(x), x > 1."],
        ),
        (".decl v(x: number) v(1). v(x) :- s(x).", ViewClass.OTHER, []),
    ],
)
def test_unfolded(rules: str, kind: ViewClass, queries: list[str]) -> None:
    assert unfolded(rules) == (kind, queries)


def test_a_view_of_too_many_rules_is_left_alone() -> None:
    rules = "".join(f" e(x) :- r({i}, x)." for i in range(9))
    assert unfolded(f".decl e(x: number) {rules} .decl v(x: number) .stored v v(x) :- e(x).")[0] is ViewClass.UNION
    assert MAX_QUERIES < 9 * 9
    assert unfolded(f".decl e(x: number) {rules} .decl v(x: number) .stored v v(x) :- e(x), e(y), s(y).")[0] is ViewClass.OTHER


def test_stored_views_are_those_declared_or_else_those_that_read_a_remote_relation() -> None:
    text = ".decl l(x: number) .decl v(x: number) v(x) :- s(x). .decl w(x: number) w(x) :- l(x). .decl u(x: number) u(x) :- v(x)."
    assert [view.name for view in Setting(BASE + text).views] == ["v", "u"]
    assert [view.name for view in Setting(BASE + text + " .stored u").views] == ["u"]
    assert [view.name for view in Setting(BASE + text + " .output u").views] == ["u"]
