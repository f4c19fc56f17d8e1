"""The state at an earlier version, read from the engine itself.

The past is one more change: the engine is brought there by the inverse of the base changes since, as any transaction would bring
it there, on every strategy; and it comes back by the same changes. Nothing of this is recorded or announced.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Final

from rederive.commit.state import DatabaseState
from rederive.delta import Delta, DeltaSum
from rederive.errors import Expired, Unsupported
from rederive.ir.terms import Row, Value
from rederive.why.instances import Read

MOST_UNDONE: Final = 100_000  # base rows that are undone to read an earlier version


class PastReader:
    """Reads several versions in turn. The engine is at the current version again when the `with` block ends."""

    def __init__(self, state: DatabaseState) -> None:
        self._state = state
        self._journal = state.durable("reading an earlier version").journal
        self._at = state.version

    def __enter__(self) -> PastReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            # Without a budget: what was undone is done again, whatever it costs.
            self._go(self._state.version)
        except BaseException:
            self._state.close()  # the engine is not at the version that the disk has
            raise

    def check(self, version: int) -> None:
        """Refuse a version that cannot be read."""
        state, journal = self._state, self._journal
        state.check_evaluated()
        journal.check_committed(version)
        if state.program.in_place:
            raise Unsupported("earlier versions of a database with tables in place", hint="ask about the current version")
        if version < (since := journal.defined_since):
            raise Expired(
                f"the definitions were changed at version {since}, and version {version} had others",
                hint="ask about a later version",
            )

    def read(self, version: int) -> Read:
        """A function that reads a version. It may be called after others have read another one."""
        self.check(version)

        def rows(relation: str, bindings: Mapping[int, Value]) -> list[Row]:
            with self._state.budget():
                self._go(version)
                return self._state.engine.rows(relation, bindings)

        return rows

    def _go(self, version: int) -> None:
        if version == self._at:
            return
        low, high = sorted((version, self._at))
        sums: dict[str, DeltaSum] = {}
        for _, recorded in self._journal.deltas("base", None, low, high):
            sums.setdefault(recorded.relation.name, DeltaSum()).add(recorded.delta)
        if sum(len(total.counts) for total in sums.values()) > MOST_UNDONE:
            raise Expired(f"versions {low} and {high} differ in more than {MOST_UNDONE:,} base rows")
        deltas = {name: total.delta() for name, total in sums.items()}
        net: dict[str, Delta] = {name: delta if version > self._at else delta.invert() for name, delta in deltas.items()}
        self._state.engine.propagate(net)
        self._state.engine.commit()
        self._at = version
