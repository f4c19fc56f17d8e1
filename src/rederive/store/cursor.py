"""Named cursors: how far a subscriber that comes and goes has acknowledged the changes."""

from __future__ import annotations

from rederive.boundary import guard_class
from rederive.store.store import Store


@guard_class
class Cursor:
    """The cursor of one named subscriber. It is stored with the database, and never goes back."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def version(self) -> int | None:
        """The version up to which everything is acknowledged; None before the first acknowledgement.

        Raises `Mismatch` where that was before the store was restored.
        """
        return self._store.journal.cursor(self._name)

    def acknowledge(self, version: int) -> None:
        """Record that the subscriber has everything up to this version."""
        self._store.acknowledge(self._name, version)
