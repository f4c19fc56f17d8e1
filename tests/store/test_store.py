"""A database with a store: what is closed and opened again is as it was, and goes on."""

from __future__ import annotations

import datetime
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import rederive
from rederive.errors import Closed, Conflict, DuplicateKey, EvaluationError, Expired, LimitExceeded, Mismatch, NoStore, StoreError
from rederive.store.journal.file import FILE
from tests.database.conftest import CLOSURE, STOCK

ALL_TYPES = """
.decl r(s: symbol, n: number, u: unsigned, f: float, b: boolean, d: date, t: timestamp, m: decimal(38,4))
.decl v(s: symbol, n: number, u: unsigned, f: float, b: boolean, d: date, t: timestamp, m: decimal(38,4))
v(s, n, u, f, b, d, t, m) :- r(s, n, u, f, b, d, t, m).
.decl unit()
.decl seen()
seen() :- unit().
"""
EXACT: list[tuple[Any, ...]] = [
    ("", 0, 0, 0.0, False, datetime.date.min, datetime.datetime.min, Decimal("0.0000")),
    (
        'é"\\\n\t\0💥',
        -(2**63),
        2**64 - 1,
        5e-324,
        True,
        datetime.date.max,
        datetime.datetime.max,
        Decimal("-9" * 1 + "9" * 33 + ".9999"),
    ),
    (
        "x",
        2**63 - 1,
        2**53 + 1,
        0.1 + 0.2,
        True,
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 1, 2, 3, 4),
        Decimal("1.5000"),
    ),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def insert(db: rederive.Database, relation: str, *rows: tuple[Any, ...], key: str | None = None) -> rederive.Result:
    with db.transaction(key) as tx:
        tx.insert(relation, rows)
    return tx.result


def recorded(db: rederive.Database, view: str, since: int = 0) -> list[tuple[int, list[Any], list[Any]]]:
    return [(change.version, change.plus, change.minus) for change in db.changes(view, since)]


