"""Requests and answers as data, and how long to go on trying: what the blocking and the asynchronous connection share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from time import monotonic
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit
from uuid import uuid4

from rederive.client.replica import Row
from rederive.errors import MalformedInput, MissingDependency, Refused, Unreachable

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
SHORTEST, LONGEST = 0.05, 2.0  # seconds between two attempts
_LATER: Final = (429, 502, 503, 504)  # statuses of a service that may do it another time
Rows = Mapping[str, Iterable[Sequence[Any] | Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that may be sent again: it reads, or it carries an idempotency key."""

    method: str
    path: str
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    def arguments(self) -> dict[str, Any]:
        """As httpx takes them."""
        return {"params": list(self.params), "headers": dict(self.headers), "content": self.content}


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """A transaction that is on the service's disk. `repeated`: it was there already, under the same key."""

    version: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class VersionedRows:
    """The rows of a relation or view at a version."""

    version: int
    columns: tuple[str, ...]
    rows: list[Row]


class Response(Protocol):
    """What is read of an answer."""

    @property
    def status_code(self) -> int: ...
    @property
    def content(self) -> bytes: ...


def http_options(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """What a client of httpx is made with."""
    with needed():
        import httpx
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    limits = httpx.Limits(max_connections=None)
    return {"base_url": checked_url(url), "headers": headers, "timeout": timeout, "limits": limits, "trust_env": False}


def transaction(insert: Rows | None = None, delete: Rows | None = None, upsert: Rows | None = None) -> dict[str, Any]:
    """A transaction in the contract's format."""
    given = {"insert": insert, "delete": delete, "upsert": upsert}
    return {name: {relation: list(rows) for relation, rows in side.items()} for name, side in given.items() if side}


def commit(changes: Mapping[str, Any], key: str | None) -> HttpRequest:
    """One transaction. Without a key it gets one of its own, so that it can be sent again.

    >>> commit({"insert": {"edge": [("a", "b")]}}, "order-17").content
    b'{"insert": {"edge": [["a", "b"]]}}'
    """
    content = json.dumps(changes, default=_plain, ensure_ascii=False).encode()
    return HttpRequest("POST", "/v1/transactions", (), {"Content-Type": JSON, "Idempotency-Key": key or uuid4().hex}, content)


def commit_lines(lines: Sequence[str], key: str) -> HttpRequest:
    """Transactions in the contract's format, one on each line, in one request."""
    headers = {"Content-Type": LINES, "Idempotency-Key": key}
    return HttpRequest("POST", "/v1/transactions", (), headers, "\n".join(lines).encode())


def read_rows(relation: str, bindings: Mapping[str, Any]) -> HttpRequest:
    """The rows of a relation or view with these values."""
    return HttpRequest("GET", f"/v1/relations/{quote(relation, safe='')}/rows", parameters(bindings), {"Accept": JSON})


def parameters(bindings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """
    >>> parameters({"x": "a", "n": 3, "open": True})
    [('x', 'a'), ('n', '3'), ('open', 'true')]
    """
    return [(name, value if isinstance(value, str) else str(_scalar(value))) for name, value in bindings.items()]


def _scalar(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool) else value.isoformat() if isinstance(value, date) else value


def _plain(value: object) -> str:
    match value:
        case Decimal():
            return str(value)
        case date():
            return value.isoformat()
        case _:
            raise MalformedInput(f"{value!r} is no value of a column")


# Answers


def answer(response: Response) -> Any:
    """The JSON of an answer; what was refused is raised with the service's own code."""
    if response.status_code < 400:
        return json.loads(response.content)
    raise refusal(response)


def refusal(response: Response) -> Refused:
    try:
        problem = json.loads(response.content)
        refused = Refused(
            problem["code"], problem["detail"], hint=problem.get("hint"), status=response.status_code, problem=problem
        )
    except (ValueError, KeyError, TypeError):  # something between here and the service answered
        text = response.content[:200].decode(errors="replace")
        return Refused("refused", f"status {response.status_code}: {text}", status=response.status_code)
    return refused.at(problem["place"]) if problem.get("place") else refused


def committed(found: Mapping[str, Any]) -> CommitReceipt:
    return CommitReceipt(found["version"], found["repeated"])


def rows_of(found: Mapping[str, Any]) -> VersionedRows:
    return VersionedRows(found["version"], tuple(c["name"] for c in found["columns"]), [tuple(row) for row in found["rows"]])


# Trying again


@dataclass(slots=True)
class Backoff:
    """Attempts after longer and longer waits, until one has been without an answer for so many seconds.

    >>> patience = Backoff(60.0)
    >>> [patience.wait("no answer", 0.0), patience.wait("no answer", 1.0), patience.wait("no answer", 2.0)]
    [0.05, 0.1, 0.2]
    """

    seconds: float
    attempts: int = 0
    _first: float | None = None

    def wait(self, why: str, now: float | None = None) -> float:
        """The seconds to wait before the next attempt."""
        now = monotonic() if now is None else now
        self._first = now if self._first is None else self._first
        if now - self._first >= self.seconds:
            raise Unreachable(f"no answer for {self.seconds:g} seconds: {why}", hint="is the service running at this address?")
        self.attempts += 1
        return min(LONGEST, SHORTEST * 2.0 ** min(self.attempts - 1, 20))

    def answered(self) -> None:
        self.attempts, self._first = 0, None


def is_later(status: int) -> bool:
    """Whether the service may do another time what it does not do now."""
    return status in _LATER


def checked_url(url: str) -> str:
    """
    >>> checked_url("http://127.0.0.1:8420/")
    'http://127.0.0.1:8420'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise MalformedInput(f"'{url}' is no address of a service", hint="as in http://127.0.0.1:8420")
    return url.rstrip("/").removesuffix("/v1")


@contextmanager
def needed() -> Iterator[None]:
    """Whoever has no httpx is told what to install."""
    try:
        yield
    except ImportError as error:
        raise MissingDependency(f"a client needs {error.name}", hint="pip install 'rederive[client]'") from None
