"""Auxiliary views that copy other relations: what is put into its readers, and what is left as a view."""

from __future__ import annotations

import pytest

import rederive
from rederive.ir.printing import show_definition
from rederive.ir.rules import Program
from rederive.lang.sql.ddl import add_definition, definition_of
from rederive.lang.sql.parser import parse
from rederive.maintain.passes.bound_windows import bound_windows
from rederive.maintain.passes.drop_copies import drop_copies
from rederive.maintain.plan import plan

TABLES = """
CREATE TABLE fact (id BIGINT PRIMARY KEY, item BIGINT, shop BIGINT, amount INT);
CREATE TABLE bag (k BIGINT, n BIGINT);
"""
TOP = """SELECT shop, id, amount FROM (SELECT shop, id, amount, row_number() OVER (PARTITION BY shop ORDER BY amount DESC, id)
AS place FROM fact) WHERE {test}"""


def program_of(query: str) -> Program:
    """The program with a view `v`."""
    program = Program({}, ())
    for parsed in parse(f"{TABLES} CREATE VIEW v AS {query};"):
        program = add_definition(program, definition_of(parsed))
    return program


def rewritten(query: str) -> Program:
    """The program with a view `v` after both passes."""
    program = program_of(query)
    return bound_windows(drop_copies(program, ["v"]), ["v"])


def stored(query: str) -> set[str]:
    """The relations that the plan of a view stores."""
    return set(plan(program_of(query), ["v"]).stored_views)


def shown(program: Program, name: str) -> list[str]:
    """The definitions of a relation."""
    return [show_definition(d, program) for d in program.definitions_of(name)]


def test_the_first_rows_of_groups_are_all_that_is_stored() -> None:
    program = rewritten(TOP.format(test="place <= 3"))
    assert shown(program, "v") == [
        "v(shop_2, id_2, amount_2) :- v.rank1.first(3)(shop_2, id_2, item, amount_2, place), place <= 3."
    ]
    assert shown(program, "v.rank1.first(3)") == [
        "v.rank1.first(3)(shop, id, item, amount, result) :- "
        "result = row_number by (amount desc, id) up to 3 : { fact(id, item, shop, amount) }."
    ]
    assert stored(TOP.format(test="place <= 3")) == {"v", "v.rank1.first(3)"}


@pytest.mark.parametrize(
    ("test", "most"),
    [("place < 3", 2), ("3 >= place", 3), ("place = 2", 2), ("place <= 5 AND place > 1 AND place < 4", 3), ("place <= -1", 0)],
)
def test_bounds_of_row_numbers(test: str, most: int) -> None:
    assert f"v.rank1.first({most})" in rewritten(TOP.format(test=test)).relations


@pytest.mark.parametrize("test", ["place > 3", "place <> 3", "place <= amount", "place <= 3 OR amount > 7"])
def test_row_numbers_without_a_bound(test: str) -> None:
    assert not [name for name in rewritten(TOP.format(test=test)).relations if ".first(" in name]


def test_the_greatest_bound_of_several_readers_counts() -> None:
    two = f"{TOP.format(test='place <= 3')} UNION ALL {TOP.format(test='place <= 3')}"
    assert all(".first(3)" in name for name in rewritten(two).relations if ".first(" in name)


def test_projections_are_read_where_they_come_from() -> None:
    program = rewritten("SELECT shop, count(DISTINCT item) AS n FROM fact GROUP BY shop")
    assert shown(program, "v.distinct1") == ["v.distinct1(c, c_2) :- fact(_, c_2, c, _)."]
    assert "v.rows1" not in stored("SELECT shop, count(DISTINCT item) AS n FROM fact GROUP BY shop")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT shop, count(DISTINCT item) AS n FROM fact WHERE amount > 3 GROUP BY shop",  # a test: the rows are fewer
        "SELECT shop, count(DISTINCT item + 1) AS n FROM fact GROUP BY shop",  # a computed value, which may fail
    ],
)
def test_what_is_not_a_copy_stays(query: str) -> None:
    program = program_of(query)
    assert drop_copies(program, ["v"]).definitions_of("v.distinct1") == program.definitions_of("v.distinct1")


def test_a_target_stays() -> None:
    program = program_of(TOP.format(test="place <= 3"))
    assert drop_copies(program, ["v", "v.window1"]).definitions_of("v.rank1") == program.definitions_of("v.rank1")
    again = drop_copies(program, ["v", "v.rank1"])
    assert "v.rank1.first(3)" not in bound_windows(again, ["v", "v.rank1"]).relations


QUERIES = (
    TOP.format(test="place <= 2"),
    TOP.format(test="place = 2"),
    "SELECT shop, count(DISTINCT item) AS n FROM fact GROUP BY shop",
    "SELECT k, n FROM (SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY n) AS place FROM bag) WHERE place < 3",
    "SELECT shop, place FROM (SELECT shop, row_number() OVER (ORDER BY amount, id) AS place FROM fact) WHERE place <= 2",
    "SELECT id, amount - lag(amount) OVER (PARTITION BY shop ORDER BY id) AS step FROM fact",
    "SELECT id, rank() OVER (PARTITION BY shop ORDER BY amount) AS r FROM fact",
)


@pytest.mark.parametrize("query", QUERIES)
def test_views_are_those_of_the_same_rows_from_scratch(query: str) -> None:
    changes = [
        "INSERT INTO fact VALUES (1, 1, 1, 5), (2, 1, 1, 7), (3, 2, 1, 7), (4, 2, 2, 1), (5, NULL, NULL, NULL), (6, 3, 1, 2)",
        "INSERT INTO bag VALUES (1, 1), (1, 1), (1, 2), (2, NULL), (2, 5), (NULL, 4)",
        "UPDATE fact SET amount = 9 - amount WHERE id <> 3",
        "DELETE FROM fact WHERE id = 2",
        "DELETE FROM bag WHERE n = 1",
        "UPDATE fact SET shop = 1, item = 1",
        "INSERT INTO fact VALUES (7, 1, 2, 100), (8, 1, 1, 100)",
        "DELETE FROM fact WHERE shop = 1",
    ]
    with rederive.open() as db:
        db.sql(f"{TABLES} CREATE VIEW v AS {query};")
        for i, change in enumerate(changes, 1):
            db.sql(change)
            with rederive.open() as fresh:
                fresh.sql(TABLES)
                for one in changes[:i]:
                    fresh.sql(one)
                assert sorted(map(repr, db.rows("v"))) == sorted(map(repr, fresh.query(query))), change


def test_what_is_put_into_a_reader_still_explains_its_rows() -> None:
    with rederive.open() as db:
        db.sql(f"{TABLES} CREATE VIEW v AS {TOP.format(test='place <= 1')};")
        db.sql("INSERT INTO fact VALUES (1, 1, 1, 5), (2, 1, 1, 7)")
        assert "fact(2, 1, 1, 7)" in str(db.why("v", (1, 2, 7)))
        assert str(db.why_not("v", (1, 1, 5)))
