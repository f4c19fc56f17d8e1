"""The command line, called in this process: exit code, standard output and standard error as a shell would see them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from rederive.cli.main import main

CLOSURE = """.decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
.input edge
.output closure
"""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line, parse_constant=_no_constant) for line in self.out.splitlines()]


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


Cli: TypeAlias = Callable[..., Ran]
Write: TypeAlias = Callable[[str, str | bytes], str]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """`cli("run", "p.dl", stdin="...")`."""

    def run(*arguments: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "argv", ["rederive", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8"))
        capsysbinary.readouterr()
        code: str | int | None = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        captured = capsysbinary.readouterr()
        assert isinstance(code, int)
        return Ran(code, captured.out.decode(), captured.err.decode())

    return run


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(name, content)` makes a file in the current folder, which is empty at first; its name comes back."""
    monkeypatch.chdir(tmp_path)

    def to_file(name: str, content: str | bytes) -> str:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        return name

    return to_file


@pytest.fixture
def closure(write: Write) -> str:
    """SJ96's program; `edge.csv` and `edge.facts` hold the graph of its section 2.2."""
    facts = "f\te\ne\td\ne\ta\na\tb\nd\tc\nb\tc\nc\tg\n"
    write("edge.csv", "x,y\n" + facts.replace("\t", ","))
    write("edge.facts", facts)
    return write("closure.dl", CLOSURE)
