"""The examples of HU97 (Huyn: Multiple-view self-maintenance), with their exact outcomes."""

from __future__ import annotations

from itertools import product

import pytest

from rederive.ir.printing import show_rule
from rederive.ir.rules import Rule
from rederive.warehouse.selfmaint import relation_names as names
from rederive.warehouse.selfmaint.conjunctive import ViewClass
from rederive.warehouse.selfmaint.search import KnownRows, Maintainability, _Search, decide
from rederive.warehouse.selfmaint.source_update import KnownRelations, SourceUpdate, UpdateKind
from tests.oracle import evaluate
from tests.warehouse.checks import Duck, Setting, by_engine, by_oracle, extents
from tests.warehouse.witness import subsets

WAREHOUSE = Setting("""
    .decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .decl t(z: symbol)
    .remote r, s, t
    .decl v1(x: symbol, y: symbol, z: symbol)  v1(x, y, z) :- r(x, y), s(y, z), t(z).
    .decl v2(y: symbol, z: symbol)             v2(y, z) :- s(y, z).
""")
INSERTION = SourceUpdate.of(insert={"r": [("a", "b")]})
OPEN = {"v1": frozenset({("a1", "b1", "c1")}), "v2": frozenset({("b1", "c1"), ("b", "c2")})}
CLOSED = {
    "v1": frozenset({("a1", "b1", "c1"), ("a1", "b1", "c2")}),
    "v2": frozenset({("b1", "c1"), ("b", "c2"), ("b1", "c2")}),
}
INSERT_R = UpdateKind.of(insert=["r"])


@pytest.mark.parametrize("way", [by_oracle, by_engine])
def test_example_1_1_and_4_1_first_instance_is_not_self_maintainable(way) -> None:  # type: ignore[no-untyped-def]
    maintainable, _ = way(WAREHOUSE.compiled("v1", INSERT_R), extents(KnownRows(OPEN), INSERTION))
    assert not maintainable
    assert (
        decide(WAREHOUSE.view("v1"), WAREHOUSE.views, WAREHOUSE.program.relations, KnownRows(OPEN), INSERTION).answer
        is Maintainability.NO
    )


@pytest.mark.parametrize("way", [by_oracle, by_engine])
def test_example_1_1_and_5_1_second_instance_is(way) -> None:  # type: ignore[no-untyped-def]
    maintainable, after = way(WAREHOUSE.compiled("v1", INSERT_R), extents(KnownRows(CLOSED), INSERTION))
    assert maintainable
    assert after == CLOSED["v1"] | {("a", "b", "c2")}
    decision = decide(WAREHOUSE.view("v1"), WAREHOUSE.views, WAREHOUSE.program.relations, KnownRows(CLOSED), INSERTION)
    assert (decision.answer, decision.rows) == (Maintainability.YES, after)


def test_example_1_1_a_view_alone_is_not() -> None:
    """Without v2, the same instance of v1 leaves the answer open: S may lack (b, c2)."""
    alone = (WAREHOUSE.view("v1"),)
    decision = decide(alone[0], alone, WAREHOUSE.program.relations, KnownRows({"v1": CLOSED["v1"]}), INSERTION)
    assert decision.answer is Maintainability.NO


def test_section_1_insertions_are_considered_together() -> None:
    """Whether two relations share a row: inserting one row into both settles it; either insertion alone does not."""
    setting = Setting("""
        .decl p(x: number)  .decl q(x: number)  .remote p, q
        .decl common()  common() :- p(x), q(x).
    """)
    (view,) = setting.views
    empty = KnownRows({"common": frozenset()})

    def answer(**insert: list[tuple[int]]) -> Maintainability:
        return decide(view, setting.views, setting.program.relations, empty, SourceUpdate.of(insert=insert)).answer

    assert (answer(p=[(1,)], q=[(1,)]), answer(p=[(1,)]), answer(q=[(1,)])) == (
        Maintainability.YES,
        Maintainability.NO,
        Maintainability.NO,
    )


