"""Time travel: a view as of an earlier version.

The changes since then are undone in the current rows: rows(n) = rows(now) + -(d(n+1) + ... + d(now)). If the lake has a table of
the view, and many changes would have to be undone or some are no longer recorded, the lake reads that version instead.
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

MOST_UNDONE = 1_000  # versions to undo at most, if the lake has the rows of an earlier one


def rows_at(
    store: Store, relation: Relation, version: int, bindings: Mapping[int, Value], now: Callable[[], Iterable[Row]]
) -> Iterable[Row]:
    """The rows of a view at a version, each as often as it was there. `now`: fetches those of the last version."""
    store.journal.check_committed(version)
    if (lake := _lake_for(store, relation, version)) is not None:
        try:
            return lake.rows_at(relation, version, bindings)
        except VersionGone:
            # A VACUUM may have removed the files of that version. The journal still leads back as far as it reaches.
            if version < store.journal.reach(relation.name):
                raise
    since = DeltaSum()
    for change in store.recorded_changes(relation, version):
        since.add(change.where(bindings).delta if bindings else change.delta)
    found = Counter(now())
    since.delta().invert().apply(found)
    return found.elements()


def _lake_for(store: Store, relation: Relation, version: int) -> LakeSync | None:
    """The lake, if it is the better place to read the rows from; otherwise None."""
    lake, journal = store.lake, store.journal
    if lake is None or version > journal.settled or not lake.has_rows(relation):
        return None
    far = journal.version - version > MOST_UNDONE
    return lake if far or version < journal.reach(relation.name) else None
