"""The change of a relation between two moments of a transaction, from its changes since the transaction's beginning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rederive.engines.protocol import Delta, ViewDelta
from rederive.ir.rules import Relation
from rederive.ir.terms import Row
from rederive.lang.rules.syntax import EventKind

Rows: TypeAlias = frozenset[Row]


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows that entered and rows that left.

    >>> first, later = Moved(frozenset({("a",)}), frozenset({("b",)})), Moved(frozenset({("a",), ("c",)}), frozenset())
    >>> sorted(later.since(first).plus), sorted(later.since(first).minus)
    ([('b',), ('c',)], [])
    """

    plus: Rows = frozenset()
    minus: Rows = frozenset()

    def __bool__(self) -> bool:
        return bool(self.plus or self.minus)

    def since(self, earlier: Moved) -> Moved:
        """What changed after `earlier`, both being changes since one beginning: a row that had left and is back has entered."""
        plus = (self.plus - earlier.plus) | (earlier.minus - self.minus)
        return Moved(plus, (self.minus - earlier.minus) | (earlier.plus - self.plus))

    def without(self, other: Moved) -> Moved:
        return Moved(self.plus - other.plus, self.minus - other.minus)

    def and_also(self, other: Moved) -> Moved:
        return Moved(self.plus | other.plus, self.minus | other.minus)


STILL = Moved()


def of_view(views: Mapping[str, ViewDelta], name: str) -> Moved:
    delta = views.get(name)
    return Moved(frozenset(delta.plus.decoded()), frozenset(delta.minus.decoded())) if delta is not None else STILL


def of_base(net: Mapping[str, Delta], name: str) -> Moved:
    delta = net.get(name)
    return Moved(frozenset(delta.plus), frozenset(delta.minus)) if delta is not None else STILL


def happened(kind: EventKind, relation: Relation, moved: Moved) -> bool:
    """Whether a net change is an insertion, a deletion or an update. With a key, a row in another's place is an update alone."""
    came, left = ({tuple(row[i] for i in relation.key or range(len(row))) for row in rows} for rows in (moved.plus, moved.minus))
    match kind:
        case EventKind.INSERT:
            return bool(came - left)
        case EventKind.DELETE:
            return bool(left - came)
        case EventKind.UPDATE:
            return bool(came & left)
