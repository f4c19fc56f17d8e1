"""Where somebody is in the history of a database: a version, and the epoch that it is of.

Version 7 is not always the same version 7: a store that is made again, or restored from a backup, goes on with another history
under the same numbers. So a history has a random name, its epoch, and whoever saves how far he is saves both.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

from rederive.errors import MalformedInput

_FORM: Final = re.compile(r"(?:([0-9a-f]{16})-)?([0-9]{1,18})")


def new_epoch() -> str:
    """A name that no other history has."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Position:
    """A version of an epoch. Without one it is a plain number, which is taken for a version that every history shares.

    >>> str(Position(7, "00c0ffee00c0ffee")), str(Position(7))
    ('00c0ffee00c0ffee-7', '7')
    """

    version: int
    epoch: str = ""

    @classmethod
    def of(cls, given: str | Position) -> Position:
        """
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
