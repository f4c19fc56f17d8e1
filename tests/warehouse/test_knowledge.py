"""What is known besides the views, one law at a time: compiled test and search give the same, expected answer."""

from __future__ import annotations

import pytest

from rederive.warehouse.selfmaint.search import KnownRows, Maintainability, decide
from rederive.warehouse.selfmaint.source_update import PartialCopy, SourceUpdate
from tests.warehouse.checks import Setting, by_engine, by_oracle, extents, given_of, kind_of

BOTH = Setting(".decl r(x: number) .decl s(x: number) .remote r, s .decl v(x: number) v(x) :- r(x), s(x).")
CROSS = Setting(".decl s(x: number) .decl t(y: number) .remote s, t .decl v(x: number, y: number) v(x, y) :- s(x), t(y).")
EMPTY = {"v": frozenset[tuple[int, ...]]()}
ONE = frozenset({(1,)})

CASES = {
    "an unknown fact that is deleted does not matter": (
        BOTH,
        SourceUpdate.of({"r": [(1,)]}, {"s": [(1,)]}),
        KnownRows(EMPTY),
        set(),
    ),
    "one that stays does": (BOTH, SourceUpdate.of({"r": [(1,)]}, {"s": [(2,)]}), KnownRows(EMPTY), None),
    "a fact of the log is known": (
        BOTH,
        SourceUpdate.of({"r": [(1,)]}),
        KnownRows(EMPTY, log=PartialCopy(present={"s": ONE})),
        {(1,)},
    ),
    "a fact that the log denies is not there": (
        BOTH,
        SourceUpdate.of({"r": [(1,)]}),
        KnownRows(EMPTY, log=PartialCopy(absent={"s": ONE})),
        set(),
    ),
    "another one may be": (
        BOTH,
        SourceUpdate.of({"r": [(1,)]}),
        KnownRows(EMPTY, log=PartialCopy(absent={"s": frozenset({(2,)})})),
        None,
    ),
    "a row that a net update deletes was there": (
        CROSS,
        SourceUpdate.of({"s": [(5,)]}, {"s": [(1,)]}, net=True),
        KnownRows(EMPTY),
        set(),
    ),
    "one that any update deletes may not have been": (
        CROSS,
        SourceUpdate.of({"s": [(5,)]}, {"s": [(1,)]}),
        KnownRows(EMPTY),
        None,
    ),
    "nor is it in the before-image of a relation that is read": (
        CROSS,
        SourceUpdate.of({"s": [(5,)]}, {"s": [(1,)]}),
        KnownRows(EMPTY, read={"s": frozenset({(5,)})}),
        None,
    ),
    "unless the update is net": (
        CROSS,
        SourceUpdate.of({"s": [(5,)]}, {"s": [(1,)]}, net=True),
        KnownRows(EMPTY, read={"s": frozenset({(5,)})}),
        set(),
    ),
    "a row that is read and not inserted was there": (
        CROSS,
        SourceUpdate.of({"s": [(5,)]}),
        KnownRows(EMPTY, read={"s": frozenset({(5,), (1,)})}),
        set(),
    ),
    "one that is inserted may not have been": (
        CROSS,
        SourceUpdate.of({"s": [(5,)]}),
        KnownRows(EMPTY, read={"s": frozenset({(5,)})}),
        None,
    ),
    "a row that a net update inserts was not": (
        Setting("""
            .decl r(x: number, y: number) .remote r
            .decl v(x: number, y: number, z: number) v(x, y, z) :- r(x, y), r(y, z).
        """),
        SourceUpdate.of({"r": [(1, 1)]}, net=True),
        KnownRows({"v": frozenset()}),
        None,
    ),
}


@pytest.mark.parametrize(("setting", "update", "knowledge", "expected"), CASES.values(), ids=CASES)
def test_each_law(setting: Setting, update: SourceUpdate, knowledge: KnownRows, expected: set[tuple[int, ...]] | None) -> None:
    test = setting.compiled("v", kind_of(update), given_of(knowledge, update))
    decision = decide(setting.views[0], setting.views, setting.program.relations, knowledge, update)
    for maintainable, after in (by_oracle(test, extents(knowledge, update)), by_engine(test, extents(knowledge, update))):
        assert maintainable is (expected is not None)
        assert expected is None or after == expected
    assert decision.answer is (Maintainability.NO if expected is None else Maintainability.YES)
    assert expected is None or decision.rows == expected


def test_a_symbol_in_the_updated_view_leaves_it_open() -> None:
    """The only consistent canonical database has a symbol for y, and so has the updated view: y may be any value but 1 and 2."""
    setting = Setting("""
        .decl s(x: number, y: number)  .remote s
        .decl v(x: number, z: number)  v(x, z) :- s(x, y), s(y, z).
    """)
    knowledge, update = KnownRows({"v": frozenset({(1, 2)})}), SourceUpdate.of(insert={"s": [(2, 1)]})
    decision = decide(setting.views[0], setting.views, setting.program.relations, knowledge, update)
    assert decision.answer is Maintainability.NO
    assert decision.evidence is not None
    one, other = (set(state["s"]) for state in decision.evidence)
    assert one != other
