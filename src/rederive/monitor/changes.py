"""What a committed transaction did, for each monitored view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rederive.engines.base import ViewDelta
from rederive.ir.terms import Row
from rederive.lang.values import sort_key


class Change:
    """The exact change of one view at one version: `plus = new - old`, `minus = old - new`, rows in order."""

    def __init__(self, version: int, view: str, delta: ViewDelta) -> None:
        self.version = version
        self.view = view
        self._delta = delta

    @cached_property
    def plus(self) -> list[Row]:
        """The rows that entered the view."""
        return sorted(self._delta.plus.decoded(), key=sort_key)

    @cached_property
    def minus(self) -> list[Row]:
        """The rows that left the view."""
        return sorted(self._delta.minus.decoded(), key=sort_key)

    def __repr__(self) -> str:
        return f"Change(version={self.version}, view={self.view!r}, +{len(self._delta.plus)}, -{len(self._delta.minus)})"


@dataclass(frozen=True, slots=True)
class Result:
    """A committed transaction: its version, the change of each monitored view that changed, and what it cost.

    `touched`: tuples looked at. `derived`: rows of views that are not kept that had to be derived, by view. `skipped`: rules that
    path analysis left out.
    """

    version: int
    changes: Mapping[str, Change]
    engine: str
    strategy: str
    seconds: float
    touched: int
    derived: Mapping[str, int]
    skipped: int
