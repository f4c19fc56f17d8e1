"""The entry of a built-in function of Spark: its signature, what it does with NULL, whether it can fail, what it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Implementation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in function whose arguments are cast to the types of its signature.

    `signature`: types of Spark, optional arguments in brackets, `...` after the last type if it repeats. `number` and `any` take
    an argument in its own type. `strict`: NULL if an argument is NULL. `fallible`: it fails for some values. `maybe_null`: it
    gives NULL for some values that are not NULL. `zoned`: its last argument is the time zone where that is not UTC. `typed`: the
    computation gets the type of the result before the arguments.
    """

    name: str
    signature: str
    compute: Implementation
    strict: bool = True
    fallible: bool = False
    maybe_null: bool = False
    zoned: bool = False
    typed: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def takes(self) -> tuple[str, ...]:
        """The types of the arguments; the last one is that of all further arguments if it repeats.

        >>> BuiltIn("f", "string, [int] -> string", str).takes
        ('string', 'int')
        """
        given, _, _ = self.signature.partition("->")
        return tuple(part.strip("[] .") for part in given.split(",") if part.strip("[] ."))

    @property
    def gives(self) -> str:
        """The type of the result."""
        return self.signature.rpartition("-> ")[2]

    @property
    def least(self) -> int:
        """The number of arguments that are needed."""
        given, _, _ = self.signature.partition("->")
        return sum(1 for part in given.split(",") if part.strip("[] .") and not part.strip().startswith("["))

    @property
    def most(self) -> int | None:
        """The number of arguments that are allowed; None if there is no limit."""
        return None if "..." in self.signature else len(self.takes)
