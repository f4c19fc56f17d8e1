"""The delivery of webhooks from the journal's outbox: at least once, in the order of versions for each rule.

One thread reads the outbox and writes down what became of its messages. Every attempt has a thread of its own, one at a time for
each rule: a receiver that is slow delays the webhooks of its rule alone. What was posted leaves the outbox afterwards; a process
that ends in between posts again when the store is opened, under the same key. What is not accepted is tried again after longer
and longer waits. After `Webhooks.attempts` it is parked: its rule goes on with the next one, and it is sent again on request.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from rederive import failpoints
from rederive.records import DELIVERED, FAILED
from rederive.rules.webhook import NotAllowed, NotSent, Webhooks, key_of
from rederive.store.journal.file import FILE
from rederive.store.journal.rules import Deliveries, deliveries_in
from rederive.store.position import Position

GRACE: Final = 2.0
"""Seconds that closing waits for attempts on their way; what is not over then is posted again under its key."""
HOPELESS: Final = 5
"""Attempts of a message that no receiver has refused: it may not be sent, or sending it fails in this process."""

# The first one of each rule: those behind it wait for it.
_FIRST: Final = """SELECT firing, rule, version, address, body, attempts, due,
                          coalesce((SELECT id FROM epoch WHERE since < o.version ORDER BY rowid DESC LIMIT 1), '')
                   FROM outbox AS o
                   WHERE firing = (SELECT min(firing) FROM outbox WHERE rule = o.rule) ORDER BY due, firing"""


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A webhook in the outbox."""

    firing: int
    rule: str
    version: int
    address: str
    body: str
    attempts: int
    due: float
    epoch: str

    @property
    def key(self) -> str:
        return key_of(self.rule, Position(self.version, self.epoch))


@dataclass(frozen=True, slots=True)
class _AttemptEnd:
    """The end of an attempt; `error` is empty where the receiver accepted."""

    sent: OutboxMessage
    error: str = ""
    hopeless: bool = False


