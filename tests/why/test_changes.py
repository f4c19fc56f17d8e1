"""Why rows entered and left: every reason is a change that the oracle sees, and it ends at base rows of that transaction."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given

import rederive
from rederive.errors import Expired, LimitExceeded, Mismatch, NoStore, UnchangedRow
from rederive.lang import compile_program
from rederive.why.changes import RowChange
from rederive.why.explanation import Explanation
from tests.oracle import Rows, evaluate
from tests.properties.programs import scenarios
from tests.properties.test_maintained_equals_recomputed import Scenario, apply, loading
from tests.selection import examples

SHOPS = """
CREATE TABLE shop (id INT PRIMARY KEY, city STRING);
CREATE TABLE sale (id INT PRIMARY KEY, shop INT, amount INT);
CREATE TABLE visit (shop INT, person STRING);
CREATE VIEW total AS SELECT city, sum(amount) AS amount FROM sale JOIN shop ON shop = shop.id GROUP BY city;
CREATE VIEW large AS SELECT city FROM total WHERE amount > 5;
CREATE VIEW unvisited AS SELECT s.id FROM shop s WHERE NOT EXISTS (SELECT 1 FROM visit v WHERE v.shop = s.id);
CREATE VIEW visitors AS SELECT person, city FROM visit JOIN shop ON visit.shop = shop.id;
INSERT INTO shop VALUES (1, 'Bern'), (2, 'Basel');
INSERT INTO sale VALUES (10, 1, 5), (11, 1, 7), (12, 2, 1);
INSERT INTO visit VALUES (1, 'Ann'), (1, 'Ann');
DELETE FROM sale WHERE id = 11;
DELETE FROM visit WHERE person = 'Ann';
"""
LARGE = "CREATE VIEW large AS SELECT city FROM total WHERE amount > 5"
TOTAL = "CREATE VIEW total AS SELECT city, sum(amount) AS amount FROM sale JOIN shop ON shop = shop.id GROUP BY city"
STRATEGIES = ("auto", "materialized", "on_demand", "filtration", "recompute")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sql_rows_change_by_tables_and_views(tmp_path: Path, strategy: str) -> None:
    with rederive.open(tmp_path / "store", strategy=strategy) as db:
        db.sql(SHOPS)
        before = {name: db.rows(name) for name in db.pipeline.state.program.relations if "." not in name}
        assert str(db.why_change("large", ("Bern",), 4)).splitlines() == [
            'large("Bern") left',
            f"  broken: {LARGE}",
            '    total("Bern", 12) left',
            f"      broken: {TOTAL}",
            "        sale(11, 1, 7) left  (deleted)",
            '        unchanged: shop(1, "Bern")',
            "    unchanged: 12 > 5",
        ]
        # a row enters that the view reads negatively
        (step,) = db.why_change("unvisited", (1,), 3).derivations
        assert [(one.relation, one.row, one.is_entered) for one in step.changed] == [("visit", (1, "Ann"), True)]
        # each copy of a bag leaves with the row that it comes from
        assert len(db.why_change("visitors", ("Ann", "Bern"), 5).derivations) == 2
        assert db.why_change("sale", (11, 1, 7), 4).is_base
        with pytest.raises(UnchangedRow, match=r'large\("Bern"\) neither entered nor left at version 3'):
            db.why_change("large", ("Bern",), 3)
        # the engine is at the last version again
        assert before == {name: db.rows(name) for name in before}
        db.sql("INSERT INTO sale VALUES (13, 1, 9)")
        assert db.rows("large") == [("Bern",)]


def test_versions_that_cannot_be_explained(tmp_path: Path) -> None:
    with pytest.raises(NoStore):
        memory().why_change("v", (1,), 1)
    with rederive.open(tmp_path / "store") as db:
        db.sql("CREATE TABLE n (x INT PRIMARY KEY); CREATE VIEW v AS SELECT x FROM n; INSERT INTO n VALUES (1)")
        assert db.why_change("v", (1,), 1).is_entered
        db.sql("CREATE VIEW w AS SELECT x FROM v")
        # what a view is today says nothing of what it was under other definitions
        with pytest.raises(Expired, match="the definitions were changed at version 2"):
            db.why_change("v", (1,), 1)
        with pytest.raises(Mismatch, match="there is no version 9"):
            db.why_change("v", (1,), 9)


def memory() -> rederive.Database:
    db = rederive.open()
    db.define(".decl n(x: number)  .decl v(x: number)  v(x) :- n(x).  n(1).")
    return db


def test_a_past_that_exceeds_the_budget_leaves_the_database_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rederive.open(tmp_path / "store") as db:
        db.migrate(
            ".decl e(x: number, y: number)  .decl c(x: number, y: number)  c(x, y) :- e(x, y).  c(x, y) :- e(x, z), c(z, y)."
        )
        for start in (0, 40):
            with db.transaction() as tx:
                tx.insert("e", [(i, i + 1) for i in range(start, start + 40)])
        db.pipeline.state.limits = rederive.Limits(rows=10)
        with pytest.raises(LimitExceeded):
            db.why_change("c", (0, 1), 1)
        db.pipeline.state.limits = None
        assert len(db.rows("c")) == 81 * 80 // 2
        assert db.why_change("c", (0, 80), 2, depth=100).is_entered
        monkeypatch.setattr("rederive.commit.past.MOST_UNDONE", 3)
        with pytest.raises(Expired, match="differ in more than 3 base rows"):
            db.why_change("c", (0, 1), 1)


@pytest.mark.parametrize("strategy", ["materialized", "on_demand"])
def test_every_reason_is_a_change_that_the_oracle_sees(strategy: str) -> None:
    @examples(40)
    @given(scenario=scenarios())
    def check(scenario: Scenario) -> None:
        sample, start, transactions = scenario
        program = compile_program(sample.text)
        with TemporaryDirectory() as folder, rederive.open(folder, strategy=strategy) as db:
            db.define(sample.text)
            states: list[Rows] = [evaluate(program, {name: set() for name in program.bases})]
            first = db.version
            for change in (loading(start), *transactions):
                with db.transaction() as tx:
                    apply(tx, change)
                states.append(evaluate(program, {name: set(db.rows(name)) for name in program.bases}))
            for version in range(1, len(states)):
                before, after = states[version - 1], states[version]
                for view in sample.views:
                    for row in sorted(before[view.name] ^ after[view.name], key=repr)[:4]:
                        found = db.why_change(view.name, row, first + version, depth=100)
                        check_change(found, before, after)

    check()


def check_change(change: RowChange, before: Rows, after: Rows) -> None:
    """The row changed; so did something in each derivation, and the rest of it is in both states."""
    was, is_now = change.row in before[change.relation], change.row in after[change.relation]
    assert (was, is_now) == (not change.is_entered, change.is_entered)
    assert change.is_base or change.is_repeated or change.derivations
    for derivation in change.derivations:
        assert derivation.changed
        for below in derivation.changed:
            check_change(below, before, after)
        for premise in derivation.unchanged:
            if isinstance(premise, Explanation):
                assert premise.row in before[premise.relation] & after[premise.relation]
