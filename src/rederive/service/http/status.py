"""The endpoints that show the state of the service: health, metrics, subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import time
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from rederive.commit.state import DatabaseState
from rederive.database import Database
from rederive.engines.protocol import Query
from rederive.errors import Closed
from rederive.ingest.stream_cursor import stream_of_cursor
from rederive.ir.rules import Program
from rederive.service.access import check_admin
from rederive.service.http.service import Service
from rederive.service.http.views import json_response
from rederive.service.hub import Subscriber
from rederive.service.settings import Token
from rederive.values import to_json

MAX_WEBHOOK_LAG: Final = 60.0  # seconds that a webhook may wait before the service reports it


async def health(service: Service, token: Token, request: Request) -> Response:
    """Report whether the service works. It does not wait for the writer: `busy` is the age of the writer's job in seconds."""
    # 503, so that a load balancer takes the service out.
    if not service.writer.is_alive:
        raise Closed
    engine, unsettled = service.writer.state
    hooks = service.writer.deliveries
    lag = hooks.lag(time())
    problems = [f"the lake is behind: {unsettled}"] if unsettled is not None else []
    if hooks.error or lag > MAX_WEBHOOK_LAG:
        problems.append(f"webhooks are not delivered: {hooks.error or f'the oldest has waited {lag:.0f} seconds'}")
    # Status 200 all the same: transactions are accepted, and the journal has what the lake or a receiver lacks.
    status = f"ok, but {'; '.join(problems)}" if problems else "ok"
    found: dict[str, Any] = {
        "status": status,
        "version": service.hub.version,
        "engine": engine,
        "busy": service.writer.busy_seconds,
    }
    if service.project.webhooks is not None or hooks.waiting or hooks.parked:
        sent = {"waiting": hooks.waiting, "lag": round(lag, 3), "parked": hooks.parked, "delivering": not hooks.error}
        found["webhooks"] = sent
    return json_response(found)


async def metrics(service: Service, token: Token, request: Request) -> Response:
    """Return the metrics in the text format of Prometheus."""
    check_admin(token)
    return Response(service.metrics.text(), headers={"Content-Type": service.metrics.media_type})


async def subscriptions(service: Service, token: Token, request: Request) -> Response:
    """List the subscriptions, with the version that each has reached."""
    check_admin(token)
    program = await service.writer.run(lambda db, _: db.pipeline.state.program)
    return json_response(
        {
            "version": service.hub.version,
            "subscriptions": [_description(one, program) for one in service.hub.subscribers.values()],
        }
    )


async def overview(service: Service, token: Token, request: Request) -> Response:
    """Report on the parts of the service: store, lake, streams, webhooks, constraints, warehouse, and named subscribers."""
    check_admin(token)

    def read(db: Database) -> dict[str, Any]:
        state = db.pipeline.state
        journal = state.store.journal if state.store is not None else None
        found: dict[str, Any] = {
            "version": db.version,
            "engine": state.engine.name,
            "reason": state.engine.reason,
            "memory": state.engine.memory_use(),
            "parked": str(state.parked.error) if state.parked is not None else None,
            "constraints": [
                {"view": one.view, "mode": one.mode.value, "text": one.text, "violations": state.engine.size(one.view)}
                for one in (state.program.constraints if state.parked is None else ())
            ],
            "sources": [{"relation": one.relation, "version": one.version} for one in state.sources.values()],
        }
        if journal is not None:
            found["store"] = {"first": journal.reach(), "defined": journal.defined_since, "retention": journal.retention}
            cursors = journal.cursors()
            named = [one for one in cursors if stream_of_cursor(one[0]) is None]
            found["cursors"] = [{"name": name, "version": version, "at": at} for name, version, at in named]
            found["streams"] = list(stream_reports(state, {name: (version, at) for name, version, at in cursors}))
        if state.lake is not None and journal is not None:
            behind = db.version - journal.settled
            error = str(state.unsettled) if state.unsettled is not None else None
            found["lake"] = {"address": state.lake, "settled": journal.settled, "behind": behind, "error": error}
        if state.bridge is not None:
            found["warehouse"] = {"waiting": sorted(map(str, state.bridge.waiting))}
        return found

    found = await service.writer.run(lambda db, _: read(db))
    hooks = service.writer.deliveries
    sent = {"waiting": hooks.waiting, "lag": round(hooks.lag(time()), 3), "parked": hooks.parked, "error": hooks.error or None}
    queue = {"waiting": service.writer.waiting, "busy": service.writer.busy_seconds}
    return json_response(found | {"webhooks": sent, "writer": queue, "subscriptions": len(service.hub.subscribers)})


def stream_reports(state: DatabaseState, cursors: Mapping[str, tuple[int, str]]) -> Iterator[dict[str, Any]]:
    """The streams that the store has batches of, and those that this process started: how far each is, and what stopped it."""
    for name in dict.fromkeys((*cursors, *state.streams)):
        if (stream := stream_of_cursor(name)) is None:
            continue
        version, at = cursors.get(name, (None, None))
        found: dict[str, Any] = {"id": stream[0], "source": stream[1], "version": version, "at": at, "state": "not here"}
        if (running := state.streams.get(name)) is not None:
            progress, error = running.progress, running.error
            now = "running" if running.running else "failed" if error is not None else "ended"
            found |= {"state": now, "batches": progress.batches, "rows": progress.rows, "quarantined": progress.quarantined}
            found |= {"error": error}
        yield found


def _description(subscriber: Subscriber, program: Program) -> dict[str, Any]:
    return {
        "id": subscriber.number,
        "token": subscriber.request.owner,
        "views": [{"view": part.view, "bindings": _bindings(part, program)} for part in subscriber.request.parts],
        "only": sorted(sign.value for sign in subscriber.request.signs),
        "every": subscriber.request.every,
        "version": subscriber.version,
        "waiting": subscriber.waiting,
        "behind": subscriber.is_behind,
        "coalesced": subscriber.coalesced,
    }


def _bindings(part: Query, program: Program) -> dict[str, Any]:
    # The view may have been dropped or replaced since the subscriber came; its subscription ends a moment later.
    columns = program.relations[part.view].columns if part.view in program.relations else ()
    return {columns[i].name: to_json(value) for i, value in part.bindings if i < len(columns)}
