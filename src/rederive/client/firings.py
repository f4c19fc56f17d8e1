"""What active rules did, as it happens."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from typing import Any
from urllib.parse import quote

from rederive.client import requests
from rederive.client.blocking import Connection, ConnectionLost
from rederive.client.requests import Backoff, HttpRequest
from rederive.client.subscription_state import ENDS, EVENTS
from rederive.errors import Refused


def path(rule: str | None) -> str:
    """
    >>> path("low stock"), path(None)
    ('/v1/rules/low%20stock/firings', '/v1/firings')
    """
    return f"/v1/rules/{quote(rule, safe='')}/firings" if rule is not None else "/v1/firings"


def listed(connection: Connection, rule: str | None = None, since: int | str = 0) -> Generator[dict[str, Any], None, None]:
    """The firings that are kept, after the one with a number; page by page."""
    more = True
    while more:
        found = connection.ask(HttpRequest("GET", path(rule), [("since", str(since))], {"Accept": requests.JSON}))
        yield from found["firings"]
        more = found["more"]
        since = found["next"]


def followed(
    connection: Connection, rule: str | None = None, since: int | str | None = None
) -> Generator[dict[str, Any], None, None]:
    """Each firing once, through lost connections: after the one with an id, or from now on.

    Where the service was restored in between, those of its history now are told from the start.
    """
    patience = Backoff(connection.patience)
    while True:
        why = "the stream ended"
        last = {"Last-Event-ID": str(since)} if since is not None else {}
        try:
            with closing(connection.events(HttpRequest("GET", path(rule), (), {"Accept": EVENTS, **last}), patience)) as events:
                for event in events:
                    if event.name == "problem" and event.data["code"] != ENDS:
                        raise Refused(event.data["code"], event.data["detail"])
                    since = event.id if event.id is not None else since
                    if event.name == "firing":
                        yield event.data
        except ConnectionLost as error:
            why = str(error)
        except Refused as error:
            if not requests.is_later(error.status):
                raise
            why = error.message
        time.sleep(patience.wait(why))
