"""`rederive run` with active rules: firings are printed, and `--actions` brings the functions."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli, Write

PROGRAM = """
CREATE TABLE quantity (item STRING PRIMARY KEY, n INT NOT NULL);
CREATE RULE low WHEN SELECT item, n FROM quantity WHERE n < 140 DO CALL order(item, 5000 - n);
INSERT INTO quantity VALUES ('bolt', 5000);
UPDATE quantity SET n = 139;
UPDATE quantity SET n = 130;
"""
ACTIONS = """
from pathlib import Path

def order(rows, new):
    with Path("orders.txt").open("a") as file:
        file.write(f"{rows} {new.rows('quantity')}\\n")

def _helper(rows):
    raise AssertionError
"""


def test_firings_are_printed_and_functions_are_called(cli: Cli, write: Write) -> None:
    ran = cli("run", write("stock.sql", PROGRAM), "--actions", write("actions.py", ACTIONS))
    assert (ran.code, ran.err) == (0, "")
    fired = [line for line in ran.lines if "rule" in line]
    assert fired == [
        {"version": 2, "rule": "low", "action": "call", "plus": [["bolt", 139]], "minus": []},
        {"version": 3, "rule": "low", "action": "call", "plus": [["bolt", 130]], "minus": []},
    ]
    assert Path("orders.txt").read_text() == "[('bolt', 4861)] [('bolt', 139)]\n[('bolt', 4870)] [('bolt', 130)]\n"


def test_functions_that_are_missing_or_cannot_be_loaded(cli: Cli, write: Write) -> None:
    path = write("stock.sql", PROGRAM)
    missing = cli("run", path).err
    assert "unknown function 'order'" in missing
    assert "help: register it with db.rules.register, or name its file: rederive run --actions FILE" in missing
    assert "unknown function 'order'" in cli("run", path, "--actions", write("other.py", "def buy(rows): pass")).err
    assert (
        "broken.py: error[malformed]: the actions cannot be loaded: NameError"
        in cli("run", path, "--actions", write("broken.py", "nothing_here()")).err
    )
    assert "the actions cannot be read" in cli("run", path, "--actions", "none.py").err