def test_example_3_1_the_canonical_database() -> None:
    test = WAREHOUSE.compiled("v1", UpdateKind.of(insert=["r", "s", "t"]))
    found = evaluate(
        test.program, {name: extents(KnownRows(CLOSED), SourceUpdate()).get(name, set()) for name in test.program.bases}
    )
    assert found["r.known"] == {("a1", "b1")}
    assert found["s.known"] == {("b1", "c1"), ("b1", "c2"), ("b", "c2")}
    assert found["t.known"] == {("c1",), ("c2",)}


def test_examples_3_2_and_3_3_the_maintenance_query() -> None:
    test = WAREHOUSE.compiled("v1", INSERT_R)
    rules = [show_rule(rule) for rule in test.program.definitions if isinstance(rule, Rule)]
    assert [rule for rule in rules if rule.startswith(("s.known", "t.known", "v1.plus"))] == [
        "s.known(y, z) :- v1(x, y, z).",
        "t.known(z) :- v1(x, y, z).",
        "s.known(y, z) :- v2(y, z).",
        "v1.plus(x, y, z) :- r.inserted(x, y), s.known(y, z), t.known(z), !v1(x, y, z).",
    ]
    duck = Duck(test)
    duck.load(extents(KnownRows(CLOSED), INSERTION))
    assert duck.rows(names.PLUS) == {("a", "b", "c2")}


PAPER_SQL = """
    SELECT NOT EXISTS (SELECT * FROM v2 WHERE v2.y = 'b'
      AND NOT EXISTS (SELECT * FROM v1 WHERE v1.z = v2.z)
      AND NOT EXISTS (SELECT * FROM v2 AS w, v1 WHERE w.z = v2.z AND w.y = v1.y))
"""


def test_example_5_2_the_test_is_equivalent_to_the_papers_sql() -> None:
    """On all realizable instances over R in {a,e}x{b,f}, S in {b,f}x{c,g}, T in {c,g}: 1,024 databases."""
    duck = Duck(WAREHOUSE.compiled("v1", INSERT_R))
    seen, outcomes = set(), set()
    pairs = list(product("ae", "bf")), list(product("bf", "cg")), list(product("cg"))
    for r, s, t in product(*(subsets(rows) for rows in pairs)):
        v1 = frozenset((x, y, z) for x, y in r for y2, z in s if y == y2 and (z,) in t)
        if (v1, s) not in seen:
            seen.add((v1, s))
            duck.load(extents(KnownRows({"v1": v1, "v2": s}), INSERTION))
            ((paper,),) = duck.ask(PAPER_SQL)
            assert duck.maintainable() is paper, (v1, s)
            outcomes.add(paper)
    assert outcomes == {True, False}
    assert len(seen) > 100


PATH = Setting("""
    .decl s(x: symbol, y: symbol)  .remote s
    .decl v(x: symbol, z: symbol)  v(x, z) :- s(x, y), s(y, z).
""")


def canonical_databases(setting: Setting, knowledge: KnownRows, update: SourceUpdate) -> list[dict[str, set[tuple[object, ...]]]]:
    view = setting.views[0]
    search = _Search(view, setting.views, setting.program.relations, knowledge, update, 100_000)
    return [search._facts.copy() for _ in search._visit_databases()]


def test_example_6_1_new_symbols() -> None:
    """Among the canonical databases is the one where both hidden values are symbols of their own."""
    found = canonical_databases(PATH, KnownRows({"v": frozenset({("a1", "c1"), ("a2", "c2")})}), SourceUpdate())
    shapes = [{tuple("new" if not isinstance(v, str) else v for v in row) for row in db["s"]} for db in found]
    assert {("a1", "new"), ("new", "c1"), ("a2", "new"), ("new", "c2")} in shapes


def test_example_6_2_three_of_five_interpretations_are_consistent() -> None:
    knowledge, update = KnownRows({"v": frozenset({("d", "c")})}), SourceUpdate.of(insert={"s": [("a", "b")]})
    found = canonical_databases(PATH, knowledge, update)
    shapes = [frozenset(tuple("y" if not isinstance(v, str) else v for v in row) for row in db["s"]) for db in found]
    assert set(shapes) == {
        frozenset({("d", "y"), ("y", "c")}),
        frozenset({("d", "a"), ("a", "c")}),
        frozenset({("d", "b"), ("b", "c")}),
    }
    assert PATH.views[0].kind is ViewClass.PROJECTION
    assert decide(PATH.views[0], PATH.views, PATH.program.relations, knowledge, update).answer is Maintainability.NO


