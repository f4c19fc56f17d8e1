"""What commands take: programs, folders of stores, addresses of services.

Every command takes the same names of a folder: paths and `file:` addresses are local, other addresses are refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

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


FOLDER, ADDRESS, FILE = "kept", "http://127.0.0.1:1", "closure.dl"
PROGRAMS, STORES, SERVICES = "with a program", "with the folder of a store", "with the address of a service"


@pytest.mark.parametrize("place", [FOLDER, ADDRESS, FILE])
@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        *((name, FILE) for name in ("run", "check", "explain", "advise", "stream", "shell")),
        *((name, FOLDER) for name in ("log", "backup")),
        *((name, ADDRESS) for name in ("watch", "apply")),
    ],
)
def test_a_place_of_the_wrong_kind_is_refused_with_the_commands_for_it(
    cli: Cli, closure: str, command: str, wanted: str, place: str
) -> None:
    rederive.open(FOLDER).close()
    kinds = {FILE: ("a program", "a file", PROGRAMS), FOLDER: ("the folder of a store", "a folder", STORES)}
    kinds[ADDRESS] = ("the address of a service", "an address", SERVICES)
    more = {"backup": ["copy"], "watch": ["closure", "--patience", "0"], "apply": [FILE, "--patience", "0"]}.get(command, [])
    ran = cli(command, place, *more)
    if place == wanted:
        assert "error[place]" not in ran.err
    else:
        _, found, help_ = kinds[place]
        refused(ran, "place", f"{place}: ", f"not {kinds[wanted][0]}, but {found}", help_)


@pytest.mark.parametrize("command", [("query", 'closure("a", y)'), ("why", 'closure("a", "c")')])
def test_a_place_that_does_not_exist_is_refused_with_what_it_may_be(cli: Cli, closure: str, command: tuple[str, str]) -> None:
    name, question = command
    refused(cli(name, "127.0.0.1:8420", question), "missing_file", "the address of a service, such as http://127.0.0.1:8420")


def test_the_store_of_a_project_is_found_in_its_folder(cli: Cli, closure: str, tmp_path: Path) -> None:
    assert cli("run", closure, "--facts", ".", "--store", "project/store").code == 0
    assert cli("query", "project", 'closure("d", y)').out == '["d","c"]\n["d","g"]\n'
    assert cli("log", "project").out == cli("log", "project/store").out != ""
    assert cli("backup", "project", "copy").code == 0
    assert cli("query", (tmp_path / "project").as_uri(), 'closure("d", "c")').out == '["d","c"]\n'
    rederive.open("project/second").close()
    refused(cli("log", "project"), "place", "several stores", "name one of project/second, project/store")
