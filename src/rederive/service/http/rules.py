"""Active rules: which stand, what fired, and what became of it; as lists, and as events while they fire."""

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
from rederive.service.events import Event, progress, told
from rederive.service.http.bodies import JSON
from rederive.service.http.change_streams import EVENTS, EventStream
from rederive.service.http.row_formats import chosen
from rederive.service.http.service import Service
from rederive.service.http.views import answered
from rederive.service.settings import Token
from rederive.service.subscription_request import cursor
from rederive.store.position import Position
from rederive.values import to_json

PAGE: Final = 1000  # firings in one answer


async def rules(service: Service, token: Token, request: Request) -> Response:
    """The rules that stand, in the order in which they fire."""
    check_admin(token)
    version, standing = await service.writer.ask(lambda db, _: (db.version, db.rules))
    return answered({"version": version, "rules": [_described(one) for one in standing]})


def _described(one: CompiledRule) -> dict[str, Any]:
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
        "active": activity.everywhere,
        "exceptions": [{"values": _plain(values), "active": active} for values, active in activity.apart.items()],
    }


def _action(one: CompiledRule) -> str:
    match one.rule.action:
        case CallAction(function):
            return f"call {function}"
        case WebhookAction(url):
            return f"webhook {url}"
        case write:
            return write.span.whole


def _plain(row: Row) -> list[Any]:
    return [to_json(value) for value in row]


def described(firing: Firing) -> dict[str, Any]:
    """A firing as clients see it."""
    return {
        "number": firing.number,
        "version": firing.version,
        "rule": firing.rule,
        "action": firing.action,
        "columns": [column.name for column in firing.relation.columns],
        "plus": [_plain(row) for row in firing.plus],
        "minus": [_plain(row) for row in firing.minus],
        "outcome": firing.outcome,
        "detail": firing.detail,
    }


async def firings(service: Service, token: Token, request: Request) -> Response:
    """What fired after the firing with some number: a page of it, or everything as it happens."""
    check_admin(token)
    rule, last = request.path_params.get("name"), request.headers.get("last-event-id")
    after = cursor(last, request.query_params.get("since"))
    media = chosen(request.headers.get("accept"), (JSON, EVENTS))
    if media == EVENTS and request.method == "HEAD":
        return Response(media_type=EVENTS)
    if media == EVENTS:
        return await _stream(service, rule, after)
    version, number, found = await service.writer.ask(lambda db, _: _page(db, rule, after))
    shown = [described(firing) for firing in found[:PAGE]]
    last = str(Position(shown[-1]["number"] if shown else number, service.hub.epoch))
    return answered({"version": version, "firings": shown, "more": len(found) > PAGE, "next": last})


def _page(db: Database, rule: str | None, after: Position | None) -> tuple[int, int, Sequence[Firing]]:
    number = _number(db, after)
    return db.version, number, _next(db, rule, number)


async def _stream(service: Service, rule: str | None, after: Position | None) -> Response:
    begins, lost = await service.writer.ask(lambda db, _: _begins(db, rule, after))
    follower = FiringFollower(service, rule, begins, lost)
    service.firings.listen(follower.wake)
    return EventStream(follower)


def _begins(db: Database, rule: str | None, after: Position | None) -> tuple[int, Mismatch | None]:
    """Where a stream begins: after the number that it was given, or now; from the start where that is of another history."""
    _check_rule(db, rule)
    try:
        return (_number(db, after) if after is not None else db.last_firing), None
    except Mismatch as error:
        return 0, error


def _number(db: Database, after: Position | None) -> int:
    """The number of a firing: an id has the epoch before it, as numbers are given again after a restore."""
    if after is None or after.epoch == db.epoch or after.version == 0:
        return after.version if after is not None else 0
    if after.epoch or db.is_restored:
        hint = "list the firings from the start"
        raise Mismatch(f"the number {after} is of another history: this one is {db.epoch}", hint=hint)
    return after.version


def _next(db: Database, rule: str | None, after: int) -> Sequence[Firing]:
    _check_rule(db, rule)
    return db.firings_after(after, rule, PAGE + 1)


def _check_rule(db: Database, rule: str | None) -> None:
    """A rule that was dropped still has the firings that are kept."""
    known = [one.name for one in db.rules]
    if rule is not None and rule not in known and not db.firings_after(0, rule, 1):
        raise NotFound(f"there is no rule '{rule}'", hint=nearest(rule, known))


class FiringFollower:
    """A stream of firings: read from the journal when there are new ones, so that nothing waits in memory for a slow client."""

    def __init__(self, service: Service, rule: str | None, after: int, lost: Mismatch | None = None) -> None:
        self._service = service
        self._rule = rule
        self._after = after
        self._lost = lost
        self._awake = asyncio.Event()
        self._gone = False
        self.wake = self._awake.set

    async def follow(self, send: Callable[[list[Event]], Awaitable[None]]) -> None:
        version = self._service.hub.version
        await send([told("reset", version, self._lost)] if self._lost is not None else [self._progress()])
        while not self._gone:
            self._awake.clear()
            if found := await self._read():
                await send(found)
            elif self._service.firings.closed:
                return await send([told("problem", self._service.hub.version, Closed())])
            elif not await self._woken():
                await send([self._progress()])
        return None

    async def _read(self) -> list[Event]:
        if self._service.firings.closed:
            return []
        after, rule = self._after, self._rule
        found = await self._service.writer.ask(lambda db, _: db.firings_after(after, rule, PAGE))
        self._after = found[-1].number if found else after
        return [Event("firing", json.dumps(described(one), ensure_ascii=False), self._id(one.number)) for one in found]

    def _id(self, number: int) -> str:
        return str(Position(number, self._service.hub.epoch))

    async def _woken(self) -> bool:
        try:
            await asyncio.wait_for(self._awake.wait(), self._service.project.bounds.heartbeat)
        except TimeoutError:
            return False
        return True

    def _progress(self) -> Event:
        """A sign of life, and a point to resume from: the last firing that was told, or that was there before."""
        return Event("progress", progress(self._service.hub.position).data, self._id(self._after))

    def leave(self) -> None:
        self._gone = True
        self._awake.set()

    def end(self) -> None:
        self._service.firings.leave(self.wake)
