"""A definition of SQL as statements of Datalog are: data that a program is compiled from. Knows nothing of the parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rederive.errors import Span

if TYPE_CHECKING:
    from rederive.lang.sql.parser import ParsedStatement


@dataclass(frozen=True, slots=True)
class SqlDefinition:
    """A CREATE statement: the name it defines, and whether it replaces what has the name.

    `form`: the statement without what depends on how it is written or on what stands: equal forms define the same.
    """

    parsed: ParsedStatement = field(repr=False)
    name: str
    view: bool
    replaces: bool = field(default=False, repr=False)
    unless_there: bool = field(default=False, repr=False)
    form: str = ""

    @property
    def span(self) -> Span:
        return self.parsed.span
