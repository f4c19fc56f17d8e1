"""The asynchronous client, `rederive.connect_async`: the methods of the blocking one, with `await`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
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
class AsyncConnection:
    """An asynchronous connection to a service; `Connection` documents what each method guarantees."""

    def __init__(self, url: str, token: str | None = None, patience: float = 60.0, timeout: float = 60.0) -> None:
        options = requests.http_options(url, token, timeout)
        import httpx

        self.url = options["base_url"]
        self.patience = patience
        self._http = httpx.AsyncClient(**options)
        # Every failure below HTTP: no connection, no answer in time, an answer that breaks off.
        self._errors = (httpx.TransportError,)

    async def apply(
        self, insert: Rows | None = None, delete: Rows | None = None, upsert: Rows | None = None, *, key: str | None = None
    ) -> CommitReceipt:
        """Commit one transaction. It is durable when this returns."""
        return requests.commit_receipt(await self.ask(requests.commit_request(requests.transaction(insert, delete, upsert), key)))

    async def apply_lines(self, lines: Sequence[str], key: str) -> list[CommitReceipt]:
        """Commit one transaction for each line, in the JSON format of the service."""
        found = await self.ask(requests.commit_lines_request(lines, key))
        return [requests.commit_receipt(one) for one in found["transactions"]]

    async def rows(self, relation: str, /, **bindings: Any) -> list[Row]:
        """Return the present rows of a base relation or view, with these values."""
        return (await self.answer(relation, **bindings)).rows

    async def answer(self, relation: str, /, **bindings: Any) -> VersionedRows:
        """Return the present rows with their version and the names of the columns."""
        return requests.versioned_rows(await self.ask(requests.rows_request(relation, bindings)))

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
    ) -> AsyncSubscription:
        """Follow views with `async for`."""
        options = {"only": only, "every": every, "precision": precision}
        return AsyncSubscription(self, SubscriptionRequest.of(views, options, {**(where or {}), **bindings}), since, rows)

    async def ask(self, request: HttpRequest) -> Any:
        """Send a request until the service answers. Return the JSON of the answer."""
        backoff = Backoff(self.patience)
        while True:
            try:
                response = await self._http.request(request.method, request.path, **request.arguments())
            except self._errors as error:
                why = str(error) or type(error).__name__
            else:
                if not requests.is_transient(response.status_code):
                    return requests.json_answer(response)
                why = str(requests.refusal(response).message)
            await asyncio.sleep(backoff.wait(why))

    async def events(self, request: HttpRequest, backoff: Backoff) -> AsyncGenerator[Event, None]:
        """Return the events of one stream, until it ends or the connection is lost."""
        try:
            async with self._http.stream(request.method, request.path, **request.arguments()) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise requests.refusal(response)
                parser = SseParser()
                async for piece in response.aiter_bytes():
                    # Every byte is a sign of life, also that of a heartbeat: the patience starts over.
                    backoff.reset()
                    for event in parser.feed(piece):
                        yield event
        except self._errors as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


@guard_class
class AsyncSubscription(SubscriptionState):
    """An asynchronous iterator over changes. `rows` and `version` are the state after the changes so far."""

    def __init__(
        self,
        connection: AsyncConnection,
        request: SubscriptionRequest,
        since: int | str | None,
        rows: Mapping[str, Iterable[Row]] | None = None,
    ) -> None:
        super().__init__(request, since, rows)
        self._connection = connection
        self._changes = self._follow()

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        return await anext(self._changes)

    async def _follow(self) -> AsyncGenerator[Change, None]:
        backoff = Backoff(self._connection.patience)
        while True:
            why = "the stream ended"
            try:
                async with aclosing(self._connection.events(self._next_stream(), backoff)) as events:
                    async for event in events:
                        if (change := self._apply(event)) is not None:
                            yield change
            except RESUMABLE as error:
                why = reason_to_resume(error) or why
            await asyncio.sleep(backoff.wait(why))

    async def close(self) -> None:
        """End the subscription."""
        await self._changes.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
