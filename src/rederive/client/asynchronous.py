"""The asynchronous client: `rederive.connect_async`, the same calls with `await` before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

from rederive.boundary import guard_class
from rederive.client import requests
from rederive.client.blocking import ConnectionLost
from rederive.client.replica import Change, Row
from rederive.client.requests import Backoff, CommitReceipt, HttpRequest, Rows, VersionedRows
from rederive.client.sse import Event, SseParser
from rederive.client.subscription_state import ServiceClosing, SubscriptionRequest, SubscriptionState
from rederive.errors import Refused


@guard_class
class AsyncConnection:
    """A service, as a database to ask, to change and to follow; see `Connection` for what each call promises."""

    def __init__(self, url: str, token: str | None = None, patience: float = 60.0, timeout: float = 60.0) -> None:
        options = requests.http_options(url, token, timeout)
        import httpx

        self.url = options["base_url"]
        self.patience = patience
        self._http = httpx.AsyncClient(**options)
        self._errors = (httpx.TransportError,)

    async def apply(
        self, insert: Rows | None = None, delete: Rows | None = None, upsert: Rows | None = None, *, key: str | None = None
    ) -> CommitReceipt:
        """Commit one transaction; it is on the service's disk when this returns."""
        return requests.committed(await self.ask(requests.commit(requests.transaction(insert, delete, upsert), key)))

    async def apply_lines(self, lines: Sequence[str], key: str) -> list[CommitReceipt]:
        """Commit transactions in the contract's format, a version each."""
        found = await self.ask(requests.commit_lines(lines, key))
        return [requests.committed(one) for one in found["transactions"]]

    async def rows(self, relation: str, /, **bindings: Any) -> list[Row]:
        """The rows of a base relation or view now, with these values."""
        return (await self.answer(relation, **bindings)).rows

    async def answer(self, relation: str, /, **bindings: Any) -> VersionedRows:
        """The same with the version that it is of, and the names of the columns."""
        return requests.rows_of(await self.ask(requests.read_rows(relation, bindings)))

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
        """Follow views, with `async for`."""
        options = {"only": only, "every": every, "precision": precision}
        return AsyncSubscription(self, SubscriptionRequest.of(views, options, {**(where or {}), **bindings}), since, rows)

    async def ask(self, call: HttpRequest) -> Any:
        """The JSON that a call gives."""
        patience = Backoff(self.patience)
        while True:
            try:
                response = await self._http.request(call.method, call.path, **call.arguments())
            except self._errors as error:
                why = str(error) or type(error).__name__
            else:
                if not requests.is_later(response.status_code):
                    return requests.answer(response)
                why = str(requests.refusal(response).message)
            await asyncio.sleep(patience.wait(why))

    async def events(self, call: HttpRequest, patience: Backoff) -> AsyncGenerator[Event, None]:
        """The events of one connection, until it is lost."""
        try:
            async with self._http.stream(call.method, call.path, **call.arguments()) as response:
                if response.status_code >= 400:
                    await response.aread()
                    raise requests.refusal(response)
                parser = SseParser()
                async for piece in response.aiter_bytes():
                    patience.answered()
                    for event in parser.feed(piece):
                        yield event
        except self._errors as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


@guard_class
class AsyncSubscription(SubscriptionState):
    """An asynchronous iterator over changes. `rows` and `version` are what they amount to so far; `close` ends it."""

    def __init__(
        self,
        connection: AsyncConnection,
        wish: SubscriptionRequest,
        since: int | str | None,
        rows: Mapping[str, Iterable[Row]] | None = None,
    ) -> None:
        super().__init__(wish, since, rows)
        self._connection = connection
        self._changes = self._followed()

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        return await anext(self._changes)

    async def _followed(self) -> AsyncGenerator[Change, None]:
        patience = Backoff(self._connection.patience)
        while True:
            self.copy.begin()
            why = "the stream ended"
            try:
                async with aclosing(self._connection.events(self.wish.call(self.position), patience)) as events:
                    async for event in events:
                        if (change := self._heard(event)) is not None:
                            yield change
            except (ConnectionLost, ServiceClosing) as error:
                why = str(error) or why
            except Refused as error:
                if not requests.is_later(error.status):
                    raise
                why = error.message
            await asyncio.sleep(patience.wait(why))

    async def close(self) -> None:
        await self._changes.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
