"""Version 0 is the empty database, and the rows of a view at a version are the sum of its changes up to it, however they came."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive.errors import LimitExceeded, RederiveError
from rederive.ir.terms import Row
from rederive.maintain.plan import STRATEGIES
from tests.properties.test_maintained_equals_recomputed import examples

BASES = "CREATE TABLE t (a INT, b INT); CREATE TABLE k (a INT, b INT, PRIMARY KEY (a));"
QUERIES = (
    "SELECT a, b FROM t",
    "SELECT DISTINCT a, b FROM t",
    "SELECT a, b FROM t WHERE b = 9",
    "SELECT DISTINCT a, b FROM t WHERE b = 9",
    "SELECT count(*) AS a, max(b) AS b FROM t",
    "SELECT a, b FROM k UNION ALL SELECT 99, 1",
    "SELECT t.a, k.b FROM t LEFT JOIN k ON t.a = k.a",
    "SELECT a, b FROM k WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.a = k.a)",
    "SELECT x AS a, count(*) AS b FROM e GROUP BY x",
)
DATALOG = (
    ".decl f(x: number) f(1). f(2).",
    ".decl g(x: number, y: number) g(x, y) :- e(x, y). g(x, x) :- e(x, _).",
    ".decl c(x: number) c(k) :- k = count : { e(_, _) }.",
    ".decl p(x: number, y: number) p(7, 7). p(x, y) :- e(x, y). p(x, z) :- e(x, y), p(y, z).",
    ".decl conf(x: number) conf(0). conf(x + 1) :- conf(x), !lim(x).",
    "e(5, 5). e(5, 6).",
    "lim(3).",
)
LIMITS = rederive.Limits(rounds=60)
NUMBER = st.integers(1, 3)
ROWS = st.lists(st.tuples(NUMBER, NUMBER), max_size=4, unique_by=lambda row: row[0])
STEPS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from("uvw"), st.sampled_from(QUERIES)),
    st.tuples(st.just("create"), st.sampled_from("uvw"), st.sampled_from(QUERIES)),
    st.tuples(st.just("drop"), st.sampled_from("uvw")),
    st.tuples(st.just("define"), st.sampled_from(DATALOG)),
    st.tuples(st.just("load"), st.sampled_from(["t", "k", "e"]), ROWS),
    st.tuples(st.just("load"), st.just("lim"), st.just([(2,)])),
    st.tuples(st.sampled_from(["insert", "insert", "delete"]), st.sampled_from(["t", "e"]), ROWS),
    st.tuples(st.just("setup"), st.sampled_from("uvw"), st.sampled_from(QUERIES), ROWS),
    st.tuples(st.just("reopen")),
)


def texts(rows: Iterable[Row]) -> list[str]:
    return [repr(row) for row in rows]


def applied(rows: Counter[str], plus: Iterable[Row], minus: Iterable[Row], counts: Any) -> Counter[str]:
    """Rows after a change: no row leaves that was not there, none leaves and enters at once."""
    came, gone = texts(plus), texts(minus)
    counts = counts or {"plus": [1] * len(came), "minus": [1] * len(gone)}
    after = Counter(rows)
    after.subtract(dict(zip(gone, counts["minus"], strict=True)))
    assert min(after.values(), default=0) >= 0
    assert not set(came) & set(gone)
    after.update(dict(zip(came, counts["plus"], strict=True)))
    return after


class Session:
    """A database, and what somebody knows who only takes its changes, from results and from subscriptions."""

    def __init__(self, strategy: str, folder: str | None) -> None:
        self.folder = folder
        self.strategy = strategy
        self.known: dict[str, Counter[str]] = {}
        self.heard: dict[str, Counter[str]] = {}
        self.past: dict[int, dict[str, Counter[str]]] = {0: {}}
        self.open()
        self.take(self.db.define(".decl e(x: number, y: number) .decl lim(x: number)"))
        for result in self.db.sql(BASES):
            self.take(result)

    def open(self) -> None:
        self.db = rederive.open(self.folder, strategy=self.strategy, limits=LIMITS)
        self.subscribed: set[str] = set()
        self.subscribe()

    def subscribe(self) -> None:
        for view in self.db.pipeline.state.monitored:
            if view not in self.subscribed and self.db.pipeline.state.parked is None:
                self.db.subscribe(view, self.hear)
                self.subscribed.add(view)
                self.heard[view] = Counter(texts(self.db.rows(view)))

    def hear(self, change: rederive.Change) -> None:
        self.heard[change.view] = applied(self.heard[change.view], change.plus, change.minus, change.counts)

    def take(self, result: rederive.Result | None) -> None:
        for view, change in result.changes.items() if result is not None else ():
            self.known[view] = applied(self.known.get(view, Counter()), change.plus, change.minus, change.counts)
        if result is not None:
            self.past[result.version] = {view: +rows for view, rows in self.known.items()}

    def step(self, kind: str, *arguments: Any) -> None:
        before = self.db.version
        try:
            for result in getattr(self, f"do_{kind}")(*arguments):
                self.take(result)
        except RederiveError:
            assert self.db.version == before
        self.check()

    def do_create(self, view: str, query: str) -> list[rederive.Result]:
        return self.db.sql(f"CREATE OR REPLACE VIEW {view} AS {query}")

    def do_drop(self, view: str) -> list[rederive.Result]:
        self.subscribed.discard(view)
        return self.db.sql(f"DROP VIEW IF EXISTS {view}")

    def do_define(self, text: str) -> list[rederive.Result | None]:
        return [self.db.define(text)]

    def do_load(self, relation: str, rows: list[Row]) -> list[rederive.Result | None]:
        return [self.db.load(relation, rows)]

    def do_insert(self, relation: str, rows: list[Row]) -> list[rederive.Result]:
        with self.db.transaction() as tx:
            tx.insert(relation, rows)
        return [tx.result]

    def do_delete(self, relation: str, rows: list[Row]) -> list[rederive.Result]:
        with self.db.transaction() as tx:
            tx.delete(relation, rows)
        return [tx.result]

    def do_setup(self, view: str, query: str, rows: list[Row]) -> list[rederive.Result | None]:
        with self.db.setup() as setup:
            self.db.sql(f"CREATE OR REPLACE VIEW {view} AS {query}")
            self.db.load("t", rows)
        return [setup.result]

    def do_reopen(self) -> list[rederive.Result]:
        if self.folder is not None:
            self.db.close()
            self.open()
        return []

    def check(self) -> None:
        if self.db.pipeline.state.parked is not None:
            with pytest.raises(LimitExceeded):
                self.db.rows("conf")
            return
        self.subscribe()
        for view in self.db.pipeline.state.monitored:
            rows = Counter(texts(self.db.rows(view)))
            assert +self.known.get(view, Counter()) == rows
            assert +self.heard[view] == rows
        assert all(not +rows for view, rows in self.known.items() if view not in self.db.pipeline.state.monitored)

    def check_record(self) -> None:
        """The journal says the same, and leads back to every version."""
        for view in self.db.pipeline.state.monitored:
            rows: Counter[str] = Counter()
            for change in self.db.changes(view, since=0):
                rows = applied(rows, change.plus, change.minus, change.counts)
                assert +rows == self.past[change.version].get(view, Counter())
            assert +rows == +self.known.get(view, Counter())
            if self.db.pipeline.state.parked is None:
                for version, known in self.past.items():
                    assert Counter(texts(self.db.rows(view, as_of=version))) == known.get(view, Counter())


@pytest.mark.parametrize("strategy", STRATEGIES)
@examples(10)
@given(steps=st.lists(STEPS, min_size=3, max_size=10), kept=st.booleans())
def test_changes_accumulate_to_the_views(strategy: str, steps: list[tuple[Any, ...]], kept: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = Session(strategy, folder if kept else None)
        for kind, *arguments in steps:
            session.step(kind, *arguments)
        if kept:
            session.check_record()
        session.db.close()