def test_an_opened_store_goes_on_where_it_was_closed(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(CLOSURE)
        db.load("edge", [("a", "b")])
        assert insert(db, "edge", ("b", "c")).version == 2
    with rederive.open(folder) as db:
        assert (db.version, db.rows("closure")) == (2, [("a", "b"), ("a", "c"), ("b", "c")])
        result = insert(db, "edge", ("c", "d"))
        assert (result.version, result.changes["closure"].plus) == (3, [("a", "d"), ("b", "d"), ("c", "d")])
        assert recorded(db, "closure", 2) == [(3, [("a", "d"), ("b", "d"), ("c", "d")], [])]


def test_every_value_comes_back_exactly(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(ALL_TYPES)
        insert(db, "r", *EXACT)
        insert(db, "unit", ())
        rows = db.rows("r")
    with rederive.open(folder) as db:
        assert list(map(repr, db.rows("r"))) == list(map(repr, rows))
        assert sorted(rows) == sorted(EXACT)
        assert list(map(repr, recorded(db, "v")[0][1])) == list(map(repr, rows))
        assert (db.rows("seen"), recorded(db, "seen")) == ([()], [(2, [()], [])])


@pytest.mark.parametrize(("type", "one", "other"), [("float", 0.0, -0.0), ("decimal(9,2)", Decimal(0), Decimal("-0.00"))])
def test_a_zero_is_deleted_by_the_other_zero(folder: Path, type: str, one: Any, other: Any) -> None:
    with rederive.open(folder) as db:
        db.define(f".decl r(x: {type})")
        insert(db, "r", (one,))
        with db.transaction() as tx:
            tx.delete("r", [(other,)])
    with rederive.open(folder) as db:
        assert db.rows("r") == []


def test_a_negative_zero_looks_like_the_zero_that_it_is(folder: Path) -> None:
    """Found by `properties/test_store`: a decimal -0.00 was shown until the store was opened again."""
    with rederive.open(folder) as db:
        db.define(".decl r(m: decimal(9,2))  .decl v(m: decimal(9,2))  v(m) :- r(m).")
        assert repr(insert(db, "r", (Decimal("-0.00"),)).changes["v"].plus) == "[(Decimal('0.00'),)]"
    with rederive.open(folder) as db:
        assert repr(db.rows("v")) == "[(Decimal('0.00'),)]"


def test_keys_hold_across_an_opening(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(STOCK)
        insert(db, "stock", ("bolt", 5))
    with rederive.open(folder) as db:
        with pytest.raises(DuplicateKey):
            insert(db, "stock", ("bolt", 6))
        with db.transaction() as tx:
            tx.upsert("stock", [("bolt", 6)])
        assert tx.result.changes["low"].minus == [("bolt", 5)]


def test_a_refused_transaction_leaves_the_store_as_it_was(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(".decl n(x: number) .decl v(x: number) v(10 / x) :- n(x).")
        insert(db, "n", (5,))
        with pytest.raises(EvaluationError):
            insert(db, "n", (0,))
        assert insert(db, "n", (2,)).version == 2
    with rederive.open(folder) as db:
        assert (db.version, db.rows("n"), db.rows("v")) == (2, [(2,), (5,)], [(2,), (5,)])


# Definitions


def test_definitions_are_kept_with_their_versions(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(".decl e(x: number)  .decl p, q(x: number)  // two at once\np(x) :- e(x), x > 1. q(x) :- p(x).\n", "first.dl")
        insert(db, "e", (1,), (2,))
        db.definitions.add_rule("p(x) :- e(x), x < 2.")
        db.define(".decl r(x: number)  r(x) :- q(x), !e(x).")  # no rows: no version
        db.define(".decl s(x: number)  s(x) :- e(x).")
    with rederive.open(folder) as db:
        assert db.version == 3
        db.definitions.remove_rule("p(x) :- e(x), x > 1.")
        db.definitions.drop_view("s")
        db.definitions.drop_view("r")
        db.definitions.drop_view("q")
        versions = db.version
    with rederive.open(folder) as db:
        assert (db.version, db.rows("p")) == (versions, [(1,)])
        assert sorted(db.pipeline.state.program.relations) == ["e", "p"]
        assert recorded(db, "s") == [(3, [(1,), (2,)], []), (5, [], [(1,), (2,)])]
        assert db.pipeline.state.program.definitions[0].span is not None
        assert str(db.pipeline.state.program.relations["p"].span).startswith("first.dl:1:")


def test_a_deleted_fact_stays_deleted(folder: Path) -> None:
    text = '.decl e(x: symbol)  .decl v(x: symbol)  v(x) :- e(x).  e("a"). e("b").'
    with rederive.open(folder) as db:
        db.migrate(text)
        with db.transaction() as tx:
            tx.delete("e", [("a",)])
    with rederive.open(folder) as db:
        assert db.migrate(text) is None
        assert db.rows("v") == [("b",)]


def test_ensure_defines_what_is_new_and_nothing_twice(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.migrate(".type name <: symbol\n.decl e(x: name)\n.decl v(x: name)\nv(x) :- e(x).")
        insert(db, "e", ("a",))
    with rederive.open(folder) as db:
        result = db.migrate(
            '.decl e(x: name)\n.type name <: symbol\n.decl v(x: name)\nv(x) :- e(x).\ne("b").\n.decl w(x: name)\nw(x) :- v(x).'
        )
        assert result is not None
        assert (result.version, result.changes["v"].plus, result.changes["w"].plus) == (2, [("b",)], [("a",), ("b",)])
    with rederive.open(folder) as db:
        assert db.rows("w") == [("a",), ("b",)]
        with pytest.raises(Mismatch, match=r"v\(x\) :- e\(x\)"):
            db.migrate('.type name <: symbol\n.decl e(x: name)\n.decl v(x: name)\nv(x) :- e(x), x != "a".')
        assert db.rows("v") == [("a",), ("b",)]


def test_facts_of_a_later_text_are_a_version(folder: Path) -> None:
    """After the first version base rows change by versions alone, though no view reads them."""
    with rederive.open(folder) as db:
        db.define(".decl e(x: number)")
        insert(db, "e", (1,))
        result = db.define("e(1). e(2).")
        assert result is not None
        assert (result.version, dict(result.changes)) == (2, {})
        (entry,) = db.pipeline.state.durable("test").journal.since(1)
        assert [(c.relation.name, c.delta.plus, c.delta.minus) for c in entry.base] == [("e", [(2,)], [])]
    with rederive.open(folder) as db:
        assert (db.version, db.rows("e")) == (2, [(1,), (2,)])


def test_a_refused_definition_leaves_the_store_as_it_was(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(".decl e(x: number)  .decl v(x: number)  v(10 / x) :- e(x).")
        insert(db, "e", (5,))
        with pytest.raises(EvaluationError):
            db.define(".decl w(x: number)  w(10 / (x - 5)) :- e(x).")
        with pytest.raises(EvaluationError):
            db.define("e(0).")
    with rederive.open(folder) as db:
        assert (db.version, sorted(db.pipeline.state.program.relations), db.rows("e")) == (1, ["e", "v"], [(5,)])


def test_a_base_relation_that_becomes_a_view_and_comes_back(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define('.decl e(x: symbol)  .decl n(x: symbol)  n("q"). n("r").')
        with db.transaction() as tx:
            tx.delete("n", [("q",), ("r",)])
        db.definitions.add_rule("n(x) :- e(x).")
        insert(db, "e", ("a",))
    with rederive.open(folder) as db:
        assert db.rows("n") == [("a",)]
        db.definitions.remove_rule("n(x) :- e(x).")
        insert(db, "n", ("z",))
    with rederive.open(folder) as db:
        assert (db.rows("n"), db.rows("e")) == ([("z",)], [("a",)])


# What is recorded


def test_a_view_is_recorded_from_when_it_is_monitored(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(".decl e(x: number) .decl v, w(x: number) v(x) :- e(x). w(x) :- e(x). .output v")
        insert(db, "e", (1,))
        with pytest.raises(Mismatch, match="not monitored"):
            db.changes("w", since=0)
        db.define(".output w")
        insert(db, "e", (2,))
        with pytest.raises(Expired):
            db.changes("w", since=0)
        assert recorded(db, "w", 1) == [(2, [(2,)], [])]
        assert recorded(db, "v") == [(1, [(1,)], []), (2, [(2,)], [])]


def test_a_view_that_was_dropped_unrecorded_is_not_taken_for_a_new_one(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(".decl e(x: number) .decl v, w(x: number) v(x) :- e(x). w(x) :- e(x). .output v")
        insert(db, "e", (1,))
        db.definitions.drop_view("w")
        db.define(".decl w(x: number) w(x) :- e(x). .output w")
        with pytest.raises(Expired):
            db.changes("w", since=1)  # it had a row then
        assert recorded(db, "w", 2) == [(3, [(1,)], [])]


def test_what_a_subscription_alone_asks_for_is_not_recorded(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(".decl e(x: number) .decl v, w(x: number) v(x) :- e(x). w(x) :- e(x). .output v")
        heard: list[Any] = []
        db.subscribe("w", lambda change: heard.append(change.plus))
        insert(db, "e", (1,))
        assert heard == [[(1,)]]
        with pytest.raises(Mismatch):
            db.changes("w", since=0)


def test_only_one_sign_is_recorded_where_one_is_reported(folder: Path) -> None:
    with rederive.open(folder, only="plus") as db:
        db.define(STOCK)
        db.subscribe("low", lambda change: None)
        insert(db, "stock", ("bolt", 5))
        with db.transaction() as tx:
            tx.upsert("stock", [("bolt", 6)])
        assert recorded(db, "low") == [(1, [("bolt", 5)], []), (2, [("bolt", 6)], [])]
    with rederive.open(folder) as db:
        with db.transaction() as tx:
            tx.upsert("stock", [("bolt", 7)])
        assert tx.result.changes["low"].minus == []


def test_retention_forgets_and_says_so(folder: Path) -> None:
    with rederive.open(folder, retention=3) as db:
        db.define(CLOSURE)
        for i in range(10):
            insert(db, "edge", (str(i), "z"), key=str(i))
        assert [version for version, _, _ in recorded(db, "closure", 7)] == [8, 9, 10]
        with pytest.raises(Expired, match="reach back to version 7"):
            db.changes("closure", since=6)
        assert len(db.rows("edge")) == 10
    with rederive.open(folder) as db:
        assert (db.version, len(db.rows("closure"))) == (10, 10)


def test_a_reader_that_is_overtaken_by_the_retention_is_told(folder: Path) -> None:
    with rederive.open(folder, retention=300) as db:
        db.define(CLOSURE)
        for i in range(300):
            insert(db, "edge", (str(i), "z"))
        changes = db.changes("closure", since=0)
        assert next(changes).version == 1
        for i in range(300, 600):
            insert(db, "edge", (str(i), "z"))
        with pytest.raises(Expired):
            list(changes)


def test_cursors(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(CLOSURE)
        insert(db, "edge", ("a", "b"))
        insert(db, "edge", ("b", "c"))
        assert db.cursor("mirror").version is None
        db.cursor("mirror").acknowledge(2)
        db.cursor("mirror").acknowledge(1)
    with rederive.open(folder) as db:
        assert db.cursor("mirror").version == 2
        with pytest.raises(Mismatch, match="no version 3"):
            db.cursor("mirror").acknowledge(3)
        with pytest.raises(Mismatch, match="no version 3"):
            db.changes("closure", since=3)
        with pytest.raises(Mismatch):
            db.changes("closure", since=-1)


# Idempotency keys


def test_the_same_key_is_applied_once(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(CLOSURE)
        told: list[int] = []
        db.subscribe("closure", lambda change: told.append(change.version))
        first = insert(db, "edge", ("a", "b"), key="k1")
        insert(db, "edge", ("b", "c"), key="k2")
        again = insert(db, "edge", ("a", "b"), key="k1")
        assert (first.repeated, again.repeated, again.version, db.version, told) == (False, True, 1, 2, [1, 2])
        assert again.changes["closure"].plus == first.changes["closure"].plus == [("a", "b")]
    with rederive.open(folder) as db:
        assert insert(db, "edge", ("b", "c"), key="k2").repeated
        assert db.version == 2


def test_a_key_for_something_else_is_refused(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(CLOSURE)
        insert(db, "edge", ("a", "b"), key="k")
        with pytest.raises(Conflict) as caught:
            insert(db, "edge", ("a", "c"), key="k")
        assert caught.value.code == "conflict"
        with pytest.raises(Conflict), db.transaction("k") as tx:
            tx.delete("edge", [("a", "b")])
        assert (db.version, db.rows("edge")) == (1, [("a", "b")])


def test_a_transaction_that_failed_has_not_used_its_key(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(STOCK)
        with pytest.raises(DuplicateKey):
            insert(db, "stock", ("a", 1), ("a", 2), key="k")
        assert insert(db, "stock", ("a", 1), key="k").version == 1


# Closing, and what only a store can do


def test_whatever_is_asked_of_a_closed_database_is_refused(folder: Path) -> None:
    for path in (folder, None):
        db = rederive.open(path)
        db.define(CLOSURE)
        with db.transaction() as tx:
            tx.insert("edge", [("a", "b")])
        pending = db.transaction()
        db.close()
        db.close()
        calls: list[Any] = [
            db.transaction,
            lambda: pending.__exit__(None, None, None),  # noqa: B023
            lambda: db.rows("edge"),  # noqa: B023
            lambda: db.query("edge(x, y)"),  # noqa: B023
            lambda: db.define(".decl n(x: number)"),  # noqa: B023
            lambda: db.definitions.add_rule("closure(x, x) :- edge(x, _)."),  # noqa: B023
            lambda: db.load("edge", [("a", "b")]),  # noqa: B023
            lambda: db.subscribe("closure", print),  # noqa: B023
            lambda: db.explain(),  # noqa: B023
        ]
        if path is not None:
            calls += [lambda: db.changes("closure", 0), lambda: db.cursor("x").version, lambda: db.cursor("x").acknowledge(0)]  # noqa: B023
        for call in calls:
            with pytest.raises(Closed):
                call()


def test_what_only_a_store_can_do() -> None:
    db = rederive.open()
    db.define(CLOSURE)
    for call in (
        lambda: db.changes("closure", 0),
        lambda: db.cursor("x").version,
        lambda: insert(db, "edge", ("a", "b"), key="k"),
    ):
        with pytest.raises(NoStore):
            call()
    assert db.version == 0


def test_loads_are_versions_among_others(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(CLOSURE)
        db.load("edge", [("a", "b")])
        db.load("edge", [("a", "b"), ("b", "c")])
        insert(db, "edge", ("c", "d"))
        db.load("edge", [("x", "y"), ("c", "d")])
    with rederive.open(folder) as db:
        assert (db.version, len(db.rows("edge"))) == (4, 4)
        news = [[("a", "b")], [("a", "c"), ("b", "c")], [("a", "d"), ("b", "d"), ("c", "d")], [("x", "y")]]
        assert recorded(db, "closure") == [(version, plus, []) for version, plus in enumerate(news, start=1)]
        assert db.rows("closure", as_of=0) == []


def test_a_definition_that_gives_rows_is_the_first_version(folder: Path) -> None:
    with rederive.open(folder) as db:
        assert db.define(".decl n(x: number) .decl v(x: number) v(9). v(x) :- n(x). n(1).") is not None
    with rederive.open(folder) as db:
        assert (db.version, recorded(db, "v")) == (1, [(1, [(1,), (9,)], [])])
        assert db.define(".decl w(x: number) w(x) :- v(x), x > 10.") is None
        assert db.version == 1


ENDLESS = (
    ".decl lim(x: number) .decl conf(x: number) conf(0). conf(x + 1) :- conf(x), !lim(x). .decl odd(x: number) odd(x) :- lim(x)."
)


def test_a_store_with_definitions_that_are_not_evaluated(folder: Path) -> None:
    limits = rederive.Limits(rounds=30)
    with rederive.open(folder, limits=limits) as db:
        db.define(".decl seen(x: number) .decl big(x: number) big(x) :- seen(x). seen(7).")
        db.define(ENDLESS)
    with rederive.open(folder, limits=limits) as db:
        with pytest.raises(LimitExceeded):
            db.rows("conf")
        with pytest.raises(LimitExceeded):
            insert(db, "lim", (1000,), key="far")
        assert (db.version, db.rows("lim"), recorded(db, "conf")) == (1, [], [])
        result = insert(db, "lim", (2,), key="near")
        assert {view: change.plus for view, change in result.changes.items()} == {"conf": [(0,), (1,), (2,)], "odd": [(2,)]}
        assert insert(db, "lim", (2,), key="near").repeated
    with rederive.open(folder, limits=limits) as db:
        assert (db.version, db.rows("conf"), db.rows("big")) == (2, [(0,), (1,), (2,)], [(7,)])
        assert db.rows("conf", as_of=1) == []


# A disk that fails


def full(db: rederive.Database) -> None:
    """From now on the file cannot grow."""
    connection: sqlite3.Connection = db.pipeline.state.durable("test").journal._connection
    connection.execute("PRAGMA max_page_count = 1")


def free(db: rederive.Database) -> None:
    connection: sqlite3.Connection = db.pipeline.state.durable("test").journal._connection
    connection.execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_changes_nothing_and_the_database_goes_on(folder: Path) -> None:
    long = "x" * 100_000
    with rederive.open(folder) as db:
        db.define(CLOSURE)
        insert(db, "edge", ("a", "b"))
        told: list[int] = []
        db.subscribe("closure", lambda change: told.append(change.version))
        full(db)
        with pytest.raises(StoreError) as caught:
            insert(db, "edge", ("b", long))
        assert (caught.value.code, "full" in caught.value.message, told) == ("store", True, [])
        with pytest.raises(StoreError):
            db.define(f'.decl other(x: symbol)  other("{long}").')
        with pytest.raises(StoreError):
            db.definitions.add_rule(f'closure("{long}", y) :- edge(_, y).')
        assert (db.version, db.rows("closure"), sorted(db.pipeline.state.program.relations)) == (
            1,
            [("a", "b")],
            ["closure", "edge"],
        )
        free(db)
        assert insert(db, "edge", ("b", "c")).changes["closure"].plus == [("a", "c"), ("b", "c")]
        db.define('.decl other(x: symbol)  other("y").')
    with rederive.open(folder) as db:
        assert (db.version, db.rows("other"), len(db.rows("closure"))) == (3, [("y",)], 3)


def test_a_full_disk_refuses_initial_rows(folder: Path) -> None:
    with rederive.open(folder) as db:
        db.define(CLOSURE)
        full(db)
        with pytest.raises(StoreError):
            db.load("edge", [("b", "x" * 100_000)])
        assert (db.rows("edge"), db.rows("closure")) == ([], [])
        free(db)
        db.load("edge", [("a", "b")])
    with rederive.open(folder) as db:
        assert db.rows("closure") == [("a", "b")]


def test_an_interrupt_after_the_commit_point_closes_the_database(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk has the version and memory has not: only opening again tells."""
    db = rederive.open(folder)
    db.define(CLOSURE)
    journal = db.pipeline.state.durable("test").journal

    class Interrupted:
        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self.connection, name)

        def execute(self, sql: str, *parameters: Any) -> Any:
            done = self.connection.execute(sql, *parameters)
            if sql == "COMMIT":
                raise KeyboardInterrupt
            return done

    monkeypatch.setattr(journal, "_connection", Interrupted(journal._connection))
    with pytest.raises(KeyboardInterrupt):
        insert(db, "edge", ("a", "b"))
    with pytest.raises(Closed):
        db.rows("edge")
    with rederive.open(folder) as db:
        assert (db.version, db.rows("closure")) == (1, [("a", "b")])


def test_the_file_is_synced_at_every_commit(folder: Path) -> None:
    with rederive.open(folder) as db:
        connection = db.pipeline.state.durable("test").journal._connection
        settings = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
        assert settings == ["wal", 2]  # 2 is FULL
    assert [path.name for path in sorted(folder.iterdir())] == [FILE, "lock"]


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "store.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    for _ in range(2):
        exec(example, {})
    with rederive.open("graph") as db:
        assert (db.version, db.cursor("mirror").version, db.rows("closure")) == (1, 1, [("a", "b")])
