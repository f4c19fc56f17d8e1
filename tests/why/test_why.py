"""Explanations of rows that are there, and of rows that are not: in Datalog, in SQL, and against the oracle."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from re import search
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import rederive
from rederive.cli.main import app
from rederive.errors import AbsentRow, IllTypedRow, MalformedInput, PresentRow, UnknownRelation
from rederive.ir.rules import Aggregate, Rule
from rederive.lang import compile_program
from rederive.why.explanation import Explanation
from rederive.why.instances import GroundAtom, RuleInstances
from rederive.why.proofs import Proofs
from tests.oracle import Rows, consequences, evaluate
from tests.properties.programs import DOMAIN, scenarios
from tests.properties.test_maintained_equals_recomputed import GENERAL, PLAIN, Scenario, apply, loading
from tests.selection import examples, fast_only

CYCLE = """
.decl edge(x: symbol, y: symbol)  .decl closure(x: symbol, y: symbol)  .decl lonely(x: symbol, n: number)
closure(x, y) :- edge(x, y).
closure(x, y) :- closure(x, z), closure(z, y).
lonely(x, n) :- edge(x, _), !closure(x, x), n = count : { edge(x, _) }, n < 2.
edge("a", "b"). edge("b", "c"). edge("c", "a"). edge("c", "d"). edge("d", "e").
"""
SALES = """
CREATE TABLE sale (id INT PRIMARY KEY, shop INT, amount INT);
CREATE TABLE shop (id INT PRIMARY KEY, city STRING);
CREATE TABLE visit (shop INT, person STRING);
INSERT INTO shop VALUES (1, 'Bern'), (2, 'Basel');
INSERT INTO sale VALUES (10, 1, 5), (11, 1, 7), (12, 2, 1);
INSERT INTO visit VALUES (1, 'Ann'), (1, 'Ann');
CREATE VIEW total AS SELECT city, sum(amount) AS amount FROM sale JOIN shop ON shop = shop.id GROUP BY city;
CREATE VIEW large AS SELECT city FROM total WHERE amount > 5;
CREATE VIEW unvisited AS SELECT s.id FROM shop s WHERE NOT EXISTS (SELECT 1 FROM visit v WHERE v.shop = s.id);
CREATE VIEW visitors AS SELECT person, city FROM visit JOIN shop ON visit.shop = shop.id;
"""


# Queries whose lowering needs auxiliary relations, with a row that is not there.
HELPED: dict[str, tuple[str | int, ...]] = {
    "SELECT id, row_number() OVER (PARTITION BY shop ORDER BY amount) AS r FROM sale": (10, 7),
    "SELECT s.city, a.amount FROM shop s LEFT JOIN sale a ON a.shop = s.id": ("Basel", 9),
    "SELECT s.city, a.id FROM shop s FULL JOIN sale a ON a.shop = s.id": ("Basel", 10),
    "SELECT city FROM shop WHERE id NOT IN (SELECT shop FROM visit)": ("Bern",),
    "SELECT city AS c FROM shop UNION SELECT person FROM visit": ("Chur",),
    "SELECT city FROM shop EXCEPT SELECT 'Basel'": ("Basel",),
    "SELECT city, (SELECT max(amount) FROM sale WHERE shop = shop.id) AS m FROM shop": ("Bern", 6),
    "SELECT count(DISTINCT shop) AS n FROM sale": (9,),
    "SELECT city, c FROM shop LATERAL VIEW explode(split(city, 'e')) t AS c": ("Bern", "x"),
    "SELECT id FROM sale ORDER BY amount DESC LIMIT 2": (12,),
    "WITH RECURSIVE up(a, b) AS (SELECT id, shop FROM sale UNION SELECT u.a, s.id FROM up u JOIN sale s ON s.shop = u.b) "
    "SELECT a, b FROM up": (99, 1),
}


@pytest.mark.parametrize("query", HELPED)
def test_no_explanation_names_a_relation_that_lowering_added(query: str) -> None:
    db = database(f"{SALES} CREATE VIEW asked AS {query}")
    rows = db.rows("asked")
    assert rows
    texts = [str(db.why("asked", row)) for row in rows] + [str(db.why_not("asked", HELPED[query]))]
    lines = [line for text in texts for line in text.splitlines() if "asked AS" not in line]
    assert not [line for line in lines if search(r"\basked\.\w|\bup1\b", line)]


def test_a_recursion_in_with_is_explained_by_its_own_name_and_part() -> None:
    db = database(f"{SALES} CREATE VIEW asked AS {list(HELPED)[-1]}")
    text = str(db.why("asked", (10, 1)))
    assert "    up(10, 1)\n      by up(a, b) AS (SELECT id, shop FROM sale UNION" in text
    assert "\n        sale(10, 1, 5)" in text


SLOW_SHARES = [pytest.param(strategy, 30, marks=pytest.mark.slow) for strategy in ("filtration", "recompute", "auto")]


def database(text: str, strategy: str = "auto") -> rederive.Database:
    db = rederive.open(strategy=strategy)
    if text.lstrip().startswith("."):
        db.define(text)
    else:
        db.sql(text)
    return db


@pytest.mark.parametrize("strategy", ["materialized", "on_demand", "filtration", "recompute"])
def test_a_row_on_a_cycle_has_a_proof_that_ends_at_base_rows(strategy: str) -> None:
    found = database(CYCLE, strategy).why("closure", ("a", "a"), width=1)
    assert leaves(found) == {("edge", ("a", "b")), ("edge", ("b", "c")), ("edge", ("c", "a"))}


def leaves(node: Explanation) -> set[tuple[str, tuple[object, ...]]]:
    return {(one.relation, one.row) for one in nodes(node) if one.is_base}


def test_negation_and_aggregates_are_conditions_and_rows() -> None:
    assert str(database(CYCLE).why("lonely", ("d", 1))).splitlines()[2:] == [
        '    edge("d", "e")',
        '    no row closure("d", "d")',
        "    1 < 2",
    ]


def test_depth_and_width_cut_the_tree() -> None:
    db = database(CYCLE)
    (step,) = db.why("closure", ("a", "c"), depth=1, width=1).derivations
    assert [premise.is_cut for premise in step.premises if isinstance(premise, Explanation)] == [True, True]
    assert db.why("closure", ("a", "a"), width=1).further
    assert not db.why("closure", ("d", "e"), width=1).further


def test_what_was_explained_is_not_explained_again() -> None:
    found = database(CYCLE).why("closure", ("a", "a"), width=5)
    explained = [node for node in nodes(found) if node.derivations]
    assert len(explained) == len({(node.relation, node.row) for node in explained})
    assert any(node.is_repeated for node in nodes(found))
    assert "(see above)" in str(found)


def nodes(node: Explanation) -> list[Explanation]:
    below = [premise for step in node.derivations for premise in step.premises if isinstance(premise, Explanation)]
    return [node, *(one for premise in below for one in nodes(premise))]


def test_a_sql_row_is_explained_by_tables_and_views() -> None:
    found = database(SALES).why("large", ("Bern",))
    assert str(found).splitlines() == [
        'large("Bern")',
        "  by CREATE VIEW large AS SELECT city FROM total WHERE amount > 5",
        '    total("Bern", 12)',
        "      by CREATE VIEW total AS SELECT city, sum(amount) AS amount FROM sale JOIN shop ON shop = shop.id GROUP BY city",
        "        sale(10, 1, 5)",
        '        shop(1, "Bern")',
        "        sale(11, 1, 7)",
        "    12 > 5",
    ]


def test_each_copy_of_a_bag_has_its_rows() -> None:
    found = database(SALES).why("visitors", ("Ann", "Bern"))
    assert leaves(found) == {("visit", (1, "Ann")), ("shop", (1, "Bern"))}


@pytest.mark.parametrize(
    ("view", "row", "fails"),
    [
        ("large", ("Basel",), ["1 > 5"]),
        ("total", ("Bern", 13), ["the sum is 12"]),
        ("total", ("Genf", 1), ['no row shop(_, "Genf")']),
        ("unvisited", (1,), ['visit(1, "Ann") exists']),
        ("unvisited", (9,), ["no row shop(9, _)"]),
        ("visitors", ("Bob", "Bern"), ['no row visit(_, "Bob")']),
    ],
)
def test_the_condition_that_fails(view: str, row: tuple[object, ...], fails: list[str]) -> None:
    assert [failed.fails.text for failed in database(SALES).why_not(view, row).rules] == fails  # type: ignore[arg-type]


def test_a_base_row_is_absent_because_nobody_inserted_it() -> None:
    absence = database(SALES).why_not("visit", (2, "Eve"))
    assert not absence.rules
    assert "no transaction inserted" in str(absence)


def test_questions_that_cannot_be_answered() -> None:
    db = database(SALES)
    with pytest.raises(AbsentRow, match=r'large\("Basel"\) is not there\n  help: ask why_not'):
        db.why("large", ("Basel",))
    with pytest.raises(PresentRow):
        db.why_not("large", ("Bern",))
    with pytest.raises(UnknownRelation):
        db.why("lage", ("Bern",))
    with pytest.raises(IllTypedRow):
        db.why("large", ("Bern", 1))


def test_json_has_the_whole_tree() -> None:
    found = database(SALES).why("large", ("Bern",), depth=1).to_json()
    assert found["derivations"][0]["premises"] == [
        {"relation": "total", "row": ["Bern", 12], "cut": True},
        {"condition": "12 > 5"},
    ]


@pytest.mark.parametrize(("strategy", "share"), [("materialized", 60), ("on_demand", 60), *SLOW_SHARES])
def test_a_row_has_a_proof_exactly_if_the_oracle_derives_it(strategy: str, share: int) -> None:
    @examples(share)
    @given(scenario=scenarios(), data=st.data())
    def check(scenario: Scenario, data: st.DataObject) -> None:
        sample, start, _ = scenario
        program = compile_program(sample.text)
        db = rederive.open(strategy=strategy)
        db.define(sample.text)
        with db.transaction() as tx:
            apply(tx, loading(start))
        rows = evaluate(program, {name: set(db.rows(name)) for name in program.bases})
        proofs = Proofs(RuleInstances(program, db.pipeline.state.engine.rows))
        for view in sample.views:
            for row in rows[view.name]:
                fact = GroundAtom(view.name, row)
                assert proofs.prove(fact), fact
                check_proof(fact, proofs, rows, ())
                assert db.why(view.name, row).row == row
            candidates = list(product(*(DOMAIN[kind] for kind in view.types)))
            for row in data.draw(st.lists(st.sampled_from(candidates), max_size=2)):
                if row not in rows[view.name]:
                    assert not proofs.prove(GroundAtom(view.name, row))
                    assert db.why_not(view.name, row).rules or not program.definitions_of(view.name)

    check()


def check_proof(fact: GroundAtom, proofs: Proofs, rows: Rows, above: tuple[GroundAtom, ...]) -> None:
    """The oracle derives the fact from the premises of its instance alone, and these are proved without it."""
    assert fact not in above
    if not proofs.instances.program.is_view(fact.relation):
        assert fact.row in rows[fact.relation]
        return
    proofs.prove(fact)
    instance = proofs.chosen[fact]
    premises: Rows = {name: set() for name in rows}
    for premise in instance.facts:
        premises[premise.relation].add(premise.row)
    match instance.definition:
        case Rule(body=body):
            negated = {literal.atom.relation for literal in body if hasattr(literal, "atom")}
            derived = consequences(instance.definition, {**premises, **{name: rows[name] for name in negated}})
        case Aggregate() as aggregate:
            derived = consequences(aggregate, premises)
    assert fact.row in derived
    for premise in instance.facts:
        check_proof(premise, proofs, rows, (*above, fact))


def test_on_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "cycle.dl"
    program.write_text(CYCLE)

    def ask(row: str) -> Result:
        return CliRunner().invoke(app, ["why", str(program), "closure", row])

    expected = ['closure("d", "e")', "  by closure(x, y) :- edge(x, y).", '    edge("d", "e")']
    assert ask('["d", "e"]').output.splitlines() == expected
    assert 'fails: no row edge("e", "a")' in ask('["e", "a"]').output
    assert isinstance(ask("e, a").exception, MalformedInput)


@pytest.mark.parametrize("strategy", fast_only((*GENERAL, *PLAIN), "auto", "on_demand"))
def test_the_leaves_of_a_sql_tree_derive_the_row_again(strategy: str) -> None:
    db = database(SALES, strategy)
    program = db.pipeline.state.program
    again = database(SALES.replace("INSERT INTO", "-- INSERT INTO"))
    for view in ("total", "large", "unvisited", "visitors"):
        present = set(db.rows(view))
        for row in present:
            found = leaves(db.why(view, row, depth=100, width=100))
            assert all(leaf in db.rows(table) for table, leaf in found)
            for change in ("insert", "delete"):
                with again.transaction() as tx:
                    for table, leaf in found:
                        getattr(tx, change)(table, [leaf])
                assert (row in again.rows(view)) == (change == "insert")
        values = {"city": ("Bern", "Basel", "Genf"), "person": ("Ann", "Bob"), "amount": (1, 12, 13), "id": (1, 2, 9)}
        for row in product(*(values[column.name] for column in program.relations[view].columns)):
            if row not in present:
                assert db.why_not(view, row).rules
                with pytest.raises(AbsentRow):
                    db.why(view, row)


@pytest.mark.parametrize("row", [0, None, 1.5, "a", {1}])
def test_what_is_not_a_row_is_refused(row: Any) -> None:
    """A number was an internal error."""
    db = rederive.open()
    db.define(".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1.")
    for ask in (db.why, db.why_not):
        with pytest.raises(IllTypedRow, match=r"'odd' has 1 columns|column 'x'"):
            ask("odd", row)
