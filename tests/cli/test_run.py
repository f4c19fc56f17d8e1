"""`rederive run`: base data in, exact changes out. Its output format is a contract with other tools."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import CLOSURE, Cli, Write

UPDATE = '{"insert": {"edge": [["h","d"]]}, "delete": {"edge": [["b","c"]]}}\n'
ISSUE_LINE = (
    '{"version": 2, "view": "closure", "plus": [["h","c"],["h","d"],["h","g"]], '
    '"minus": [["a","c"],["a","g"],["b","c"],["b","g"]]}\n'
)
MIRROR = ".decl t({columns}) .decl v({columns}) v({names}) :- t({names})."
TWO_EDGES = '{"version": 1, "view": "closure", "plus": [["a","b"],["a","c"],["b","c"]], "minus": []}\n'


def mirror(*types: str) -> str:
    """A view that is its base relation."""
    names = [f"c{i}" for i in range(len(types))]
    return MIRROR.format(columns=", ".join(map("{}: {}".format, names, types)), names=", ".join(names))


@pytest.mark.parametrize("strategy", ["auto", "recompute", "materialized"])
def test_the_line_of_the_issue(cli: Cli, closure: str, strategy: str) -> None:
    ran = cli("run", closure, "--base", "edge=edge.csv", "--changes", "-", "--strategy", strategy, "--no-initial", stdin=UPDATE)
    assert (ran.code, ran.out, ran.err) == (0, ISSUE_LINE, "")


# Base data


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("e.facts", "a\tb\nb\tc\n"),
        ("e.facts", "a\tb\r\nb\tc\r\n"),
        ("e.facts", "a\tb\nb\tc"),
        ("e.csv", "x,y\na,b\nb,c\n"),
        ("e.csv", "y,x\nb,a\nc,b\n"),
        ("e.csv", 'x,y\n"a",b\nb,"c"\n'),
        ("e.jsonl", '["a","b"]\n{"y": "c", "x": "b"}\n'),
        ("e.facts.gz", gzip.compress(b"a\tb\nb\tc\n", mtime=0)),
        ("e.csv.gz", gzip.compress(b"x,y\na,b\nb,c\n", mtime=0)),
        ("e.jsonl.gz", gzip.compress(b'["a","b"]\n["b","c"]\n', mtime=0)),
    ],
)
def test_every_format_of_base_data(cli: Cli, closure: str, write: Write, name: str, content: str | bytes) -> None:
    ran = cli("run", closure, "--base", f"edge={write(name, content)}")
    assert (ran.code, ran.out, ran.err) == (0, TWO_EDGES, "")


def test_parquet(cli: Cli, closure: str) -> None:
    pq.write_table(pa.table({"y": ["b", "c"], "x": ["a", "b"]}), Path("e.parquet"))
    assert cli("run", closure, "--base", "edge=e.parquet").out == TWO_EDGES


def test_several_files_for_one_relation_add_up(cli: Cli, closure: str, write: Write) -> None:
    one, two = write("one.csv", "x,y\na,b\n"), write("two.facts", "b\tc\na\tb\n")
    assert cli("run", closure, "--base", f"edge={one}", "--base", f"edge={two}").out == TWO_EDGES


def test_base_takes_the_place_of_the_facts_file(cli: Cli, closure: str, write: Write) -> None:
    path = write("e.csv", "x,y\na,b\nb,c\n")
    assert cli("run", closure, "--facts", ".", "--base", f"edge={path}").out == TWO_EDGES


def test_facts_reads_every_input_relation(cli: Cli, closure: str) -> None:
    assert cli("run", closure, "--facts", ".", "--no-initial", "--changes", "-", stdin=UPDATE).out == ISSUE_LINE


def test_with_facts_a_missing_file_is_an_error(cli: Cli, closure: str) -> None:
    Path("edge.facts").unlink()
    ran = cli("run", closure, "--facts", ".")
    assert (ran.code, ran.out) == (2, "")
    assert "edge.facts: error[missing_file]" in ran.err


# Without --facts, files are looked for in the folder of the program and then in the working directory.


def test_an_input_file_beside_the_program_is_read(cli: Cli, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("programs").mkdir()
    path = write("programs/closure.dl", CLOSURE)
    write("programs/edge.facts", "a\tb\nb\tc\n")
    write("edge.facts", "x\ty\n")
    assert cli("run", path, "--initial").out == TWO_EDGES
    assert len(cli("query", path, "closure(x, y)").lines) == 3
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert cli("run", "../programs/closure.dl", "--initial").out == TWO_EDGES


def test_an_input_file_in_the_working_directory_is_read(cli: Cli, write: Write) -> None:
    Path("programs").mkdir()
    path = write("programs/closure.dl", CLOSURE)
    write("edge.facts", "a\tb\nb\tc\n")
    assert cli("run", path, "--initial").out == TWO_EDGES
    assert cli("run", path, "--base", f"edge={write('none.csv', 'x,y')}", "--initial").out == ""


@pytest.mark.parametrize("command", ["run", "query"])
def test_an_input_file_that_is_nowhere_is_an_error(cli: Cli, write: Write, command: str) -> None:
    Path("programs").mkdir()
    path = write("programs/closure.dl", CLOSURE)
    ran = cli(command, path, *(["edge(x, y)"] if command == "query" else []))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"{path}:5:8: error[missing_file]: there is no edge.facts for .input edge in ")
    assert str(Path("programs").resolve()) in ran.err
    assert str(Path().resolve()) in ran.err.replace(str(Path("programs").resolve()), "")
    assert "--facts" in ran.err


def test_what_evaluates_nothing_reads_no_input_file(cli: Cli, write: Write) -> None:
    path = write("closure.dl", CLOSURE)
    assert (cli("check", path).code, cli("explain", path).code) == (0, 0)


def test_two_directives_for_one_relation_are_both_read(cli: Cli, write: Write) -> None:
    """Found: the second one was dropped."""
    path = write("p.dl", CLOSURE + '.input edge(filename="more.csv")\n')
    write("edge.facts", "a\tb\n")
    write("more.csv", "x,y\nb,c\n")
    assert cli("run", path, "--initial").out == TWO_EDGES
    assert cli("run", path, "--facts", ".", "--initial").out == TWO_EDGES


def test_keys_hold_across_the_files_of_one_relation(cli: Cli, write: Write) -> None:
    path = write("p.dl", '.decl e(k: number, v: number) key(k)\n.input e\n.input e(filename="f.facts")\n')
    write("e.facts", "1\t2\n")
    write("f.facts", "1\t3\n")
    assert "error[duplicate_key]" in cli("run", path).err


def test_a_store_reads_an_input_file_once(cli: Cli, write: Write) -> None:
    path = write("closure.dl", CLOSURE)
    write("edge.facts", "a\tb\nb\tc\n")
    cli("run", path, "--store", "s")
    ran = cli("run", path, "--store", "s", "--changes", "-", stdin='{"delete": {"edge": [["b","c"]]}}')
    assert ran.code == 0
    assert ran.lines[-1]["minus"] == [["a", "c"], ["b", "c"]]
    Path("edge.facts").unlink()
    assert cli("run", path, "--store", "s").code == 0
    more = write("more.dl", CLOSURE + ".decl node(x: symbol)\n.input node\n")
    assert "there is no node.facts for .input node" in cli("run", more, "--store", "s").err


@pytest.mark.parametrize(
    ("directive", "says"),
    [
        (".output closure(IO=file)", "'IO=file' of .output"),
        ('.output closure(filename="x.csv")', "'filename=x.csv' of .output"),
        ('.output closure(IO=stdout, delimiter=",")', "'delimiter=,' of .output"),
        (".input edge(headers=maybe)", "unknown headers 'maybe'"),
        ('.input edge(filename="a", filename="b")', "the option 'filename' is given twice"),
        (".input edge(compress=true)", "unknown option 'compress'"),
    ],
)
def test_options_of_directives_are_honoured_or_refused(cli: Cli, write: Write, directive: str, says: str) -> None:
    ran = cli("check", write("p.dl", f"{CLOSURE}{directive}\n"))
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "p.dl:7:" in ran.err


def test_output_to_standard_output_is_what_run_does(cli: Cli, write: Write) -> None:
    assert cli("check", write("p.dl", f"{CLOSURE}.output closure(IO=stdout)\n")).code == 0


def test_facts_of_the_program_are_initial_rows(cli: Cli, write: Write) -> None:
    path = write("p.dl", '.decl e(x: symbol) .decl v(x: symbol) v(x) :- e(x). e("a").')
    ran = cli("run", path, "--changes", "-", stdin='{"delete": {"e": [["a"]]}}')
    assert ran.out == (
        '{"version": 1, "view": "v", "plus": [["a"]], "minus": []}\n{"version": 2, "view": "v", "plus": [], "minus": [["a"]]}\n'
    )


def test_facts_of_a_view_stay(cli: Cli, write: Write) -> None:
    path = write("p.dl", '.decl e(x: symbol) .decl v(x: symbol) v(x) :- e(x). v("a"). e("a").')
    ran = cli("run", path, "--changes", "-", stdin='{"delete": {"e": [["a"]]}}')
    assert [(line["version"], line["plus"]) for line in ran.lines] == [(1, [["a"]])]


# Versions


def test_every_change_line_is_a_version(cli: Cli, closure: str) -> None:
    lines = [
        "{}",
        '{"insert": {}, "delete": {}}',
        '{"insert": {"edge": []}}',
        '{"insert": {"edge": [["a","b"]]}}',
        '{"delete": {"edge": [["x","y"]]}}',
        '{"insert": {"edge": [["g","z"]]}, "delete": {"edge": [["a","b"]]}}',
        '{"insert": {"edge": [["a","b"]]}}',
    ]
    ran = cli("run", closure, "--facts", ".", "--changes", "-", stdin="\n".join(lines))
    assert [line["version"] for line in ran.lines] == [1, 7, 8]


def test_a_blank_line_is_no_version(cli: Cli, write: Write) -> None:
    path = write("p.dl", CLOSURE.replace(".input edge\n", ""))
    ran = cli(
        "run", path, "--changes", "-", stdin='\n{"insert": {"edge": [["a","b"]]}}\r\n  \n{"delete": {"edge": [["a","b"]]}}\n'
    )
    assert [line["version"] for line in ran.lines] == [1, 2]


def test_delete_and_insert_of_one_row_in_one_line_change_nothing(cli: Cli, closure: str) -> None:
    change = '{"delete": {"edge": [["a","b"]]}, "insert": {"edge": [["a","b"]]}}'
    ran = cli("run", closure, "--facts", ".", "--changes", "-", stdin=change)
    assert [line["version"] for line in ran.lines] == [1]


def test_a_version_has_a_line_for_each_view_that_changed(cli: Cli, write: Write) -> None:
    text = (
        ".decl e(x: number) .decl even(x: number) .decl odd(x: number)\neven(x) :- e(x), x % 2 = 0.\nodd(x) :- e(x), x % 2 = 1."
    )
    changes = '{"insert": {"e": [[1],[2]]}}\n{"insert": {"e": [[3]]}, "delete": {"e": [[1]]}}\n'
    ran = cli("run", write("p.dl", text), "--changes", "-", stdin=changes)
    assert [(line["version"], line["view"], line["plus"], line["minus"]) for line in ran.lines] == [
        (1, "even", [[2]], []),
        (1, "odd", [[1]], []),
        (2, "odd", [[3]], [[1]]),
    ]


def test_output_relations_alone_are_printed(cli: Cli, write: Write) -> None:
    text = ".decl e(x: number) .decl v(x: number) .decl w(x: number) v(x) :- e(x). w(x) :- v(x). .output w"
    ran = cli("run", write("p.dl", text), "--changes", "-", stdin='{"insert": {"e": [[1]]}}')
    assert [line["view"] for line in ran.lines] == ["w"]


def test_an_output_may_be_a_base_relation(cli: Cli, write: Write) -> None:
    ran = cli(
        "run",
        write("p.dl", ".decl e(x: number) .output e e(7)."),
        "--changes",
        "-",
        stdin='{"insert": {"e": [[1],[7]]}}',
    )
    assert [(line["version"], line["plus"]) for line in ran.lines] == [(1, [[7]]), (2, [[1]])]


def test_rows_by_column_name_and_upserts(cli: Cli, write: Write) -> None:
    text = ".decl s(i: symbol, n: number) key(i) .decl v(i: symbol, n: number) v(i, n) :- s(i, n)."
    changes = '{"insert": {"s": [{"n": 1, "i": "a"}]}}\n{"upsert": {"s": [["a", 2]]}}\n{"upsert": {"s": [["a", 2]]}}\n'
    ran = cli("run", write("p.dl", text), "--changes", "-", stdin=changes)
    assert [(line["version"], line["plus"], line["minus"]) for line in ran.lines] == [
        (1, [["a", 1]], []),
        (2, [["a", 2]], [["a", 1]]),
    ]


def test_changes_may_be_compressed(cli: Cli, closure: str, write: Write) -> None:
    path = write("changes.jsonl.gz", gzip.compress(UPDATE.encode()))
    assert cli("run", closure, "--facts", ".", "--no-initial", "--changes", path).out == ISSUE_LINE


def test_what_is_printed_accumulates_to_the_views(cli: Cli, write: Write) -> None:
    """Rows that facts, constants and empty tables give a view are printed like all others."""
    program = write("p.sql", "CREATE TABLE t (a INT); CREATE VIEW n AS SELECT count(*) AS n FROM t;")
    other = write("q.sql", "CREATE VIEW u AS SELECT a FROM t UNION ALL SELECT 99; INSERT INTO t VALUES (1);")
    lines = [(line["version"], line["view"], line["plus"], line["minus"]) for line in cli("run", program, other).lines]
    first: list[tuple[int, str, list[list[int]], list[list[int]]]] = [(1, "n", [[0]], []), (1, "u", [[99]], [])]
    assert lines == [*first, (2, "n", [[1]], [[0]]), (2, "u", [[1]], [])]
    rest = cli("run", program, other, "--no-initial").lines
    assert [line["version"] for line in rest] == [2, 2]
    rows = write("t.csv", "a\n5\n5\n")
    loaded = [(line["version"], line["plus"]) for line in cli("run", program, other, "--base", f"t={rows}").lines]
    assert loaded == [(1, [[2]]), (1, [[5], [99]]), (2, [[3]]), (2, [[1]])]


def test_rules_among_the_definitions_of_a_script(cli: Cli, write: Write) -> None:
    """They run behind the definitions and the initial rows, which fire nothing."""
    text = (
        "CREATE TABLE t (a INT); CREATE TABLE log (a INT);"
        "CREATE RULE noted WHEN SELECT a FROM t WHERE a > 4 DO INSERT INTO log SELECT a FROM firing;"
        "CREATE VIEW v AS SELECT a FROM log; INSERT INTO t VALUES (7);"
    )
    ran = cli("run", write("p.sql", text), "--base", f"t={write('t.csv', 'a' + chr(10) + '5' + chr(10))}")
    lines = [(line["version"], line.get("view"), line.get("rule"), line["plus"]) for line in ran.lines]
    assert lines == [(2, "v", None, [[7]]), (2, None, "noted", [[7]])]


# Values and order


@pytest.mark.parametrize(
    ("type_", "rows", "printed"),
    [
        ("symbol", '["b"],["é"],["a"],["B"],[""],["💥"],["10"],["9"]', '[""],["10"],["9"],["B"],["a"],["b"],["é"],["💥"]'),
        ("symbol", r'["\"\\\n\u0001"]', r'["\"\\\n\u0001"]'),
        (
            "number",
            "[10],[9],[-1],[-9223372036854775808],[9223372036854775807]",
            "[-9223372036854775808],[-1],[9],[10],[9223372036854775807]",
        ),
        ("unsigned", "[18446744073709551615],[0],[9223372036854775808]", "[0],[9223372036854775808],[18446744073709551615]"),
        ("float", "[0.1],[-2.5],[1e300],[3],[1e-7]", "[-2.5],[1e-07],[0.1],[3.0],[1e+300]"),
        ("boolean", "[true],[false]", "[false],[true]"),
        ("decimal(10,2)", '["10.00"],["9.5"],["-0.01"]', '["-0.01"],["9.50"],["10.00"]'),
        ("decimal(38,10)", '["9999999999999999999999999999.0000000001"]', '["9999999999999999999999999999.0000000001"]'),
        ("date", '["2024-02-29"],["0999-12-31"]', '["0999-12-31"],["2024-02-29"]'),
        (
            "timestamp",
            '["2024-02-29T12:30:00.000250"],["2024-02-29T12:30:00"],["2024-02-29T23:30:00-01:00"]',
            '["2024-02-29T12:30:00"],["2024-02-29T12:30:00.000250"],["2024-03-01T00:30:00"]',
        ),
    ],
)
def test_values_are_jsons_own_and_rows_are_sorted(cli: Cli, write: Write, type_: str, rows: str, printed: str) -> None:
    ran = cli(
        "run",
        write("p.dl", mirror(type_)),
        "--changes",
        "-",
        stdin=f'{{"insert": {{"t": [{rows}]}}}}\n{{"delete": {{"t": [{rows}]}}}}',
    )
    assert ran.out == (
        f'{{"version": 1, "view": "v", "plus": [{printed}], "minus": []}}\n'
        f'{{"version": 2, "view": "v", "plus": [], "minus": [{printed}]}}\n'
    )


def test_rows_are_sorted_by_one_column_after_the_other(cli: Cli, write: Write) -> None:
    ran = cli(
        "run", write("p.dl", mirror("symbol", "number")), "--changes", "-", stdin='{"insert": {"t": [["b",1],["a",10],["a",9]]}}'
    )
    assert ran.lines[0]["plus"] == [["a", 9], ["a", 10], ["b", 1]]


def test_a_relation_without_columns(cli: Cli, write: Write) -> None:
    text = ".decl e(x: symbol) .decl some() some() :- e(_)."
    ran = cli("run", write("p.dl", text), "--changes", "-", stdin='{"insert": {"e": [["a"]]}}\n{"delete": {"e": [["a"]]}}')
    assert [(line["plus"], line["minus"]) for line in ran.lines] == [([[]], []), ([], [[]])]


def test_a_computed_float_that_is_not_finite_is_a_text(cli: Cli, write: Write) -> None:
    """JSON has no Infinity."""
    path = write("p.dl", ".decl t(x: float) .decl v(x: float)\nv(x * 10.0) :- t(x).")
    ran = cli("run", path, "--changes", "-", stdin='{"insert": {"t": [[1e308]]}}')
    assert [line["plus"] for line in ran.lines] == [[["Infinity"]]]


@pytest.mark.parametrize(
    ("rules", "value", "printed"),
    [
        (".decl v(x: float) v(to_float(s)) :- t(s).", "inf", "Infinity"),
        (".decl v(x: float) v(to_float(s)) :- t(s).", "nan", "NaN"),
        (".decl v(x: float) v(to_float(s)) :- t(s).", "x", None),
        (".decl v(x: number) v(to_number(s)) :- t(s).", "1_000", None),
        (".decl v(x: number) v(to_number(s)) :- t(s).", "-7", -7),
        (".decl v(x: timestamp) v(to_timestamp(s)) :- t(s).", "2024-02-29T12:30:00+01:00", "2024-02-29T11:30:00"),
        (".decl v(x: date) v(to_date(s)) :- t(s).", "20240229", None),
    ],
)
def test_conversions_read_text_as_files_do(cli: Cli, write: Write, rules: str, value: str, printed: object) -> None:
    ran = cli(
        "run", write("p.dl", f".decl t(s: symbol) {rules}"), "--changes", "-", stdin=json.dumps({"insert": {"t": [[value]]}})
    )
    if printed is None:
        assert (ran.code, ran.out) == (2, "")
        assert "error[evaluation]" in ran.err
    else:
        assert ran.lines[0]["plus"] == [[printed]]


def test_wide_decimals_add_exactly(cli: Cli, write: Write) -> None:
    path = write("p.dl", ".decl t(x: decimal(38,10)) .decl v(x: decimal(38,10)) v(x + x) :- t(x).")
    ran = cli("run", path, "--changes", "-", stdin='{"insert": {"t": [["1999999999999999999999999999.0000000001"]]}}')
    assert ran.lines[0]["plus"] == [["3999999999999999999999999998.0000000002"]]


# Statistics


def test_stats(cli: Cli, closure: str) -> None:
    ran = cli("run", closure, "--facts", ".", "--changes", "-", "--stats", "stats.json", stdin="{}\n" + UPDATE)
    assert ran.code == 0
    stats = json.loads(Path("stats.json").read_text())
    assert stats["engine"] == "resident"
    assert stats["strategy"] == "auto"
    assert [version["version"] for version in stats["versions"]] == [1, 2, 3]
    assert all(version["seconds"] >= 0 for version in stats["versions"])
    initial, idle, update = (version["touched"] for version in stats["versions"])
    assert initial >= 16  # the pairs of the closure
    assert idle == 0
    assert update >= 7  # the rows that entered and left
    assert 2**20 < stats["peak_memory_bytes"] < 2**40


def test_stats_name_strategy_and_engine(cli: Cli, closure: str) -> None:
    cli("run", closure, "--strategy", "recompute", "--engine", "resident", "--stats", "stats.json")
    stats = json.loads(Path("stats.json").read_text())
    assert (stats["engine"], stats["strategy"]) == ("resident", "recompute")


def test_a_refused_run_leaves_no_stats(cli: Cli, closure: str) -> None:
    assert cli("run", closure, "--changes", "-", "--stats", "stats.json", stdin="[").code == 2
    assert not Path("stats.json").exists()


# All that stands in `tests/programs`


@pytest.mark.parametrize("folder", sorted((Path(__file__).parents[1] / "programs").iterdir()), ids=lambda folder: folder.name)
def test_program_folders(cli: Cli, folder: Path) -> None:
    ran = cli("run", str(folder / "program.dl"), "--facts", str(folder), "--changes", str(folder / "changes.jsonl"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == [json.loads(line) for line in (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines()]
