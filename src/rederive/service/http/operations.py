"""Health, metrics, subscriptions, and the description of everything."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from rederive.engines.base import Question
from rederive.errors import Closed
from rederive.ir.rules import Program
from rederive.lang.values import to_json
from rederive.service.access import check_admin
from rederive.service.http.metrics import MEDIA
from rederive.service.http.service import Service
from rederive.service.http.views import answered
from rederive.service.hub import Client
from rederive.service.settings import Token


async def health(service: Service, token: Token, request: Request) -> Response:
    """Whether the service is alive. It does not wait for the writer: `busy` is for how many seconds that has been at one job."""
    if not service.writer.alive:
        raise Closed
    engine, unsettled = service.writer.state
    status = "ok" if unsettled is None else f"ok, but the lake does not follow: {unsettled}"
    return answered({"status": status, "version": service.hub.version, "engine": engine, "busy": service.writer.busy})


async def metrics(service: Service, token: Token, request: Request) -> Response:
    check_admin(token)
    return Response(service.metrics.text(), headers={"Content-Type": MEDIA})


async def subscriptions(service: Service, token: Token, request: Request) -> Response:
    """Who is subscribed to what, and how far each is."""
    check_admin(token)
    program = await service.writer.ask(lambda db, _: db.program)
    return answered({"version": service.hub.version, "subscriptions": [_shown(c, program) for c in service.hub.clients.values()]})


def _shown(client: Client, program: Program) -> dict[str, Any]:
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


def _bindings(part: Question, program: Program) -> dict[str, Any]:
    columns = program.relations[part.view].columns if part.view in program.relations else ()
    return {columns[i].name: to_json(value) for i, value in part.bindings if i < len(columns)}
