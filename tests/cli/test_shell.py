"""`rederive shell`: piped input, and a real terminal with completion and history."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from tests.cli.conftest import Cli, Write

DATALOG = """.decl edge(x: symbol, y: symbol)
.decl path(x: symbol, y: symbol)
path(x, y) :- edge(x, y).
path(x, y) :- edge(x, z),
  path(z, y).
"""


def table(out: str) -> list[list[str]]:
    """Return the cells of every row of the tables in an output."""
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines() if line.startswith("│")]


def test_rules_of_datalog_line_by_line_and_a_transaction(cli: Cli) -> None:
    ran = cli("shell", stdin=DATALOG + '+edge("a", "b"), +edge("b", "c").\n')
    assert (ran.code, table(ran.out)) == (0, [["+", "a", "b"], ["+", "a", "c"], ["+", "b", "c"]])
    ran = cli("shell", stdin=DATALOG + '+edge("a", "b"), +edge("b", "c").\n-edge("a", "b").\npath(x, "c")?\n')
    assert table(ran.out)[3:] == [["-", "a", "b"], ["-", "a", "c"], ["b", "c"]]


def test_sql_over_several_lines_and_in_one_transaction(cli: Cli) -> None:
    script = """CREATE TABLE t (k INT PRIMARY KEY,
      s STRING);  -- a table
    CREATE VIEW v AS SELECT k FROM t WHERE s = 'a;b';
    BEGIN; INSERT INTO t VALUES (1, 'a;b');
    DELETE FROM t WHERE k = 1; INSERT INTO t VALUES (2, 'a;b'); COMMIT;
    SELECT k, s FROM t;
    """
    ran = cli("shell", stdin=script)
    assert (ran.code, table(ran.out)) == (0, [["+", "2"], ["2", "a;b"]])
    assert ran.out.count("version 1") == 1


def test_both_languages_read_each_other(cli: Cli) -> None:
    script = DATALOG + "CREATE VIEW n AS SELECT x, count(*) AS c FROM path GROUP BY x;\nINSERT INTO edge VALUES ('a', 'b');\n"
    assert table(cli("shell", stdin=script).out) == [["+", "a", "b"], ["+", "a", "1"]]


def test_an_error_is_printed_and_the_session_goes_on(cli: Cli) -> None:
    ran = cli("shell", stdin='.hlep\nnonsense here.\n.decl e(x: symbol)\n+e(x).\n+e("a").\ne(x)?\n')
    assert ran.code == 2
    assert "error[unknown_name]: unknown command '.hlep'" in ran.out
    assert "did you mean '.help'?" in ran.out
    assert "input:1:10: error[syntax]" in ran.out
    assert "error[malformed]: a row has constants alone, not e(x)" in ran.out
    assert table(ran.out) == [["a"]]


def test_the_commands(cli: Cli, write: Write) -> None:
    write("edges.csv", "x,y\na,b\nb,c\n")
    write("more.sql", "CREATE VIEW ends AS SELECT y FROM path; INSERT INTO edge VALUES ('c', 'd')")
    lines = [".load edge edges.csv", ".read more.sql", ".tables", '.why path ["a", "c"]', '.why path ["z", "c"]', ".show edge"]
    ran = cli("shell", stdin=DATALOG + "\n".join([*lines, ".explain ends", ".rules", ".help", ".quit", "path(x, y)?"]))
    assert ran.code == 0
    assert ["view", "ends(y: symbol)"] in table(ran.out)
    assert '  by path(x, y) :- edge(x, z), path(z, y).\n    edge("a", "b")' in ran.out
    assert 'path("z", "c") is not there' in ran.out
    assert ["c", "d"] in table(ran.out)
    assert any(row[0] == ".quit" for row in table(ran.out))
    assert table(ran.out)[-1][0].startswith(".quit"), "nothing is run after .quit"


def test_why_takes_a_row_in_both_forms(cli: Cli) -> None:
    facts = DATALOG + '+edge("a[b", "b(").\n'
    forms = ['path("a[b", "b(")', 'path("a[b", "b(").', 'path("a[b", "b(")?', 'path ["a[b", "b("]', 'path["a[b", "b("];']
    outputs = [cli("shell", stdin=f"{facts}.why {form}\n") for form in forms]
    assert {one.code for one in outputs} == {0}
    assert all(one.out.endswith('edge("a[b", "b(")\n') for one in outputs)
    assert "a row has constants alone" in cli("shell", stdin=DATALOG + ".why path(x, y)\n").out


def test_words_of_other_prompts(cli: Cli) -> None:
    for word in ("quit", "exit;", "\\q", "QUIT"):
        assert cli("shell", stdin=f"{word}\nnonsense.\n").code == 0, "the session has ended"
    assert [".quit", "end; also Ctrl-D"] in table(cli("shell", stdin="help\n").out)
    assert ["base", "edge(x: symbol, y: symbol)"] in table(cli("shell", stdin=DATALOG + "\\d\n.tables;\n").out)


def test_a_misspelt_statement_ends_with_its_semicolon(cli: Cli) -> None:
    ran = cli("shell", stdin="SELEC 1 FROM t;\nVALUES (1), (2);\nUSE other;\n")
    assert ran.code == 2
    assert ran.out.count("error[") == 2
    assert "input:1:" in ran.out
    assert "a database has one schema" in ran.out
    assert table(ran.out) == [["1"], ["2"]]


def test_a_store_keeps_what_was_typed(cli: Cli, write: Write) -> None:
    program = write("p.dl", DATALOG)
    assert cli("shell", program, "--store", "kept", stdin='+edge("a", "b").\n').code == 0
    ran = cli("shell", program, "--store", "kept", stdin="path(x, y)?\n")
    assert table(ran.out) == [["a", "b"]]


class Terminal:
    """`rederive shell` in a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        self.master, child = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(folder), "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "100"}
        command = [sys.executable, "-m", "rederive", "shell"]
        self.process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=env, cwd=folder, close_fds=True)
        os.close(child)
        self.seen = ""
        self.wait_for("rederive>")

    def wait_for(self, text: str, seconds: float = 30) -> str:
        """Read until the screen has shown a text; what was shown up to then."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} is not in {self.seen!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                shown = os.read(self.master, 65536).decode(errors="replace")
                self.seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
        found, _, self.seen = self.seen.partition(text)
        return found + text

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.master, keys.encode())

    def answer(self, keys: str, *shown: str) -> None:
        """Press keys, and wait for what is shown and for the next prompt: until then the terminal takes no keys."""
        self.type(keys)
        for text in (*shown, "rederive>"):
            self.wait_for(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def end(self) -> int:
        """Press Ctrl-D, and wait for the end. A key that comes before the prompt is lost."""
        for _ in range(60):
            self.type("\x04")
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(timeout=0.5)
        raise AssertionError("the shell does not end")


def test_a_terminal_completes_and_remembers(tmp_path: Path) -> None:
    with Terminal(tmp_path) as first:
        first.answer("CREATE TABLE stock (item STRING PRIMARY KEY, n INT);\r", "ok")
        # Tab completes a name of the program. Enter begins a line as long as the statement has no end.
        first.type("INSERT INTO sto\t")
        first.wait_for("ock")
        first.type(" VALUES\r")
        first.wait_for("...>")
        first.answer("('bolt', 3);\r", "version 1")
        first.type(".ta\t")
        first.wait_for("bles")
        first.answer("\r", "stock(item: symbol, n: number)")
        first.answer("SELECT item FROM stock WHERE n > 2;\r", "bolt", "1 row")
        assert first.end() == 0
    with Terminal(tmp_path) as second:
        second.type("\x1b[A")  # up: the last input of the first session
        second.wait_for("SELECT item FROM stock")
        second.answer("\r", "unknown")
        assert second.end() == 0


def test_a_terminal_says_once_what_ends_an_input(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.type("SELECT 1 AS one\r")
        terminal.wait_for("a statement of SQL ends with ;")
        terminal.wait_for("...>")
        terminal.answer(";\r", "1 row")
        terminal.type("SELECT 2 AS two\r")
        terminal.wait_for("...>")
        terminal.type(";\r")
        assert "ends with" not in terminal.wait_for("1 row")
        terminal.wait_for("rederive>")
        terminal.answer(".decl e(x: symbol)\r", "ok")
        terminal.type('e("a")\r')
        terminal.wait_for("Datalog ends with . and a query with ?")
        terminal.answer("?\r", "0 rows")
        assert terminal.end() == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_of_a_shell(shell: str) -> None:
    environment = {"bash": {"COMP_WORDS": "rederive ex", "COMP_CWORD": "1"}, "zsh": {"_TYPER_COMPLETE_ARGS": "rederive ex"}}
    given = environment.get(shell, {"_TYPER_COMPLETE_ARGS": "rederive ex", "_TYPER_COMPLETE_FISH_ACTION": "get-args"})
    env = {**os.environ, **given, "_REDERIVE_COMPLETE": f"complete_{shell}"}
    program = Path(sys.executable).parent / "rederive"
    done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert "explain" in done.stdout, done
