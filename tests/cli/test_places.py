"""Every command takes the same names of a folder: paths and `file:` addresses are local, other addresses are refused."""

from __future__ import annotations

from pathlib import Path

import rederive
from tests.cli.conftest import Cli, Write
from tests.cli.test_bad_input import refused


def test_every_command_finds_the_store_under_its_address(cli: Cli, write: Write, tmp_path: Path) -> None:
    """Before this, `.input` was read again where the store was named by an address: a deleted row came back."""
    program = write("p.dl", ".decl edge(x: number, y: number)  .input edge  .decl v(x: number)  v(x) :- edge(x, y).")
    write("edge.facts", "1\t2\n3\t4\n")
    changes = write("changes.jsonl", '{"delete": {"edge": [[1, 2]]}}\n')
    store, copy, restored = ((tmp_path / name).as_uri() for name in ("a b", "copy", "c d"))
    assert cli("run", program, "--store", store, "--changes", changes).code == 0
    assert cli("run", program, "--store", store).out == ""
    assert cli("log", store).lines[-1]["minus"] == [[1]]
    assert cli("backup", store, copy).code == 0
    assert cli("restore", copy, restored).code == 0
    with rederive.open("c d") as db:
        assert db.rows("edge") == [(3, 4)]


def test_addresses_are_refused_and_nothing_is_made(cli: Cli, write: Write, closure: str, tmp_path: Path) -> None:
    rederive.open("store").close()
    before = {path.name for path in tmp_path.iterdir()}
    for arguments in (("backup", "store", "s3a://bucket/x"), ("restore", "store", "s3a://bucket/x"), ("restore", "dbfs:/x", "y")):
        refused(cli(*arguments), "place", "needs a local folder")
    refused(cli("stream", closure, "--lake", "s3a://bucket/x", "--changes", "in"), "place", "needs a folder for its store")
    assert {path.name for path in tmp_path.iterdir()} == before
