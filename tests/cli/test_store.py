"""`run --store` keeps a database, `log` prints what it went through."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

import rederive
from tests.cli.conftest import CLOSURE, Cli, Write
from tests.cli.test_bad_input import refused
from tests.properties.test_versions import BASES, QUERIES, applied, texts

FIRST = '{"insert": {"edge": [["h","d"]]}, "delete": {"edge": [["b","c"]]}}\n'
SECOND = '{"delete": {"edge": [["h","d"]]}}\n{}\n{"insert": {"edge": [["b","c"]]}}\n'


@pytest.fixture
def stored(cli: Cli, closure: str) -> str:
    """The store of SJ96's program, at version 2."""
    assert cli("run", closure, "--facts", ".", "--store", "store", "--changes", "-", stdin=FIRST).code == 0
    return "store"


def test_a_store_goes_on(cli: Cli, closure: str, stored: str) -> None:
    one = cli("run", closure, "--facts", ".", "--changes", "-", stdin=FIRST + SECOND)
    rest = cli("run", closure, "--store", stored, "--changes", "-", stdin=SECOND)
    assert [line["version"] for line in rest.lines] == [3, 5]
    assert cli("log", stored).out == one.out
    assert cli("log", stored, "--since", "2").out == rest.out
    assert cli("log", stored, "--since", "5").out == ""


def test_the_log_of_one_view(cli: Cli, write: Write) -> None:
    program = write("p.dl", ".decl n(x: number) .decl odd, big(x: number) odd(x) :- n(x), x % 2 = 1. big(x) :- n(x), x > 9.")
    ran = cli(
        "run", program, "--store", "s", "--changes", "-", stdin='{"insert": {"n": [[1], [10]]}}\n{"insert": {"n": [[11]]}}\n'
    )
    assert [(line["version"], line["view"]) for line in ran.lines] == [(1, "odd"), (1, "big"), (2, "odd"), (2, "big")]
    assert [line["plus"] for line in cli("log", "s", "--view", "big").lines] == [[[10]], [[11]]]
    refused(cli("log", "s", "--view", "bgi"), "unknown_relation", "did you mean 'big'?")
    refused(cli("log", "s", "--view", "n"), "mismatch", "'n'", ".output")


@pytest.mark.parametrize("strategy", ["auto", "on_demand"])
def test_the_log_of_a_store_accumulates_to_its_views(cli: Cli, closure: str, stored: str, strategy: str) -> None:
    assert cli("run", closure, "--store", stored, "--strategy", strategy).out == ""
    rows: set[tuple[str, ...]] = set()
    for line in cli("log", stored, "--since", "0").lines:
        rows = (rows - set(map(tuple, line["minus"]))) | set(map(tuple, line["plus"]))
    with rederive.open(stored) as db:
        assert sorted(rows) == db.rows("closure") != []
        assert db.rows("closure", as_of=0) == []


def test_a_program_that_grows(cli: Cli, write: Write, closure: str, stored: str) -> None:
    more = write("more.dl", f"{CLOSURE}.decl ends(x: symbol)\nends(y) :- closure(_, y), !edge(y, _).\n.output ends\n")
    ran = cli("run", more, "--store", stored, "--changes", "-", stdin=SECOND)
    assert ran.code == 0
    assert [(line["version"], line["view"]) for line in ran.lines] == [(3, "ends"), (4, "closure"), (6, "closure"), (6, "ends")]
    assert ran.lines[0]["plus"] == [["b"], ["g"]]
    assert sorted(cli("log", stored, "--since", "2").out.splitlines()) == sorted(ran.out.splitlines())
    refused(cli("run", closure, "--store", stored), "mismatch", "ends", "closure.dl")


def test_another_program_is_refused(cli: Cli, write: Write, stored: str) -> None:
    other = write("other.dl", CLOSURE.replace("edge(x, z), closure(z, y)", "closure(x, z), edge(z, y)"))
    refused(cli("run", other, "--store", stored, "--changes", "-", stdin=SECOND), "mismatch", "closure(x, y) :- edge(x, z)")
    assert [line["version"] for line in cli("log", stored).lines] == [1, 2]


