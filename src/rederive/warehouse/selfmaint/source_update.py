"""Updates of the sources, the kinds of them, and what is known about the sources besides the stored views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rederive.ir.terms import Row

Rows = Mapping[str, frozenset[Row]]


@dataclass(frozen=True, slots=True)
class SourceUpdate:
    """HU97's U: rows that leave and rows that enter. `U(D) = (D - deletes) + inserts`, so a row is never in both.

    `net`: the source says that every deleted row was there and every inserted one was not.

    >>> SourceUpdate.of(insert={"r": [(1,)]}, delete={"r": [(1,), (2,)]})
    SourceUpdate(inserts={'r': frozenset({(1,)})}, deletes={'r': frozenset({(2,)})}, net=False)
    """

    inserts: Rows = field(default_factory=dict)
    deletes: Rows = field(default_factory=dict)
    net: bool = False

    @classmethod
    def of(
        cls,
        insert: Mapping[str, Iterable[Row]] | None = None,
        delete: Mapping[str, Iterable[Row]] | None = None,
        *,
        net: bool = False,
    ) -> SourceUpdate:
        """Deletes come first: a row in both is inserted."""
        inserts = _rows(insert or {})
        return cls(inserts, _minus(_rows(delete or {}), inserts), net)

    @property
    def relations(self) -> frozenset[str]:
        """The relations that it changes."""
        return frozenset((*self.inserts, *self.deletes))

    def then(self, later: SourceUpdate) -> SourceUpdate:
        """One update with the effect of this one followed by `later`. It is net where both are.

        >>> first, second = SourceUpdate.of(insert={"r": [(1,)]}, net=True), SourceUpdate.of(delete={"r": [(1,)]}, net=True)
        >>> first.then(second)
        SourceUpdate(inserts={}, deletes={}, net=True)
        """
        if self.net and later.net:
            inserts = _union(_minus(self.inserts, later.deletes), _minus(later.inserts, self.deletes))
            deletes = _union(_minus(self.deletes, later.inserts), _minus(later.deletes, self.inserts))
            return SourceUpdate(inserts, deletes, net=True)
        inserts = _union(_minus(self.inserts, later.deletes), later.inserts)
        return SourceUpdate(inserts, _minus(_union(self.deletes, later.deletes), inserts))

    def before(self, relation: str, after: frozenset[Row]) -> frozenset[Row]:
        """The before-image of a relation, from its after-image; exact for a net update."""
        none: frozenset[Row] = frozenset()
        return (after - self.inserts.get(relation, none)) | (self.deletes.get(relation, none))

    def after(self, relation: str, before: frozenset[Row]) -> frozenset[Row]:
        none: frozenset[Row] = frozenset()
        return (before - self.deletes.get(relation, none)) | self.inserts.get(relation, none)


@dataclass(frozen=True, slots=True)
class UpdateKind:
    """The relations that an update may insert into and delete from."""

    inserts: frozenset[str]
    deletes: frozenset[str]

    @classmethod
    def of(cls, insert: Iterable[str] = (), delete: Iterable[str] = ()) -> UpdateKind:
        return cls(frozenset(insert), frozenset(delete))

    @property
    def relations(self) -> frozenset[str]:
        return self.inserts | self.deletes


@dataclass(frozen=True, slots=True)
class KnownRelations:
    """What may be used besides the stored views and the update.

    `local`: relations that are kept here, in their state before the update. `read`: relations whose after-image is at hand.
    `logged`: relations with a partial copy: rows known to be there before the update, and rows known not to be. `net`: updates
    are net, which is a partial copy too: of the deleted and inserted rows.
    """

    local: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    logged: frozenset[str] = frozenset()
    net: bool = False


@dataclass(frozen=True, slots=True)
class PartialCopy:
    """What a log of updates tells of the present state: rows that are there, and rows that are not (HU97, 6.3).

    >>> log = PartialCopy().then(SourceUpdate.of(insert={"r": [(1,)]})).then(SourceUpdate.of(delete={"r": [(1,), (2,)]}))
    >>> log.present, sorted(log.absent["r"])
    ({}, [(1,), (2,)])
    """

    present: Rows = field(default_factory=dict)
    absent: Rows = field(default_factory=dict)

    def then(self, update: SourceUpdate) -> PartialCopy:
        """The knowledge after one more update: what it inserted is there now, what it deleted is not."""
        present = _union(_minus(self.present, update.deletes), update.inserts)
        return PartialCopy(present, _union(_minus(self.absent, update.inserts), update.deletes))


def _rows(given: Mapping[str, Iterable[Row]]) -> dict[str, frozenset[Row]]:
    found = {name: frozenset(rows) for name, rows in given.items()}
    return {name: rows for name, rows in found.items() if rows}


def _union(one: Rows, other: Rows) -> dict[str, frozenset[Row]]:
    return {
        name: one.get(name, frozenset()) | other.get(name, frozenset()) for name in (*one, *(n for n in other if n not in one))
    }


def _minus(one: Rows, other: Rows) -> dict[str, frozenset[Row]]:
    left = {name: rows - other.get(name, frozenset()) for name, rows in one.items()}
    return {name: rows for name, rows in left.items() if rows}
