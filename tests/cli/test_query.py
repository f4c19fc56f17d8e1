"""`rederive query`: the rows that match, one JSON array a line, in order."""

from __future__ import annotations

import pytest

import rederive
from tests.cli.conftest import Cli, Write

TYPES = """.decl t(n: number, u: unsigned, s: symbol, d: date, b: boolean)
t(10, 18446744073709551615, "a", "2024-02-29", true).
t(9, 9, "é", "2024-03-01", false).
t(-1, 1, "B", "2024-03-01", true).
"""
NINE, TEN, MINUS = (
    '[9,9,"é","2024-03-01",false]\n',
    '[10,18446744073709551615,"a","2024-02-29",true]\n',
    '[-1,1,"B","2024-03-01",true]\n',
)


@pytest.mark.parametrize(
    ("atom", "expected"),
    [
        ('closure("a", y)', '["a","b"]\n["a","c"]\n["a","g"]\n'),
        ('closure(x, "a")', '["e","a"]\n["f","a"]\n'),
        ('closure("a", "g")', '["a","g"]\n'),
        ('closure("a", "g")?', '["a","g"]\n'),
        ('closure("a", "g").', '["a","g"]\n'),
        ('closure("g", _)', ""),
        ('closure("nobody", y)', ""),
        ("closure(x, x)", ""),
        ('edge("e", _)', '["e","a"]\n["e","d"]\n'),
        ("edge(_, _)", '["a","b"]\n["b","c"]\n["c","g"]\n["d","c"]\n["e","a"]\n["e","d"]\n["f","e"]\n'),
    ],
)
def test_closure(cli: Cli, closure: str, atom: str, expected: str) -> None:
    ran = cli("query", closure, atom, "--base", "edge=edge.csv")
    assert (ran.code, ran.out, ran.err) == (0, expected, "")
    assert cli("query", closure, atom, "--facts", ".").out == expected


def test_a_repeated_variable_wants_equal_values(cli: Cli, closure: str, write: Write) -> None:
    write("loop.csv", "x,y\na,b\nb,a\n")
    assert cli("query", closure, "closure(x, x)", "--base", "edge=loop.csv").out == '["a","a"]\n["b","b"]\n'
    assert cli("query", closure, "closure(_, _)", "--base", "edge=loop.csv").out.count("\n") == 4


@pytest.mark.parametrize(
    ("atom", "expected"),
    [
        ("t(-1, _, _, _, _)", MINUS),
        ("t(n, 18446744073709551615, _, _, _)", TEN),
        ('t(_, _, "é", _, _)', NINE),
        ('t(_, _, _, "2024-03-01", _)', MINUS + NINE),
        ("t(_, _, _, _, true)", MINUS + TEN),
        ("t(_, _, _, _, b)", MINUS + NINE + TEN),
        ("t(7, _, _, _, _)", ""),
    ],
)
def test_values_of_every_type(cli: Cli, write: Write, atom: str, expected: str) -> None:
    assert cli("query", write("t.dl", TYPES), atom).out == expected


def test_a_view_that_is_not_monitored(cli: Cli, write: Write) -> None:
    text = '.decl e(x: symbol) .decl v(x: symbol) .decl w(x: symbol) v(x) :- e(x). w(x) :- e(x). .output v e("a").'
    assert cli("query", write("p.dl", text), "w(x)").out == '["a"]\n'


def test_a_relation_without_columns(cli: Cli, write: Write) -> None:
    path = write("p.dl", '.decl e(x: symbol) .decl some() .decl none() some() :- e(_). none() :- e("b"). e("a").')
    assert cli("query", path, "some()").out == "[]\n"
    assert cli("query", path, "none()").out == ""


@pytest.mark.parametrize(
    ("atom", "code", "says"),
    [
        ("closur(x, y)", "unknown_name", "did you mean 'closure'?"),
        ("closure(x)", "wrong_arity", "closure(x)"),
        ("closure(1, y)", "type_clash", ":1:9"),
        ("closure(x, y", "syntax", ":1:13"),
        ("closure", "syntax", "help: write closure(_, _), with constants where values are known"),
        ("closure(x, y), edge(x, y)", "syntax", ":1:14"),
    ],
)
def test_what_is_refused(cli: Cli, closure: str, atom: str, code: str, says: str) -> None:
    ran = cli("query", closure, atom, "--facts", ".")
    assert (ran.code, ran.out) == (2, "")
    assert f"error[{code}]" in ran.err
    assert says in ran.err


def test_a_store_is_asked_while_another_process_has_it(cli: Cli, closure: str) -> None:
    assert cli("run", closure, "--facts", ".", "--store", "kept").code == 0
    with rederive.open("kept") as db, db.transaction() as tx:
        tx.insert("edge", [("g", "z")])
        assert cli("query", "kept", 'closure("c", y)').out == '["c","g"]\n'
    ran = cli("query", "kept", 'closure("c", y)')
    assert (ran.code, ran.out, ran.err) == (0, '["c","g"]\n["c","z"]\n', "")
    assert cli("query", "kept", "SELECT count(*) FROM closure WHERE x = 'c'").out == "[2]\n"


def test_a_folder_without_a_store_and_rows_for_a_store_are_refused(cli: Cli, closure: str) -> None:
    assert "error[not_a_store]" in cli("query", ".", "closure(x, y)").err
    assert cli("run", closure, "--facts", ".", "--store", "kept").code == 0
    assert "initial rows belong to a program" in cli("query", "kept", "closure(x, y)", "--base", "edge=edge.csv").err
