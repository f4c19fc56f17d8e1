"""Pages of the documentation, run from top to bottom as a reader would.

| block | what is done with it |
|---|---|
| `python` | Executed in the namespace of the page; with `>>>`, as a doctest. What `print(...)  # shown` names must be printed. |
| `sql` | Run in the database `db` of the page; a new one where the page has none. |
| `prolog` | Datalog: all blocks of a page are one program. |
| `console` | Each line after `$ ` is run by a shell, with its input up to END where it has `<<'END'`. The lines below are what |
|  | it prints, in which `...` is anything. A command that ends with `&` runs until the end of the page. |
| `text` | What the `python` block before it prints. |
| `json`, `toml` | Parsed. |
| others | Shown, and not run: diagrams, grammars, HTML. |

A page runs in an empty folder that has `examples`. Whatever a block needs, an earlier block of the page defines. `<!-- needs
Spark -->` marks a block that uses the session `spark`; it runs in the slow tests. `<!-- not run: reason -->` leaves a block
out; the reason is something that a test cannot have, such as a broker.
"""

from __future__ import annotations

import doctest
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rederive

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^\s*print\(.*\)  # (.*?)(?:   .*)?$", re.MULTILINE)
_PORT = "8420"
NEEDS_SPARK = "needs Spark"


@dataclass(frozen=True)
class Block:
    """A fenced block. `note`: the comment before it. `line`: of its first line, for tracebacks."""

    page: Path
    line: int
    language: str
    text: str
    note: str

    @property
    def is_left_out(self) -> bool:
        """Whether a test cannot have what it needs."""
        return self.note.startswith("not run: ")

    @property
    def name(self) -> str:
        """Where it is."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        found.append(Block(page, line, match["language"], match["text"], match["note"] or ""))
    return found


def needs_spark(page: Path) -> bool:
    """Whether a block of the page needs a Spark session."""
    return any(block.note == NEEDS_SPARK for block in blocks(page))


@dataclass
class PageRun:
    """The state of a page while it runs: names, the last printed text, and services that the page started."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    datalog: rederive.Database = field(default_factory=rederive.open)
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    port: str = field(default_factory=lambda: _free_port())

    def run(self, block: Block) -> None:
        """Run one block; an assertion or an error names its place."""
        kinds: dict[str, Callable[[Block, str], None]] = {
            "python": self._python,
            "sql": self._sql,
            "prolog": self._datalog,
            "console": self._console,
            "text": self._text,
            "json": self._json,
            "toml": self._toml,
        }
        if block.language in kinds and not block.is_left_out:
            # Another process may have the port of the documentation.
            kinds[block.language](block, block.text.replace(_PORT, self.port))

    def _python(self, block: Block, text: str) -> None:
        output = io.StringIO()
        if text.startswith(">>> "):
            runner = doctest.DocTestRunner()
            test = doctest.DocTestParser().get_doctest(text, self.names, block.name, str(block.page), block.line)
            assert runner.run(test, out=output.write, clear_globs=False).failed == 0, output.getvalue()
            self.names.update(test.globs)
            return
        # Empty lines before it: a traceback has the line of the page.
        code = compile("\n" * (block.line - 1) + text, str(block.page), "exec")
        with redirect_stdout(output):
            exec(code, self.names)
        self.printed = output.getvalue()
        rest = iter(self.printed.splitlines())
        for shown in _SHOWN.findall(text):
            assert any(line == shown for line in rest), f"{block.name}: {shown!r} is not in {self.printed!r}"

    def _sql(self, block: Block, text: str) -> None:
        self.names.setdefault("db", rederive.open()).sql(text, block.name)

    def _datalog(self, block: Block, text: str) -> None:
        self.datalog.pipeline.runtime.checks_actions = False  # the functions of rules are those of a process
        self.datalog.migrate(text, block.name, whole=False)

    def _text(self, block: Block, text: str) -> None:
        assert self.printed == text, f"{block.name}: {self.printed}"

    def _json(self, block: Block, text: str) -> None:
        try:
            json.loads(text)
        except ValueError:
            for line in text.splitlines():
                json.loads(line)

    def _toml(self, block: Block, text: str) -> None:
        tomllib.loads(text)

    def _console(self, block: Block, text: str) -> None:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            if "<<'END'" in command:
                given, _, expected = expected.partition("\nEND\n")
                command = f"{command}\n{given}\nEND\n"
            if command.rstrip().endswith("&"):
                self._start(command.rstrip().removesuffix("&"), expected)
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=_environment(),
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, f"{block.name}: {command}\n{done.stderr}"
            assert not expected or _fits(done.stdout, expected), f"{block.name}: {command}\n{done.stdout}{done.stderr}"

    def _start(self, command: str, expected: str) -> None:
        """Start a service, and wait for the line that says where it is."""
        started = subprocess.Popen(
            ["bash", "-c", f"exec {command.replace('serve ', f'serve --address 127.0.0.1:{self.port} ', 1)}"],
            cwd=self.folder, env=_environment(), stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.running.append(started)
        assert started.stderr is not None
        line = started.stderr.readline()
        assert _fits(line, expected), line

    def end(self) -> None:
        """End what the page started."""
        for one in self.running:
            one.send_signal(signal.SIGINT)
            one.wait(20)
            assert one.stderr is not None
            one.stderr.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}


def _fits(printed: str, expected: str) -> bool:
    """Whether a text is the expected one, in which `...` stands for anything."""
    pattern = ".*".join(map(re.escape, expected.rstrip("\n").split("...")))
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None


def _free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


@contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run_page(page: Path, folder: Path, **names: Any) -> None:
    """Run all blocks of a page in order, in a folder of its own."""
    (folder / "examples").symlink_to(ROOT / "examples")
    run = PageRun(folder, {"__name__": "__main__", **names})
    with _in_folder(folder):
        try:
            for block in blocks(page):
                if block.note == NEEDS_SPARK and "spark" not in names:
                    continue
                try:
                    run.run(block)
                except Exception as error:
                    error.add_note(f"in {block.name}")
                    raise
        finally:
            run.end()
