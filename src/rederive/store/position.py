"""Positions in the history of a database: a version and its epoch.

Two versions 7 may differ: a store that is deleted and created again, or restored from a backup, continues with another history
under the same numbers. So each history has a random name, its epoch, and a client that wants to resume saves both.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

from rederive.errors import MalformedInput

# 18 digits fit into the 64-bit integers of SQLite.
_FORM: Final = re.compile(r"(?:([0-9a-f]{16})-)?([0-9]{1,18})")


def new_epoch() -> str:
    """A random name for a new history."""
    # 64 random bits: two histories of one store never share a name by accident.
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Position:
    """A version of an epoch. Without an epoch it is a plain number: a version that all histories of the store share.

    >>> str(Position(7, "00c0ffee00c0ffee")), str(Position(7))
    ('00c0ffee00c0ffee-7', '7')
    """

    version: int
    epoch: str = ""

    @classmethod
    def of(cls, given: str | Position) -> Position:
        """The position that a text denotes.

        >>> Position.of("00c0ffee00c0ffee-7")
        Position(version=7, epoch='00c0ffee00c0ffee')
        >>> Position.of("seven")
        Traceback (most recent call last):
        rederive.errors.MalformedInput: error[malformed]: 'seven' is not a position
          help: give the id of an event, or a version
        """
        if isinstance(given, Position):
            return given
        if (found := _FORM.fullmatch(given)) is None:
            raise MalformedInput(f"'{given}' is not a position", hint="give the id of an event, or a version")
        return cls(int(found[2]), found[1] or "")

    def __str__(self) -> str:
        return f"{self.epoch}-{self.version}" if self.epoch else str(self.version)