def test_example_6_3_two_of_four_explanations_are_consistent_and_one_is_minimal() -> None:
    setting = Setting("""
        .decl r(x: symbol, y: symbol)  .decl s(x: symbol, y: symbol)  .decl t(x: symbol, y: symbol)  .remote r, s, t
        .decl v1(x: symbol, y: symbol, z: symbol)
        v1(x, y, z) :- r(x, y), s(y, z).
        v1(x, y, z) :- s(x, y), t(y, z).
        .decl v2(x: symbol, y: symbol)
        v2(x, y) :- r(x, y).
        v2(x, y) :- t(x, y).
    """)
    knowledge = KnownRows({"v1": frozenset({("a", "b", "c")}), "v2": frozenset({("a", "b")})})
    found = canonical_databases(setting, knowledge, SourceUpdate())
    least = {"r": {("a", "b")}, "s": {("b", "c")}}
    assert least in [{name: rows for name, rows in db.items() if rows} for db in found]
    assert all(db.get("r") == {("a", "b")} and db.get("s") == {("b", "c")} for db in found)
    assert all(not db.get("t") or db["t"] == {("a", "b")} for db in found)


def test_example_7_1_with_a_relation_read() -> None:
    """Strictly, v1 alone cannot take an insertion into R; with S at hand, the before-image of S stands in for its copy."""
    setting = Setting("""
        .decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .decl t(z: symbol)  .remote r, s, t
        .decl v1(x: symbol, y: symbol, z: symbol)  v1(x, y, z) :- r(x, y), s(y, z), t(z).
    """)
    everything = UpdateKind.of(insert=["r", "s", "t"], delete=["r", "s", "t"])
    test = setting.compiled("v1", everything, KnownRelations(read=frozenset({"s"}), net=True))
    rules = [show_rule(rule) for rule in test.program.definitions if isinstance(rule, Rule)]
    assert "s.before(y, z) :- s.read(y, z), !s.inserted(y, z)." in rules
    assert "s.before(y, z) :- s.deleted(y, z)." in rules
    assert "s.known(y, z) :- s.before(y, z)." in rules
    assert not any(rule.startswith("s.known") and "v2" in rule for rule in rules)

    views = {"v1": CLOSED["v1"]}
    update = SourceUpdate.of(insert={"r": [("a", "b")]}, net=True)
    strict = setting.compiled("v1", INSERT_R, KnownRelations(net=True))
    assert not by_oracle(strict, extents(KnownRows(views), update))[0]
    read = KnownRows(views, read={"s": CLOSED["v2"]})
    maintainable, after = by_oracle(
        setting.compiled("v1", INSERT_R, KnownRelations(read=frozenset({"s"}), net=True)), extents(read, update)
    )
    assert maintainable
    assert after == CLOSED["v1"] | {("a", "b", "c2")}


def test_example_7_1_the_source_is_read_after_the_update() -> None:
    """The update also inserts (b, c9) into S, which the reading shows already: it is new, and t(c9) is open."""
    setting = Setting("""
        .decl r(x: symbol, y: symbol)  .decl s(y: symbol, z: symbol)  .decl t(z: symbol)  .remote r, s, t
        .decl v1(x: symbol, y: symbol, z: symbol)  v1(x, y, z) :- r(x, y), s(y, z), t(z).
    """)
    update = SourceUpdate.of(insert={"r": [("a", "b")], "s": [("b", "c9")]}, net=True)
    knowledge = KnownRows({"v1": CLOSED["v1"]}, read={"s": CLOSED["v2"] | {("b", "c9")}})
    test = setting.compiled("v1", UpdateKind.of(insert=["r", "s"]), KnownRelations(read=frozenset({"s"}), net=True))
    assert not by_oracle(test, extents(knowledge, update))[0]
