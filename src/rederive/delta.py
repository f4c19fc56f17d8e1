"""Deltas: which rows enter a relation and which leave it."""

from __future__ import annotations

from enum import Enum


class Sign(Enum):
    PLUS = "plus"
    MINUS = "minus"

    @property
    def opposite(self) -> Sign:
        return Sign.MINUS if self is Sign.PLUS else Sign.PLUS


BOTH = frozenset(Sign)
