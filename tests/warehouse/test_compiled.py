"""The compiled rules: what is always so, what is hopeless, and that the printed SQL says the same as the rules."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given

from rederive.ir.rules import Rule
from rederive.warehouse.selfmaint import compiled_maintenance as module
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.compiled_maintenance import compile_maintenance
from rederive.warehouse.selfmaint.conjunctive import StoredView, ViewClass
from rederive.warehouse.selfmaint.open_rows import leaves_rows_open, open_row_test, unknown_relations
from rederive.warehouse.selfmaint.search import KnownRows, Maintainability, decide
from rederive.warehouse.selfmaint.source_update import KnownRelations, SourceUpdate, UpdateKind
from tests.properties.test_maintained_equals_recomputed import examples
from tests.properties.test_selfmaint import problems, relations, stored
from tests.warehouse.checks import Duck, Setting, by_oracle, extents, given_of, kind_of
from tests.warehouse.definition import random_problem
from tests.warehouse.witness import Database

JOIN = Setting("""
    .decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .remote r, s
    .decl v(x: symbol, y: symbol, z: symbol)  v(x, y, z) :- r(x, y), s(y, z).
""")


@examples(20)
@given(problems(plain=True))
def test_the_printed_sql_says_what_the_rules_say(
    problem: tuple[dict[str, int], tuple[StoredView, ...], Database, SourceUpdate],
) -> None:
    schema, found, database, update = problem
    knowledge = stored(found, database)
    test = compile_maintenance(found[0], found, relations(schema, found), kind_of(update), given_of(knowledge, update))
    assert test is not None
    rows = extents(knowledge, update)
    duck = Duck(test)
    duck.load(rows)
    assert duck.maintainable() == by_oracle(test, rows)[0]
    if found[0].queries[0].head.terms:
        assert duck.rows(names.NEXT) == by_oracle(test, rows)[1]


def test_deletions_alone_are_always_self_maintainable() -> None:
    assert JOIN.compiled("v", UpdateKind.of(delete=["r", "s"])).always
    assert not JOIN.compiled("v", UpdateKind.of(insert=["r"])).always


def test_a_relation_at_hand_leaves_nothing_open() -> None:
    assert JOIN.compiled("v", UpdateKind.of(insert=["r"]), KnownRelations(read=frozenset("s"))).always
    assert JOIN.compiled("v", UpdateKind.of(insert=["r"]), KnownRelations(local=frozenset("s"))).always
    assert not JOIN.compiled("v", UpdateKind.of(insert=["r", "s"]), KnownRelations(read=frozenset("s"))).always


def test_hopeless_where_only_an_idle_insertion_could_be_taken() -> None:
    """What a new row of r joins with in s was never shown, unless the row was there. In JOIN another x may have shown it."""
    setting = Setting("""
        .decl r(x: symbol)  .decl s(x: symbol, y: symbol)  .remote r, s
        .decl v(x: symbol, y: symbol)  v(x, y) :- r(x), s(x, y).
    """)
    assert setting.compiled("v", UpdateKind.of(insert=["r"])).hopeless
    assert not JOIN.compiled("v", UpdateKind.of(insert=["r"])).hopeless
    there = KnownRows({"v": frozenset({("a", "b")})})
    for row, maintainable in (("a", True), ("c", False)):
        update = SourceUpdate.of(insert={"r": [(row,)]})
        assert by_oracle(setting.compiled("v", UpdateKind.of(insert=["r"])), extents(there, update))[0] is maintainable


def test_a_test_that_is_too_large_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MAPPINGS", 1)
    assert not JOIN.compiled("v", UpdateKind.of(insert=["r"])).has_test
    assert JOIN.compiled("v", UpdateKind.of(delete=["r"])).always


@pytest.mark.parametrize("columns", ["a, b", "x0, x1, x2, x3, x4, x5, x6, x7, x8, x9"])
def test_a_long_self_join_is_not_enumerated(columns: str) -> None:
    """Found: its mappings, 10^9 of them, were made before any limit held. A relation to read is named all the same."""
    body = ", ".join(f"r(x{i}, x{i + 1})" for i in range(9))
    head = "x0, x9" if columns == "a, b" else columns
    declared = ", ".join(f"{name}: number" for name in columns.split(", "))
    setting = Setting(f".decl r(x: number, y: number)  .remote r  .decl v({declared})  v({head}) :- {body}.")
    view, kind = setting.view("v"), UpdateKind.of(insert=["r"])
    assert not setting.compiled("v", kind).has_test
    assert unknown_relations(view, setting.views, kind, KnownRelations()) == {"r"}


@pytest.mark.parametrize("seed", range(60))
def test_an_update_is_always_taken_if_no_case_is_left_of_its_test(seed: int) -> None:
    """`is_always` looks at cases with one unknown fact; the test has all of them."""
    setting = Setting(random_problem(seed).text())
    bases = setting.program.bases
    local = frozenset(bases) - {remote.relation for remote in setting.program.remotes}
    given = KnownRelations(local, net=bool(seed % 2))
    for view, name in product(setting.views, bases):
        for kind in (UpdateKind.of(insert=[name]), UpdateKind.of(delete=[name]), UpdateKind.of(bases, bases)):
            if view.kind in (ViewClass.OTHER, ViewClass.TOTALS):
                continue
            rules, _ = open_row_test(view, setting.views, setting.program.relations, kind, given)
            assert leaves_rows_open(view, setting.views, kind, given) is bool(rules), (view.name, kind)
            found = compile_maintenance(view, setting.views, setting.program.relations, kind, given)
            assert found is not None
            assert found.has_test is not found.always
            assert found.has_test == any(
                rule.head.relation.endswith(names.DEPENDS) for rule in found.program.definitions if isinstance(rule, Rule)
            )


def test_a_boolean_column_may_be_judged_too_carefully() -> None:
    """All booleans leave s, so v is empty afterwards; yet a third value of s is thought of."""
    setting = Setting("""
        .decl r(x: boolean)  .decl s(y: boolean)  .remote r, s
        .decl v(x: boolean, y: boolean)  v(x, y) :- r(x), s(y).
        .decl w(y: boolean)  w(y) :- s(y), r(y).
    """)
    knowledge = KnownRows({"v": frozenset(), "w": frozenset()})
    update = SourceUpdate.of(insert={"r": [(True,), (False,)]}, delete={"s": [(True,), (False,)]})
    view = setting.view("v")
    decision = decide(view, setting.views, setting.program.relations, knowledge, update)
    assert decision.answer is Maintainability.NO


def test_a_search_within_its_bound_or_not_at_all() -> None:
    setting = Setting(".decl s(x: number, y: number)  .remote s  .decl v(x: number)  v(x) :- s(x, _).")
    update = SourceUpdate.of(insert={"s": [(1, 2)]})
    knowledge = KnownRows({"v": frozenset({(1,), (2,), (3,)})})
    answers = [
        decide(setting.views[0], setting.views, setting.program.relations, knowledge, update, steps).answer
        for steps in (5, 10**6)
    ]
    assert answers == [Maintainability.UNKNOWN, Maintainability.YES]
