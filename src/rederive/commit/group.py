"""Group commit: versions that are worked out one after the other, and kept by one sync of the journal.

The last version of a group is applied to the engine when it is on disk; those before it had to be applied earlier, as the next
one starts from them. Where the disk refuses, they are taken back by their inverse: a net change and its inverse cancel.

A transaction that calls functions is alone in its group: what nobody can take back is done when nothing is left to refuse but
the sync of its own version.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rederive import failpoints
from rederive.delta import Delta
from rederive.engines.protocol import Operation
from rederive.lang.rules.syntax import CallAction
from rederive.records import VersionRecord
from rederive.result import Result
from rederive.store.codec import digest

if TYPE_CHECKING:
    from rederive.commit.execution import Course
    from rederive.database import Database
    from rederive.store.store import Store

Net = Mapping[str, Delta]


@dataclass(frozen=True, slots=True)
class Write:
    """A transaction to commit, and its idempotency key. `course`: where it is in progress, and the operations are its last."""

    operations: Sequence[Operation]
    key: str | None = None
    course: Course | None = None


@dataclass(slots=True)
class Outcome:
    """What became of a sequence of transactions: the versions that stand, and what ended it before its end."""

    results: list[Result] = field(default_factory=list)
    error: Exception | None = None


class StandsAlone(Exception):
    """A version that is kept by itself, a bulk one or one that calls functions: flush, and add it again."""


class Group:
    """Versions that the engine knows and the journal does not. Nobody is told of them before `flush`."""

    def __init__(self, database: Database, store: Store) -> None:
        self._db = database
        self._store = store
        self._entries: list[VersionRecord] = []
        self._nets: list[Net] = []
        self._applied = 0  # how many of them the engine has; the last may be worked out only
        self._bulk = False
        self.called = False  # whether the last transaction called functions: nothing may come between them and the sync

    def holds(self, key: str | None) -> bool:
        """Whether a version of the group has this key: only the journal can tell what it was used for."""
        return key is not None and any(key == entry.key for entry in self._entries)

    def add(self, write: Write) -> Result:
        """Work out one more version, within the database's budget; where it is refused, the others stand."""
        with self._db.engine.budget(self._db.limits):
            return self._add(write)

    def _add(self, write: Write) -> Result:
        started = time.perf_counter()
        if self._entries and _calls_at_once(self._db):
            raise StandsAlone
        self._apply()
        db, version = self._db, self._db.version
        given: Sequence[Operation] | None = None
        if db.house is not None:
            if write.key is not None and (known := self._store.find_result(write.key, write.operations)) is not None:
                return known
            write, given = replace(write, operations=db.house.translated(write)), write.operations
        course = write.course or db.begin(write.key)
        if write.operations:
            course.statement(write.operations)
        if write.key is not None and (known := self._store.find_result(write.key, course.given)) is not None:
            return known
        net, propagation = course.settled()
        used_for = digest(course.given if given is None else given) if write.key is not None else None
        try:
            if self._entries and course.has_calls:
                raise StandsAlone
            failpoints.hit("commit:propagated")
            result = db._version(propagation, started, course.firings)
            entry = self._entry(net, result, write.key, used_for)
        except (Exception, StandsAlone):
            db.version = version
            db.engine.rollback()
            raise
        except BaseException:
            db.close()
            raise
        self._call(course)
        self._entries.append(entry)
        self._nets.append(net)
        return result

    def _call(self, course: Course) -> None:
        """Call functions, the last thing that may refuse a transaction; they read the state before it."""
        made, self._db.version = self._db.version, self._db.version - 1
        self.called = course.has_calls or _calls_at_once(self._db)
        try:
            course.call_functions()
        except BaseException:
            self._db.engine.rollback()
            raise
        self._db.version = made

    def _apply(self) -> None:
        if self._applied < len(self._nets):
            self._db.engine.commit()
            self._applied += 1

    def _entry(self, net: Net, result: Result, key: str | None, used_for: str | None) -> VersionRecord:
        if self._entries and self._store.is_bulk(net, result):
            raise StandsAlone
        return self._store.version_record(self._db.program, net, result, self._db.signs, key, used_for)

    def flush(self) -> None:
        """On disk first, then in memory: a kill between the two loses nothing, as the next start reads the disk."""
        db, entries = self._db, self._entries
        if not entries:
            return
        try:
            self._store.append(entries)
            self._apply()
        except Exception:
            self._take_back()
            raise
        except BaseException:
            db.close()  # only opening it again tells if the interrupt came before or after the commit
            raise
        self._begin_anew()
        self._bulk = entries[-1].staged is not None
        failpoints.hit("commit:applied")
        if any(entry.firings for entry in entries):
            db._send(self._store)

    def settle(self) -> None:
        """Have the lake follow, where there is one; the versions stand whether it can or not."""
        self._db._settle_when_due(self._store, self._bulk)

    def _take_back(self) -> None:
        db, first, nets, applied = self._db, self._entries[0].number, self._nets, self._applied
        self._begin_anew()
        try:
            if applied < len(nets):
                db.engine.rollback()
            for net in reversed(nets[:applied]):
                db.engine.propagate({name: delta.invert() for name, delta in net.items()})
                db.engine.commit()
            db.version = first - 1
        except BaseException:
            db.close()  # the engine is ahead of the disk
            raise

    def _begin_anew(self) -> None:
        self._entries, self._nets, self._applied = [], [], 0


def _calls_at_once(database: Database) -> bool:
    """Whether a statement may call functions before its transaction is committed; working it out twice would call them twice."""
    return any(one.rule.immediate and isinstance(one.rule.action, CallAction) for one in database.rule_base.active)


class Together:
    """The transactions of several requests in one group, and what became of each request."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database = database
        self._group = Group(database, store)
        self._waiting: list[tuple[Outcome, Result]] = []
        self.unsettled: Exception | None = None

    def run(self, requests: Sequence[Sequence[Write]]) -> list[Outcome]:
        outcomes = []
        for request in requests:
            outcomes.append(outcome := Outcome())
            for write in request:
                self._add(outcome, write)
        self._flush()
        return outcomes

    def _add(self, outcome: Outcome, write: Write) -> None:
        if self._group.holds(write.key):
            self._flush()
        if outcome.error is not None:
            return
        if self._database.parked is not None:
            self._add_alone(outcome, write)
            return
        try:
            result = self._group.add(write)
        except StandsAlone:
            self._flush()
            self._add(outcome, write)
        except Exception as error:  # whatever is wrong with this transaction is not wrong with the others
            outcome.error = error
        else:
            self._waiting.append((outcome, result))
            if self._group.called:
                self._flush()

    def _add_alone(self, outcome: Outcome, write: Write) -> None:
        """A transaction that evaluates definitions that were parked: on disk when it returns."""
        self._flush()
        try:
            outcome.results.append(self._database.evaluate_with(write))
        except Exception as error:
            outcome.error = error

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            self._group.flush()
        except Exception as error:
            for outcome, _ in waiting:
                outcome.error = error
        else:
            for outcome, result in waiting:
                outcome.results.append(result)
            self._settle()

    def _settle(self) -> None:
        try:
            self._group.settle()
            self.unsettled = None
        except Exception as error:  # the journal has what the lake lacks, and the next settling brings it there
            self.unsettled = error
