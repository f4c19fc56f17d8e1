"""A subscription without its connection: the request that starts or resumes it, and the replica that its events build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from rederive.boundary import Signal
from rederive.client.replica import Change, Replica
from rederive.client.requests import HttpRequest, is_transient, url_parameters
from rederive.client.sse import Event
from rederive.delta import Row
from rederive.errors import MalformedInput, Refused

EVENTS: Final = "text/event-stream"
CLOSED: Final = "closed"  # the code of the problem that a service sends when it shuts down


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """Which views to follow, and how. `holds_rows`: the events suffice to hold a replica of the views."""

    views: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    holds_rows: bool

    @classmethod
    def of(cls, views: Sequence[str], options: Mapping[str, str | None], bindings: Mapping[str, Any]) -> SubscriptionRequest:
        """Return the request for these views, options and bindings."""
        if not views:
            raise MalformedInput("the subscription names no view", hint='name one: subscribe("closure")')
        given = [(name, value) for name, value in options.items() if value is not None]
        # One sign, or changes that may repeat rows, do not determine the rows of a view.
        holds_rows = options.get("only") is None and options.get("precision") in (None, "exact")
        return cls(tuple(dict.fromkeys(views)), (*given, *url_parameters(bindings)), holds_rows)

    @property
    def path(self) -> str:
        """The path of the stream."""
        # One event for all views of a version needs the path of several; a single view has a path of its own.
        return "/v1/changes" if len(self.views) > 1 else f"/v1/views/{quote(self.views[0], safe='')}/changes"

    def http_request(self, position: str | None) -> HttpRequest:
        """Return the HTTP request that starts the stream, or resumes it after a position.

        >>> request = SubscriptionRequest.of(["closure"], {"only": "plus"}, {"x": "a"})
        >>> request.http_request("00c0ffee00c0ffee-7")  # doctest: +NORMALIZE_WHITESPACE
        HttpRequest(method='GET', path='/v1/views/closure/changes', params=[('only', 'plus'), ('x', 'a')],
             headers={'Accept': 'text/event-stream', 'Last-Event-ID': '00c0ffee00c0ffee-7'}, content=None)
        """
        views = [("view", view) for view in self.views] if len(self.views) > 1 else []
        # The service resumes after this position, or sends a reset and a snapshot.
        last = {"Last-Event-ID": position} if position is not None else {}
        return HttpRequest("GET", self.path, [*views, *self.options], {"Accept": EVENTS, **last})


class SubscriptionState:
    """The replica of a subscription. It is the base class of the subscriptions of both connections."""

    def __init__(
        self, request: SubscriptionRequest, since: int | str | None = None, rows: Mapping[str, Iterable[Row]] | None = None
    ) -> None:
        self.request = request
        held = {view: Counter(map(tuple, given)) for view, given in (rows or {}).items()}
        self.replica = Replica(
            request.views, request.holds_rows, _version_in(since), held, str(since) if since is not None else None
        )

    @property
    def version(self) -> int | None:
        """The replica has every change up to this version."""
        return self.replica.version

    @property
    def position(self) -> str | None:
        """The epoch and version from which a later process can resume; a restore of the service changes the epoch."""
        return self.replica.position

    @property
    def rows(self) -> list[Row]:
        """The rows of the only view after the changes received so far; for several views, use `rows_of`."""
        (view,) = self.request.views
        return self.rows_of(view)

    def rows_of(self, view: str) -> list[Row]:
        """Return the rows of a view after the changes received so far."""
        # Of a bag, each row as often as it is there.
        return list(self.replica.rows.get(view, Counter()).elements())

    def columns_of(self, view: str) -> tuple[str, ...]:
        """Return the column names of a view; they are known after the first snapshot."""
        return self.replica.columns.get(view, ())

    def _next_stream(self) -> HttpRequest:
        """Return the request that starts the stream, or resumes it after what the replica has."""
        # At least once: after a lost connection the service may repeat versions, which the replica ignores.
        self.replica.start_stream()
        return self.request.http_request(self.position)

    def _apply(self, event: Event) -> Change | None:
        """Apply an event. Return its change, if it has one; raise ServiceClosing if the stream ends and can be resumed."""
        try:
            return self.replica.apply(event)
        except Refused as error:
            # A service that shuts down has refused nothing: the subscription resumes when it is back.
            if error.code == CLOSED:
                raise ServiceClosing from None
            raise


def _version_in(since: int | str | None) -> int | None:
    """Return the version of a position.

    >>> _version_in("00c0ffee00c0ffee-7"), _version_in(7), _version_in(None)
    (7, 7, None)
    """
    if since is None or isinstance(since, int):
        return since
    number = since.rpartition("-")[2]
    if not (number.isascii() and number.isdecimal()):
        raise MalformedInput(f"'{since}' is not a position", hint="give the position of an earlier subscription")
    return int(number)


class ServiceClosing(Exception):
    """The service shuts down; the subscription resumes when it is back."""


class ConnectionLost(Signal):
    """The connection broke."""


RESUMABLE: Final = (ConnectionLost, ServiceClosing, Refused)


def reason_to_resume(error: ConnectionLost | ServiceClosing | Refused) -> str:
    """Return why a stream ended that is to be opened again. A refusal that would come again is raised."""
    if not isinstance(error, Refused):
        return str(error)
    if not is_transient(error.status):
        raise error
    return error.message
