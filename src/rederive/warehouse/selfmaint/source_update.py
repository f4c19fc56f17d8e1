"""Updates of the sources, and what is known about the sources apart from the stored views."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from rederive.delta import Delta
from rederive.ir.terms import Row

Rows = Mapping[str, frozenset[Row]]


@dataclass(frozen=True, slots=True)
class SourceUpdate:
    """HU97's update U. Law: `U(D) = (D - deletes) + inserts`, and no row is in both.

    `net`: the source guarantees that every deleted row was present and every inserted row was absent.

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
        """Return an update. Deletes are applied first: a row in both is inserted."""
        deletes, inserts = cls(deletes=_rows(delete or {})), cls(inserts=_rows(insert or {}))
        return replace(deletes.then(inserts), net=net)

    @property
    def relations(self) -> frozenset[str]:
        """The relations that the update changes."""
        return frozenset((*self.inserts, *self.deletes))

    def then(self, later: SourceUpdate) -> SourceUpdate:
        """Return the composition: this update, followed by `later`. It is net if both are.

        >>> first, second = SourceUpdate.of(insert={"r": [(1,)]}, net=True), SourceUpdate.of(delete={"r": [(1,)]}, net=True)
        >>> first.then(second)
        SourceUpdate(inserts={}, deletes={}, net=True)
        """
        net = self.net and later.net
        # Net deltas cancel. Otherwise it is unknown which rows were present, and the later update decides.
        combine = Delta.union if net else Delta.override
        names = dict.fromkeys((*self.inserts, *self.deletes, *later.inserts, *later.deletes))
        deltas = {name: combine(self.delta(name), later.delta(name)) for name in names}
        return SourceUpdate(*_sides(deltas), net)

    def delta(self, relation: str) -> Delta:
        """Return the delta of one relation: to apply if the update is net, to assign if it is not."""
        return Delta(self.inserts.get(relation, frozenset()), self.deletes.get(relation, frozenset()))

    def before(self, relation: str, after: frozenset[Row]) -> frozenset[Row]:
        """Return the before-image of a relation from its after-image. This is exact for a net update."""
        return self.delta(relation).invert().assign(after)

    def after(self, relation: str, before: frozenset[Row]) -> frozenset[Row]:
        """Return the after-image of a relation from its before-image."""
        return self.delta(relation).assign(before)


@dataclass(frozen=True, slots=True)
class UpdateKind:
    """The relations that an update may insert into and delete from."""

    inserts: frozenset[str]
    deletes: frozenset[str]

    @classmethod
    def of(cls, insert: Iterable[str] = (), delete: Iterable[str] = ()) -> UpdateKind:
        """Return the kind of updates that insert into and delete from these relations."""
        return cls(frozenset(insert), frozenset(delete))

    @property
    def relations(self) -> frozenset[str]:
        """The relations that such an update may change."""
        return self.inserts | self.deletes


@dataclass(frozen=True, slots=True)
class KnownRelations:
    """The relations about which more is known than the stored views and the update say.

    `local`: relations that the warehouse holds, in the state before the update. `read`: relations whose after-image was read.
    `logged`: relations with a partial copy. `net`: updates are net, which is also a partial copy: the deleted rows were
    present, the inserted rows absent.
    """

    local: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    logged: frozenset[str] = frozenset()
    net: bool = False


@dataclass(frozen=True, slots=True)
class PartialCopy:
    """Rows known to be present, and rows known to be absent, from a log of updates (HU97, 6.3).

    >>> log = PartialCopy().then(SourceUpdate.of(insert={"r": [(1,)]})).then(SourceUpdate.of(delete={"r": [(1,), (2,)]}))
    >>> log.present, sorted(log.absent["r"])
    ({}, [(1,), (2,)])
    """

    present: Rows = field(default_factory=dict)
    absent: Rows = field(default_factory=dict)

    def then(self, update: SourceUpdate) -> PartialCopy:
        """Return the partial copy after one more update: inserted rows are present, deleted rows are absent."""
        names = dict.fromkeys((*self.present, *self.absent, *update.inserts, *update.deletes))
        known = {n: Delta(self.present.get(n, frozenset()), self.absent.get(n, frozenset())) for n in names}
        # The last update that mentions a row decides about it.
        return PartialCopy(*_sides({name: delta.override(update.delta(name)) for name, delta in known.items()}))


def _rows(given: Mapping[str, Iterable[Row]]) -> dict[str, frozenset[Row]]:
    found = {name: frozenset(rows) for name, rows in given.items()}
    return {name: rows for name, rows in found.items() if rows}


def _sides(deltas: Mapping[str, Delta]) -> tuple[dict[str, frozenset[Row]], dict[str, frozenset[Row]]]:
    """Return both sides of some deltas, by relation."""
    return _rows({name: delta.plus for name, delta in deltas.items()}), _rows({n: delta.minus for n, delta in deltas.items()})
