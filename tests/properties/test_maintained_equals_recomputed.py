"""The central law: after every transaction, what a strategy maintains is what the oracle computes from scratch.

For every view `rows == oracle`, for every monitored view `plus == new - old` and `minus == old - new`, and nothing else.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive import Limits
from rederive.errors import (
    DuplicateKey,
    EvaluationError,
    IllTypedRow,
    LimitExceeded,
    NotABase,
    RederiveError,
    StrategyError,
    UnknownRelation,
)
from rederive.ir.rules import Program, defines
from rederive.lang import compile_program
from tests.oracle import Rows, evaluate, initial, reads
from tests.properties.programs import Change, Row, Sample, samples, scenarios
from tests.selection import examples as examples

Scenario = tuple[Sample, dict[str, list[Row]], list[list[Change]]]

GENERAL = ("recompute", "materialized", "on_demand", "filtration", "auto")
PLAIN = ("counting", "differencing")  # for views without recursion
STRATEGIES = (*GENERAL, *PLAIN)


class Session:
    """A database and the rows that the oracle computes; every step checks that they agree."""

    def __init__(self, text: str, strategy: str, limits: Limits | None = None, key: int = 0, **options: Any) -> None:
        self.key = key
        self.program: Program = compile_program(text)
        self.base = initial(self.program)
        self.rows = evaluate(self.program, self.base)
        entered = [self.base[name] for name in self.base] + [self.rows[name] for name in self.program.monitored]
        self.version = int(any(entered))  # a definition that brings rows is a version
        self.announced: list[tuple[Any, ...]] = []
        self.db = rederive.open(strategy=strategy, limits=limits, **options)
        self.db.define(text)
        for view in self.program.monitored:
            self.db.subscribe(view, lambda c: self.announced.append((c.version, c.view, list(c.plus), list(c.minus))))
        self.check_rows()

    def commit(self, change: list[Change]) -> None:
        """Apply a change on both sides and compare: version, changes, announcements, rows."""
        base = changed(self.base, change, self.key)
        rows = evaluate(self.program, base)
        with self.db.transaction() as tx:
            apply(tx, change)
        expected = {
            view: (sorted(rows[view] - self.rows[view]), sorted(self.rows[view] - rows[view]))
            for view in self.program.monitored
            if rows[view] != self.rows[view]
        }
        self.base, self.rows, self.version = base, rows, self.version + 1
        assert {view: (list(c.plus), list(c.minus)) for view, c in tx.result.changes.items()} == expected
        assert tx.result.version == self.version
        assert sorted(self.announced) == sorted((self.version, view, *both) for view, both in expected.items())
        self.announced.clear()
        self.check_rows()

    def refuse(self, error: type[BaseException], change: list[Change]) -> None:
        """The change must fail, and leave no trace."""
        with pytest.raises(error), self.db.transaction() as tx:
            apply(tx, change)
        self.check_rows()

    def check_rows(self) -> None:
        names = [name for name, relation in self.program.relations.items() if not relation.is_auxiliary]
        assert {name: self.db.rows(name) for name in names} == {name: sorted(self.rows[name]) for name in names}
        assert self.announced == []


def changed(base: Rows, change: list[Change], key: int = 0) -> Rows:
    """The base relations after the calls, in order; an upsert knows a row by its first `key` columns."""
    after = {name: set(rows) for name, rows in base.items()}
    for call, name, rows in change:
        for row in rows:
            if call == "upsert":
                after[name] -= {other for other in after[name] if other[:key] == row[:key]}
            after[name] = after[name] - {row} if call == "delete" else after[name] | {row}
    return after


def apply(tx: Any, change: list[Change]) -> None:
    for call, name, rows in change:
        getattr(tx, call)(name, rows)


def loading(start: dict[str, list[Row]]) -> list[Change]:
    return [("insert", name, rows) for name, rows in start.items()]


def play(strategy: str, scenario: Scenario, **options: Any) -> None:
    """`options` are those of `rederive.open`."""
    sample, start, transactions = scenario
    session = Session(sample.text, strategy, **options)
    for change in [loading(start), *transactions]:
        session.commit(change)


@examples(40)
@given(scenario=scenarios())
def test_recompute(scenario: Scenario) -> None:
    play("recompute", scenario)


@examples(300)
@given(scenario=scenarios())
def test_materialized(scenario: Scenario) -> None:
    play("materialized", scenario)


@examples(150)
@given(scenario=scenarios())
def test_on_demand(scenario: Scenario) -> None:
    play("on_demand", scenario)


@examples(150)
@given(scenario=scenarios())
def test_filtration(scenario: Scenario) -> None:
    play("filtration", scenario)


@examples(100)
@given(scenario=scenarios())
def test_auto(scenario: Scenario) -> None:
    play("auto", scenario)


@examples(300)
@given(scenario=scenarios(recursive=False))
def test_counting_without_recursion(scenario: Scenario) -> None:
    play("counting", scenario)


@examples(150)
@given(scenario=scenarios(recursive=False))
def test_differencing_without_recursion(scenario: Scenario) -> None:
    play("differencing", scenario)


@pytest.mark.parametrize("strategy", PLAIN)
@examples(50)
@given(sample=samples())
def test_recursion_and_nothing_else_is_refused(strategy: str, sample: Sample) -> None:
    db = rederive.open(strategy=strategy)
    if recursive(compile_program(sample.text)):
        with pytest.raises(StrategyError):
            db.define(sample.text)
    else:
        db.define(sample.text)


def recursive(program: Program) -> bool:
    """Whether something that a monitored view needs reads itself, perhaps through others: by brute force."""
    edges = {(defines(definition), name) for definition in program.definitions for name, _ in reads(definition)}
    while more := {(a, d) for a, b in edges for c, d in edges if b == c} - edges:
        edges |= more
    needed = {b for a, b in edges if a in program.monitored} | set(program.monitored)
    return any(a == b and a in needed for a, b in edges)


# -- transactions that fail -------------------------------------------------------------------------------------------

FAILURES = ("ill_typed", "too_long", "unknown", "view", "exception")


@pytest.mark.parametrize("strategy", GENERAL)
@examples(20)
@given(scenario=scenarios(), failure=st.sampled_from(FAILURES), last=st.booleans())
def test_a_failed_transaction_leaves_no_trace(strategy: str, scenario: Scenario, failure: str, last: bool) -> None:
    sample, start, transactions = scenario
    session = Session(sample.text, strategy)
    session.commit(loading(start))
    for change in transactions:
        fail(session, sample, change, failure, last)
        session.commit(change)


def fail(session: Session, sample: Sample, change: list[Change], failure: str, last: bool) -> None:
    base, view = sample.bases[0], sample.views[0]
    wrong: dict[str, tuple[type[RederiveError], Change]] = {
        "ill_typed": (IllTypedRow, ("insert", base.name, [tuple([[]] for _ in base.types)])),
        "too_long": (IllTypedRow, ("delete", base.name, [("a", 1, 0.5, "b")])),
        "unknown": (UnknownRelation, ("insert", "nowhere", [("a",)])),
        "view": (NotABase, ("insert", view.name, [])),
    }
    if failure == "exception":
        with pytest.raises(KeyboardInterrupt), session.db.transaction() as tx:
            apply(tx, change)
            raise KeyboardInterrupt
        session.check_rows()
    else:
        error, call = wrong[failure]
        session.refuse(error, [*change, call] if last else [call, *change])


RATIO = """
.decl n(x: symbol, a: number)
.decl d(x: symbol, b: number)
.decl share(x: symbol, q: number)
.decl total(s: number)
.decl far(x: symbol)
share(x, a / b) :- n(x, a), d(x, b).
total(s) :- s = sum q : { share(_, q) }.
far(x) :- n(x, _), !share(x, _).
"""

RATIO_ROWS = st.lists(st.tuples(st.sampled_from("aab"), st.integers(-1, 1)), max_size=2)
RATIO_CALL = st.tuples(st.sampled_from(["insert", "delete"]), st.sampled_from("nd"), RATIO_ROWS)


@pytest.mark.parametrize("strategy", STRATEGIES)
@examples(60)
@given(transactions=st.lists(st.lists(RATIO_CALL, max_size=4), max_size=6))
def test_division_fails_where_a_state_divides_by_zero_and_only_there(strategy: str, transactions: list[list[Change]]) -> None:
    """Neither the old nor the new state pairs a row that left with one that came: maintenance must not either."""
    session = Session(RATIO, strategy)
    for change in transactions:
        try:
            evaluate(session.program, changed(session.base, change))
        except ZeroDivisionError:
            session.refuse(EvaluationError, change)
        else:
            session.commit(change)


COUNTER = """
.decl seed(n: number)
.decl until(n: number)
.decl upto(n: number)
.decl steps(n: number)
upto(n) :- seed(n).
upto(m) :- upto(n), until(k), n != k, m = n + 1.
steps(c) :- c = count : { upto(_) }.
"""


@pytest.mark.parametrize("strategy", GENERAL)
def test_a_recursion_that_never_ends_is_stopped_and_leaves_no_trace(strategy: str) -> None:
    session = Session(COUNTER, strategy, Limits(rounds=50, tuples=1000))
    session.commit([("insert", "seed", [(0,)]), ("insert", "until", [(5,)])])
    session.refuse(LimitExceeded, [("insert", "until", [(-1,)])])
    session.refuse(LimitExceeded, [("delete", "until", [(5,)]), ("insert", "until", [(-1,)])])
    session.commit([("insert", "until", [(9,)]), ("delete", "until", [(5,)])])


CHAIN = """
.decl e(i: number)
.decl s(i: number)
.decl last(i: number)
s(0).
s(i) :- s(i - 1), e(i).
last(i) :- s(i), !s(i + 1).
"""
PAIRS = """
.decl e(i: number, j: number)
.decl s(i: number, j: number)
.decl r(i: number)
s(0, 0).
s(i, j) :- r(i), s(i - 1, j * 2), e(i, j).
r(i) :- s(i - 1, _), e(i, _).
r(0).
"""


@pytest.mark.parametrize("strategy", GENERAL)
@pytest.mark.parametrize("text", [CHAIN, PAIRS], ids=["chain", "pairs"])
def test_questions_about_computed_values_end_where_the_recursion_does(text: str, strategy: str) -> None:
    """Found: s(3) asked for s(2), s(1), s(0), s(-1), and for ever so on."""
    session = Session(text, strategy, Limits(rounds=50, tuples=1000))
    rows: list[list[Row]] = [[(1,), (2,), (3,)], [(4,), (6,)], [(2,)], [(2,), (5,)]]
    if text == PAIRS:
        rows = [[(i, j) for (i,) in step for j in (0, 1)] for step in rows]
    for call, step in zip(("insert", "insert", "delete", "insert"), rows, strict=True):
        session.commit([(call, "e", step)])
        for i in (-1, 0, 3, 6, 99):
            assert session.db.rows("s", i=i) == sorted(row for row in session.rows["s"] if row[0] == i)


@pytest.mark.parametrize("strategy", GENERAL)
def test_a_question_that_never_ends_is_stopped(strategy: str) -> None:
    """Nothing is evaluated before somebody asks where nothing is kept."""
    text = ".decl b(x: number) .decl n(x: number) .decl some(x: number) n(x) :- b(x). n(x + 1) :- n(x). some(x) :- b(x), n(x)."
    db = rederive.open(strategy=strategy, limits=Limits(rounds=50, tuples=1000))
    db.define(text)
    with pytest.raises(LimitExceeded, match="n\\(x \\+ 1\\)"):
        db.load("b", [(0,)])
        db.rows("n", x=2000)


@pytest.mark.parametrize("strategy", ["recompute", "on_demand", "filtration"])
def test_a_value_that_only_a_derivation_makes_can_be_asked_for(strategy: str) -> None:
    """Found: a value that no row of a base relation has was taken for one that no row has."""
    db = rederive.open(strategy=strategy)
    db.define(".decl b(x: number) .decl n(x: number) n(x + 1) :- b(x).")
    db.load("b", [(5,)])
    assert (db.rows("n", x=6), db.query("n(6)"), db.query("n(7)")) == ([(6,)], [(6,)], [])


# -- keys -------------------------------------------------------------------------------------------------------------

KEYED = """
.decl stock(item: symbol, place: number, n: number) key(item, place)
.decl total(item: symbol, n: number)
.decl bare(item: symbol)
total(i, t) :- stock(i, _, _), t = sum n : { stock(i, _, n) }.
bare(i) :- stock(i, 0, n), !stock(i, 1, n).
"""

STOCK = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 2)), max_size=3)
STOCK_CALL = st.tuples(st.sampled_from(["insert", "delete", "upsert", "upsert"]), st.just("stock"), STOCK)


@pytest.mark.parametrize("strategy", STRATEGIES)
@examples(60)
@given(transactions=st.lists(st.lists(STOCK_CALL, max_size=3), max_size=6))
def test_keys_are_unique_after_every_transaction(strategy: str, transactions: list[list[Change]]) -> None:
    """An upsert takes the place of the rows with its key; a transaction that ends with two rows of one key is refused."""
    session = Session(KEYED, strategy, key=2)
    for change in transactions:
        rows = changed(session.base, change, key=2)["stock"]
        if len({row[:2] for row in rows}) < len(rows):
            session.refuse(DuplicateKey, change)
        else:
            session.commit(change)
