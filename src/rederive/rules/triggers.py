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


class CheckedRows:
    """The rows that a rule SINCE CHECK has to fire for: those that entered or left between two checks, and did not go back since.

    Every choice of the next rule is a check. So a row that leaves after the rule fired for it, and enters again, fires again.
    """

    def __init__(self, signs: frozenset[Sign]) -> None:
        self._signs = signs
        self._last = Delta()
        self._waiting: dict[Sign, frozenset[Row]] = {sign: frozenset() for sign in Sign}

    def check(self, delta: Delta) -> Delta:
        """Note the delta since the transaction began, and return the rows to fire for."""
        moved = delta.union(self._last.invert())
        self._last = delta
        # A row that went back before the rule fired has not changed.
        entered, left = frozenset(moved.plus), frozenset(moved.minus)
        plus, minus = self._waiting[Sign.PLUS], self._waiting[Sign.MINUS]
        waiting = {Sign.PLUS: (plus - left) | (entered - minus), Sign.MINUS: (minus - entered) | (left - plus)}
        # A sign that the rule does not fire for is over with the check.
        self._waiting = {sign: rows if sign in self._signs else frozenset() for sign, rows in waiting.items()}
        return Delta(self._waiting[Sign.PLUS], self._waiting[Sign.MINUS])

    def fire(self) -> None:
        """Note that the rule fires for all rows that wait."""
        self._waiting = {sign: frozenset() for sign in Sign}


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
