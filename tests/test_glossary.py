"""The glossary names what is there: every word has a module, class or function that embodies it."""

from __future__ import annotations

import importlib
import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest

GLOSSARY = Path(__file__).parents[1] / "docs" / "glossary.md"


def lines() -> list[tuple[str, list[str]]]:
    """Each word of the glossary, with the names in its last column."""
    rows = [line.strip("| ").split(" | ") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    return [(word, re.findall(r"`([^`]+)`", where)) for word, _, where in rows if where != "where"]


def is_defined(name: str) -> bool:
    """Whether `a.b.C.d` is attribute `C.d` of module `rederive.a.b`, for some place where the module's name ends."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["rederive", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        return _has(found, parts[end:])
    return False


def _has(found: object, path: list[str]) -> bool:
    for part in path:
        if is_dataclass(found) and part in found.__dataclass_fields__:
            return part == path[-1]
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize(("word", "names"), [pytest.param(word, names, id=word) for word, names in lines()])
def test_a_word_has_its_place_in_the_code(word: str, names: list[str]) -> None:
    assert names
    assert [name for name in names if not is_defined(name.removeprefix("rederive."))] == []


def test_a_name_that_is_gone_is_found_missing() -> None:
    assert is_defined("maintain.program.Section")
    assert not is_defined("maintain.program.NoSuchClass")
    assert not is_defined("no_such_module")
