"""Changes of views as Server-Sent Events, over WebSocket, and as lines for those who poll."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from rederive.database import Database
from rederive.errors import RederiveError
from rederive.service.followed_views import CatchUp, FollowedViews
from rederive.service.http.row_formats import chosen
from rederive.service.http.service import Service
from rederive.service.http.views import POSITION, parameters
from rederive.service.hub import Subscriber, SubscriptionRequest
from rederive.service.settings import Token
from rederive.service.subscription_request import cursor, wish

EVENTS: Final = "text/event-stream"
LINES: Final = "application/x-ndjson"
PAUSE: Final = 0.02
"""Seconds between two writes to one client: under load, what came in between goes as one. The first event goes at once."""
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class SubscriberConnection:
    """A connection's side of a subscription: it begins in its turn, is woken when there is something to take, and ends once."""

    def __init__(self, service: Service, connection: HTTPConnection, token: Token) -> None:
        self._service = service
        self._token = token
        self._parameters = parameters(connection)
        self._cursor = cursor(connection.headers.get("last-event-id"), connection.query_params.get("since"))
        self._together = "name" not in connection.path_params
        names = [text for name, text in self._parameters if name == "view"]
        self._views = names if self._together else [connection.path_params["name"]]
        self._awake = asyncio.Event()
        self._client: Subscriber | None = None
        self.gone = False

    def _wish(self, db: Database) -> SubscriptionRequest:
        return wish(db.program, db.precision, self._token, self._views, self._parameters, self._together, db.epoch)

    async def begin(self) -> None:
        """Begin at the present version. What is refused here is refused before anything is sent."""
        self._service.hub.check_room()
        most = self._service.project.bounds.queue

        def run(db: Database, follower: FollowedViews) -> tuple[SubscriptionRequest, CatchUp]:
            wanted = self._wish(db)
            return wanted, follower.begin(wanted, self._cursor, most)

        await self._service.writer.ask(run, self._attach)

    def _attach(self, begun: tuple[SubscriptionRequest, CatchUp]) -> None:
        wanted, beginning = begun
        self._client = Subscriber(wanted, self._service.project.bounds, self._awake.set)
        try:
            self._service.hub.attach(self._client, beginning.events, beginning.version)
        except RederiveError:
            self.end()
            raise

    async def past(self) -> tuple[bytes, str]:
        """What happened after a version, as lines, and where they lead; refused where it is no longer kept."""

        def run(db: Database, follower: FollowedViews) -> tuple[bytes, str]:
            wanted = self._wish(db)
            found = list(follower.past(wanted.parts, self._cursor or 0))
            only = ((n, {v: d for v, delta in deltas.items() if (d := delta.only(wanted.signs))}) for n, deltas in found)
            lines = b"".join(f"{wanted.shape.change(n, deltas).data}\n".encode() for n, deltas in only if deltas)
            return lines, db.position

        return await self._service.writer.ask(run)

    async def follow(self, send: Callable[[list[Any]], Awaitable[None]]) -> None:
        """Send what there is until one of the two ends it."""
        client = self._client
        assert client is not None
        while not self.gone:
            self._awake.clear()
            if events := self._service.hub.take(client):
                await send(events)
                await asyncio.sleep(PAUSE)
            elif client.closed:
                return
            else:
                await self._awake.wait()

    def leave(self) -> None:
        """The client is gone."""
        self.gone = True
        self._awake.set()

    def end(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._service.hub.detach(client)
            self._service.writer.post(lambda db, follower: follower.end(client.wish))


class Followed(Protocol):
    """What an event stream sends."""

    async def follow(self, send: Callable[[list[Any]], Awaitable[None]]) -> None: ...
    def leave(self) -> None: ...
    def end(self) -> None: ...


class EventStream(Response):
    """A response that goes on until its client leaves or its view does."""

    def __init__(self, subscriber: Followed) -> None:
        super().__init__(None, 200, _HEADERS, EVENTS)
        del self.headers["content-length"]
        self._subscriber = subscriber

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(_until_gone(receive, self._subscriber, "http.disconnect"))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _body(send, b"retry: 1000\n\n")
            await self._subscriber.follow(lambda events: _body(send, b"".join(event.sse for event in events)))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watch.cancel()
            self._subscriber.end()


async def _body(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive, subscriber: Followed, last: str) -> None:
    """What a client says is not listened to; that it leaves is."""
    while (await receive())["type"] != last:
        pass
    subscriber.leave()


async def changes(service: Service, token: Token, request: Request) -> Response:
    """The changes of a view, or of several with one event for each version."""
    subscriber = SubscriberConnection(service, request, token)
    media = chosen(request.headers.get("accept"), (EVENTS, LINES))
    if request.method == "HEAD":
        return Response(media_type=media, headers=_HEADERS)
    if media == LINES:
        lines, position = await subscriber.past()
        return Response(lines, media_type=LINES, headers={POSITION: position, "Vary": "Accept"})
    await subscriber.begin()
    return EventStream(subscriber)


async def socket_changes(service: Service, token: Token, socket: WebSocket) -> None:
    """`changes` over WebSocket: each event is one text message."""
    subscriber = SubscriberConnection(service, socket, token)
    await subscriber.begin()
    await socket.accept()
    watch = asyncio.create_task(_until_gone(socket.receive, subscriber, "websocket.disconnect"))

    async def send(events: list[Any]) -> None:
        for event in events:
            await socket.send_text(event.message)

    try:
        with suppress(RuntimeError, OSError, WebSocketDisconnect):  # the client left while something was sent
            await subscriber.follow(send)
            if not subscriber.gone:
                await socket.close()
    finally:
        watch.cancel()
        subscriber.end()
