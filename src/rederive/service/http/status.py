"""Health, metrics, subscriptions, and the description of everything."""

from __future__ import annotations

from time import time
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from rederive.engines.protocol import Query
from rederive.errors import Closed
from rederive.ir.rules import Program
from rederive.service.access import check_admin
from rederive.service.http.metrics import MEDIA
from rederive.service.http.service import Service
from rederive.service.http.views import answered
from rederive.service.hub import Subscriber
from rederive.service.settings import Token
from rederive.values import to_json

LATE: Final = 60.0  # seconds that a webhook may wait before the service's health says so


async def health(service: Service, token: Token, request: Request) -> Response:
    """Whether the service is alive. It does not wait for the writer: `busy` is for how many seconds that has been at one job."""
    if not service.writer.alive:
        raise Closed
    engine, unsettled = service.writer.state
    hooks = service.writer.deliveries
    lag = hooks.lag(time())
    problems = [f"the lake does not follow: {unsettled}"] if unsettled is not None else []
    if hooks.error or lag > LATE:
        problems.append(f"webhooks wait: {hooks.error or f'the oldest for {lag:.0f} seconds'}")
    status = f"ok, but {'; '.join(problems)}" if problems else "ok"
    found: dict[str, Any] = {"status": status, "version": service.hub.version, "engine": engine, "busy": service.writer.busy}
    if service.project.webhooks is not None or hooks.waiting or hooks.parked:
        sent = {"waiting": hooks.waiting, "lag": round(lag, 3), "parked": hooks.parked, "delivering": not hooks.error}
        found["webhooks"] = sent
    return answered(found)


async def metrics(service: Service, token: Token, request: Request) -> Response:
    check_admin(token)
    return Response(service.metrics.text(), headers={"Content-Type": MEDIA})


async def subscriptions(service: Service, token: Token, request: Request) -> Response:
    """Who is subscribed to what, and how far each is."""
    check_admin(token)
    program = await service.writer.ask(lambda db, _: db.program)
    return answered({"version": service.hub.version, "subscriptions": [_shown(c, program) for c in service.hub.clients.values()]})


def _shown(client: Subscriber, program: Program) -> dict[str, Any]:
    return {
        "id": client.number,
        "token": client.wish.owner,
        "views": [{"view": part.view, "bindings": _bindings(part, program)} for part in client.wish.parts],
        "only": sorted(sign.value for sign in client.wish.signs),
        "every": client.wish.every,
        "version": client.version,
        "waiting": client.waiting,
        "behind": client.late,
        "coalesced": client.coalesced,
    }


def _bindings(part: Query, program: Program) -> dict[str, Any]:
    columns = program.relations[part.view].columns if part.view in program.relations else ()
    return {columns[i].name: to_json(value) for i, value in part.bindings if i < len(columns)}
