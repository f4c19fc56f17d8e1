"""The text of a Python function under construction, and the objects that it refers to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class FunctionText:
    """Lines at a depth. `loops` counts the loops that were opened since it was last set to zero."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self.lines: list[str] = []
        self.depth = 0
        self.loops = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def here(self) -> Iterator[None]:
        """Come back to this depth, however deep the loops and tests inside went."""
        depth = self.depth
        yield
        self.depth = depth

    def enter(self, opening: str) -> None:
        self.line(opening)
        self.depth += 1
        self.loops += opening.startswith("for ")

    def name(self, stem: str, value: Any) -> str:
        """A name in the function's scope for an object."""
        for name, known in self.scope.items():
            if known is value and name.startswith(stem):
                return name
        name = f"{stem}{len(self.scope)}"
        self.scope[name] = value
        return name