@pytest.mark.parametrize("source", [("--facts", "."), ("--base", "edge=edge.csv")])
def test_initial_rows_for_a_store_that_has_versions(cli: Cli, closure: str, stored: str, source: tuple[str, str]) -> None:
    """A version like any other: the row that left comes back; where nothing is new there is none."""
    ran = cli("run", closure, "--store", stored, *source)
    assert [(line["version"], line["plus"]) for line in ran.lines] == [(3, [["a", "c"], ["a", "g"], ["b", "c"], ["b", "g"]])]
    assert cli("run", closure, "--store", stored, *source).out == ""
    assert cli("log", stored, "--since", "2").out == ran.out


def test_what_is_refused_before_it_begins_leaves_no_store(cli: Cli, closure: str, write: Write) -> None:
    path = write("changes.jsonl", f'{FIRST}{{"insert": {{"edge": [["a"]]}}}}\n')
    refused(cli("run", closure, "--store", "store", "--changes", path), "ill_typed", "changes.jsonl:2")
    assert not Path("store").exists()


def test_a_failure_half_way_says_what_is_committed(cli: Cli, write: Write) -> None:
    program = write("p.dl", ".decl n(x: number) .decl v(x: number) v(10 / x) :- n(x).")
    changes = '{"insert": {"n": [[1]]}}\n{"insert": {"n": [[2]]}}\n{"insert": {"n": [[0]]}}\n{"insert": {"n": [[5]]}}\n'
    ran = cli("run", program, "--store", "s", "--changes", "-", stdin=changes)
    refused(ran, "evaluation", "<stdin>:3", "versions 1 to 2 are committed: rederive log s --since 0")
    assert [line["plus"] for line in cli("log", "s").lines] == [[[10]], [[5]]]


def test_stores_that_are_none(cli: Cli, closure: str, write: Write) -> None:
    write("file", "mine")
    refused(cli("run", closure, "--store", "file"), "not_a_store", "file", "a store is a folder")
    refused(cli("log", "file"), "place", "not the folder of a store, but a file")
    refused(cli("log", "nowhere"), "not_a_store", "nowhere")
    assert not Path("nowhere").exists()


def test_a_store_in_use_and_versions_that_are_not_there(cli: Cli, closure: str, stored: str) -> None:
    with rederive.open(stored):
        refused(cli("run", closure, "--store", stored), "locked", "process")
        assert len(cli("log", stored).lines) == 2
    refused(cli("log", stored, "--since", "3"), "mismatch", "no version 3")


def test_versions_that_are_gone(cli: Cli, stored: str) -> None:
    with rederive.open(stored, retention=2) as db:
        for name in "uvwxyz":
            with db.transaction() as tx:
                tx.insert("edge", [(name, name)])
    refused(cli("log", stored, "--since", "1"), "expired", "reach back to version 6")
    assert [line["version"] for line in cli("log", stored).lines] == [7, 8]


def test_options_of_another_store(cli: Cli, closure: str, stored: str) -> None:
    refused(cli("run", closure, "--store", stored, "--only", "plus"), "mismatch", "only")


@pytest.mark.parametrize("seed", range(5))
def test_what_run_prints_accumulates_to_the_views(cli: Cli, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    views = [f"CREATE VIEW {view} AS {random.choice(QUERIES[:-1])};" for view in "uvw"]
    changes = [f"INSERT INTO t VALUES ({random.randint(1, 3)}, 9); DELETE FROM t WHERE a = {random.randint(1, 3)};" for _ in "ab"]
    (tmp_path / "p.sql").write_text(BASES + views[0] + changes[0] + views[1] + changes[1] + views[2])
    (tmp_path / "t.csv").write_text("a,b\n1,2\n1,2\n3,9\n")
    folder = str(tmp_path / "store")
    ran = cli("run", str(tmp_path / "p.sql"), "--base", f"t={tmp_path / 't.csv'}", "--store", folder)
    rows: dict[str, Counter[str]] = {}
    for line in ran.lines:
        plus, minus = (list(map(tuple, line[sign])) for sign in ("plus", "minus"))
        rows[line["view"]] = applied(rows.get(line["view"], Counter()), plus, minus, line.get("counts"))
    with rederive.open(folder) as db:
        assert {view: +found for view, found in rows.items() if +found} == {
            view: Counter(texts(db.rows(view))) for view in db.pipeline.state.monitored if db.rows(view)
        }
        assert all(db.rows(view, as_of=0) == [] for view in db.pipeline.state.monitored)
    assert cli("log", folder).out == ran.out
