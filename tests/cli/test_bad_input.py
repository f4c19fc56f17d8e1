"""What bad input gets: exit code 2, nothing on standard output, and an error with its place, a stable code and what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import CLOSURE, Cli, Ran, Write

GOOD = '{"insert": {"edge": [["g","z"]]}}\n'
STOCK = """.decl stock(item: symbol, n: number) key(item)
.decl each(item: symbol, n: number)
each(item, 100 / n) :- stock(item, n).
"""


def refused(ran: Ran, code: str, *says: str) -> None:
    assert (ran.code, ran.out) == (2, "")
    assert f"error[{code}]: " in ran.err
    for text in says:
        assert text in ran.err
    assert "Traceback" not in ran.err


# Programs. Line 5 is the one at fault.

DECLARATIONS = """.decl edge(x: symbol, y: symbol)
.decl weight(x: symbol, n: number) key(x)
.decl reach(x: symbol, y: symbol)
reach(x, y) :- edge(x, y).
"""
PROGRAMS = [
    ("reach(x, y) :- edge(x, y)", "syntax", 26, ()),
    ("reach(x, y) :- edge(x, y),, edge(y, x).", "syntax", 27, ("','",)),
    ('edge("a", "b).', "syntax", 11, ()),
    ("reach(x, w) :- edge(x, y).", "unsafe", 10, ("'w'",)),
    ("reach(x, y) :- edge(x, y), !edge(y, w).", "unsafe", 37, ("'w'",)),
    ("reach(x, y) :- edge(x, y), n > 3.", "unsafe", 28, ("'n'",)),
    ("reach(x, y) :- edge(x, y), !reach(y, x).", "unstratified", 29, ("reach -> reach", "negation")),
    ("reach(x, y) :- egde(x, y).", "unknown_name", 16, ("'egde'", "did you mean 'edge'?")),
    (".output raech", "unknown_name", 9, ("'raech'", "did you mean 'reach'?")),
    (".input edgee", "unknown_name", 8, ("'edgee'", "did you mean 'edge'?")),
    (".decl cost(item: symbol, n: number) key(itme)", "unknown_name", 41, ("'itme'", "did you mean 'item'?")),
    (".decl p(x: numbr)", "unknown_name", 12, ("'numbr'", "did you mean 'number'?")),
    ("reach(x, y) :- edge(x).", "wrong_arity", 16, ("edge(x)",)),
    ("reach(x) :- edge(x, _).", "wrong_arity", 1, ("reach(x)",)),
    ('edge("a").', "wrong_arity", 1, ('edge("a")',)),
    ("reach(x, y) :- weight(x, y).", "type_clash", None, ("'y'", "number", "symbol")),
    ("reach(x, y) :- edge(x, y), x > 3.", "type_clash", None, ("3",)),
    ('weight("a", "b").', "type_clash", 13, ('"b"', "number")),
    ('weight("a", 9223372036854775808).', "type_clash", 13, ("9223372036854775808",)),
    (".decl edge(x: symbol)", "redefined", 7, ("'edge'",)),
    (".comp C { }", "unsupported", 1, (".comp",)),
    (".type R = [a: number]", "unsupported", None, ("records",)),
    (".functor f(x: number): number", "unsupported", 1, (".functor",)),
    ("edge(x, y) <= edge(x, z) :- y < z.", "unsupported", None, ("subsumption",)),
    (".decl p(x: symbol, y: symbol) choice-domain x", "unsupported", 31, ("choice-domain",)),
    ("reach(x, y) :- edge(x, z), y = @f(z).", "unsupported", 32, ("user-defined functors",)),
]


@pytest.mark.parametrize(("line", "code", "column", "says"), PROGRAMS)
def test_program(cli: Cli, write: Write, line: str, code: str, column: int | None, says: tuple[str, ...]) -> None:
    path = write("p.dl", DECLARATIONS + line)
    at = f"p.dl:5:{column}: error[{code}]" if column is not None else "p.dl:5:"
    refused(cli("check", path), code, at, line, *says)


@pytest.mark.parametrize("command", [("check",), ("explain",), ("run", "--initial"), ("query",)])
def test_every_command_refuses_the_program_alike(cli: Cli, write: Write, command: tuple[str, ...]) -> None:
    path = write("p.dl", DECLARATIONS + "reach(x, w) :- edge(x, y).")
    atom = ("reach(x, y)",) if command == ("query",) else ()
    refused(cli(command[0], path, *atom, *command[1:]), "unsafe", "p.dl:5:10", "reach(x, w) :- edge(x, y).")


def test_all_errors_of_a_program_are_told(cli: Cli, write: Write) -> None:
    ran = cli("check", write("p.dl", DECLARATIONS + 'reach(x, w) :- edge(x, y).\nedge("a").\n'))
    refused(ran, "unsafe", "p.dl:5:10")
    refused(ran, "wrong_arity", "p.dl:6:1")


@pytest.mark.parametrize("command", ["check", "explain", "run"])
def test_unstratified_negation_names_the_cycle(cli: Cli, write: Write, command: str) -> None:
    names = ".decl e(x: symbol) .decl p(x: symbol) .decl q(x: symbol) .decl r(x: symbol)\n"
    text = names + "p(x) :- e(x), !r(x).\nq(x) :- p(x).\nr(x) :- q(x).\n"
    refused(cli(command, write("p.dl", text)), "unstratified", "p.dl:2:16", "p -> q -> r -> p", "!r(x)")


@pytest.mark.parametrize("command", ["check", "explain", "run"])
def test_unstratified_aggregation_names_the_cycle(cli: Cli, write: Write, command: str) -> None:
    text = """.decl e(x: symbol, n: number) .decl p(x: symbol, n: number) .decl q(x: symbol, n: number)
