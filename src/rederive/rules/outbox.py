"""The sender of the journal's outbox. Law: every webhook is delivered at least once, and those of a rule in version order.

One thread reads the outbox and records the outcomes. Every attempt has its own thread, one at a time for each rule: a slow
receiver delays the webhooks of its rule alone. A message leaves the outbox after it is posted; a process that ends in between
posts it again when the store is opened, under the same key. A message that is not accepted is tried again after waits that grow.
After `Webhooks.attempts` it is parked: its rule continues with the next one, and it is sent again on request.
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
# The epoch is the one in which the version was committed: messages from before a restore keep their keys.
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
        """The idempotency key, by which a receiver knows a repetition."""
        return key_of(self.rule, Position(self.version, self.epoch))


@dataclass(frozen=True, slots=True)
class _AttemptEnd:
    """The end of an attempt; `error` is empty where the receiver accepted."""

    sent: OutboxMessage
    error: str = ""
    hopeless: bool = False


class OutboxSender:
    """Delivers the messages of a journal's outbox until it is closed. It has its own connection to the file."""

    def __init__(self, folder: Path, webhooks: Webhooks, state: Deliveries) -> None:
        self._file = folder / FILE
        self._webhooks = webhooks
        self._is_ending = False
        self._wake_up = threading.Event()
        self._under_way: dict[str, OutboxMessage] = {}
        self._attempted: SimpleQueue[_AttemptEnd] = SimpleQueue()
        self._state = state
        self._thread = threading.Thread(target=self._run, name="rederive-webhooks", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread of the sender runs."""
        return self._thread.is_alive()

    @property
    def state(self) -> Deliveries:
        """The state of the outbox as the thread saw it last; may be read from any thread."""
        state = self._state
        if self.is_alive:
            return state
        return replace(state, error=state.error or "the thread that delivers has ended")

    def wake(self) -> None:
        """Make the thread look for new messages."""
        self._wake_up.set()

    def close(self) -> None:
        """Stop sending. Attempts that run are waited for, at most `GRACE` seconds."""
        self._is_ending = True
        self._wake_up.set()
        self._thread.join()

    # In the thread

    def _run(self) -> None:
        """Deliver until the end. An error of the file is temporary: the outbox is durable, so it is read again."""
        while True:
            try:
                # The timeout is how long it waits while the writer of the journal holds SQLite's lock.
                with closing(sqlite3.connect(self._file, timeout=GRACE, isolation_level=None)) as connection:
                    self._deliver(connection)
                return
            except Exception as error:
                self._state = replace(self._state, error=f"{type(error).__name__}: {error}")
            if self._is_ending:
                return
            self._wake_up.wait(self._webhooks.first)

    def _deliver(self, connection: sqlite3.Connection) -> None:
        while not self._is_ending:
            # Cleared before the outbox is read: a message that is committed afterwards sets it again.
            self._wake_up.clear()
            self._note(connection)
            wait = self._start_attempts(connection)
            self._state = deliveries_in(connection)
            if not self._is_ending:
                self._wake_up.wait(wait)
        until = time.monotonic() + GRACE
        while self._under_way and (left := until - time.monotonic()) > 0:
            self._wake_up.wait(left)
            self._wake_up.clear()
            self._note(connection)

    def _start_attempts(self, connection: sqlite3.Connection) -> float | None:
        """Start the attempts that are due; the seconds until the next is due, or None where none waits for time."""
        # The time of the wall clock, because `due` is stored and must mean the same after a restart.
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
            self._wake_up.set()

    def _attempt(self, one: OutboxMessage) -> None:
        """One attempt, in its own thread: an error ends this attempt and nothing else."""
        # Set first, because `finally` reports an outcome whatever ends the thread.
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
            self._wake_up.set()

    # Outcomes of attempts

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
                # An outcome that cannot be written now is written later. A
                # message without an outcome would block its rule for good.
                for left in ended[i:]:
                    self._attempted.put(left)
                raise
            self._under_way.pop(end.sent.rule, None)

    def _note_one(self, connection: sqlite3.Connection, end: _AttemptEnd) -> None:
        one = end.sent
        if not end.error:
            # A kill here leaves a message in the outbox that was posted. The next start posts it again under the same key.
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