class OutboxSender:
    """Delivers what a journal's outbox holds, until it is closed. It writes to the file by a connection of its own."""

    def __init__(self, folder: Path, webhooks: Webhooks, state: Deliveries) -> None:
        self._file = folder / FILE
        self._webhooks = webhooks
        self._ends = False
        self._news = threading.Event()
        self._under_way: dict[str, OutboxMessage] = {}
        self._attempted: SimpleQueue[_AttemptEnd] = SimpleQueue()
        self._state = state
        self._thread = threading.Thread(target=self._run, name="rederive-webhooks", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def state(self) -> Deliveries:
        """As the thread saw it last; from any thread."""
        state = self._state
        if self.is_alive:
            return state
        return replace(state, error=state.error or "the thread that delivers has ended")

    def wake(self) -> None:
        """There is something new in the outbox."""
        self._news.set()

    def close(self) -> None:
        """Send no more. Attempts on their way are waited for, but not for long."""
        self._ends = True
        self._news.set()
        self._thread.join()

    # In the thread

    def _run(self) -> None:
        """Whatever goes wrong with the file now is tried again: the outbox is there later, too."""
        while True:
            try:
                with closing(sqlite3.connect(self._file, timeout=GRACE, isolation_level=None)) as connection:
                    self._deliver(connection)
                return
            except Exception as error:
                self._state = replace(self._state, error=f"{type(error).__name__}: {error}")
            if self._ends:
                return
            self._news.wait(self._webhooks.first)

    def _deliver(self, connection: sqlite3.Connection) -> None:
        while not self._ends:
            self._news.clear()
            self._note(connection)
            wait = self._start_attempts(connection)
            self._state = deliveries_in(connection)
            if not self._ends:
                self._news.wait(wait)
        until = time.monotonic() + GRACE
        while self._under_way and (left := until - time.monotonic()) > 0:
            self._news.wait(left)
            self._news.clear()
            self._note(connection)

    def _start_attempts(self, connection: sqlite3.Connection) -> float | None:
        """Begin what is due; the seconds until more is, or None where only the end of an attempt can bring more."""
        now = time.time()
        idle = [one for one in (OutboxMessage(*row) for row in connection.execute(_FIRST)) if one.rule not in self._under_way]
        for one in idle:
            if one.due <= now:
                self._start(one)
        return min((max(one.due - now, 0.001) for one in idle if one.due > now), default=None)

    def _start(self, one: OutboxMessage) -> None:
        self._under_way[one.rule] = one
        try:
            threading.Thread(target=self._attempt, args=(one,), name=f"rederive-webhook-{one.firing}", daemon=True).start()
        except RuntimeError as error:  # there are too many threads now
            self._attempted.put(_AttemptEnd(one, str(error)))
            self._news.set()

    def _attempt(self, one: OutboxMessage) -> None:
        """In a thread of its own: whatever is raised here is the end of this attempt and of nothing else."""
        end = _AttemptEnd(one, "the attempt was interrupted")
        try:
            self._webhooks.post(one.address, one.key, one.body, int(time.time()))
            end = _AttemptEnd(one)
        except NotAllowed as error:
            end = _AttemptEnd(one, str(error), hopeless=True)
        except NotSent as error:
            end = _AttemptEnd(one, str(error))
        except Exception as error:
            end = _AttemptEnd(one, f"{type(error).__name__}: {error}", hopeless=True)
        finally:
            self._attempted.put(end)
            self._news.set()

    # What became of attempts

    def _note(self, connection: sqlite3.Connection) -> None:
        ended: list[_AttemptEnd] = []
        try:
            while True:
                ended.append(self._attempted.get_nowait())
        except Empty:
            pass
        for i, end in enumerate(ended):
            try:
                self._note_one(connection, end)
            except BaseException:
                for left in ended[i:]:
                    self._attempted.put(left)
                raise
            self._under_way.pop(end.sent.rule, None)

    def _note_one(self, connection: sqlite3.Connection, end: _AttemptEnd) -> None:
        one = end.sent
        if not end.error:
            failpoints.hit("webhook:sent")
            _write(connection, _delivered(one))
            return
        attempts = one.attempts + 1
        most = min(HOPELESS, self._webhooks.attempts) if end.hopeless else self._webhooks.attempts
        if attempts >= most:
            _write(connection, _parked(one, f"given up after {attempts} attempts: {end.error}"))
        else:
            due = time.time() + self._webhooks.wait(attempts)
            _write(connection, _postponed(one, attempts, due, f"attempt {attempts}: {end.error}"))


Statements = Iterable[tuple[str, tuple[object, ...]]]
_WAITS: Final = "id = ? AND id IN (SELECT firing FROM outbox)"  # its rule may have been dropped in between


def _delivered(one: OutboxMessage) -> Statements:
    yield "UPDATE firing SET outcome = ?, detail = '' WHERE id = ?", (DELIVERED, one.firing)
    yield "DELETE FROM outbox WHERE firing = ?", (one.firing,)


def _postponed(one: OutboxMessage, attempts: int, due: float, detail: str) -> Statements:
    yield f"UPDATE firing SET detail = ? WHERE {_WAITS}", (detail, one.firing)
    yield "UPDATE outbox SET attempts = ?, due = ? WHERE firing = ?", (attempts, due, one.firing)


def _parked(one: OutboxMessage, detail: str) -> Statements:
    yield f"UPDATE firing SET outcome = ?, detail = ? WHERE {_WAITS}", (FAILED, detail, one.firing)
    yield "INSERT INTO parked SELECT * FROM outbox WHERE firing = ?", (one.firing,)
    yield "DELETE FROM outbox WHERE firing = ?", (one.firing,)


def _write(connection: sqlite3.Connection, statements: Statements) -> None:
    """All or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for sql, values in statements:
            connection.execute(sql, values)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
