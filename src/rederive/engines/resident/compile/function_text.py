"""The text of a Python function under construction, and the objects that it refers to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

INDENT = "    "


class FunctionText:
    """Lines at a depth. `loops` counts the loops that were opened since it was last set to zero."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.lines: list[str] = []
        self.depth = 0
        self.loops = 0
        self._joined = 0  # the line, counted from 1, whose test is several in parentheses
        self._names: dict[tuple[str, int], str] = {}

    def line(self, text: str) -> None:
        """Append one line at the present depth."""
        self.lines.append(INDENT * self.depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Append an opening line, and indent what is written inside."""
        self.line(opening)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def same_depth(self) -> Iterator[None]:
        """Come back to this depth, however deep the loops and tests inside went."""
        depth = self.depth
        yield
        self.depth = depth

    def enter(self, opening: str) -> None:
        """Open a block. A test right inside a test joins it: Python nests a hundred blocks, and no more."""
        last = "    " * (self.depth - 1) + "if "
        if opening.startswith("if ") and self.lines and self.lines[-1].startswith(last) and self.lines[-1].endswith(":"):
            before = self.lines[-1][len(last) : -1]
            before = before if self._joined == len(self.lines) else f"({before})"
            self.lines[-1] = f"{last}{before} and ({opening[3:-1]}):"
            self._joined = len(self.lines)
            return
        self.line(opening)
        self.depth += 1
        self.loops += opening.startswith("for ")

    def name(self, stem: str, value: Any) -> str:
        """A name in the function's scope for an object."""
        known = self._names.get((stem, id(value)))  # the scope keeps the object, so that nothing else gets its id
        if known is not None:
            return known
        name = f"{stem}{len(self.scope)}"
        self.scope[name] = value
        self._names[stem, id(value)] = name
        return name
