"""For which rows a rule is active: as a whole, and otherwise for rows that begin with given values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.values import from_json, to_json


@dataclass(frozen=True, slots=True)
class Activity:
    """What was said of the most columns of a row holds for it.

    >>> most = Activity().switched(False, ("bolt",))
    >>> most.holds(("bolt", 3)), most.holds(("nut", 3)), most.switched(False).anywhere
    (False, True, False)
    """

    everywhere: bool = True
    apart: Mapping[Row, bool] = field(default_factory=dict)

    def switched(self, active: bool, values: Row | None = None) -> Activity:
        """Switched on or off: as a whole, which takes back what was said of single values, or for these values."""
        if values is None:
            return Activity(active)
        return replace(self, apart={**self.apart, values: active})

    def holds(self, row: Row) -> bool:
        for width in range(len(row), 0, -1) if self.apart else ():
            if (said := self.apart.get(row[:width])) is not None:
                return said
        return self.everywhere

    def among(self, rows: Iterable[Row]) -> frozenset[Row]:
        return frozenset(row for row in rows if self.holds(row))

    @property
    def anywhere(self) -> bool:
        """Whether the rule is active for any row at all; if not, nobody need look at its condition."""
        return self.everywhere or any(self.apart.values())

    def text(self) -> str:
        return json.dumps([self.everywhere, [[[to_json(v) for v in values], on] for values, on in self.apart.items()]])

    @classmethod
    def of(cls, text: str, condition: Relation) -> Activity:
        """What `text` has written."""
        everywhere, apart = json.loads(text)

        def values(given: list[object]) -> Row:
            pairs = zip(given, condition.types, strict=False)
            return tuple(None if value is None else from_json(value, type) for value, type in pairs)

        return cls(everywhere, {values(given): on for given, on in apart})
