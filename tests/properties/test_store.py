"""A database that is closed and opened at any moment equals one in memory that never was: rows, versions and changes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import rederive
from rederive.errors import RederiveError
from rederive.ir.rules import Program

BASES = """
.decl e(x: symbol, y: symbol)
.decl n(x: symbol, f: float, m: decimal(9,2)) key(x)
"""
VIEWS = {
    "a": ".decl a(x: symbol, y: symbol)",
    "b": ".decl b(x: symbol)",
    "c": ".decl c(x: symbol, k: number)",
    "m": ".decl m(x: symbol, s: decimal(9,2))",
}
RULES = (
    "a(x, y) :- e(x, y).",
    "a(x, y) :- e(x, z), a(z, y).",
    "a(x, x) :- n(x, _, _).",
    "b(x) :- n(x, f, _), !a(x, x), f >= 0.0.",
    "b(x) :- a(x, _), !n(x, _, _).",
    "c(x, k) :- e(x, _), k = count : { a(x, _) }.",
    "c(x, 7) :- b(x).",
    'm(x, s) :- n(x, _, s), x != "c".',
    'm("all", 1.50) :- c(_, 2).',
)
NAMES = st.sampled_from("abc")
EDGES = st.lists(st.tuples(NAMES, NAMES), max_size=4)
STOCK = st.lists(st.tuples(NAMES, st.sampled_from([0.0, -0.0, 0.1]), st.sampled_from([0, 1, "-0.00", "2.50"])), max_size=2)
SOME = st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique=True)
Outcome = tuple[Any, ...]


def outcome(db: rederive.Database, call: Callable[[rederive.Database], rederive.Result | None]) -> Outcome:
    """What a call gives, as plain values; or the code of the error that refused it."""
    try:
        result = call(db)
    except RederiveError as error:
        return ("refused", error.code)
    if result is None:
        return ("no version",)
    return (
        result.version,
        {view: (repr(change.plus), repr(change.minus)) for view, change in result.changes.items()},
    )


def visible(program: Program) -> list[str]:
    return sorted(name for name, relation in program.relations.items() if not relation.is_auxiliary)


class Twins(RuleBasedStateMachine):
    """The same calls on both; the one with the store is opened again at random moments."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.memory = rederive.open()
        self.stored = rederive.open(self.folder)
        self.history: list[Outcome] = []
        self.states: dict[int, dict[str, set[Any]]] = {0: {}}  # version 0 is the empty database

    def teardown(self) -> None:
        self.stored.close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[rederive.Database], rederive.Result | None]) -> None:
        expected = outcome(self.memory, call)
        assert outcome(self.stored, call) == expected
        if isinstance(expected[0], int):
            self.history.append(expected)

    @initialize(rows=EDGES)
    def begin(self, rows: list[Any]) -> None:
        self.both(lambda db: db.define(BASES))
        self.both(lambda db: db.load("e", rows))

    @rule(plus=EDGES, minus=EDGES, stock=STOCK, action=st.sampled_from(["insert", "delete", "upsert", "upsert"]))
    def transaction(self, plus: list[Any], minus: list[Any], stock: list[Any], action: str) -> None:
        def call(db: rederive.Database) -> rederive.Result:
            with db.transaction() as tx:
                tx.delete("e", minus)
                tx.insert("e", plus)
                getattr(tx, action)("n", stock)
            return tx.result

        self.both(call)

    @rule(rules=SOME)
    def define(self, rules: list[str]) -> None:
        new = {rule[0] for rule in rules if rule[0] not in self.memory.pipeline.state.program.relations}
        text = "\n".join([*(VIEWS[view] for view in sorted(new)), *rules])
        self.both(lambda db: db.define(text))

    @rule(rows=EDGES)
    def define_facts(self, rows: list[tuple[str, str]]) -> None:
        self.both(lambda db: db.define(" ".join(f'e("{x}", "{y}").' for x, y in rows)))

    @rule(view=st.sampled_from(sorted(VIEWS)))
    def output(self, view: str) -> None:
        self.both(lambda db: db.define(f".output {view}"))

    @rule(rules=SOME)
    def add_rule(self, rules: list[str]) -> None:
        self.both(lambda db: db.definitions.add_rule("\n".join(rules)))

    @rule(which=st.sampled_from(RULES))
    def remove_rule(self, which: str) -> None:
        self.both(lambda db: db.definitions.remove_rule(which))

    @rule(rules=SOME)
    def replace_view(self, rules: list[str]) -> None:
        own = [each for each in rules if each[0] == rules[0][0]]
        self.both(lambda db: db.definitions.replace_view(rules[0][0], "\n".join(own)))

    @rule(view=st.sampled_from(sorted(VIEWS)))
    def drop_view(self, view: str) -> None:
        self.both(lambda db: db.definitions.drop_view(view))

    @rule()
    def reopen(self) -> None:
        self.stored.close()
        self.stored = rederive.open(self.folder)

    @invariant()
    def equal(self) -> None:
        memory, stored = self.memory, self.stored
        assert (stored.version, visible(stored.pipeline.state.program)) == (
            memory.version,
            visible(memory.pipeline.state.program),
        )
        assert (stored.pipeline.state.program, stored.pipeline.state.monitored) == (
            memory.pipeline.state.program,
            memory.pipeline.state.monitored,
        )
        for name in visible(memory.pipeline.state.program):
            assert list(map(repr, stored.rows(name))) == list(map(repr, memory.rows(name)))

    @invariant()
    def the_journal_has_every_version(self) -> None:
        entries = list(self.stored.pipeline.state.durable("test").journal.since(0))
        recorded = [
            (entry.number, {change.relation.name: (repr(change.delta.plus), repr(change.delta.minus)) for change in entry.views})
            for entry in entries
        ]
        assert recorded == self.history

    @invariant()
    def replaying_a_view_gives_its_rows(self) -> None:
        """From any version that its record reaches back to, whatever became of its definition in between."""
        self.states[self.memory.version] = {
            name: set(self.memory.rows(name)) for name in visible(self.memory.pipeline.state.program)
        }
        for view, since in self.stored.pipeline.state.durable("test").journal.catalog.followed.items():
            for start in () if since is None else {since, (since + self.memory.version) // 2}:
                rows = self.states[start].get(view, set())
                for change in self.stored.changes(view, since=start):
                    assert rows.issuperset(change.minus)
                    assert rows.isdisjoint(change.plus)
                    rows = (rows - set(change.minus)) | set(change.plus)
                assert rows == self.states[self.memory.version].get(view, set())


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=settings().max_examples * 30 // 100, stateful_step_count=25)
