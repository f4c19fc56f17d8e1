"""A subscription without its connection: what to ask for, what an event means, and when to ask again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from rederive.client.replica import Change, Replica, Row
from rederive.client.requests import HttpRequest, parameters
from rederive.client.sse import Event
from rederive.errors import MalformedInput, Refused

EVENTS: Final = "text/event-stream"
ENDS: Final = "closed"  # the service says that it ends; it may be back


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """What to follow, and how."""

    views: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    kept: bool

    @classmethod
    def of(cls, views: Sequence[str], options: Mapping[str, str | None], bindings: Mapping[str, Any]) -> SubscriptionRequest:
        if not views:
            raise MalformedInput("no view is named", hint='subscribe("closure")')
        said = [(name, value) for name, value in options.items() if value is not None]
        kept = options.get("only") is None and options.get("precision") in (None, "exact")
        return cls(tuple(dict.fromkeys(views)), (*said, *parameters(bindings)), kept)

    @property
    def path(self) -> str:
        return "/v1/changes" if len(self.views) > 1 else f"/v1/views/{quote(self.views[0], safe='')}/changes"

    def call(self, position: str | None) -> HttpRequest:
        """The request that begins, or that goes on after a position.

        >>> request = SubscriptionRequest.of(["closure"], {"only": "plus"}, {"x": "a"})
        >>> request.call("00c0ffee00c0ffee-7")  # doctest: +NORMALIZE_WHITESPACE
        HttpRequest(method='GET', path='/v1/views/closure/changes', params=[('only', 'plus'), ('x', 'a')],
             headers={'Accept': 'text/event-stream', 'Last-Event-ID': '00c0ffee00c0ffee-7'}, content=None)
        """
        views = [("view", view) for view in self.views] if len(self.views) > 1 else []
        last = {"Last-Event-ID": position} if position is not None else {}
        return HttpRequest("GET", self.path, [*views, *self.options], {"Accept": EVENTS, **last})


class SubscriptionState:
    """A copy of views, and what has been heard of them. The base of subscriptions that have a connection."""

    def __init__(
        self, wish: SubscriptionRequest, since: int | str | None = None, rows: Mapping[str, Iterable[Row]] | None = None
    ) -> None:
        self.wish = wish
        held = {view: Counter(map(tuple, given)) for view, given in (rows or {}).items()}
        self.copy = Replica(wish.views, wish.kept, _version_of(since), held, str(since) if since is not None else None)

    @property
    def version(self) -> int | None:
        """Everything up to this version has been told."""
        return self.copy.version

    @property
    def position(self) -> str | None:
        """The same for a later process to go on from: it names the service's history as well, which a restore changes."""
        return self.copy.position

    @property
    def rows(self) -> list[Row]:
        """The rows of the view now, as the changes so far leave it; of several views, `rows_of` tells."""
        (view,) = self.wish.views
        return self.rows_of(view)

    def rows_of(self, view: str) -> list[Row]:
        return list(self.copy.rows.get(view, Counter()).elements())

    def columns_of(self, view: str) -> tuple[str, ...]:
        """The names of its columns, once a snapshot told them."""
        return self.copy.columns.get(view, ())

    def _heard(self, event: Event) -> Change | None:
        """None where nothing changed; ServiceClosing where the stream is over and may be resumed."""
        try:
            return self.copy.hear(event)
        except Refused as error:
            if error.code == ENDS:
                raise ServiceClosing from None
            raise


def _version_of(since: int | str | None) -> int | None:
    """
    >>> _version_of("00c0ffee00c0ffee-7"), _version_of(7), _version_of(None)
    (7, 7, None)
    """
    if since is None or isinstance(since, int):
        return since
    number = since.rpartition("-")[2]
    if not (number.isascii() and number.isdecimal()):
        raise MalformedInput(f"'{since}' is not a position", hint="give the position of an earlier subscription")
    return int(number)


class ServiceClosing(Exception):
    """The service said goodbye: the subscription resumes when it is back."""
