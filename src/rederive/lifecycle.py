"""The life of a database: its store, the record of its past, and its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self, cast

from rederive.boundary import guard_class
from rederive.engines.protocol import Engine
from rederive.errors import Closed, NoStore
from rederive.result import Change
from rederive.store.backup import back_up
from rederive.store.position import Position, new_epoch
from rederive.store.store import Store


class _ClosedEngine:
    """Refuses everything, so that an open database need not ask at every call whether it is open."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed


@guard_class
class Lifecycle:
    """What a database can do with its store, if it has one. `epoch`: the name of its history, which a restore changes."""

    def __init__(self, engine: Engine, store: Store | None) -> None:
        self.engine = engine
        self._store = store
        self.epoch = store.journal.epoch if store is not None else new_epoch()

    @property
    def store(self) -> Path | None:
        """The folder that keeps the database, if one does."""
        return self._store.journal.folder if self._store is not None else None

    @property
    def lake(self) -> str | None:
        """Where the database's tables are, if it has a lake."""
        return self._store.journal.lake if self._store is not None and self._store.lake is not None else None

    @property
    def durable(self) -> Store | None:
        """What keeps the database, if something does."""
        return self._store

    @property
    def is_restored(self) -> bool:
        """Whether the store goes on from a backup: numbers alone do not tell its history from the one that was lost."""
        return self._store is not None and self._store.journal.is_restored

    def version_at(self, position: int | str | Position) -> int:
        """The version of a position in this history; refused with `Mismatch` where it is, or may be, of another one."""
        return self._durable("a position").journal.version_at(position)

    def changes(self, view: str, since: int | str) -> Iterator[Change]:
        """The changes of a monitored view after a version, in order, from the journal: what a subscriber missed.

        Refused with `Expired` where some of them are no longer kept. `since`: a version, or better a `position` that was
        saved, which is refused with `Mismatch` where the store has been restored since.

        >>> import rederive, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, rederive.open(folder) as db:
        ...     db.migrate(".decl n(x: number)  .decl big(x: number)  big(x) :- n(x), x > 9.")
        ...     for x in (7, 11, 12):
        ...         with db.transaction() as tx:
        ...             tx.insert("n", [(x,)])
        ...     print([(change.version, change.plus) for change in db.changes("big", since=1)])
        [(2, [(11,)]), (3, [(12,)])]
        """
        store = self._durable("reading past changes")
        return store.changes(view, store.journal.version_at(since))

    def cursor(self, name: str) -> int | None:
        """The version up to which a named subscriber has acknowledged everything; None where it never has.

        Refused with `Mismatch` where that was before the store was restored.
        """
        return self._durable("a named cursor").journal.cursor(name)

    def acknowledge(self, name: str, version: int) -> None:
        """A named subscriber has everything up to this version; kept with the store, and never taken back."""
        self._durable("a named cursor").acknowledge(name, version)

    def backup(self, target: str | Path) -> None:
        """Copy the store, as it is at this version, into a folder that is not there yet; `rederive restore` makes a store of it.

        >>> import rederive, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, rederive.open(f"{folder}/store") as db:
        ...     db.backup(f"{folder}/backup")
        ...     rederive.open(f"{folder}/backup")
        Traceback (most recent call last):
        ...
        rederive.errors.NotAStore: ...: error[not_a_store]: this is a backup of a store
          help: make a store from it: rederive restore BACKUP DIR
        """
        back_up(self._durable("a backup").journal.folder, Path(target))

    def close(self) -> None:
        """Let go of the store, if there is one. Whatever is asked of the database afterwards is refused."""
        self.engine = cast(Engine, _ClosedEngine())
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _durable(self, what: str) -> Store:
        if self._store is None:
            raise NoStore(what)
        return self._store

    def _check_open(self) -> None:
        if isinstance(self.engine, _ClosedEngine):
            raise Closed
