"""The examples of docs/rules.md run as they stand there."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_examples_of_the_page() -> None:
    """A fenced block ends with an empty line, so that its fence is no part of what is expected."""
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert (found.failed, found.attempted > 15) == (0, True)
