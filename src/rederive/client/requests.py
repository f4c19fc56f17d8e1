"""Requests and answers as data, and the schedule of retries: what both connections share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from time import monotonic
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit
from uuid import uuid4

from rederive.client.json_rows import json_rows
from rederive.delta import Row
from rederive.errors import MalformedInput, Refused, Unreachable

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
MIN_WAIT, MAX_WAIT = 0.05, 2.0  # seconds between two attempts
_TRANSIENT: Final = (429, 502, 503, 504)  # statuses after which the same request may succeed
Rows = Mapping[str, Iterable[Sequence[Any] | Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that is safe to repeat: it reads, or it carries an idempotency key."""

    method: str
    path: str
    params: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `httpx.Client.request`."""
        return {"params": list(self.params), "headers": dict(self.headers), "content": self.content}


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """A durable transaction. `repeated`: an earlier request with the same idempotency key committed it."""

    version: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class VersionedRows:
    """The rows of a relation or view at one version."""

    version: int
    columns: tuple[str, ...]
    rows: list[Row]


class Response(Protocol):
    """The part of an httpx response that is read."""

    @property
    def status_code(self) -> int:
        """The status."""

    @property
    def content(self) -> bytes:
        """The body."""


def http_options(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    """Return the options of an httpx client."""
    import httpx

    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    # Each subscription holds a connection, so their number has no limit. `trust_env`: proxies and credentials of the
    # environment are not used.
    limits = httpx.Limits(max_connections=None)
    return {"base_url": check_url(url), "headers": headers, "timeout": timeout, "limits": limits, "trust_env": False}


def transaction(insert: Rows | None = None, delete: Rows | None = None, upsert: Rows | None = None) -> dict[str, Any]:
    """Return a transaction in the JSON format of the service."""
    actions = {"insert": insert, "delete": delete, "upsert": upsert}
    # Lists, because a request may be sent more than once, and a generator of rows can be read once.
    return {name: {relation: list(rows) for relation, rows in side.items()} for name, side in actions.items() if side}


def commit_request(changes: Mapping[str, Any], key: str | None) -> HttpRequest:
    """Return the request that commits one transaction. Without a key it gets a new one, so that it is safe to repeat.

    >>> commit_request({"insert": {"edge": [("a", "b")]}}, "order-17").content
    b'{"insert": {"edge": [["a", "b"]]}}'
    """
    # The key makes the request safe to repeat: the service applies a key once.
    try:
        content = json.dumps(changes, default=_plain, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        content = json.dumps(_without_constants(changes), default=_plain, ensure_ascii=False).encode()
    return HttpRequest("POST", "/v1/transactions", (), {"Content-Type": JSON, "Idempotency-Key": key or uuid4().hex}, content)


def commit_lines_request(lines: Sequence[str], key: str) -> HttpRequest:
    """Return the request that commits one transaction for each line."""
    headers = {"Content-Type": LINES, "Idempotency-Key": key}
    return HttpRequest("POST", "/v1/transactions", (), headers, "\n".join(lines).encode())


def rows_request(relation: str, bindings: Mapping[str, Any]) -> HttpRequest:
    """Return the request for the rows of a relation or view with these values."""
    return HttpRequest("GET", f"/v1/relations/{quote(relation, safe='')}/rows", url_parameters(bindings), {"Accept": JSON})


def url_parameters(bindings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return bindings as parameters of a URL.

    >>> url_parameters({"x": "a", "n": 3, "open": True})
    [('x', 'a'), ('n', '3'), ('open', 'true')]
    """
    return [(name, value if isinstance(value, str) else str(_scalar(value))) for name, value in bindings.items()]


# Values are written as JSON has them: decimals, dates and timestamps as strings, so that no digit is lost.


def _without_constants(value: Any) -> Any:
    """The value with texts for NaN and infinities, which JSON does not have."""
    match value:
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case Mapping():
            return {name: _without_constants(part) for name, part in value.items()}
        case list() | tuple():
            return [_without_constants(part) for part in value]
    return value


def _scalar(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, bool) else value.isoformat() if isinstance(value, date) else value


def _plain(value: object) -> str:
    match value:
        case Decimal():
            return str(value)
        case date():
            return value.isoformat()
        case _:
            raise MalformedInput(
                f"{value!r} is not a value of a column", hint="use text, numbers, decimals, dates, timestamps or None"
            )


# Answers


def json_answer(response: Response) -> Any:
    """Return the JSON of an answer. A problem is raised, with the code of the service."""
    if response.status_code < 400:
        return json.loads(response.content)
    raise refusal(response)


def refusal(response: Response) -> Refused:
    """Return the problem of an answer as an error."""
    try:
        problem = json.loads(response.content)
        refused = Refused(
            problem["code"], problem["detail"], hint=problem.get("hint"), status=response.status_code, problem=problem
        )
    except (ValueError, KeyError, TypeError):  # a proxy answered, not the service
        text = response.content[:200].decode(errors="replace")
        return Refused("refused", f"status {response.status_code}: {text}", status=response.status_code)
    return refused.at(problem["place"]) if problem.get("place") else refused


def commit_receipt(answer: Mapping[str, Any]) -> CommitReceipt:
    """Return the receipt of a committed transaction."""
    return CommitReceipt(answer["version"], answer["repeated"])


def versioned_rows(found: Mapping[str, Any]) -> VersionedRows:
    """Return the rows of an answer."""
    return VersionedRows(found["version"], tuple(c["name"] for c in found["columns"]), list(json_rows(found["rows"])))


# Retries


@dataclass(slots=True)
class Backoff:
    """Exponential backoff that gives up after `seconds` without an answer.

    >>> backoff = Backoff(60.0)
    >>> [backoff.wait("no answer", 0.0), backoff.wait("no answer", 1.0), backoff.wait("no answer", 2.0)]
    [0.05, 0.1, 0.2]
    """

    seconds: float
    attempts: int = 0
    _first: float | None = None

    def wait(self, why: str, now: float | None = None) -> float:
        """Return the seconds to wait before the next attempt; raise `Unreachable` when the time is over."""
        now = monotonic() if now is None else now
        # The patience counts from the first failure, not from the last one.
        self._first = now if self._first is None else self._first
        if now - self._first >= self.seconds:
            raise Unreachable(
                f"no answer for {self.seconds:g} seconds: {why}", hint="check that the service runs at this address"
            )
        self.attempts += 1
        return min(MAX_WAIT, MIN_WAIT * 2.0 ** min(self.attempts - 1, 20))

    def reset(self) -> None:
        """Start over: the service has answered."""
        self.attempts, self._first = 0, None


def is_transient(status: int) -> bool:
    """Tell whether the same request may succeed later."""
    return status in _TRANSIENT


def check_url(url: str) -> str:
    """Check the address of a service, and return it without the version of the API.

    >>> check_url("http://127.0.0.1:8420/")
    'http://127.0.0.1:8420'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise MalformedInput(f"'{url}' is not the address of a service", hint="write http://127.0.0.1:8420, for example")
    # Paths of requests begin with /v1 themselves.
    return url.rstrip("/").removesuffix("/v1")
