"""The endpoints of versions: what each changed and cost, as a list or as a stream of events, and the rows of one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from rederive.database import Database
from rederive.errors import Closed, Expired, Mismatch, NotFound
from rederive.ir.rules import Program
from rederive.records import VersionSummary
from rederive.service.access import can_read_all_rows
from rederive.service.events import Event, error_event, progress
from rederive.service.http.change_streams import EVENTS, EventStream
from rederive.service.http.parameters import number_parameter
from rederive.service.http.row_formats import choose_format
from rederive.service.http.service import JSON, Service
from rederive.service.http.views import json_response
from rederive.service.hub import PassedVersion
from rederive.service.row_pages import recorded_deltas
from rederive.service.settings import Token
from rederive.service.subscription_request import parse_position
from rederive.store.position import Position
from rederive.values import to_json

MOST_VERSIONS: Final = 500  # in one answer
MOST_ROWS: Final = 200  # rows of one sign of one relation


async def versions(service: Service, token: Token, request: Request) -> Response:
    """List the versions before one, newest first; or stream those after one, and then each as it is committed."""
    media = choose_format(request.headers.get("accept"), (JSON, EVENTS))
    if media == EVENTS:
        return await _stream(service, token, request)
    limit = number_parameter(request.query_params, "limit", 50, MOST_VERSIONS)
    before = number_parameter(request.query_params, "before", service.hub.version + 1, 2**53)

    def read(db: Database) -> dict[str, Any]:
        journal = db.pipeline.state.durable("reading past versions").journal
        until = min(before - 1, db.version)
        after = max(until - limit, journal.reach(), 0)
        found = [_described(service, token, db.pipeline.state.program, one) for one in journal.summaries(after, until)]
        reach = {"first": journal.reach(), "defined": journal.defined_since}
        return {"version": db.version, **reach, "versions": found[::-1]}

    return json_response(await service.writer.run(lambda db, _: read(db)))


async def version(service: Service, token: Token, request: Request) -> Response:
    """Return the rows that entered and left each relation at one version."""
    text = request.path_params["name"]
    if not text.isdecimal() or len(text) > 16 or not 1 <= int(text) <= service.hub.version:
        raise NotFound(f"there is no version '{text[:20]}'", hint=f"the last one is {service.hub.version}")
    number = int(text)

    def read(db: Database) -> dict[str, Any]:
        state = db.pipeline.state
        changes = []
        names = state.durable("reading past versions").journal.summaries(number - 1, number)
        for name in _known(state.program, token, names[0].changed if names else ()):
            relation = state.program.relations[name]
            for _, delta in recorded_deltas(state, relation, number - 1, number):
                part = delta.first(MOST_ROWS)
                sides = {"plus": part.plus, "minus": part.minus}
                rows = {sign: [[to_json(v) for v in row] for row in side] for sign, side in sides.items()}
                more = {"plus": len(delta.plus) - len(part.plus), "minus": len(delta.minus) - len(part.minus)}
                changes.append({"relation": name, **rows, "more": more})
        if not names:
            raise Expired(f"version {number} is no longer recorded", hint="ask about a later version")
        return {"version": number, "at": names[0].at, "engine": names[0].engine, "changes": changes}

    return json_response(await service.writer.run(lambda db, _: read(db)))


def _known(program: Program, token: Token, names: Iterable[str]) -> list[str]:
    """The relations of a version that the token reads, by the names that a user knows."""
    shown = dict.fromkeys(program.bags.get(name, name) for name in names)
    return [n for n in shown if n in program.relations and not program.relations[n].is_auxiliary and can_read_all_rows(token, n)]


def _described(service: Service, token: Token, program: Program, summary: VersionSummary) -> dict[str, Any]:
    """A version as clients see it, with its costs where they are known still."""
    recent = service.hub.recent
    # Versions have no gaps, so that the place of one follows from the last.
    place = summary.number - recent[0].number if recent else -1
    if 0 <= place < len(recent) and recent[place].number == summary.number:
        return describe_version(token, program, recent[place])
    changed = {program.bags.get(name, name): rows for name, rows in summary.changed.items()}
    return describe_version(token, program, PassedVersion(summary.number, summary.at, summary.engine, "", 0, 0, changed, {}))


def describe_version(token: Token, program: Program, passed: PassedVersion) -> dict[str, Any]:
    """A version as clients see it: only the relations that the token reads."""
    found: dict[str, Any] = {"version": passed.number, "at": passed.at, "engine": passed.engine}
    if passed.strategy:
        found |= {"strategy": passed.strategy, "microseconds": round(passed.seconds * 1e6), "touched": passed.touched}
    changes = []
    for name in _known(program, token, passed.changed):
        plus, minus = passed.changed[name]
        timing = {"microseconds": round(passed.timings[name] * 1e6)} if name in passed.timings else {}
        changes.append({"relation": name, "plus": plus, "minus": minus, **timing})
    return found | {"changes": changes}


async def _stream(service: Service, token: Token, request: Request) -> Response:
    if request.method == "HEAD":
        return Response(media_type=EVENTS)
    after = parse_position(request.headers.get("last-event-id"), request.query_params.get("since"))

    def first(db: Database) -> tuple[int, Mismatch | None]:
        try:
            journal = db.pipeline.state.durable("reading past versions").journal
            return (journal.version_at(after) if after is not None else db.version), None
        except Mismatch as error:
            return db.version, error

    number, lost = await service.writer.run(lambda db, _: first(db))
    stream = VersionStream(service, token, number, lost)
    # Registered after the first number is read: a version in between is found by the stream's first reading.
    service.hub.listeners[stream.wake] = None
    return EventStream(stream)


class VersionStream:
    """Sends versions as they are committed. A client that comes back gets those that it missed, from the journal."""

    def __init__(self, service: Service, token: Token, after: int, lost: Mismatch | None) -> None:
        self._service = service
        self._token = token
        self._after = after
        self._lost = lost
        self._awake = asyncio.Event()
        self._is_gone = False
        self.wake = self._awake.set

    async def send_events(self, send: Callable[[list[Event]], Awaitable[None]]) -> None:
        """Send versions until the service or the client ends."""
        hub = self._service.hub
        await send([error_event("reset", hub.version, self._lost)] if self._lost is not None else [self._progress()])
        while not self._is_gone:
            # Cleared before reading: a version that is committed afterwards sets it again.
            self._awake.clear()
            if hub.is_closed:
                return await send([error_event("problem", hub.version, Closed())])
            if self._after < hub.version:
                await send(await self._read())
            elif not await self._wait():
                await send([self._progress()])
        return None

    async def _read(self) -> list[Event]:
        recent, program = list(self._service.hub.recent), self._service.writer.program
        if recent and recent[0].number <= self._after + 1:
            found = [describe_version(self._token, program, one) for one in recent if one.number > self._after]
        else:
            after = self._after
            found = await self._service.writer.run(lambda db, _: self._missed(db, after))
        self._after = found[-1]["version"] if found else self._service.hub.version
        return [Event("version", json.dumps(one), str(Position(one["version"], self._service.hub.epoch))) for one in found]

    def _missed(self, db: Database, after: int) -> list[dict[str, Any]]:
        state = db.pipeline.state
        journal = state.durable("reading past versions").journal
        start = max(after, journal.reach())
        found = journal.summaries(start, min(start + MOST_VERSIONS, db.version))
        return [_described(self._service, self._token, state.program, one) for one in found]

    async def _wait(self) -> bool:
        try:
            await asyncio.wait_for(self._awake.wait(), self._service.project.bounds.heartbeat)
        except TimeoutError:
            return False
        return True

    def _progress(self) -> Event:
        position = Position(self._after, self._service.hub.epoch)
        return Event("progress", progress(position).data, str(position))

    def disconnect(self) -> None:
        """Note that the client is gone."""
        self._is_gone = True
        self._awake.set()

    def close(self) -> None:
        """Stop listening for versions."""
        self._service.hub.listeners.pop(self.wake, None)
