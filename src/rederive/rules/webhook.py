"""Webhooks: where they may go, how they are signed, and how one is posted. `outbox` decides when.

A URL is allowed by its host. The name is resolved once, every address that it has is checked, and the connection is made to one
of those: a name whose address changes between the check and the connection reaches nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass
from time import monotonic
from typing import Final
from urllib.parse import quote, urlsplit

from rederive.errors import Span, Unsupported
from rederive.rules.http_exchange import BadAnswer, post_within
from rederive.store.position import Position

SIGNATURE: Final = "Rederive-Signature"
KEY: Final = "Idempotency-Key"
_PORTS: Final = {"http": 80, "https": 443}
_NOT_IN_A_URL: Final = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})")  # RFC 3986, 2
_NAME: Final = re.compile(r"(?=.{1,253}\.?$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\.?")


class NotSent(Exception):
    """A webhook that did not arrive, or whose receiver did not accept it; it is tried again."""


class NotAllowed(NotSent):
    """A webhook that may not go where it is to go: no receiver can change that."""


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Where webhooks may go, and the secret that signs them.

    `hosts`: names, with a port where it is not the usual one. `private`: whether addresses of this machine and of private
    networks are allowed, and `http` with them. In seconds: `timeout` of one attempt, from its beginning to the answer; `first`,
    the wait after a failure, which doubles up to `longest`. `attempts`: after so many a webhook is given up; by default that
    takes about four days.

    >>> allowed = Webhooks("secret", ("hooks.example.com", "localhost:8080"))
    >>> allowed.refusal("https://hooks.example.com/orders") is None
    True
    >>> allowed.refusal("https://elsewhere.example.com/")
    "the host 'elsewhere.example.com' is not allowed"
    >>> allowed.refusal("https://hooks.example.com/käse")
    "the character 'ä' must be percent-encoded in an address"
    """

    secret: str
    hosts: tuple[str, ...]
    private: bool = False
    timeout: float = 10.0
    first: float = 1.0
    longest: float = 3600.0
    attempts: int = 100

    def refusal(self, url: str) -> str | None:
        """Why an address may not be used; None where it may."""
        if (wrong := _NOT_IN_A_URL.search(url)) is not None:
            return f"the character {wrong[0]!r} must be percent-encoded in an address"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            return f"no address: {error}"
        if parts.scheme not in _PORTS or not host:
            return "an address begins with https:// and a host"
        if parts.username is not None or parts.password is not None:
            return "a name or password in an address"
        if port == 0 or not _is_host(host):
            return f"no address: '{parts.netloc}' is not a host and a port"
        if parts.fragment:
            return "a fragment ('#') is not sent to a receiver"
        if parts.scheme == "http" and not self.private:
            return "http is for private addresses, and these are not allowed"
        # A host without a port in the list allows the usual port of the scheme, and no other.
        known = host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"
        return None if known in map(str.lower, self.hosts) else f"the host '{known}' is not allowed"

    def check(self, url: str, span: Span) -> None:
        """Refuse a webhook whose address may not be used."""
        if (refusal := self.refusal(url)) is not None:
            hint = (
                "write an address that is allowed: hosts of [webhooks] in rederive.toml, or of Webhooks(secret, hosts) in Python"
            )
            raise Unsupported(f"not supported: this webhook: {refusal}", span, hint=hint)

    def wait(self, attempts: int) -> float:
        """How long to wait after so many attempts.

        >>> [Webhooks("secret", ()).wait(n) for n in (1, 2, 3, 30)]
        [1.0, 2.0, 4.0, 3600.0]
        """
        # The exponent is bounded, because 2.0 ** 1024 overflows.
        return min(self.first * 2.0 ** min(attempts - 1, 60), self.longest)

    def post(self, url: str, key: str, body: str, now: int) -> None:
        """Post once, within `timeout` seconds; NotSent where it was not accepted."""
        # Checked at every attempt: the list of hosts may differ from the one when the rule was defined.
        if (refusal := self.refusal(url)) is not None:
            raise NotAllowed(refusal)
        parts, began = urlsplit(url), monotonic()
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json", KEY: key, SIGNATURE: signature(self.secret, body, now)}
        try:
            address = self.address(host, port)
            left = self.timeout - (monotonic() - began)
            secure = parts.scheme == "https"
            status = post_within(left, address, host, port, path, headers, body.encode(), secure=secure)
        except (OSError, BadAnswer) as error:
            raise NotSent(f"{type(error).__name__}: {error}") from error
        # A redirect is not followed: its target was not checked.
        if not 200 <= status < 300:
            raise NotSent(f"status {status}")

    def address(self, host: str, port: int) -> str:
        """The address to connect to. Refused where any that the name has is not one of the public network, unless allowed."""
        # All addresses are checked, not only the first: an attacker's name may have a public and a private one.
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        for address in found if not self.private else ():
            if not is_public(address):
                raise NotAllowed(f"'{host}' has the address {address}, which is not public")
        return found[0]


def _is_host(host: str) -> bool:
    """
    >>> [_is_host(host) for host in ("hooks.example.com", "localhost", "::1", "127.0.0.1", "a..b", "-a", "a" * 64)]
    [True, True, True, True, False, False, False]
    """
    if ":" not in host:
        return _NAME.fullmatch(host) is not None
    try:
        return ipaddress.ip_address(host) is not None
    except ValueError:
        return False


def key_of(rule: str, position: Position) -> str:
    """What a receiver knows a repetition by. The name of a rule may be any text, and a header may not.

    >>> key_of("low", Position(7, "00c0ffee00c0ffee")), key_of("knapp für heute", Position(7))
    ('low:00c0ffee00c0ffee-7', 'knapp%20f%C3%BCr%20heute:7')
    """
    return f"{quote(rule, safe='')}:{position}"


def is_public(address: str) -> bool:
    """Whether an address belongs to the public network, also where it is written as another one.

    >>> [is_public(a) for a in ("93.184.215.14", "127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fd00::1")]
    [True, False, False, False, False, False, False]
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    # Three ways to write an IPv4 address as IPv6: mapped, 6to4 and Teredo.
    inside = (ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())) if isinstance(ip, ipaddress.IPv6Address) else ()
    return all(one.is_global and not one.is_multicast for one in (ip, *(one for one in inside if one is not None)))


def signature(secret: str, body: str, now: int) -> str:
    """The header that a receiver compares: the time, and the HMAC-SHA256 of the time, a dot and the body.

    >>> signature("secret", "{}", 1700000000)
    't=1700000000,v1=b8569b78799ff9e3cbff0fc2d63a33a2b57f3282abd07c37ae5e8e7d79a5f163'
    """
    # The time is signed with the body, so that a receiver can refuse a message that somebody recorded and sends again.
    mac = hmac.new(secret.encode(), f"{now}.{body}".encode(), hashlib.sha256)
    return f"t={now},v1={mac.hexdigest()}"
