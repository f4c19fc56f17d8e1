"""Webhooks: where they may go, how they are signed, and how one is posted. What waits to be sent is `courier`'s business.

An address is allowed by its host. Its name is resolved once; every address that it has is checked, and the connection is made to
one of those, so that a name which changes its mind between the check and the connection reaches nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
import ssl
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import SplitResult, urlsplit

from rederive.errors import Span, Unsupported

SIGNATURE: Final = "Rederive-Signature"
KEY: Final = "Idempotency-Key"
_PORTS: Final = {"http": 80, "https": 443}


class NotSent(Exception):
    """A webhook that did not arrive, or whose receiver did not accept it; it is tried again."""


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Where webhooks may go, and the secret that signs them.

    `hosts`: names, with a port where it is not the usual one. `private`: whether addresses of this machine and of private
    networks are allowed, and `http` with them. In seconds: `timeout` of one attempt; `first`, the wait after a failure,
    which doubles up to `longest`.

    >>> allowed = Webhooks("secret", ("hooks.example.com", "localhost:8080"))
    >>> allowed.refusal("https://hooks.example.com/orders") is None
    True
    >>> allowed.refusal("https://elsewhere.example.com/")
    "the host 'elsewhere.example.com' is not allowed"
    """

    secret: str
    hosts: tuple[str, ...]
    private: bool = False
    timeout: float = 10.0
    first: float = 1.0
    longest: float = 3600.0

    def refusal(self, url: str) -> str | None:
        """Why an address may not be used; None where it may."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            return f"no address: {error}"
        if parts.scheme not in _PORTS or not parts.hostname:
            return "an address begins with https:// and a host"
        if parts.username is not None or parts.password is not None:
            return "a name or password in an address"
        if parts.scheme == "http" and not self.private:
            return "http is for private addresses, and these are not allowed"
        known = parts.hostname if port in (None, _PORTS[parts.scheme]) else f"{parts.hostname}:{port}"
        return None if known in self.hosts else f"the host '{known}' is not allowed"

    def check(self, url: str, span: Span) -> None:
        if (refusal := self.refusal(url)) is not None:
            hint = 'allow it where the database is opened: rederive.open(path, webhooks=Webhooks(secret, ("host",)))'
            raise Unsupported(f"not supported: this webhook: {refusal}", span, hint=hint)

    def wait(self, attempts: int) -> float:
        """How long to wait after so many attempts.

        >>> [Webhooks("secret", ()).wait(n) for n in (1, 2, 3, 30)]
        [1.0, 2.0, 4.0, 3600.0]
        """
        return min(self.first * 2.0 ** min(attempts - 1, 60), self.longest)

    def post(self, url: str, key: str, body: str, now: int) -> None:
        """Post once; NotSent where it was not accepted."""
        if (refusal := self.refusal(url)) is not None:
            raise NotSent(refusal)
        parts = urlsplit(url)
        try:
            status = self._exchange(parts, self._headers(key, body, now), body.encode())
        except (OSError, HTTPException) as error:
            raise NotSent(f"{type(error).__name__}: {error}") from error
        if not 200 <= status < 300:
            raise NotSent(f"status {status}")

    def _headers(self, key: str, body: str, now: int) -> dict[str, str]:
        return {"Content-Type": "application/json", KEY: key, SIGNATURE: signature(self.secret, body, now)}

    def _exchange(self, parts: SplitResult, headers: dict[str, str], body: bytes) -> int:
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        connection = HTTPConnection(host, port, timeout=self.timeout)
        with closing(connection):
            connection.sock = self._connected(host, port, secure=parts.scheme == "https")
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, headers)
            return connection.getresponse().status

    def _connected(self, host: str, port: int, *, secure: bool) -> socket.socket:
        plain = socket.create_connection((self.address(host, port), port), timeout=self.timeout)
        if not secure:
            return plain
        try:
            return ssl.create_default_context().wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def address(self, host: str, port: int) -> str:
        """The address to connect to. Refused where any that the name has is not one of the public network, unless allowed."""
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for address in found if not self.private else ():
            if not is_public(address):
                raise NotSent(f"'{host}' has the address {address}, which is not public")
        return found[0]


def is_public(address: str) -> bool:
    """Whether an address belongs to the public network, also where it is written as another one.

    >>> [is_public(a) for a in ("93.184.215.14", "127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00::1")]
    [True, False, False, False, False, False, False]
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    inside = (ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())) if isinstance(ip, ipaddress.IPv6Address) else ()
    return all(one.is_global and not one.is_multicast for one in (ip, *(one for one in inside if one is not None)))


def signature(secret: str, body: str, now: int) -> str:
    """The header that a receiver compares: the time, and the HMAC-SHA256 of the time, a dot and the body.

    >>> signature("secret", "{}", 1700000000)
    't=1700000000,v1=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163'
    """
    mac = hmac.new(secret.encode(), f"{now}.{body}".encode(), hashlib.sha256)
    return f"t={now},v1={mac.hexdigest()}"
