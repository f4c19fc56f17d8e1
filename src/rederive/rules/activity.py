"""For which rows a rule is active: for all of them, and otherwise for rows that begin with given values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.values import from_json, to_json


@dataclass(frozen=True, slots=True)
class Activity:
    """A default, and exceptions for leading values. The longest exception that a row begins with decides.

    >>> activity = Activity().switch(False, ("bolt",))
    >>> activity.is_active_for(("bolt", 3)), activity.is_active_for(("nut", 3)), activity.switch(False).is_active
    (False, True, False)
    """

    default: bool = True
    exceptions: Mapping[Row, bool] = field(default_factory=dict)

    def switch(self, active: bool, values: Row | None = None) -> Activity:
        """Switch on or off, for rows that begin with these values. Without values, all exceptions are removed."""
        if values is None:
            return Activity(active)
        return replace(self, exceptions={**self.exceptions, values: active})

    def is_active_for(self, row: Row) -> bool:
        """Whether the rule fires for this row."""
        for width in range(len(row), 0, -1) if self.exceptions else ():
            if (active := self.exceptions.get(row[:width])) is not None:
                return active
        return self.default

    def active_rows(self, rows: Iterable[Row]) -> frozenset[Row]:
        """The rows for which the rule fires."""
        return frozenset(row for row in rows if self.is_active_for(row))

    @property
    def is_active(self) -> bool:
        """Whether the rule is active for any row; if not, its condition is not monitored."""
        return self.default or any(self.exceptions.values())

    def to_text(self) -> str:
        """Write it as JSON."""
        exceptions = [[[to_json(value) for value in values], active] for values, active in self.exceptions.items()]
        return json.dumps([self.default, exceptions])

    @classmethod
    def from_text(cls, text: str, condition: Relation) -> Activity:
        """Read what `to_text` wrote."""
        default, exceptions = json.loads(text)

        def values(given: list[object]) -> Row:
            pairs = zip(given, condition.types, strict=False)
            return tuple(None if value is None else from_json(value, type) for value, type in pairs)

        return cls(default, {values(given): active for given, active in exceptions})
