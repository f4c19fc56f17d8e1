"""A definition in SQL, as data that a program is compiled from. This module does not import the parser, which is large."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rederive.errors import Span

if TYPE_CHECKING:
    from rederive.lang.sql.parser import ParsedStatement


@dataclass(frozen=True, slots=True)
class SqlDefinition:
    """A CREATE statement: the name that it defines, and whether it replaces the current definition of that name.

    `form` is the statement in a normal form, without OR REPLACE and IF NOT EXISTS: equal forms define the same relation.
    """

    parsed: ParsedStatement = field(repr=False)
    name: str
    is_view: bool
    replaces: bool = field(default=False, repr=False)
    if_not_exists: bool = field(default=False, repr=False)
    form: str = ""
    # The names in its text that may be relations, in lower case; those of WITH are among them.
    reads: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def span(self) -> Span:
        """The place of the statement in its text."""
        return self.parsed.span
