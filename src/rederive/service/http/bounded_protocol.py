"""How much a connection may cost before it has asked for anything: its number, the size of its headers, and how long it may take.

uvicorn bounds none of these. A request whose headers or body do not arrive in time is answered 408 and its connection closed.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from rederive.errors import Busy, MalformedInput, RederiveError, TimedOut, TooLarge
from rederive.service.http.problems import MEDIA, encoded
from rederive.service.settings import ServiceLimits


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with bounds.

    The deadline of the headers runs from the connection, or from the first byte of a later request; that of the body from the end
    of the headers. Between requests uvicorn's own timeout for idle connections runs.
    """

    def __init__(self, bounds: ServiceLimits, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bounds = bounds
        self._deadline: TimerHandle | None = None
        self._head = 0  # bytes that came of a head that is not complete
        self._parsed = 0  # bytes of its headers that are
        self._in_head = True
        self._heads = 0  # how many are complete
        self._refusal: RederiveError | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._bounds.connections:
            self._refuse(503, Busy(f"there are {self._bounds.connections} connections already", hint="try again later"))
        else:
            self._set_deadline("headers", self._bounds.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is None and self._in_head:
            self._set_deadline("headers", self._bounds.header_seconds)
        was_in_head, heads = self._in_head, self._heads
        super().data_received(data)
        if was_in_head and heads == self._heads:
            self._head += len(data)
            if self._head > self._bounds.headers and not self.transport.is_closing():
                self._refuse(431, self._too_large())

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._parsed += len(name) + len(value) + len(": \r\n")
        self._check_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._parsed = 0

    def _check_head(self) -> None:
        """The whole head may come in one piece; the parser turns what is raised here into a refusal."""
        if len(self.url) + self._parsed > self._bounds.headers:
            self._refusal = self._too_large()
            raise self._refusal

    def on_headers_complete(self) -> None:
        self._in_head, self._head = False, 0
        self._heads += 1
        self._set_deadline("body", self._bounds.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._unset_deadline()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._unset_deadline()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        if self._refusal is not None:
            self._refuse(431, self._refusal)
        else:
            self._refuse(400, MalformedInput("the request is not HTTP/1.1"))

    def _set_deadline(self, what: str, seconds: float) -> None:
        self._unset_deadline()
        self._deadline = self.loop.call_later(seconds, partial(self._late, what, seconds))

    def _unset_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self, what: str, seconds: float) -> None:
        self._deadline = None
        answering = self._in_head and self.cycle is not None and not self.cycle.response_complete
        if not self.transport.is_closing() and not answering:
            self._refuse(408, TimedOut(f"the {what} of the request did not arrive within {seconds:g} s"))

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the headers have more than {self._bounds.headers} bytes", hint="send fewer or shorter ones")

    def _refuse(self, status: int, error: RederiveError) -> None:
        """Answer, unless an answer has begun, and close the connection."""
        self._unset_deadline()
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = encoded(status, error, {})
            head = f"content-type: {MEDIA}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode()
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()


class QuietWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSockets, for which a handshake that is refused by an answer is over: it logs an error for each otherwise."""

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
