"""The delivery of webhooks from the journal's outbox, in a thread: at least once, in the order of versions for each rule.

What was posted leaves the outbox afterwards. A process that ends in between posts again when the store is opened, under the same
key. What is not accepted is tried again, after longer and longer waits, for as long as its rule stands.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rederive.faults import passing
from rederive.monitor.entries import DELIVERED
from rederive.monitor.journal_file import FILE
from rederive.monitor.rules.webhook import NotSent, Webhooks

# The first one of each rule: those behind it wait for it.
_FIRST: Final = """SELECT firing, rule, version, address, body, attempts, due FROM outbox AS o
                   WHERE firing = (SELECT min(firing) FROM outbox WHERE rule = o.rule) ORDER BY due, firing"""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A webhook in the outbox."""

    firing: int
    rule: str
    version: int
    address: str
    body: str
    attempts: int
    due: float

    @property
    def key(self) -> str:
        """What a receiver knows a repetition by."""
        return f"{self.rule}:{self.version}"


class Courier:
    """Delivers what a journal's outbox holds, until it is closed. It writes to the file by a connection of its own."""

    def __init__(self, folder: Path, webhooks: Webhooks) -> None:
        self._file = folder / FILE
        self._webhooks = webhooks
        self._ends = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rederive-webhooks", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something new in the outbox."""
        self._news.set()

    def close(self) -> None:
        """Send no more. An attempt on its way is waited for."""
        self._ends = True
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        with closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as connection:
            while not self._ends:
                self._news.clear()
                try:
                    wait = self._pass(connection)
                except sqlite3.OperationalError:  # somebody else writes for long: the outbox is there later, too
                    wait = self._webhooks.first
                self._news.wait(wait)

    def _pass(self, connection: sqlite3.Connection) -> float | None:
        """Send what is due; the seconds until more is, or None where nothing is left."""
        while not self._ends:
            waiting = [Outgoing(*row) for row in connection.execute(_FIRST)]
            due = [one for one in waiting if one.due <= time.time()]
            if not due:
                return max(waiting[0].due - time.time(), 0.001) if waiting else None
            for one in due if not self._ends else ():
                self._attempt(connection, one)
        return None

    def _attempt(self, connection: sqlite3.Connection, one: Outgoing) -> None:
        try:
            self._webhooks.post(one.address, one.key, one.body, int(time.time()))
        except NotSent as error:
            self._postpone(connection, one, str(error))
            return
        passing("webhook:sent")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE firing SET outcome = ?, detail = '' WHERE id = ?", (DELIVERED, one.firing))
        connection.execute("DELETE FROM outbox WHERE firing = ?", (one.firing,))
        connection.execute("COMMIT")

    def _postpone(self, connection: sqlite3.Connection, one: Outgoing, error: str) -> None:
        attempts = one.attempts + 1
        due = time.time() + self._webhooks.wait(attempts)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE outbox SET attempts = ?, due = ? WHERE firing = ?", (attempts, due, one.firing))
        connection.execute("UPDATE firing SET detail = ? WHERE id = ?", (f"attempt {attempts}: {error}", one.firing))
        connection.execute("COMMIT")
