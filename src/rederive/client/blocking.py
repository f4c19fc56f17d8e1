"""The blocking client: `rederive.connect`."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from types import TracebackType
from typing import Any, Self

from rederive.boundary import guard_class
from rederive.client import requests
from rederive.client.replica import Change
from rederive.client.requests import Backoff, CommitReceipt, HttpRequest, Rows, VersionedRows
from rederive.client.sse import Event, SseParser
from rederive.client.subscription_state import (
    RESUMABLE,
    ConnectionLost,
    SubscriptionRequest,
    SubscriptionState,
    reason_to_resume,
)
from rederive.delta import Row


@guard_class
class Connection:
    """A connection to a service: read, change and follow its database.

    Every request is repeated until the service answers or `patience` seconds have passed without an answer. A transaction is
    repeated with its idempotency key, so that it is applied once.
    """

    def __init__(self, url: str, token: str | None = None, patience: float = 60.0, timeout: float = 60.0) -> None:
        options = requests.http_options(url, token, timeout)
        import httpx

        self.url = options["base_url"]
        self.patience = patience
        self._http = httpx.Client(**options)
        # Every failure below HTTP: no connection, no answer in time, an answer that breaks off.
        self._errors = (httpx.TransportError,)

    def apply(
        self, insert: Rows | None = None, delete: Rows | None = None, upsert: Rows | None = None, *, key: str | None = None
    ) -> CommitReceipt:
        """Commit one transaction: rows by base relation. It is durable when this returns."""
        return requests.commit_receipt(self.ask(requests.commit_request(requests.transaction(insert, delete, upsert), key)))

    def apply_lines(self, lines: Sequence[str], key: str) -> list[CommitReceipt]:
        """Commit one transaction for each line, in the JSON format of the service."""
        found = self.ask(requests.commit_lines_request(lines, key))
        return [requests.commit_receipt(one) for one in found["transactions"]]

    def transaction(self, key: str | None = None) -> Transaction:
        """Collect changes, and commit them together when the `with` block ends without an exception."""
        return Transaction(self, key)

    def rows(self, relation: str, /, **bindings: Any) -> list[Row]:
        """Return the present rows of a base relation or view, with these values."""
        return self.answer(relation, **bindings).rows

    def answer(self, relation: str, /, **bindings: Any) -> VersionedRows:
        """Return the present rows with their version and the names of the columns."""
        return requests.versioned_rows(self.ask(requests.rows_request(relation, bindings)))

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
        """Follow views: the first change has all their rows, later ones exactly the rows that enter and leave.

        A lost connection is opened again; no change is missed or repeated. `since` resumes from the `position` of an earlier
        subscription, with its `rows` if they were saved. `only`, `every`, `precision` and bindings are as in docs/service.md.
        `where` binds columns whose names are not Python identifiers: `where={"low.item": "bolt"}`.
        """
        options = {"only": only, "every": every, "precision": precision}
        return Subscription(self, SubscriptionRequest.of(views, options, {**(where or {}), **bindings}), since, rows)

    # Requests

    def ask(self, request: HttpRequest) -> Any:
        """Send a request until the service answers. Return the JSON of the answer."""
        backoff = Backoff(self.patience)
        while True:
            try:
                response = self._http.request(request.method, request.path, **request.arguments())
            except self._errors as error:
                why = str(error) or type(error).__name__
            else:
                if not requests.is_transient(response.status_code):
                    return requests.json_answer(response)
                why = str(requests.refusal(response).message)
            time.sleep(backoff.wait(why))

    def events(self, request: HttpRequest, backoff: Backoff) -> Generator[Event, None, None]:
        """Return the events of one stream, until it ends or the connection is lost."""
        try:
            with self._http.stream(request.method, request.path, **request.arguments()) as response:
                if response.status_code >= 400:
                    response.read()
                    raise requests.refusal(response)
                parser = SseParser()
                for piece in response.iter_bytes():
                    # Every byte is a sign of life, also that of a heartbeat: the patience starts over.
                    backoff.reset()
                    yield from parser.feed(piece)
        except self._errors as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@guard_class
class Subscription(SubscriptionState):
    """An iterator over changes. `rows` and `version` are the state after the changes so far."""

    def __init__(
        self,
        connection: Connection,
        request: SubscriptionRequest,
        since: int | str | None,
        rows: Mapping[str, Iterable[Row]] | None = None,
    ) -> None:
        super().__init__(request, since, rows)
        self._connection = connection
        self._changes = self._follow()

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        return next(self._changes)

    def _follow(self) -> Generator[Change, None, None]:
        backoff = Backoff(self._connection.patience)
        while True:
            why = "the stream ended"
            try:
                with closing(self._connection.events(self._next_stream(), backoff)) as events:
                    for event in events:
                        if (change := self._apply(event)) is not None:
                            yield change
            except RESUMABLE as error:
                why = reason_to_resume(error) or why
            time.sleep(backoff.wait(why))

    def close(self) -> None:
        """End the subscription."""
        self._changes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@guard_class
class Transaction:
    """Changes that are committed together. `committed` is the receipt afterwards."""

    committed: CommitReceipt

    def __init__(self, connection: Connection, key: str | None) -> None:
        self._connection = connection
        self._key = key
        self._sides: dict[str, dict[str, list[Any]]] = {}

    def insert(self, relation: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Insert rows into a base relation."""
        self._add("insert", relation, rows)

    def delete(self, relation: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Delete rows. Whatever the order of the calls, deletes are applied first, then inserts, then upserts."""
        self._add("delete", relation, rows)

    def upsert(self, relation: str, rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> None:
        """Insert rows that replace those with the same key."""
        self._add("upsert", relation, rows)

    def _add(self, side: str, relation: str, rows: Iterable[Any]) -> None:
        self._sides.setdefault(side, {}).setdefault(relation, []).extend(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.committed = self._connection.apply(**self._sides, key=self._key)
