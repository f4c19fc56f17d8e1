"""Fixture files of before/after pairs: a text, a line `----`, and what the compiler makes of it.

    # What this pair shows, in one sentence.
    SELECT a FROM t WHERE a > 1
    ----
    v(a) :- t(_, a, _), a > 1.

A blank line ends a pair. Lines before the first pair that start with `##` describe the file. `pytest --update-golden` rewrites
what follows each `----`; read the diff before you commit it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rederive.errors import ProgramError

DIVIDER = "----"


@dataclass(frozen=True, slots=True)
class Pair:
    """One pair of a file: its title, the text before, and the text after."""

    title: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"# {self.title}\n{self.before}\n{DIVIDER}\n{self.after}\n"


def read_pairs(path: Path) -> tuple[str, list[Pair]]:
    """The introduction of a file and its pairs, in order."""
    blocks = [block for block in path.read_text(encoding="utf-8").split("\n\n") if block.strip()]
    introduction = [block.strip("\n") for block in blocks if block.lstrip().startswith("##")]
    return "\n\n".join(introduction), [_pair(block.strip("\n"), path) for block in blocks if not block.lstrip().startswith("##")]


def _pair(block: str, path: Path) -> Pair:
    title, *lines = block.split("\n")
    assert title.startswith("# "), f"{path}: a pair starts with its title: {title}"
    cut = lines.index(DIVIDER) if DIVIDER in lines else len(lines)
    return Pair(title.removeprefix("# "), "\n".join(lines[:cut]), "\n".join(lines[cut + 1 :]))


def check_pairs(path: Path, compiled: Callable[[str], str], *, update: bool) -> None:
    """Compile the text of each pair and compare; under `update`, write the file instead."""
    introduction, pairs = read_pairs(path)
    found = [replace(pair, after=_outcome(compiled, pair.before)) for pair in pairs]
    if update:
        text = "\n".join(filter(None, [introduction and f"{introduction}\n", *map(str, found)]))
        path.write_text(text, encoding="utf-8")
        return
    for pair, actual in zip(pairs, found, strict=True):
        assert actual.after == pair.after, f"{path.name}: {pair.title}\n{pair.before}"


def _outcome(compiled: Callable[[str], str], text: str) -> str:
    """What a text becomes, or the error that refuses it."""
    try:
        return compiled(text)
    except ProgramError as error:
        return f"error[{error.code}]: {error.message}" + (f"\nhelp: {error.hint}" if error.hint else "")
