"""What decides whether an active rule fires: the kind of its event, and the rows that it has fired for already."""

from __future__ import annotations

from rederive.delta import Delta, Row, Sign
from rederive.ir.rules import Relation
from rederive.lang.rules.syntax import EventKind


def has_happened(kind: EventKind, relation: Relation, delta: Delta) -> bool:
    """Whether a delta holds an insertion, a deletion or an update. With a key, a row that replaces another is an update alone."""
    entered, left = (
        {tuple(row[i] for i in relation.key or range(len(row))) for row in rows} for rows in (delta.plus, delta.minus)
    )
    match kind:
        case EventKind.INSERT:
            return bool(entered - left)
        case EventKind.DELETE:
            return bool(left - entered)
        case EventKind.UPDATE:
            return bool(entered & left)


class FiredRows:
    """The rows that a rule has fired for in one round, by sign.

    This is not a delta: a row that enters, leaves and enters again within a round fires once for each sign, so nothing cancels.
    """

    def __init__(self) -> None:
        self._rows: dict[Sign, set[Row]] = {sign: set() for sign in Sign}

    def add(self, delta: Delta) -> None:
        """Note that the rule fired for these rows."""
        for sign, rows in self._rows.items():
            rows.update(delta.side(sign))

    def unseen(self, delta: Delta) -> Delta:
        """The part of a delta that the rule has not fired for."""
        entered, left = self._rows[Sign.PLUS], self._rows[Sign.MINUS]
        return Delta(frozenset(delta.plus) - entered, frozenset(delta.minus) - left)
