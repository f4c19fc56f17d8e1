"""A proxy that a test can cut, stop and make lose answers: what a network does, at the moment that the test wants."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """Carries bytes between clients and a server. Connections are closed with a reset, as a lost network would be."""

    def __init__(self, url: str) -> None:
        self._server = _address(url)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.cuts = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = Lock()
        self._open = True
        self._lost = 0
        self._left: int | None = None
        self._carried = Event()

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.close()
        self._close_all()

    def target(self, url: str) -> None:
        """Another server from now on."""
        self._server = _address(url)

    def cut(self) -> None:
        """All connections that there are break; new ones work."""
        self.cuts += 1
        self._close_all()

    def cut_after(self, size: int) -> None:
        """The connection that brings the answers beyond so many bytes breaks."""
        self._left = size

    def stop(self) -> None:
        """Connections break, and new ones do as soon as they are made."""
        self._open = False
        self._close_all()

    def go(self) -> None:
        self._open = True

    def lose_answers(self, number: int) -> None:
        """The next answers to transactions get lost, with their connections."""
        self._lost = number

    def until_asked(self) -> None:
        """Wait for an event to be on its way to a client."""
        assert self._carried.wait(30)

    def _close_all(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _break(end)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if not self._open:
                    _break(client)
                    continue
                server = socket.create_connection(self._server)
                with self._lock:
                    self._pairs.append((client, server))
                written = [b""]
                self._carry(client, server, lambda data, written=written: self._asked(data, written))  # type: ignore[misc]
                self._carry(server, client, lambda data, written=written: self._answered(data, written))  # type: ignore[misc]

    def _carry(self, source: socket.socket, sink: socket.socket, passes: Callable[[bytes], bool]) -> None:
        def run() -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    if not passes(data):
                        break
                    sink.sendall(data)
            _break(source)
            _break(sink)

        Thread(target=run, daemon=True).start()

    @staticmethod
    def _asked(data: bytes, written: list[bytes]) -> bool:
        if data[:4] in (b"POST", b"GET "):
            written[0] = data[:4]
        return True

    def _answered(self, data: bytes, written: list[bytes]) -> bool:
        if written[0] == b"POST" and self._lost:
            self._lost -= 1
            return False
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                self._left = None
                self.cuts += 1
                return False
        if b"data:" in data:
            self._carried.set()
        return True


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 80)


def _break(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        end.shutdown(socket.SHUT_RDWR)
    end.close()
