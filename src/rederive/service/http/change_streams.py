"""The changes of views as Server-Sent Events, over WebSocket, and as lines for clients that poll."""

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
from rederive.service.http.row_formats import choose_format
from rederive.service.http.service import LINES, Service
from rederive.service.http.transactions import POSITION
from rederive.service.http.views import url_parameters
from rederive.service.hub import Subscriber
from rederive.service.settings import Token
from rederive.service.subscription_request import SubscriptionRequest, parse_position, parse_request

EVENTS: Final = "text/event-stream"
WRITE_PAUSE: Final = 0.02
"""Seconds between two writes to one client. The first event is sent at once; under load, later ones share a write."""
# X-Accel-Buffering: nginx would collect events before it passes them on.
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class StreamedEvents(Protocol):
    """What an event stream sends."""

    async def send_events(self, send: Callable[[list[Any]], Awaitable[None]]) -> None:
        """Send events until the stream or the client ends."""

    def disconnect(self) -> None:
        """Note that the client is gone."""

    def close(self) -> None:
        """Release what the stream holds."""


class SubscriberConnection:
    """The connection of a subscriber: it starts the subscription, sends its events, and ends it."""

    def __init__(self, service: Service, connection: HTTPConnection, token: Token) -> None:
        self._service = service
        self._token = token
        self._parameters = url_parameters(connection)
        self._since = parse_position(connection.headers.get("last-event-id"), connection.query_params.get("since"))
        self._together = "name" not in connection.path_params
        # `/v1/changes?view=a&view=b` has one event for all views of a version; a path with a name has one view.
        names = [text for name, text in self._parameters if name == "view"]
        self._views = names if self._together else [connection.path_params["name"]]
        self._awake = asyncio.Event()
        self._subscriber: Subscriber | None = None
        self.is_gone = False

    def _request(self, db: Database) -> SubscriptionRequest:
        return parse_request(
            db.pipeline.state.program,
            db.pipeline.state.settings.precision,
            self._token,
            self._views,
            self._parameters,
            self._together,
            db.pipeline.state.epoch,
        )

    async def start(self) -> None:
        """Start the subscription at the present version. What is wrong with it is refused before anything is sent."""
        # Before the writer works for the request. `attach` checks again, because others may have come meanwhile.
        self._service.hub.check_room()
        max_events = self._service.project.bounds.queue

        def run(db: Database, followed: FollowedViews) -> tuple[SubscriptionRequest, CatchUp]:
            request = self._request(db)
            return request, followed.start(request, self._since, max_events)

        # The writer calls `_attach` before it publishes a later version: the subscriber misses none and gets none twice.
        await self._service.writer.run(run, self._attach)

    def _attach(self, started: tuple[SubscriptionRequest, CatchUp]) -> None:
        request, catch_up = started
        self._subscriber = Subscriber(request, self._service.project.bounds, self._awake.set)
        try:
            self._service.hub.attach(self._subscriber, catch_up.events, catch_up.version)
        except RederiveError:
            self.close()
            raise

    async def changes_since(self) -> tuple[bytes, str]:
        """Return the changes after a position as lines, and the position that they lead to."""

        def run(db: Database, followed: FollowedViews) -> tuple[bytes, str]:
            request = self._request(db)
            found = list(followed.changes_since(request.parts, self._since or 0))
            signed = ((n, {v: d for v, delta in deltas.items() if (d := delta.restrict(request.signs))}) for n, deltas in found)
            lines = b"".join(f"{request.shape.change(n, deltas).data}\n".encode() for n, deltas in signed if deltas)
            return lines, db.position

        return await self._service.writer.run(run)

    async def send_events(self, send: Callable[[list[Any]], Awaitable[None]]) -> None:
        """Send events until the subscription or the client ends."""
        subscriber = self._subscriber
        assert subscriber is not None
        while not self.is_gone:
            self._awake.clear()  # before taking: an event that arrives afterwards sets it again
            if events := self._service.hub.take(subscriber):
                await send(events)
                await asyncio.sleep(WRITE_PAUSE)
            elif subscriber.is_closed:
                return
            else:
                await self._awake.wait()

    def disconnect(self) -> None:
        """Note that the client is gone."""
        self.is_gone = True
        self._awake.set()

    def close(self) -> None:
        """End the subscription; ending it twice has no further effect."""
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            self._service.hub.detach(subscriber)
            # The hub forgets the subscriber at once; the writer stops following its parts when its turn comes.
            self._service.writer.run_later(lambda db, followed: followed.stop(subscriber.request))


class EventStream(Response):
    """A response that sends events until the client or the service ends it."""

    def __init__(self, events: StreamedEvents) -> None:
        super().__init__(None, 200, _HEADERS, EVENTS)
        # Starlette sets a length of 0 for an empty body, and this body has no known end.
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # An ASGI server reports the end of a connection only to whoever waits in `receive`.
        watch = asyncio.create_task(_watch_disconnect(receive, self._events, "http.disconnect"))
        try:
            # The headers go out before the first event, so that a client knows at once that it is subscribed.
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _send_body(send, b"retry: 1000\n\n")  # milliseconds before a browser reconnects
            await self._events.send_events(lambda events: _send_body(send, b"".join(event.sse for event in events)))
            # The end of the body, not of the connection: a client with keep-alive sees that the stream is complete.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watch.cancel()
            self._events.close()


async def _send_body(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _watch_disconnect(receive: Receive, events: StreamedEvents, last: str) -> None:
    """Wait for the end of the connection; other messages of the client are ignored."""
    while (await receive())["type"] != last:
        pass
    events.disconnect()


async def changes(service: Service, token: Token, request: Request) -> Response:
    """Stream the changes of one view, or of several views with one event for each version."""
    connection = SubscriberConnection(service, request, token)
    # Before anything is followed: a format that is not offered costs the writer nothing.
    media = choose_format(request.headers.get("accept"), (EVENTS, LINES))
    if request.method == "HEAD":
        return Response(media_type=media, headers=_HEADERS)
    if media == LINES:
        lines, position = await connection.changes_since()
        return Response(lines, media_type=LINES, headers={POSITION: position, "Vary": "Accept"})
    await connection.start()
    return EventStream(connection)


async def socket_changes(service: Service, token: Token, socket: WebSocket) -> None:
    """Stream changes over WebSocket: each event is one text message."""
    connection = SubscriberConnection(service, socket, token)
    # Before `accept`, so that a wrong request is refused with its HTTP status.
    await connection.start()
    await socket.accept()
    watch = asyncio.create_task(_watch_disconnect(socket.receive, connection, "websocket.disconnect"))

    async def send(events: list[Any]) -> None:
        for event in events:
            await socket.send_text(event.message)

    try:
        with suppress(RuntimeError, OSError, WebSocketDisconnect):  # the client may leave while an event is sent
            await connection.send_events(send)
            if not connection.is_gone:
                await socket.close()
    finally:
        watch.cancel()
        connection.close()
