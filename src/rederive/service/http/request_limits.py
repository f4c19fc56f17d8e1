"""Limits on requests, which uvicorn does not have: the number of connections, the size of head and body, the time that they take.

A request whose headers or body do not arrive in time is answered with status 408, and its connection is closed.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from functools import partial
from typing import Any

from starlette.requests import Request
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from rederive.errors import Busy, MalformedInput, RederiveError, TimedOut, TooLarge, WrongMedia
from rederive.service.http.problems import MEDIA, encode_problem
from rederive.service.settings import ServiceLimits


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with limits.

    The deadline of the headers begins with the connection or, for a later request, with its first byte. The deadline of the
    body begins when the headers are complete. Between requests uvicorn's own timeout for idle connections applies.
    """

    def __init__(self, bounds: ServiceLimits, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bounds = bounds
        self._deadline: TimerHandle | None = None
        self._head = 0  # bytes received of a head that is not complete
        self._parsed = 0  # bytes of the headers parsed so far
        self._in_head = True
        self._heads = 0  # complete heads
        self._refusal: RederiveError | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Accept a connection, unless there are too many."""
        super().connection_made(transport)
        # uvicorn has added this connection to the set already, so the limit itself is still accepted.
        if len(self.connections) > self._bounds.connections:
            self._refuse(503, Busy(f"the service already has {self._bounds.connections} connections", hint="try again later"))
        else:
            self._set_deadline("headers", self._bounds.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        self._clear_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse a piece of a request, and check the size of its head."""
        if self.transport.is_closing():
            return
        if self._deadline is None and self._in_head:
            self._set_deadline("headers", self._bounds.header_seconds)
        # Bytes count as head only if this piece completes no head: the rest of a piece may be a body or a next request.
        was_in_head, heads = self._in_head, self._heads
        super().data_received(data)
        if was_in_head and heads == self._heads:
            self._head += len(data)
            if self._head > self._bounds.headers and not self.transport.is_closing():
                self._refuse(431, self._too_large())

    def on_url(self, url: bytes) -> None:
        """Note a piece of the request line."""
        super().on_url(url)
        self._check_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header."""
        super().on_header(name, value)
        self._parsed += len(name) + len(value) + len(": \r\n")
        self._check_head()

    def on_message_begin(self) -> None:
        """Start a new head."""
        super().on_message_begin()
        self._parsed = 0

    def _check_head(self) -> None:
        """Check the size of a head that arrives in one piece. The parser passes the exception to `send_400_response`."""
        if len(self.url) + self._parsed > self._bounds.headers:
            self._refusal = self._too_large()
            raise self._refusal

    def on_headers_complete(self) -> None:
        """Start the deadline of the body."""
        self._in_head, self._head = False, 0
        self._heads += 1
        self._set_deadline("body", self._bounds.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        self._in_head = True
        self._clear_deadline()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        """Remove the deadlines: a WebSocket stays open."""
        self._clear_deadline()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be parsed, or whose head is too large."""
        if self._refusal is not None:
            self._refuse(431, self._refusal)
        else:
            self._refuse(400, MalformedInput("the request is not HTTP/1.1"))

    def _set_deadline(self, what: str, seconds: float) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, partial(self._expire, what, seconds))

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self, what: str, seconds: float) -> None:
        self._deadline = None
        # A pipelined request may be late while the answer to the one before is still being sent; that answer goes first.
        is_answering = self._in_head and self.cycle is not None and not self.cycle.response_complete
        if not self.transport.is_closing() and not is_answering:
            self._refuse(408, TimedOut(f"the {what} of the request did not arrive within {seconds:g} s"))

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the headers have more than {self._bounds.headers} bytes", hint="send fewer or shorter headers")

    def _refuse(self, status: int, error: RederiveError) -> None:
        """Send the problem, unless a response has begun, and close the connection."""
        self._clear_deadline()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = encode_problem(status, error, {})
            head = f"content-type: {MEDIA}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            # `close` sends what is written before it ends the connection.
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


async def read_body(request: Request, bounds: ServiceLimits, accepted: tuple[str, ...]) -> tuple[str, bytes]:
    """Return the media type and the body of a request; a body that exceeds the limit is refused before it is read whole."""
    media = _media_type(request, accepted)
    limit, parts, size = bounds.body, [], 0
    declared = request.headers.get("content-length", "0")
    # A chunked body declares no length; its pieces are counted.
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return media, b"".join(parts)


def _media_type(request: Request, accepted: tuple[str, ...]) -> str:
    """Return the type of a body. It is required: a page of another host can send forms, but not JSON, without permission."""
    # Parameters such as charset do not matter: JSON is UTF-8.
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in accepted:
        raise WrongMedia(f"the type of the body is '{media}'", hint=f"send {' or '.join(accepted)}")
    return media


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body has more than {limit} bytes", hint="send less in one request")


class QuietWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, without the error that it logs for each refused handshake."""

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
