"""A real HTTP server that takes webhooks, and answers as it is told to."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: str

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Receiver:
    """`answers`: the statuses of the next answers; 200 when there are none left."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}/hook"

    @property
    def host(self) -> str:
        return f"localhost:{self.port}"

    def keys(self) -> list[str]:
        """Without the epoch, which is another one in each store."""
        return [re.sub(r":[0-9a-f]{16}-", ":", one.headers["Idempotency-Key"]) for one in self.received]


@contextmanager
def receiver() -> Iterator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.received.append(Received(self.path, dict(self.headers), body))
            status = found.answers.pop(0) if found.answers else 200
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def socket_receiver(behave: Callable[[socket.socket], None]) -> Iterator[Receiver]:
    """A server below HTTP: `behave` has each connection, in a thread of its own, when the request begins to come."""
    found = Receiver()
    listening = socket.create_server(("127.0.0.1", 0))
    found.port = listening.getsockname()[1]

    def take(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            text = connection.recv(65_536).decode()
            found.received.append(Received(text.split(" ")[1], {}, text.partition("\r\n\r\n")[2]))
            behave(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=take, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield found
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def drip(connection: socket.socket) -> None:
    """An answer that comes byte by byte and has no end."""
    connection.sendall(b"HTTP/1.1 ")
    while True:
        connection.sendall(b"1")
        time.sleep(0.02)


def drip_headers(connection: socket.socket) -> None:
    """Interim answers for ever."""
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.02)


def hang(connection: socket.socket) -> None:
    connection.recv(1)


def close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def babble(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example.com ESMTP\r\n")


def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
