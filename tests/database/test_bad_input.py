"""What bad input gets from the API: the right class with its stable code, and nothing half applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rederive
from rederive.errors import (
    DuplicateKey,
    IllTypedRow,
    LimitExceeded,
    NotABase,
    RederiveError,
    UnknownColumn,
    UnknownOption,
    UnknownRelation,
    Unstratified,
    Unsupported,
    WrongArgument,
)

PROGRAM = """
.decl edge(x: symbol, y: symbol)
.decl stock(item: symbol, n: number) key(item)
.decl closure(x: symbol, y: symbol)
.decl low(item: symbol)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
low(item) :- stock(item, n), n < 10.
"""
RELATIONS = ("edge", "stock", "closure", "low")


@pytest.fixture
def db() -> rederive.Database:
    database = rederive.open()
    database.define(PROGRAM)
    database.load("edge", [("a", "b")])
    database.load("stock", [("bolt", 5)])
    return database


def state(db: rederive.Database) -> object:
    return db.version, db.pipeline.state.monitored, {name: db.rows(name) for name in RELATIONS}


REFUSED: list[tuple[str, list[Any], type[RederiveError], str, str]] = [
    ("egde", [("a", "b")], UnknownRelation, "unknown_relation", "did you mean 'edge'?"),
    ("closure.1", [("a", "b")], UnknownRelation, "unknown_relation", ""),
    ("closure", [("a", "b")], NotABase, "not_a_base", "'closure' is a view"),
    ("edge", [("a",)], IllTypedRow, "ill_typed", "('a',)"),
    ("edge", [("a", "b", "c")], IllTypedRow, "ill_typed", "('a', 'b', 'c')"),
    ("edge", ["ab"], IllTypedRow, "ill_typed", "'ab'"),
    ("edge", [7], IllTypedRow, "ill_typed", "7"),
    ("edge", [None], IllTypedRow, "ill_typed", "None"),
    ("edge", [{"a", "b"}], IllTypedRow, "ill_typed", ""),
    ("edge", [("a", 7)], IllTypedRow, "ill_typed", "'y'"),
    ("edge", [("a", None)], IllTypedRow, "ill_typed", "null"),
    ("edge", [("a", b"b")], IllTypedRow, "ill_typed", "'y'"),
    ("edge", [("a", "\ud800")], IllTypedRow, "ill_typed", "'y'"),
    ("stock", [("nut", 1.0)], IllTypedRow, "ill_typed", "1.0"),
    ("stock", [("nut", True)], IllTypedRow, "ill_typed", "true"),
    ("stock", [("nut", "1")], IllTypedRow, "ill_typed", '"1"'),
    ("stock", [("nut", 2**63)], IllTypedRow, "ill_typed", str(2**63)),
    ("stock", [{"item": "nut"}], IllTypedRow, "ill_typed", "'n'"),
    ("stock", [{"itme": "nut", "n": 1}], UnknownColumn, "unknown_column", "did you mean 'item'?"),
    ("stock", [{"item": "nut", "n": 1, "m": 2}], UnknownColumn, "unknown_column", "'m'"),
]


@pytest.mark.parametrize("action", ["insert", "delete", "upsert"])
@pytest.mark.parametrize(("relation", "rows", "error", "code", "says"), REFUSED)
def test_rows_of_a_transaction(
    db: rederive.Database, relation: str, rows: list[Any], error: type[RederiveError], code: str, says: str, action: str
) -> None:
    before = state(db)
    with pytest.raises(error) as caught, db.transaction() as tx:
        tx.insert("edge", [("b", "c")])
        tx.delete("stock", [("bolt", 5)])
        getattr(tx, action)(relation, rows)
    assert caught.value.code == code
    assert says in str(caught.value)
    assert state(db) == before


@pytest.mark.parametrize(("relation", "rows", "error", "code", "says"), REFUSED)
def test_initial_rows(
    db: rederive.Database, relation: str, rows: list[Any], error: type[RederiveError], code: str, says: str
) -> None:
    before = state(db)
    with pytest.raises(error) as caught:
        db.load(relation, rows)
    assert caught.value.code == code
    assert says in str(caught.value)
    assert state(db) == before


@pytest.mark.parametrize("rows", [[("bolt", 6)], [("nut", 1), ("nut", 2)], [("nut", 1), ("bolt", 7)]])
def test_duplicate_keys(db: rederive.Database, rows: list[tuple[str, int]]) -> None:
    before = state(db)

    def refused(act: Callable[[], object]) -> None:
        with pytest.raises(DuplicateKey) as caught:
            act()
        assert caught.value.code == "duplicate_key"
        assert "stock" in caught.value.message
        assert "(item)" in caught.value.message
        assert state(db) == before

    def transaction() -> None:
        with db.transaction() as tx:
            tx.insert("edge", [("b", "c")])
            tx.insert("stock", rows)

    refused(transaction)
    refused(lambda: db.load("stock", rows))
    refused(lambda: db.define("".join(f'stock("{item}", {n}).' for item, n in rows)))
    with db.transaction() as tx:
        tx.insert("stock", [("bolt", 5), ("nut", 2)])
    assert db.rows("stock") == [("bolt", 5), ("nut", 2)]


# Recursions that invent values


@pytest.mark.parametrize("strategy", ["recompute", "materialized"])
@pytest.mark.parametrize("limits", [rederive.Limits(rounds=30), rederive.Limits(tuples=30)])
def test_an_endless_recursion_is_stopped_and_nothing_of_it_stays(strategy: str, limits: rederive.Limits) -> None:
    db = rederive.open(strategy=strategy, limits=limits)
    db.define(
        ".decl start(x: number) .decl n(x: number) .decl half(x: number)\n"
        "n(x) :- start(x).\nn(x + 2) :- n(x), x != 10.\nhalf(x / 2) :- n(x)."
    )
    with db.transaction() as tx:
        tx.insert("start", [(0,)])
    before = (db.version, db.rows("start"), db.rows("n"), db.rows("half"))
    assert before[2][-1] == (10,)
    with pytest.raises(LimitExceeded) as caught, db.transaction() as tx:
        tx.insert("start", [(1,)])
    assert caught.value.code == "limit"
    assert "x + 2" in caught.value.message
    assert "n(x)" in caught.value.message
    assert (db.version, db.rows("start"), db.rows("n"), db.rows("half")) == before
    with db.transaction() as tx:
        tx.insert("start", [(-2,)])
    assert tx.result.changes["n"].plus == [(-2,)]
    assert tx.result.version == 2


ENDLESS = ".decl lim(x: number) .decl conf(x: number) conf(0). conf(x + 1) :- conf(x), !lim(x). .decl odd(x: number)"


@pytest.mark.parametrize("strategy", ["auto", "materialized", "on_demand", "recompute"])
def test_an_endless_recursion_is_judged_when_it_is_asked_for(strategy: str) -> None:
    db = rederive.open(limits=rederive.Limits(rounds=30), strategy=strategy)
    assert db.define(f"{ENDLESS} odd(x) :- lim(x), x % 2 = 1. .decl base(x: number) base(4).") is not None
    requests: dict[str, Callable[[], object]] = {
        "rows": lambda: db.rows("conf"),
        "query": lambda: db.query("conf(x)"),
        "subscription": lambda: db.subscribe("conf", print),
        "load": lambda: db.load("lim", [(100,)]),
        "transaction": lambda: db.sql("CREATE TABLE t (a INT); INSERT INTO t VALUES (1)"),
        "rule": lambda: db.rules.on("odd")(print),
    }
    for request in requests.values():
        with pytest.raises(LimitExceeded):
            request()
    assert (db.version, db.rows("lim"), db.rows("base"), db.rows("t")) == (1, [], [(4,)], [])
    with db.transaction() as tx:
        tx.insert("lim", [(3,)])
    assert {view: change.plus for view, change in tx.result.changes.items()} == {
        "conf": [(0,), (1,), (2,), (3,)],
        "odd": [(3,)],
    }
    assert (tx.result.version, db.rows("conf", x=3)) == (2, [(3,)])


def test_an_endless_recursion_with_the_rows_that_end_it() -> None:
    db = rederive.open(limits=rederive.Limits(rounds=30))
    db.define(ENDLESS)
    loaded = db.load("lim", [(2,), (5,)])
    assert loaded is not None
    assert loaded.changes["conf"].plus == [(0,), (1,), (2,)]
    with db.setup() as setup:
        db.define(".decl more(x: number) more(0). more(x + 1) :- more(x), !stop(x). .decl stop(x: number)")
        db.load("stop", [(1,)])
    assert setup.result is not None
    assert setup.result.changes["more"].plus == [(0,), (1,)]


def test_a_view_that_becomes_endless_and_is_dropped() -> None:
    """What was notified before is taken back, exactly, by whatever is evaluated next."""
    db = rederive.open(limits=rederive.Limits(rounds=30))
    db.define(".decl n(x: number) .decl v(x: number) v(x) :- n(x). .decl w(x: number) w(x) :- v(x), x > 1.")
    db.load("n", [(1,), (2,)])
    assert db.definitions.add_rule("v(x + 1) :- v(x).").changes == {}
    assert db.definitions.replace_view("v", "v(x * 2) :- n(x).").changes["v"].minus == [(1,)]
    assert (db.rows("v"), db.rows("w")) == ([(2,), (4,)], [(2,), (4,)])


def test_strings_that_grow_without_end_are_stopped() -> None:
    db = rederive.open(limits=rederive.Limits(rounds=30))
    db.define('.decl w(s: symbol) w("a"). w(cat(s, "b")) :- w(s).')
    with pytest.raises(LimitExceeded) as caught:
        db.rows("w")
    assert "cat(" in caught.value.message


def test_a_mutual_recursion_names_the_rule_that_invents() -> None:
    db = rederive.open(limits=rederive.Limits(rounds=30))
    db.define(".decl p(x: number) .decl q(x: number) p(0). p(x) :- q(x), x * 1 >= 0. q(x * 2 + 1) :- p(x).")
    with pytest.raises(LimitExceeded) as caught:
        db.rows("p")
    assert "x * 2" in caught.value.message


def test_a_recursion_without_arithmetic_is_never_stopped() -> None:
    db = rederive.open(limits=rederive.Limits(rounds=3, tuples=3))
    db.define(PROGRAM)
    db.load("edge", [(f"n{i}", f"n{i + 1}") for i in range(50)])
    assert len(db.rows("closure")) == 50 * 51 // 2


# Programs and options


@pytest.mark.parametrize(
    ("rules", "cycle"),
    [
        ("p(x) :- e(x), !p(x).", {"p"}),
        ("p(x) :- e(x), !q(x). q(x) :- r(x). r(x) :- p(x).", {"p", "q", "r"}),
        ("p(x) :- e(x), k = count : { q(x), q(_) }, k > 0. q(x) :- p(x).", {"p", "q"}),
    ],
)
def test_unstratified_programs_name_their_cycle(rules: str, cycle: set[str]) -> None:
    db = rederive.open()
    with pytest.raises(Unstratified) as caught:
        db.define(f".decl e(x: symbol) .decl p(x: symbol) .decl q(x: symbol) .decl r(x: symbol)\n{rules}")
    assert caught.value.code == "unstratified"
    assert set(caught.value.cycle) == cycle
    assert caught.value.cycle[0] == caught.value.cycle[-1]
    assert caught.value.span is not None
    assert not db.pipeline.state.program.relations


def test_strategies_and_engines_by_name() -> None:
    with pytest.raises(UnknownOption) as caught:
        rederive.open(engine="residen")
    assert caught.value.hint == "did you mean 'resident'?"
    with pytest.raises(UnknownOption) as caught:
        rederive.open(strategy="materialised").define(PROGRAM)
    assert caught.value.hint == "did you mean 'materialized'?"


def test_an_unknown_strategy_is_refused_at_once() -> None:
    with pytest.raises(UnknownOption):
        rederive.open(strategy="materialised")


@pytest.mark.parametrize("strategy", ["auto", "materialized", "counting", "on_demand", "recompute"])
def test_a_rule_of_too_many_joins_is_refused_when_it_is_defined(strategy: str) -> None:
    joined = ", ".join(f"edge(x{i}, x{i + 1})" for i in range(25))
    db = rederive.open(strategy=strategy)
    db.define(".decl edge(x: symbol, y: symbol)")
    with pytest.raises(Unsupported, match="joins too many relations") as refused:
        db.define(f".decl far(x: symbol, y: symbol)\nfar(x0, x25) :- {joined}.")
    assert refused.value.span is not None
    assert refused.value.hint == "join some of them in a view of their own"
    assert "far" not in db.pipeline.state.program.relations
    assert db.version == 0


@pytest.mark.parametrize("versions", [[[1, 2, 3]], float("nan"), 7, "t", {"t": "1"}, {1: 1}])
def test_a_refresh_to_what_are_not_versions_is_refused(versions: Any) -> None:
    """It was an internal error."""
    with pytest.raises(WrongArgument, match="'versions' must be a mapping from tables to versions"):
        rederive.open().refresh(versions)
