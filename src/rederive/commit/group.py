"""A group of versions that one sync of the journal makes durable.

Each version starts from the one before it, so all but the last are applied to the engine before they are durable. If the disk
refuses them, they are taken back in reverse order: a net effect and its inverse cancel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rederive.commit.pending import BatchOutcome, PendingVersion
from rederive.commit.redefinition import undo
from rederive.engines.protocol import Engine


class NeedsOwnSync(Exception):
    """A version that shares a sync with no other: a bulk version, or one that calls functions."""


@dataclass(slots=True)
class Group:
    """Versions that are prepared and not durable. `before`: the version that they start from.

    `keys`: their idempotency keys. `applied`: how many of them the engine has applied; the last one may be prepared only.
    `waiting`: the outcomes to complete. `is_full`: whether the last version is to be synced before another one is prepared.
    """

    before: int
    versions: list[PendingVersion] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    applied: int = 0
    waiting: list[tuple[BatchOutcome, PendingVersion]] = field(default_factory=list)
    is_full: bool = False

    def take_back(self, engine: Engine) -> None:
        """Bring the engine back to the version that the group starts from."""
        # At most the last version is prepared and not applied.
        if self.applied < len(self.versions):
            discard(self.versions[-1], engine)
        # Newest first: each inverse applies to the state that its version left, where it is exact.
        for version in reversed(self.versions[: self.applied]):
            undo(engine, version.net)


def discard(pending: PendingVersion, engine: Engine) -> None:
    """Take back what the engine has prepared for a version."""
    # What is prepared was computed over the moved base rows, so it is discarded before they move back.
    if pending.propagation is not None:
        engine.rollback()
    if pending.has_moved_bases:
        undo(engine, pending.net)
    pending.propagation, pending.has_moved_bases = None, False
