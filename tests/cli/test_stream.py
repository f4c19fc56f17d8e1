"""`rederive stream`: changes on standard output as they are committed, progress and errors on standard error."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession

from tests.cli.conftest import Cli, Write
from tests.cli.test_bad_input import refused


@pytest.fixture
def incoming(write: Write, closure: str) -> str:
    """A folder of two files, in the current folder beside the program."""
    Path("in").mkdir()
    write("in/1.jsonl", '{"insert": {"edge": [["a","b"],["b","c"]]}}\n')
    write("in/2.jsonl", '{"delete": {"edge": [["a","b"]]}}\nnot json\n')
    return "in"


def test_a_folder_of_changes(cli: Cli, write: Write, closure: str, incoming: str, spark: SparkSession) -> None:
    refused(cli("stream", closure, "--store", "s", "--changes", incoming, "--once"), "malformed", "2.jsonl:2:1", "quarantine")
    ran = cli("stream", closure, "--store", "s", "--changes", incoming, "--once", "--on-error", "quarantine")
    assert (ran.code, ran.lines) == (0, [{"version": 1, "view": "closure", "plus": [["b", "c"]], "minus": []}])
    assert "batch 0: version 1, 3 rows, 1 in quarantine" in ran.err
    assert deltalake.DeltaTable("s/quarantine").to_pyarrow_table().column("raw").to_pylist() == ["not json"]
    write("in/3.jsonl", '{"delete": {"edge": [["b","c"]]}}\n')
    again = cli("stream", closure, "--store", "s", "--changes", incoming, "--once")
    assert again.lines == [{"version": 2, "view": "closure", "plus": [], "minus": [["b", "c"]]}]
    assert cli("log", "s").out == ran.out + again.out
    assert cli("stream", closure, "--store", "s", "--changes", incoming, "--once").out == ""


def test_rows_with_operations(cli: Cli, write: Write, closure: str, incoming: str, spark: SparkSession) -> None:
    Path("rows").mkdir()
    file = write("rows/4.csv", "_op,y,x\nI,b,a\n")
    ran = cli("stream", closure, "--store", "s", "--csv", "rows", "--relation", "edge", "--once")
    assert json.loads(ran.out)["plus"] == [["a", "b"]]
    refused(cli("stream", closure, "--store", "s", "--csv", file, "--relation", "edge"), "missing_file", "no such folder")


def test_a_stream_in_a_zone(cli: Cli, write: Write, tmp_path: Path, spark: SparkSession) -> None:
    """The store keeps it, and later starts are in it, whichever zone the running session is in."""
    program = write("p.sql", "CREATE TABLE t (k INT PRIMARY KEY, ts TIMESTAMP); CREATE VIEW v AS SELECT k, hour(ts) AS h FROM t;")
    Path("in").mkdir()
    arguments = ("stream", program, "--store", "s", "--changes", "in", "--once")
    address = ("--store", (tmp_path / "s").as_uri())  # the last one holds
    for number, more in ((1, ("--zone", "Europe/Berlin")), (2, ()), (3, address)):
        write(f"in/{number}.jsonl", f'{{"insert": {{"t": [[{number}, "2026-07-01T12:00:00"]]}}}}\n')
        assert cli(*arguments, *more).lines[-1]["plus"] == [[number, 14]]
    refused(cli(*arguments, "--zone", "UTC"), "mismatch", "zone 'Europe/Berlin', not 'UTC'")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), "malformed", "0 sources"),
        (("--changes", "in", "--csv", "in"), "malformed", "2 sources"),
        (("--changes", "in", "--topic", "t=edge"), "malformed", "--topic is given without --kafka"),
        (("--kafka", "localhost:9092"), "malformed", "--topic"),
        (("--kafka", "localhost:9092", "--topic", "edge"), "malformed", "TOPIC=REL"),
        (("--changes", "in", "--on-error", "skip"), "unknown_option", "'skip'"),
    ],
)
def test_options_that_are_refused(cli: Cli, closure: str, arguments: tuple[str, ...], code: str, words: str) -> None:
    """Before Spark is started."""
    refused(cli("stream", closure, "--store", "s", *arguments), code, words)


def test_sources_that_are_refused(cli: Cli, write: Write, closure: str, incoming: str, spark: SparkSession) -> None:
    def stream(*arguments: str) -> tuple[str, ...]:
        return ("stream", closure, "--store", "s", "--once", *arguments)

    refused(cli(*stream("--changes", "absent")), "missing_file", "absent")
    refused(cli(*stream("--csv", "in")), "malformed", "--relation")
    refused(cli(*stream("--delta", "in", "--relation", "edge")), "not_a_table", "in")
    refused(cli("stream", closure, "--once", "--changes", "in"), "no_store")
    refused(cli("stream", write("bad.dl", ".decl"), "--store", "s", "--changes", "in"), "syntax", "bad.dl")
