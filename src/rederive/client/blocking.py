"""The blocking client: `rederive.connect`."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Self

from rederive.boundary import Signal, guard_class
from rederive.client import requests
from rederive.client.replica import Change, Row
from rederive.client.requests import Backoff, CommitReceipt, HttpRequest, Rows, VersionedRows
from rederive.client.sse import Event, SseParser
from rederive.client.subscription_state import ServiceClosing, SubscriptionRequest, SubscriptionState
from rederive.errors import Refused


@guard_class
class Connection:
    """A service, as a database to ask, to change and to follow.

    Whatever is asked is asked again, until there is an answer or `patience` seconds have gone by without one; a transaction under
    the same idempotency key, so that it is applied once.
    """

    def __init__(self, url: str, token: str | None = None, patience: float = 60.0, timeout: float = 60.0) -> None:
        options = requests.http_options(url, token, timeout)
        import httpx

        self.url = options["base_url"]
        self.patience = patience
        self._http = httpx.Client(**options)
        self._errors = (httpx.TransportError,)

    def apply(
        self, insert: Rows | None = None, delete: Rows | None = None, upsert: Rows | None = None, *, key: str | None = None
    ) -> CommitReceipt:
        """Commit one transaction: rows by base relation. It is on the service's disk when this returns."""
        return requests.committed(self.ask(requests.commit(requests.transaction(insert, delete, upsert), key)))

    def apply_lines(self, lines: Sequence[str], key: str) -> list[CommitReceipt]:
        """Commit transactions in the contract's format, a version each."""
        found = self.ask(requests.commit_lines(lines, key))
        return [requests.committed(one) for one in found["transactions"]]

    def transaction(self, key: str | None = None) -> Transaction:
        """Gather changes, and commit them together at the end of a `with` block that ends well."""
        return Transaction(self, key)

    def rows(self, relation: str, /, **bindings: Any) -> list[Row]:
        """The rows of a base relation or view now, with these values."""
        return self.answer(relation, **bindings).rows

    def answer(self, relation: str, /, **bindings: Any) -> VersionedRows:
        """The same with the version that it is of, and the names of the columns."""
        return requests.rows_of(self.ask(requests.read_rows(relation, bindings)))

    def subscribe(
        self,
        *views: str,
        only: str | None = None,
        every: str | None = None,
        precision: str | None = None,
        since: int | str | None = None,
        rows: Mapping[str, Iterable[Row]] | None = None,
        where: Mapping[str, Any] | None = None,
        **bindings: Any,
    ) -> Subscription:
        """Follow views: the first change is all their rows, and then come exactly the rows that enter and leave.

        A lost connection is made again, and nothing is missed or told twice. `since`, the `position` of an earlier
        subscription, with its `rows` where they are there, goes on where that was. `only`, `every`, `precision` and bindings
        are as in docs/service.md; `where` is for columns that Python cannot name here: `where={"low.item": "bolt"}`.
        """
        options = {"only": only, "every": every, "precision": precision}
        return Subscription(self, SubscriptionRequest.of(views, options, {**(where or {}), **bindings}), since, rows)

    # The wire

    def ask(self, call: HttpRequest) -> Any:
        """The JSON that a call gives."""
        patience = Backoff(self.patience)
        while True:
            try:
                response = self._http.request(call.method, call.path, **call.arguments())
            except self._errors as error:
                why = str(error) or type(error).__name__
            else:
                if not requests.is_later(response.status_code):
                    return requests.answer(response)
                why = str(requests.refusal(response).message)
            time.sleep(patience.wait(why))

    def events(self, call: HttpRequest, patience: Backoff) -> Generator[Event, None, None]:
        """The events of one connection, until it is lost."""
        try:
            with self._http.stream(call.method, call.path, **call.arguments()) as response:
                if response.status_code >= 400:
                    response.read()
                    raise requests.refusal(response)
                parser = SseParser()
                for piece in response.iter_bytes():
                    patience.answered()
                    yield from parser.feed(piece)
        except self._errors as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class ConnectionLost(Signal):
    """A connection that broke."""


@guard_class
class Subscription(SubscriptionState):
    """An iterator over changes. `rows` and `version` are what they amount to so far; `close` ends it."""

    def __init__(
        self,
        connection: Connection,
        wish: SubscriptionRequest,
        since: int | str | None,
        rows: Mapping[str, Iterable[Row]] | None = None,
    ) -> None:
        super().__init__(wish, since, rows)
        self._connection = connection
        self._changes = self._followed()

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        return next(self._changes)

    def _followed(self) -> Generator[Change, None, None]:
        patience = Backoff(self._connection.patience)
        while True:
            self.copy.begin()
            why = "the stream ended"
            try:
                with closing(self._connection.events(self.wish.call(self.position), patience)) as events:
                    for event in events:
                        if (change := self._heard(event)) is not None:
                            yield change
            except (ConnectionLost, ServiceClosing) as error:
                why = str(error) or why
            except Refused as error:
                if not requests.is_later(error.status):
                    raise
                why = error.message
            time.sleep(patience.wait(why))

    def close(self) -> None:
        self._changes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@guard_class
class Transaction:
    """Changes that are gathered here and committed together. `committed` is there afterwards."""

    committed: CommitReceipt

    def __init__(self, connection: Connection, key: str | None) -> None:
        self._connection = connection
        self._key = key
        self._sides: dict[str, dict[str, list[Any]]] = {}

    def insert(self, relation: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        self._add("insert", relation, rows)

    def delete(self, relation: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Deletes are applied before inserts, and upserts last, whatever the order here."""
        self._add("delete", relation, rows)

    def upsert(self, relation: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        self._add("upsert", relation, rows)

    def _add(self, side: str, relation: str, rows: Iterable[Any]) -> None:
        self._sides.setdefault(side, {}).setdefault(relation, []).extend(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.committed = self._connection.apply(**self._sides, key=self._key)
