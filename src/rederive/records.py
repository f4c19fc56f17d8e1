"""What the journal holds, as data: versions with their changes, and the program that stands."""

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


DONE, WAITING, DELIVERED, FAILED = "done", "waiting", "delivered", "failed"  # what becomes of a firing


@dataclass(frozen=True, slots=True)
class Firing:
    """An active rule that fired: for which rows of its condition, and what became of it.

    `outcome`: done; of a webhook waiting, delivered; failed, when `version` is the one that the failed transaction was for.
    `detail`: the last error. `relation`: the condition. `address`: where a webhook goes.
    `number`: in a store, which one it is: later ones have higher numbers.
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
class VersionRecord:
    """One version: `base` are its net base changes, `views` those of the monitored views, `firings` the rules that fired in it.

    `key` and `digest`: the idempotency key and what it was used for. `staged`: where the changes of a bulk version are.
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


@dataclass(frozen=True, slots=True)
class DefinitionText:
    """A definition's text and which of its statements stand. Texts of one `part` were compiled together.

    In SQL it is the text of one statement, and `kept` says where that stood in its file.
    """

    part: int
    name: str
    text: str
    kept: str
    language: str = DATALOG


@dataclass(frozen=True, slots=True)
class CatalogRecord:
    """The program that stands. `followed`: the version from which on every change of a view is recorded; None for no record."""

    texts: tuple[DefinitionText, ...] = ()
    followed: Mapping[str, int | None] = field(default_factory=dict)
