"""A view as it was at an earlier version.

What changed since is undone in the rows of now: the logical rollback. Where the lake has the rows of a version before it, and
many changes would have to be undone, or they are kept no longer, its table is read as it was then, by Delta's time travel, and
what changed from there on is done to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from rederive.delta import DeltaSum
from rederive.errors import VersionGone
from rederive.ir.rules import Relation
from rederive.ir.terms import Row, Value
from rederive.store.store import Store

if TYPE_CHECKING:
    from rederive.store.lake_sync import LakeSync

MOST_UNDONE = 1_000  # versions, at most, where the lake has the rows of an earlier one


def rows_at(
    store: Store, relation: Relation, version: int, bindings: Mapping[int, Value], now: Callable[[], Iterable[Row]]
) -> Iterable[Row]:
    """The rows of a view at a version, as often as each was there. `now`: those of the last version."""
    store.journal.check_committed(version)
    if (lake := _travels(store, relation, version)) is not None:
        try:
            return lake.rows_at(relation, version, bindings)
        except VersionGone:
            if version < store.journal.reach(relation.name):
                raise
    since = DeltaSum()
    for change in store.recorded(relation, version):
        since.add(change.where(bindings).delta if bindings else change.delta)
    found = Counter(now())
    since.delta().invert().apply(found)
    return found.elements()


def _travels(store: Store, relation: Relation, version: int) -> LakeSync | None:
    """The lake, where the rows are better read there."""
    lake, journal = store.lake, store.journal
    if lake is None or version > journal.settled or not lake.has_rows(relation):
        return None
    far = journal.version - version > MOST_UNDONE
    return lake if far or version < journal.reach(relation.name) else None
