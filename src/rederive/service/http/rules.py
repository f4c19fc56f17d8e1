"""The endpoints of active rules: the rules, and their firings as a list or as a stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from rederive.database import Database
from rederive.errors import Closed, Mismatch, NotFound, nearest
from rederive.ir.terms import Row
from rederive.lang.rules.syntax import CallAction, WebhookAction
from rederive.records import Firing
from rederive.rules.rule_set import CompiledRule
from rederive.service.access import check_admin
from rederive.service.events import Event, error_event, progress
from rederive.service.http.change_streams import EVENTS, EventStream
from rederive.service.http.row_formats import choose_format
from rederive.service.http.service import JSON, Service
from rederive.service.http.views import json_response
from rederive.service.settings import Token
from rederive.service.subscription_request import parse_position
from rederive.store.journal.writer import Journal
from rederive.store.position import Position
from rederive.values import to_json

PAGE_SIZE: Final = 1000  # firings in one answer


async def rules(service: Service, token: Token, request: Request) -> Response:
    """List the active rules, in the order in which they fire."""
    check_admin(token)
    version, standing = await service.writer.run(lambda db, _: (db.version, db.rules))
    return json_response({"version": version, "rules": [_rule_description(one) for one in standing]})


def _rule_description(one: CompiledRule) -> dict[str, Any]:
    rule, activity = one.rule, one.activity
    return {
        "name": rule.name,
        "columns": [column.name for column in one.condition.columns],
        "action": _action(one),
        "precision": "strict" if rule.strict else "nervous",
        "mode": "immediate" if rule.immediate else "deferred",
        "on": sorted(sign.value for sign in rule.signs),
        "priority": rule.priority,
        "event": f"{rule.event.kind.value} of {rule.event.relation}" if rule.event is not None else None,
        "active": activity.default,
        "exceptions": [{"values": _json_row(values), "active": active} for values, active in activity.exceptions.items()],
    }


def _action(one: CompiledRule) -> str:
    match one.rule.action:
        case CallAction(function):
            return f"call {function}"
        case WebhookAction(url):
            return f"webhook {url}"
        case write:
            return write.span.whole


def _json_row(row: Row) -> list[Any]:
    return [to_json(value) for value in row]


def firing_description(firing: Firing) -> dict[str, Any]:
    """Return a firing as clients see it."""
    return {
        "number": firing.number,
        "version": firing.version,
        "rule": firing.rule,
        "action": firing.action,
        "columns": [column.name for column in firing.relation.columns],
        "plus": [_json_row(row) for row in firing.plus],
        "minus": [_json_row(row) for row in firing.minus],
        "outcome": firing.outcome,
        "detail": firing.detail,
    }


async def firings(service: Service, token: Token, request: Request) -> Response:
    """Return the firings after a position: one page, or a stream that goes on with new firings."""
    check_admin(token)
    rule, last = request.path_params.get("name"), request.headers.get("last-event-id")
    after = parse_position(last, request.query_params.get("since"))
    media = choose_format(request.headers.get("accept"), (JSON, EVENTS))
    if media == EVENTS and request.method == "HEAD":
        return Response(media_type=EVENTS)
    if media == EVENTS:
        return await _stream(service, rule, after)
    version, number, found = await service.writer.run(lambda db, _: _page(db, rule, after))
    # Without firings the client goes on from where it was, in this epoch.
    shown = [firing_description(firing) for firing in found[:PAGE_SIZE]]
    last = str(Position(shown[-1]["number"] if shown else number, service.hub.epoch))
    return json_response({"version": version, "firings": shown, "more": len(found) > PAGE_SIZE, "next": last})


def _page(db: Database, rule: str | None, after: Position | None) -> tuple[int, int, Sequence[Firing]]:
    number = _number(db, after)
    return db.version, number, _next(db, rule, number)


async def _stream(service: Service, rule: str | None, after: Position | None) -> Response:
    first, lost = await service.writer.run(lambda db, _: _first_number(db, rule, after))
    stream = FiringStream(service, rule, first, lost)
    # Registered after the first number is read. A firing in between is found by the stream's first reading.
    service.firings.add(stream.wake)
    return EventStream(stream)


def _first_number(db: Database, rule: str | None, after: Position | None) -> tuple[int, Mismatch | None]:
    """Return the number that a stream begins after: the requested one, else the last; 0 where that is of another epoch."""
    _check_rule(db, rule)
    try:
        return (_number(db, after) if after is not None else _journal(db).last_firing), None
    except Mismatch as error:
        # The stream begins again at the first firing, after a `reset` with this reason.
        return 0, error


def _journal(db: Database) -> Journal:
    return db.pipeline.state.durable("the number of a firing").journal


def _number(db: Database, after: Position | None) -> int:
    """Return the number of a firing's id. The id names the epoch, because a restored store numbers its firings again."""
    if after is None or after.epoch == db.pipeline.state.epoch or after.version == 0:
        return after.version if after is not None else 0
    if after.epoch or _journal(db).is_restored:
        hint = "read the firings from the start"
        raise Mismatch(f"the position {after} is of another epoch: this store's is {db.pipeline.state.epoch}", hint=hint)
    return after.version


