"""The firings of active rules: those of the past, and new ones as they happen."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from typing import Any
from urllib.parse import quote

from rederive.client import requests
from rederive.client.blocking import Connection
from rederive.client.requests import Backoff, HttpRequest
from rederive.client.subscription_state import CLOSED, EVENTS, RESUMABLE, reason_to_resume
from rederive.errors import Refused


def path(rule: str | None) -> str:
    """Return the path of the firings of one rule, or of all.

    >>> path("low stock"), path(None)
    ('/v1/rules/low%20stock/firings', '/v1/firings')
    """
    return f"/v1/rules/{quote(rule, safe='')}/firings" if rule is not None else "/v1/firings"


def list_firings(connection: Connection, rule: str | None = None, since: int | str = 0) -> Generator[dict[str, Any], None, None]:
    """Return the retained firings after a position, page by page."""
    more = True
    while more:
        found = connection.ask(HttpRequest("GET", path(rule), [("since", str(since))], {"Accept": requests.JSON}))
        yield from found["firings"]
        more = found["more"]
        # Also where a page is empty: the position then names the present epoch.
        since = found["next"]


def follow_firings(
    connection: Connection, rule: str | None = None, since: int | str | None = None
) -> Generator[dict[str, Any], None, None]:
    """Return each firing once, after a position or from now on; a lost connection is opened again.

    If the service was restored from a backup, the firings of its new epoch come from the start.
    """
    backoff = Backoff(connection.patience)
    while True:
        why = "the stream ended"
        # Without a position the service begins with the next firing.
        last = {"Last-Event-ID": str(since)} if since is not None else {}
        try:
            with closing(connection.events(HttpRequest("GET", path(rule), (), {"Accept": EVENTS, **last}), backoff)) as events:
                for event in events:
                    if event.name == "problem" and event.data["code"] != CLOSED:
                        raise Refused(event.data["code"], event.data["detail"])
                    # Progress events have ids, too, so that a reconnect after a quiet time repeats nothing.
                    since = event.id if event.id is not None else since
                    if event.name == "firing":
                        yield event.data
        except RESUMABLE as error:
            why = reason_to_resume(error) or why
        time.sleep(backoff.wait(why))
