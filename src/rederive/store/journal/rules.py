"""What the journal holds about active rules: their texts and activity, their firings, and the outbox of webhooks.

The SQLite transaction that commits a version also puts its webhooks into the outbox, so no committed version lacks one.
A webhook leaves the outbox when it is delivered. After the last failed attempt it is parked, with the outcome `failed`, until
somebody retries it or its rule is dropped.
"""

from __future__ import annotations

import json
import sqlite3
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rederive.errors import Closed
from rederive.ir.rules import Relation
from rederive.records import FAILED, WAITING, Firing
from rederive.store.codec import decode_relation, decode_rows, encode_rows
from rederive.store.journal.reader import JournalReader
from rederive.values import to_json

# AUTOINCREMENT: the number of a firing is never used again, also after it was trimmed, because clients resume by it.
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS rule (name TEXT PRIMARY KEY, text TEXT NOT NULL, activity TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE IF NOT EXISTS firing (
        id INTEGER PRIMARY KEY AUTOINCREMENT, version INTEGER NOT NULL, rule TEXT NOT NULL, action TEXT NOT NULL,
        relation INTEGER NOT NULL, plus TEXT NOT NULL, minus TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS outbox (
        firing INTEGER PRIMARY KEY, rule TEXT NOT NULL, version INTEGER NOT NULL, address TEXT NOT NULL, body TEXT NOT NULL,
        attempts INTEGER NOT NULL, due REAL NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS parked (
        firing INTEGER PRIMARY KEY, rule TEXT NOT NULL, version INTEGER NOT NULL, address TEXT NOT NULL, body TEXT NOT NULL,
        attempts INTEGER NOT NULL, due REAL NOT NULL
    )""",
)


_FIRINGS: Final = """SELECT version, rule, action, plus, minus, outcome, detail, relation.name, columns, firing.id
                     FROM firing JOIN relation ON relation.id = firing.relation WHERE (?1 IS NULL OR rule = ?1)"""

# A version that the journal no longer has is older than all that it has.
_OLDEST: Final = """SELECT min(coalesce(v.at, (SELECT min(at) FROM version)))
                    FROM outbox LEFT JOIN version AS v ON v.number = outbox.version"""


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A stored active rule. `text`: its CREATE RULE statement, empty if the program has it. `activity`: its active rows."""

    name: str
    text: str
    activity: str


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The state of the outbox. `oldest`: when the oldest waiting webhook was committed, in seconds since 1970.

    `error`: why delivery stopped; empty while it runs.
    """

    waiting: int = 0
    parked: int = 0
    oldest: float | None = None
    error: str = ""

    def lag(self, now: float) -> float:
        """How many seconds the oldest webhook has waited."""
        return max(0.0, now - self.oldest) if self.oldest is not None else 0.0


def deliveries_in(connection: sqlite3.Connection) -> Deliveries:
    """The state of a journal's outbox."""
    (waiting,) = connection.execute("SELECT count(*) FROM outbox").fetchone()
    (parked,) = connection.execute("SELECT count(*) FROM parked").fetchone()
    (oldest,) = connection.execute(_OLDEST).fetchone() if waiting else (None,)
    return Deliveries(waiting, parked, datetime.fromisoformat(oldest).timestamp() if oldest else None)


class RuleJournal(JournalReader):
    """The tables of a journal that are about active rules; `Journal` adds everything else."""

    @abstractmethod
    def _transaction(self, name: str) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _id(self, relation: Relation) -> int: ...

    def _ensure_rule_tables(self) -> None:
        """Create the tables of rules in a journal that has none: a new one, or one that is older than rules."""
        for statement in _TABLES:
            self._connection.execute(statement)

    @property
    def rules(self) -> tuple[StoredRule, ...]:
        """The stored active rules, by name."""
        return tuple(StoredRule(*row) for row in self._query("SELECT name, text, activity FROM rule ORDER BY name"))

    def write_rules(self, rules: Iterable[StoredRule]) -> None:
        """Replace the stored rules. Webhooks of dropped rules that were not delivered fail."""
        stored = list(rules)
        names = {rule.name for rule in stored}
        with self._transaction("amend"):
            # A rule that stays is written again with equal text; there are few, and one transaction makes it atomic.
            self._connection.execute("DELETE FROM rule")
            self._connection.executemany("INSERT INTO rule VALUES (?, ?, ?)", [(r.name, r.text, r.activity) for r in stored])
            # The sender reads the outbox by a connection of its own: it finds either the rule and its webhooks or neither.
            dropped = [(row[0],) for row in self._query("SELECT DISTINCT rule FROM outbox") if row[0] not in names]
            fail = f"UPDATE firing SET outcome = '{FAILED}', detail = 'the rule was dropped' WHERE id IN "
            self._connection.executemany(f"{fail}(SELECT firing FROM outbox WHERE rule = ?)", dropped)
            self._connection.executemany("DELETE FROM outbox WHERE rule = ?", dropped)
            parked = [(row[0],) for row in self._query("SELECT DISTINCT rule FROM parked")]
            self._connection.executemany("DELETE FROM parked WHERE rule = ?", [one for one in parked if one[0] not in names])

    def write_firing(self, firing: Firing) -> None:
        """Record a firing that makes no version: one whose transaction was rolled back."""
        with self._transaction("amend"):
            self._write_firing(firing)

    def firings(self, rule: str | None = None, since: int = 0) -> list[Firing]:
        """The firings after a version, in order, as far as the journal has them."""
        return [_firing(row) for row in self._query(f"{_FIRINGS} AND version > ?2 ORDER BY firing.id", rule, since)]

    def firings_after(self, number: int, rule: str | None, most: int) -> list[Firing]:
        """The next firings after the one with this number. A number is never used twice, even if its firing was trimmed."""
        rows = self._query(f"{_FIRINGS} AND firing.id > ?2 ORDER BY firing.id LIMIT ?3", rule, number, most)
        return [_firing(row) for row in rows]

    @property
    def last_firing(self) -> int:
        """The number of the last firing; later firings have higher numbers."""
        return self._number("SELECT coalesce(max(id), 0) FROM firing")

    @property
    def undelivered(self) -> int:
        """How many webhooks are in the outbox."""
        return self._number("SELECT count(*) FROM outbox")

    def retry_parked(self, rule: str | None) -> int:
        """Move parked webhooks of one rule, or of all, back to the outbox; returns how many."""
        with self._transaction("amend"):
            (number,) = self._query("SELECT count(*) FROM parked WHERE ?1 IS NULL OR rule = ?1", rule)[0]
            update = (
                f"UPDATE firing SET outcome = '{WAITING}' WHERE id IN (SELECT firing FROM parked WHERE ?1 IS NULL OR rule = ?1)"
            )
            self._connection.execute(update, (rule,))
            # The number of attempts starts over.
            back = (
                "INSERT INTO outbox SELECT firing, rule, version, address, body, 0, 0 FROM parked WHERE ?1 IS NULL OR rule = ?1"
            )
            self._connection.execute(back, (rule,))
            self._connection.execute("DELETE FROM parked WHERE ?1 IS NULL OR rule = ?1", (rule,))
        return int(number)

    def deliveries(self) -> Deliveries:
        """The state of the outbox, and how many webhooks are parked."""
        if self.closed:
            raise Closed
        return deliveries_in(self._connection)

    def _write_firing(self, firing: Firing) -> None:
        row = (firing.version, firing.rule, firing.action, self._id(firing.relation), encode_rows(firing.plus))
        number = self._connection.execute(
            "INSERT INTO firing (version, rule, action, relation, plus, minus, outcome, detail) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*row, encode_rows(firing.minus), firing.outcome, firing.detail),
        ).lastrowid
        # In the transaction of the version: a webhook is in the outbox exactly if its version is committed.
        if firing.outcome == WAITING:
            outgoing = (number, firing.rule, firing.version, firing.address, body_of(firing))
            self._connection.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, 0, 0)", outgoing)

    def _trim_firings(self, horizon: int) -> None:
        """Delete the firings of trimmed versions, but none whose webhook is not delivered."""
        gone = "DELETE FROM firing WHERE version <= ? AND id NOT IN (SELECT firing FROM outbox UNION SELECT firing FROM parked)"
        self._connection.execute(gone, (horizon,))


def body_of(firing: Firing) -> str:
    """The JSON that a webhook posts: the rule, the version, and the rows that entered and left the rule's condition.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import SYMBOL
    >>> body_of(Firing(7, "low", "webhook", (("bolt",),), (), "waiting", relation=Relation("low", (Column("i", SYMBOL),))))
    '{"rule": "low", "version": 7, "columns": ["i"], "plus": [["bolt"]], "minus": []}'
    """
    sides = {sign: [[to_json(v) for v in row] for row in rows] for sign, rows in (("plus", firing.plus), ("minus", firing.minus))}
    # Stored as text, so that every attempt posts the same bytes, whatever the rule has become meanwhile.
    columns = [column.name for column in firing.relation.columns]
    return json.dumps({"rule": firing.rule, "version": firing.version, "columns": columns, **sides}, ensure_ascii=False)


def _firing(row: Sequence[object]) -> Firing:
    version, rule, action, plus, minus, outcome, detail, name, columns, number = row
    assert isinstance(version, int)
    assert isinstance(number, int)
    relation = decode_relation(str(name), str(columns))
    entered, left = (tuple(decode_rows(str(text), relation)) for text in (plus, minus))
    return Firing(version, str(rule), str(action), entered, left, str(outcome), str(detail), relation, number=number)