def _next(db: Database, rule: str | None, after: int) -> Sequence[Firing]:
    _check_rule(db, rule)
    # One more than a page, which tells whether there are more.
    return _journal(db).firings_after(after, rule, PAGE_SIZE + 1)


def _check_rule(db: Database, rule: str | None) -> None:
    """Refuse an unknown rule. A dropped rule is known as long as the journal has firings of it."""
    known = [one.name for one in db.rules]
    if rule is not None and rule not in known and not _journal(db).firings_after(0, rule, 1):
        raise NotFound(f"no rule is named '{rule}'", hint=nearest(rule, known))


class FiringStream:
    """A stream of firings. It reads them from the journal when there are new ones: none wait in memory for a slow client."""

    def __init__(self, service: Service, rule: str | None, after: int, lost: Mismatch | None = None) -> None:
        self._service = service
        self._rule = rule
        self._after = after
        self._lost = lost
        self._awake = asyncio.Event()
        self._is_gone = False
        self.wake = self._awake.set

    async def send_events(self, send: Callable[[list[Event]], Awaitable[None]]) -> None:
        """Send firings until the service or the client ends."""
        version = self._service.hub.version
        await send([error_event("reset", version, self._lost)] if self._lost is not None else [self._progress()])
        while not self._is_gone:
            # Cleared before reading: a firing that is committed afterwards sets it again.
            self._awake.clear()
            if found := await self._read():
                await send(found)
            elif self._service.firings.is_closed:
                return await send([error_event("problem", self._service.hub.version, Closed())])
            elif not await self._wait_for_firings():
                await send([self._progress()])
        return None

    async def _read(self) -> list[Event]:
        if self._service.firings.is_closed:
            return []
        after, rule = self._after, self._rule
        found = await self._service.writer.run(lambda db, _: _journal(db).firings_after(after, rule, PAGE_SIZE))
        self._after = found[-1].number if found else after
        return [Event("firing", json.dumps(firing_description(one), ensure_ascii=False), self._id(one.number)) for one in found]

    def _id(self, number: int) -> str:
        return str(Position(number, self._service.hub.epoch))

    async def _wait_for_firings(self) -> bool:
        try:
            await asyncio.wait_for(self._awake.wait(), self._service.project.bounds.heartbeat)
        except TimeoutError:
            return False
        return True

    def _progress(self) -> Event:
        """Return a heartbeat whose id is the last firing that was sent, or that the client had."""
        return Event("progress", progress(self._service.hub.position).data, self._id(self._after))

    def disconnect(self) -> None:
        """Note that the client is gone."""
        self._is_gone = True
        self._awake.set()

    def close(self) -> None:
        """Stop listening for firings."""
        self._service.firings.remove(self.wake)
