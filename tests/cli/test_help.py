"""What `--help` says, and how little it imports."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from rederive.cli.main import COMMANDS, load_command
from tests.cli.conftest import Cli

HELP_IMPORTS = """
import sys
from rederive.cli.main import app
app(["--help"], standalone_mode=False)
found = {"rederive.database", "rederive.lang", "lark", "numpy", "pyarrow", "sqlglot", "pyspark"} & sys.modules.keys()
assert not found, found
"""


def test_help_does_not_import_the_engine() -> None:
    done = subprocess.run([sys.executable, "-c", HELP_IMPORTS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help_shows_no_type_of_a_switch(cli: Cli, command: tuple[str, ...]) -> None:
    ran = cli(*command, "--help")
    assert ran.code == 0
    assert "--help" in ran.out
    assert "bool" not in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    """A line of the list is the beginning of the docstring, or a shorter sentence with its first word."""
    loaded, (_, line) = load_command(name), COMMANDS[name]
    assert loaded.name == name
    assert inspect.cleandoc(loaded.help).split()[0].rstrip(",") == line.split()[0]
    assert "Example: `rederive " in loaded.help


def test_a_wrong_command_is_corrected(cli: Cli) -> None:
    ran = cli("explian")
    assert ran.code == 2
    assert "Did you mean 'explain'?" in ran.err
