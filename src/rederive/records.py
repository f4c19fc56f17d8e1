"""What the journal holds, as data: versions with their deltas and firings, and the current definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from rederive.delta import Delta
from rederive.ir.rules import Relation
from rederive.ir.terms import Row

DATALOG: Final = "datalog"
SQL: Final = "sql"


@dataclass(frozen=True, slots=True)
class RecordedDelta:
    """The delta of one relation at one version, and the columns that the relation had then."""

    relation: Relation
    delta: Delta


DONE, WAITING, DELIVERED, FAILED = "done", "waiting", "delivered", "failed"  # the outcomes of a firing


@dataclass(frozen=True, slots=True)
class Firing:
    """One execution of an active rule's action: the rows that entered and left its condition, and the outcome.

    `outcome`: done; waiting or delivered for a webhook; failed, with the version that the failed transaction would have made.
    `detail`: the last error. `relation`: the condition. `address`: where a webhook goes. `number`: the position among all firings
    of a store; later firings have higher numbers.
    """

    version: int
    rule: str
    action: str
    plus: tuple[Row, ...]
    minus: tuple[Row, ...]
    outcome: str
    detail: str = ""
    relation: Relation = field(default_factory=lambda: Relation("", ()), repr=False, compare=False)
    address: str = ""
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """The commit of an attached table up to which a version of ours follows it. `table_id`: Delta's identity of the table."""

    relation: str
    version: int
    table_id: str


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """What the journal holds of one version: the net effect on base relations, the deltas of monitored views, the firings.

    `key` and `digest`: the idempotency key, and the digest of the operations that it was used for. `staged`: the folder with the
    changes of a bulk version, whose `base` and `views` are empty. `sources`: the attached tables that it moved forward.
    """

    number: int
    at: datetime
    engine: str
    base: tuple[RecordedDelta, ...] = ()
    views: tuple[RecordedDelta, ...] = ()
    key: str | None = None
    digest: str | None = None
    staged: str | None = None
    firings: tuple[Firing, ...] = ()
    sources: tuple[SourceVersion, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """When a version was committed, by which engine, and how many rows entered and left each relation."""

    number: int
    at: str
    engine: str
    changed: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DefinitionText:
    """The text of definitions. Texts of one `part` were compiled together.

    `kept`: JSON with the lines and columns of the statements that are still defined. A text of SQL is one statement, and `kept`
    says where it was in its file.
    """

    part: int
    name: str
    text: str
    kept: str
    language: str = DATALOG


@dataclass(frozen=True, slots=True)
class CatalogRecord:
    """The current definitions. `followed`: the version after which all changes of a view are recorded; None if none is."""

    texts: tuple[DefinitionText, ...] = ()
    followed: Mapping[str, int | None] = field(default_factory=dict)