p(x, n) :- e(x, n) ; q(x, n).
q(x, n) :- e(x, _), n = sum m : { p(x, m) }.
"""
    ran = cli(command, write("p.dl", text))
    refused(ran, "unstratified", "p.dl:3:25", "aggregation")
    assert "p -> q -> p" in ran.err or "q -> p -> q" in ran.err


def test_an_aggregate_over_its_own_head(cli: Cli, write: Write) -> None:
    ran = cli("check", write("p.dl", ".decl p(n: number)\np(n) :- n = count : { p(_) }."))
    refused(ran, "unstratified", "p.dl:2:", "p -> p")


def test_a_program_that_is_not_text(cli: Cli, write: Write) -> None:
    refused(cli("check", write("p.dl", b".decl \xff")), "malformed", "p.dl")


# Files


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "missing.dl"), "missing.dl"),
        (("check", "missing.dl"), "missing.dl"),
        (("explain", "missing.dl"), "missing.dl"),
        (("query", "missing.dl", "edge(x, y)"), "missing.dl"),
        (("run", "closure.dl", "--base", "edge=missing.csv"), "missing.csv"),
        (("run", "closure.dl", "--base", "edge=missing.parquet"), "missing.parquet"),
        (("run", "closure.dl", "--changes", "missing.jsonl"), "missing.jsonl"),
        (("run", "closure.dl", "--facts", "missing"), "missing"),
        (("run", "closure.dl", "--facts", "."), "edge.facts"),
        (("query", "closure.dl", "edge(x, y)", "--facts", "."), "edge.facts"),
        (("run", "plain.dl", "--stats", "missing/stats.json"), "missing/stats.json"),
    ],
)
def test_missing_files(cli: Cli, write: Write, arguments: tuple[str, ...], says: str) -> None:
    write("closure.dl", CLOSURE)
    write("plain.dl", CLOSURE.replace(".input edge\n", ""))
    refused(cli(*arguments), "missing_file", f"{says}: ")


@pytest.mark.parametrize(
    ("name", "content", "line", "code", "says"),
    [
        ("e.csv", "x,yy\na,b\n", 1, "unknown_column", ("'yy'",)),
        ("e.csv", "x\na\n", 1, "malformed", ("'y'",)),
        ("e.csv", "x,y\na,b\nc\n", 3, "ill_typed", ("2 columns",)),
        ("e.csv", "x,y\na,b\nc,d,e\n", 3, "ill_typed", ("2 columns",)),
        ("e.csv", 'x,y\na,b\n"c,d\n', 3, "malformed", ()),
        ("e.facts", "a\tb\nc\n", 2, "ill_typed", ("2 columns",)),
        ("e.facts", b"a\tb\n\xff\td\n", 2, "malformed", ("UTF-8",)),
        ("e.jsonl", '["a","b"]\n["c",\n', 2, "malformed", ("JSON",)),
        ("e.jsonl", '["a","b"]\n["c", 1]\n', 2, "ill_typed", ("'y'", "1")),
        ("e.jsonl", '["a","b"]\n{"x": "c", "z": "d"}\n', 2, "unknown_column", ("'z'",)),
        ("e.jsonl", '["a","b"]\n["c", null]\n', 2, "ill_typed", ("'y'", "null")),
    ],
)
def test_base_data(cli: Cli, write: Write, name: str, content: str | bytes, line: int, code: str, says: tuple[str, ...]) -> None:
    ran = cli("run", write("closure.dl", CLOSURE), "--base", f"edge={write(name, content)}", "--initial")
    refused(ran, code, f"{name}:{line}", *says)


@pytest.mark.parametrize(
    ("name", "content"), [("s.csv", "item,n\nbolt,1\nnut,many\n"), ("s.facts", "bolt\t1\nx\t1\nnut\tmany\n")]
)
def test_base_data_of_the_wrong_type(cli: Cli, write: Write, name: str, content: str) -> None:
    refused(
        cli("run", write("p.dl", STOCK), "--base", f"stock={write(name, content)}"), "ill_typed", f"{name}:3", "'n'", '"many"'
    )


def test_broken_archives(cli: Cli, write: Write) -> None:
    path = write("closure.dl", CLOSURE)
    refused(cli("run", path, "--base", f"edge={write('e.csv.gz', b'no gzip')}"), "malformed", "e.csv.gz")
    refused(cli("run", path, "--base", f"edge={write('e.parquet', b'PAR1')}"), "malformed", "e.parquet")


def test_duplicate_keys_in_base_data(cli: Cli, write: Write) -> None:
    write("s.csv", "item,n\nbolt,1\nnut,1\nbolt,2\n")
    ran = cli("run", write("p.dl", STOCK), "--base", "stock=s.csv", "--initial")
    refused(ran, "duplicate_key", "'bolt'", "stock", "s.csv")


def test_the_same_row_twice_is_no_duplicate(cli: Cli, write: Write) -> None:
    write("s.csv", "item,n\nbolt,1\nbolt,1\n")
    ran = cli("run", write("p.dl", STOCK), "--base", "stock=s.csv", "--initial")
    assert ran.lines[0]["plus"] == [["bolt", 100]]


@pytest.mark.parametrize("command", ["check", "run"])
def test_duplicate_keys_among_the_facts_of_a_program(cli: Cli, write: Write, command: str) -> None:
    path = write("p.dl", f'{STOCK}stock("bolt", 1).\nstock("bolt", 2).\n')
    refused(cli(command, path), "duplicate_key", "p.dl:5", "bolt")


@pytest.mark.parametrize(
    ("base", "code", "says"),
    [
        ("closure=e.csv", "not_a_base", "'closure' is a view"),
        ("egde=e.csv", "unknown_relation", "did you mean 'edge'?"),
        ("edge", "malformed", "REL=FILE"),
        ("edge=", "malformed", "REL=FILE"),
        ("edge=e.xml", "malformed", "e.xml"),
    ],
)
def test_base_option(cli: Cli, write: Write, base: str, code: str, says: str) -> None:
    write("e.csv", "x,y\na,b\n")
    write("e.xml", "")
    refused(cli("run", write("closure.dl", CLOSURE), "--base", base), code, says)


# Transactions: a good line before the bad one, and one after it; nothing of them is printed.


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ('{"insert": {"edge": [["a", "b"]}', "malformed", ("changes.jsonl:2:32", "JSON")),
        ("insert", "malformed", ("changes.jsonl:2:1", "JSON")),
        ("[]", "malformed", ("changes.jsonl:2:1", "object")),
        ('{"inserts": {"edge": [["a", "b"]]}}', "malformed", ("changes.jsonl:2:2", "'inserts'", "did you mean 'insert'?")),
        ('{"insert": [["a", "b"]]}', "malformed", ("changes.jsonl:2:2", "'insert'")),
        ('{"insert": {"edge": {"x": "a", "y": "b"}}}', "malformed", ("changes.jsonl:2", "'edge'")),
        ('{"insert": {"edge": []}, "insert": {"edge": []}}', "malformed", ("changes.jsonl:2:26", "'insert'")),
        ('{"insert": {"egde": [["a", "b"]]}}', "unknown_relation", ("changes.jsonl:2", "'egde'", "did you mean 'edge'?")),
        ('{"insert": {"edge": [["a", "b"], ["c"]]}}', "ill_typed", ("changes.jsonl:2", "edge[1]", "2 columns")),
        ('{"insert": {"edge": [["a", "b", "c"]]}}', "ill_typed", ("changes.jsonl:2", "2 columns")),
        ('{"insert": {"edge": ["ab"]}}', "ill_typed", ("changes.jsonl:2", "'ab'")),
        ('{"delete": {"edge": [["a", 7]]}}', "ill_typed", ("changes.jsonl:2", "'y'", "7")),
        ('{"insert": {"edge": [["a", null]]}}', "ill_typed", ("changes.jsonl:2", "'y'", "null")),
        ('{"insert": {"edge": [{"x": "a", "why": "b"}]}}', "unknown_column", ("changes.jsonl:2", "'why'", "y")),
        ('{"insert": {"edge": [{"x": "a"}]}}', "malformed", ("changes.jsonl:2", "'y'")),
        ('{"insert": {"closure": [["a", "b"]]}}', "not_a_base", ("changes.jsonl:2", "'closure' is a view")),
        ('{"delete": {"closure": [["a", "b"]]}}', "not_a_base", ("changes.jsonl:2", "'closure' is a view")),
    ],
)
def test_transactions(cli: Cli, closure: str, write: Write, line: str, code: str, says: tuple[str, ...]) -> None:
    path = write("changes.jsonl", f"{GOOD}{line}\n{GOOD}")
    refused(cli("run", closure, "--facts", ".", "--initial", "--changes", path), code, *says)


def test_a_file_that_ends_in_the_middle_of_a_line(cli: Cli, closure: str) -> None:
    refused(cli("run", closure, "--changes", "-", stdin=GOOD + GOOD[:20]), "malformed", "<stdin>:2:")


@pytest.mark.parametrize("line", ['{"insert": {"stock": [["bolt", 2]]}}', '{"insert": {"stock": [["nut", 1], ["nut", 2]]}}'])
def test_duplicate_keys_in_a_transaction(cli: Cli, write: Write, line: str) -> None:
    changes = write("changes.jsonl", f'{{"insert": {{"stock": [["bolt", 1]]}}}}\n{line}\n')
    refused(cli("run", write("p.dl", STOCK), "--changes", changes), "duplicate_key", "changes.jsonl:2", "stock", "(item)")


# Rules that fail on the data


@pytest.mark.parametrize("strategy", ["recompute", "counting", "materialized"])
def test_division_by_zero_in_the_middle_of_a_sequence(cli: Cli, write: Write, strategy: str) -> None:
    lines = '{"insert": {"stock": [["bolt", 1]]}}\n{"insert": {"stock": [["nut", 0]]}}\n{"insert": {"stock": [["cog", 2]]}}\n'
    ran = cli("run", write("p.dl", STOCK), "--changes", write("changes.jsonl", lines), "--initial", "--strategy", strategy)
    refused(ran, "evaluation", "changes.jsonl:2", "division by zero", "100 / 0")


def test_division_by_zero_names_the_rule_of_the_program(cli: Cli, write: Write) -> None:
    ran = cli("run", write("p.dl", STOCK), "--changes", "-", stdin='{"insert": {"stock": [["nut", 0]]}}')
    refused(ran, "evaluation", "p.dl:3", "each(item, 100 / n) :- stock(item, n).")


def test_division_by_zero_in_the_initial_answer(cli: Cli, write: Write) -> None:
    refused(cli("run", write("p.dl", f'{STOCK}stock("nut", 0).'), "--initial"), "evaluation", "division by zero", "each(")


@pytest.mark.parametrize(
    ("rule", "row", "says"),
    [
        ("v(to_number(s)) :- t(s, _).", '["seven", 1]', "seven"),
        ("v(n * n) :- t(_, n).", '["", 9223372036854775807]', "overflow"),
        ("v(n + 1) :- t(_, n).", '["", 9223372036854775807]', "overflow"),
        ("v(n % (n - n)) :- t(_, n).", '["", 3]', "division by zero"),
        ('v(n) :- t(s, n), match(s, "a").', '["(", 3]', "regular expression"),
        ("v(k) :- k = sum n : { t(_, n) }.", '["a", 9223372036854775807], ["b", 1]', "does not fit"),
    ],
)
def test_what_a_functor_is_not_defined_for(cli: Cli, write: Write, rule: str, row: str, says: str) -> None:
    path = write("p.dl", f".decl t(s: symbol, n: number) .decl v(n: number)\n{rule}")
    refused(cli("run", path, "--changes", "-", stdin=f'{{"insert": {{"t": [{row}]}}}}'), "evaluation", "<stdin>:1", says)


# Recursions that invent values


@pytest.mark.parametrize("strategy", ["recompute", "materialized"])
@pytest.mark.parametrize("option", [("--max-rounds", "50"), ("--max-tuples", "50")])
def test_an_endless_recursion_is_stopped_and_its_rule_named(
    cli: Cli, write: Write, option: tuple[str, str], strategy: str
) -> None:
    path = write("p.dl", ".decl start(x: number) .decl n(x: number)\nn(x) :- start(x).\nn(x + 1) :- n(x).\n")
    ran = cli("run", path, *option, "--strategy", strategy, "--changes", "-", stdin='{}\n{"insert": {"start": [[0]]}}')
    refused(ran, "limit", "<stdin>:2", "x + 1", ":- n(x)")


@pytest.mark.parametrize("option", [("--max-rounds", "50"), ("--max-tuples", "50")])
def test_a_question_about_an_endless_recursion_is_stopped(cli: Cli, write: Write, option: tuple[str, str]) -> None:
    ran = cli("query", write("p.dl", ".decl n(x: number)\nn(0).\nn(x + 1) :- n(x).\n"), "n(-1)", *option)
    refused(ran, "limit", "x + 1", ":- n(x)")


def test_a_question_about_a_value_that_is_computed_ends(cli: Cli, write: Write) -> None:
    """Found: the question for s(3) asked for all numbers below."""
    text = ".decl e(i: number) .decl s(i: number)\ne(1). e(2). e(3).\ns(0).\ns(i) :- s(i - 1), e(i).\n"
    assert cli("query", write("p.dl", text), "s(3)", "--max-rounds", "50").lines == [[3]]


def test_an_endless_recursion_is_stopped_without_being_told(cli: Cli, write: Write) -> None:
    ran = cli("run", write("p.dl", ".decl n(x: number)\nn(0).\nn(x + 1) :- n(x).\n"), "--initial")
    refused(ran, "limit", "x + 1")


def test_the_rule_that_invents_values_is_named_and_no_other(cli: Cli, write: Write) -> None:
    text = ".decl n(x: number)\nn(0).\nn(x) :- n(x), x + 0 < 100.\nn(x + 1) :- n(x).\n"
    ran = cli("run", write("p.dl", text), "--max-rounds", "50")
    refused(ran, "limit", "x + 1")
    assert "x + 0" not in ran.err


def test_a_recursion_within_its_bounds_is_not_stopped(cli: Cli, write: Write) -> None:
    text = ".decl n(x: number)\nn(0).\nn(x + 1) :- n(x), x < 40.\n"
    assert len(cli("run", write("p.dl", text), "--initial", "--max-rounds", "50").lines[0]["plus"]) == 41


def test_a_single_round_cannot_outgrow_the_limit(tmp_path: Path) -> None:
    """The rows square with each round: 65,536 of them fit the limit, and the round after that would find four billion."""
    program = ".decl w(x: number)\nw(1). w(2).\nw((x * 7919 + y * 104729) % 1000000000039) :- w(x), w(y).\n"
    (tmp_path / "p.dl").write_text(program)
    command = [sys.executable, "-m", "rederive.cli.main", "run", "p.dl", "--max-tuples", "70000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"error[limit]" in done.stderr


# Options


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "closure.dl", "--strategy", "countin"), "did you mean 'counting'?"),
        (("explain", "closure.dl", "--strategy", "countin"), "did you mean 'counting'?"),
        (("run", "closure.dl", "--engine", "residen"), "did you mean 'resident'?"),
        (("explain", "closure.dl", "--view", "closur"), "did you mean 'closure'?"),
        (("explain", "closure.dl", "--view", "edge"), "'edge'"),
        (("explain", "closure.dl", "--format", "xml"), "xml"),
        (("run",), "program"),
        (("frobnicate",), "frobnicate"),
        (("run", "closure.dl", "--max-rounds", "0"), "--max-rounds"),
        (("run", "closure.dl", "--nope"), "--nope"),
    ],
)
def test_options(cli: Cli, write: Write, arguments: tuple[str, ...], says: str) -> None:
    write("closure.dl", CLOSURE)
    ran = cli(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("query", "column"),
    [("SELEC x FROM t", 26), ("SELECT x FORM t", 32), ("SELECT x FROM t WEHRE x > 1", 40), ("SELECT x FROM t GRUP BY x", 39)],
)
def test_a_typing_error_in_a_view_of_sql_is_reported_where_it_is(cli: Cli, write: Write, query: str, column: int) -> None:
    path = write("typo.sql", f"CREATE TABLE t (x INT PRIMARY KEY);\nCREATE VIEW v AS {query};\n")
    refused(cli("check", path), "syntax", f"typo.sql:2:{column}: ")


def test_a_row_that_is_not_json_says_how_to_write_one(cli: Cli, closure: str) -> None:
    refused(cli("why", closure, "closure", "a"), "malformed", "help: write the row as an atom")
