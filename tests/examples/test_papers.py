"""The pages of `examples/papers`: every command and every line of Python has the output that the page shows."""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rederive.cli.main import app

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
FOLDERS = sorted(path.name for path in PAPERS.iterdir() if path.is_dir())


def commands(page: str) -> Iterator[tuple[str, str]]:
    """The commands of the console blocks of a page, each with the output below it."""
    for block in re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def output_of(command: str) -> str:
    """What a command prints, in the current folder."""
    program, *arguments = shlex.split(command)
    if program == "cat":
        return Path(arguments[0]).read_text(encoding="utf-8")
    assert program == "rederive"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(params=FOLDERS)
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of a folder, with a copy of the folder as the current one."""
    shutil.copytree(PAPERS / request.param, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "README.md").read_text(encoding="utf-8")


def test_commands_print_what_the_page_shows(page: str) -> None:
    found = list(commands(page))
    assert found
    for command, output in found:
        assert output_of(command) == output, command


def test_python_prints_what_the_page_shows(page: str) -> None:
    failed, _ = doctest.testfile(str(Path("README.md").resolve()), module_relative=False, report=True)
    assert failed == 0


def test_every_paper_has_a_folder() -> None:
    assert FOLDERS == ["hd94", "hu97", "sj96", "sr"]
