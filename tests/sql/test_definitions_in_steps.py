"""Definitions of SQL in random sequences: each step compiles what it concerns, and the program is that of all statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rederive
from rederive import catalog
from rederive.errors import RederiveError
from rederive.ir.rules import Program
from rederive.lang.programs import compile_statements
from tests.selection import examples

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT); CREATE TABLE b (k INT, v INT);"
    "INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30); INSERT INTO b VALUES (1, 1), (1, 1), (2, 5)"
)
QUERIES = (
    "SELECT k, v FROM {0} WHERE v > 1",
    "SELECT k, sum(v) AS v FROM {0} GROUP BY k",
    "SELECT x.k, y.v FROM {0} AS x JOIN {1} AS y ON x.k = y.k",
    "SELECT k, max(v) AS v FROM {0} WHERE k NOT IN (SELECT k FROM {1} WHERE k IS NOT NULL) GROUP BY k",
    "SELECT DISTINCT k, v + 1 AS v FROM {0} EXCEPT SELECT k, v FROM {1}",
    "WITH v0 AS (SELECT k, v FROM {0}) SELECT k, v FROM v0 UNION ALL SELECT k, v FROM {1}",
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS v FROM {0}",
    "SELECT 1 AS k, count(*) AS v FROM {0} WHERE false",
)
OTHERS = (
    "ALTER TABLE b ADD COLUMN w INT",
    "ALTER TABLE b DROP COLUMN w",
    "ALTER TABLE t ADD CONSTRAINT least CHECK (v > 0)",
    "ALTER TABLE t DROP CONSTRAINT least",
    "COMMENT ON TABLE t IS 'things'",
    "DROP TABLE b",
    "INSERT INTO t VALUES (4, 2, 7)",
    "DELETE FROM t WHERE id = 4",
    "UPDATE b SET v = v + 1 WHERE k = 1",
)
VIEWS = st.sampled_from(["v0", "v1", "v2", "v3"])
NAMES = st.sampled_from(["t", "b", "v0", "v1", "v2", "v3"])
STEPS = st.one_of(
    st.builds(
        lambda create, view, query, *names: f"{create} VIEW {view} AS {query.format(*names)}",
        st.sampled_from(["CREATE", "CREATE OR REPLACE"]),
        VIEWS,
        st.sampled_from(QUERIES),
        NAMES,
        NAMES,
    ),
    st.builds("DROP VIEW {}".format, VIEWS),
    st.sampled_from(OTHERS),
)


def _outline(program: Program) -> object:
    names = program.relations
    return names, {n: set(program.definitions_of(n)) for n in names}, set(program.constraints), set(program.bags.items())


def _facts(program: Program) -> object:
    return set(program.views), set(program.bases), program.folded_names, dict(program.bags), program.defined


def _rows(db: rederive.Database, names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: sorted(db.query(f"SELECT * FROM {name}"), key=repr) for name in names}


@examples(40)
@given(st.lists(STEPS, min_size=2, max_size=10))
def test_definitions_in_steps_are_those_of_the_whole(steps: Sequence[str]) -> None:
    db = rederive.open()
    db.sql(TABLES)
    for number, step in enumerate(("CREATE VIEW v0 AS SELECT k, v FROM b", *steps)):
        try:
            db.sql(step)
        except RederiveError:
            continue
        state = db.pipeline.state
        whole = compile_statements(state.catalog.statements, catalog.Catalog.none().program)
        assert _outline(state.program) == _outline(whole)
        assert _facts(state.program) == _facts(whole)
        if number % 3 == 0 or number == len(steps):
            other = rederive.open()
            for statement in state.catalog.statements:
                other.sql(statement.span.whole)
            for table in state.program.tables:
                other.load(table, db.rows(table))
            views = [name for name in state.program.monitored if not state.program.relations[name].is_auxiliary]
            assert _rows(db, views) == _rows(other, views)


def _compiled(db: rederive.Database, monkeypatch: pytest.MonkeyPatch, statement: str) -> list[str]:
    from rederive.lang.sql import ddl

    found: list[str] = []
    add = ddl.add_definition

    def watched(known: Program, added: Any) -> Program:
        found.append(added.name)
        return add(known, added)

    with monkeypatch.context() as patch:
        patch.setattr(ddl, "add_definition", watched)
        db.sql(statement)
    return found


@pytest.mark.parametrize(
    ("statement", "compiled"),
    [
        ("DROP VIEW top", []),
        ("CREATE OR REPLACE VIEW top AS SELECT k FROM low", ["top"]),
        ("CREATE OR REPLACE VIEW low AS SELECT k, v FROM t WHERE v > 2", ["low", "top"]),
        ("ALTER TABLE b ADD COLUMN w INT", ["b", "other"]),
        ("COMMENT ON TABLE b IS 'pairs'", ["b", "other"]),
    ],
)
def test_a_statement_compiles_what_it_concerns(statement: str, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    db = rederive.open()
    db.sql(TABLES)
    db.sql("CREATE VIEW other AS SELECT k FROM b; CREATE VIEW low AS SELECT k, v FROM t WHERE v > 1")
    db.sql("CREATE VIEW top AS SELECT k, sum(v) AS s FROM low GROUP BY k")
    assert _compiled(db, monkeypatch, statement) == compiled
    extension = db.pipeline.state.installed_plan.extends
    assert extension is not None
    assert not {"low", "top"} & extension.gone or statement.endswith(("low", "2", "top"))


def test_a_refused_replacement_leaves_the_view_as_it_was() -> None:
    db = rederive.open()
    db.sql(TABLES)
    db.sql("CREATE VIEW m AS SELECT k, v + 1 AS w FROM b; CREATE VIEW s AS SELECT k, max(w) AS most FROM m GROUP BY k")
    with pytest.raises(RederiveError):
        db.sql("CREATE OR REPLACE VIEW m AS SELECT k, v / (k - k) AS w FROM b")
    db.sql("INSERT INTO b VALUES (1, 7); DELETE FROM b WHERE v = 5")
    assert sorted(db.query("SELECT * FROM m")) == [(1, 2), (1, 2), (1, 8)]
    assert sorted(db.query("SELECT * FROM s")) == [(1, 8)]


def test_a_view_that_only_totals_read_again_is_not_stored_and_stored_when_it_is_read() -> None:
    db = rederive.open()
    db.sql(TABLES)
    db.sql("CREATE VIEW m AS SELECT k, v + 1 AS w FROM b")
    above = "CREATE VIEW above AS SELECT m.k, m.w, t.v FROM m JOIN t ON m.k = t.k"
    for value in (7, 8):
        db.sql(above)
        db.sql(f"INSERT INTO b VALUES (1, {value})")
        assert len(db.query("SELECT * FROM above")) == 1 + 2 * (value - 4)
        db.sql("DROP VIEW above")
        db.sql(f"UPDATE b SET v = {value + 10} WHERE v = {value}")
        assert (1, value + 11) in db.query("SELECT * FROM m")


def test_replacing_and_dropping_notify_of_what_leaves_and_enters() -> None:
    db = rederive.open()
    db.sql(TABLES)
    db.sql("CREATE VIEW m AS SELECT k, v FROM t; CREATE VIEW s AS SELECT k, sum(v) AS n FROM m GROUP BY k")
    heard: list[tuple[str, list[Any], list[Any]]] = []
    for view in ("m", "s"):
        db.subscribe(view, lambda change: heard.append((change.view, sorted(change.plus), sorted(change.minus))))
    db.sql("CREATE OR REPLACE VIEW m AS SELECT k, v FROM t WHERE v > 10")
    assert sorted(heard) == [("m", [], [(1, 10)]), ("s", [(1, 20)], [(1, 30)])]
    heard.clear()
    db.sql("DROP VIEW s")
    assert heard == [("s", [], [(1, 20), (2, 30)])]


def test_definitions_beside_an_active_rule_leave_the_other_sections() -> None:
    db = rederive.open()
    calls: list[tuple[Any, ...]] = []
    db.rules.register(lambda *row: calls.append(row), "note")
    db.sql(TABLES)
    db.sql("CREATE VIEW m AS SELECT k, v FROM t WHERE v > 10; CREATE VIEW c AS SELECT k, v FROM t WHERE v > 100")
    db.sql("CREATE VIEW w AS SELECT DISTINCT k FROM b; CREATE RULE r WHEN TABLE c DO CALL note")
    for statement in (
        "CREATE VIEW n AS SELECT w.k, t.v FROM w JOIN t ON w.k = t.k",
        "CREATE OR REPLACE VIEW n AS SELECT k, count(*) AS n FROM w GROUP BY k",
        "DROP VIEW n",
    ):
        section = db.pipeline.state.installed_plan.section_of["w"]
        db.sql(statement)
        assert db.pipeline.state.installed_plan.section_of["w"] is section, statement
    db.sql("INSERT INTO t VALUES (9, 1, 101)")
    assert calls == [([(1, 101)],)]
    assert sorted(db.query("SELECT * FROM m")) == [(1, 20), (1, 101), (2, 30)]
