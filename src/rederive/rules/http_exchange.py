"""One HTTP request within a deadline, over sockets: connecting, the TLS handshake, sending and the answer together.

Only the status is read, so that a receiver cannot keep us waiting with a body. A timeout of a socket is for a single call, which
each byte of a dripping receiver begins again; here every call gets what is left of the whole.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from time import monotonic
from typing import Final

_HEAD: Final = 65_536  # bytes of status lines and headers, of interim answers too


class BadAnswer(Exception):
    """What came back is not HTTP."""


def post_within(
    seconds: float, address: str, host: str, port: int, path: str, headers: Mapping[str, str], body: bytes, *, secure: bool
) -> int:
    """The status of the answer to one POST. OSError, BadAnswer or, at the deadline, TimeoutError."""
    ends = monotonic() + seconds
    plain = socket.create_connection((address, port), timeout=_left(ends))
    with closing(plain):
        if not secure:
            return _exchange(plain, ends, _request(host, port, 80, path, headers, body))
        plain.settimeout(_left(ends))
        # The certificate is checked against the name, although the connection goes to an address that was checked before.
        with ssl.create_default_context().wrap_socket(plain, server_hostname=host) as wrapped:
            return _exchange(wrapped, ends, _request(host, port, 443, path, headers, body))


def _left(ends: float) -> float:
    if (left := ends - monotonic()) <= 0:
        raise TimeoutError("the receiver took too long")
    return left


def _request(host: str, port: int, usual: int, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    name = f"[{host}]" if ":" in host else host
    own = {"Host": f"{name}:{port}" if port != usual else name, "Content-Length": str(len(body)), "Connection": "close"}
    lines = "".join(f"{key}: {value}\r\n" for key, value in {**own, **headers}.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("ascii") + body


def _exchange(connected: socket.socket, ends: float, request: bytes) -> int:
    rest = memoryview(request)
    while rest:
        connected.settimeout(_left(ends))
        rest = rest[connected.send(rest) :]
    return _status(connected, ends)


def _status(connected: socket.socket, ends: float) -> int:
    """The first final status: those from 100 to 199 announce another."""
    head, size = b"", 0
    while True:
        line, found, _ = head.partition(b"\r\n")
        if found:
            status = _status_of(line)
            if status >= 200:
                return status
            _, complete, after = head.partition(b"\r\n\r\n")
            if complete:
                head = after
                continue
        connected.settimeout(_left(ends))
        piece = connected.recv(4096)
        size += len(piece)
        if not piece or size > _HEAD:
            raise BadAnswer("the connection was closed without an answer" if not piece else "the answer has no end")
        head += piece


def _status_of(line: bytes) -> int:
    """
    >>> _status_of(b"HTTP/1.1 204 No Content")
    204
    """
    version, _, rest = line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit() or len(rest[:3]) != 3:
        raise BadAnswer("the answer is not HTTP/1.1")
    return int(rest[:3])
