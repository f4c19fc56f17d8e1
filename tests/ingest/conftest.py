"""Stores, folders of change files, and the oracle's word on what a view must hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import rederive
from rederive.ir.terms import Row
from rederive.lang import compile_program
from tests.oracle import evaluate

CLOSURE = """
.decl edge(x: symbol, y: symbol)
.decl closure(x: symbol, y: symbol)
closure(x, y) :- edge(x, y).
closure(x, y) :- edge(x, z), closure(z, y).
"""
STOCK = """
.decl stock(item: symbol, n: number) key(item)
.decl low(item: symbol)
low(item) :- stock(item, n), n < 10.
"""


@pytest.fixture
def db(tmp_path: Path) -> Iterator[rederive.Database]:
    with rederive.open(tmp_path / "store") as opened:
        opened.migrate(CLOSURE)
        yield opened


class Folder:
    """A folder that files come into, each later than the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._count = 0

    def add(self, name: str, content: str | bytes) -> Path:
        self._count += 1
        draft, file = self.path.parent / f"{name}.draft", self.path / name
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        os.utime(draft, (1_700_000_000 + self._count, 1_700_000_000 + self._count))
        draft.rename(file)
        return file


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "incoming")


def closure_of(edges: set[Row]) -> list[Row]:
    return sorted(evaluate(compile_program(CLOSURE), {"edge": edges})["closure"])
