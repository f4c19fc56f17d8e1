"""The ASGI application: the table of endpoints, and the checks that every request passes before its endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketState

from rederive.database import Database
from rederive.errors import Forbidden, NotFound, RederiveError, RequestError, Unauthorized, WrongMethod
from rederive.service.access import ANYONE, NOBODY, redact
from rederive.service.http import change_streams, page, rules, status, transactions, versions, views
from rederive.service.http.openapi import openapi_document
from rederive.service.http.problems import answer_exception, problem
from rederive.service.http.service import Service
from rederive.service.project import is_loopback
from rederive.service.settings import Project, Token

Handler = Callable[[Service, Token, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path, a method and their handler. `is_open`: it needs no token."""

    method: str
    path: str
    handler: Handler
    is_open: bool = False


async def openapi(service: Service, token: Token, request: Request) -> Response:
    """Return the OpenAPI document of this service."""
    return Response(json.dumps(openapi_document()), media_type="application/json")


ENDPOINTS: Final = (
    Endpoint("GET", "/v1/network", page.network),
    Endpoint("GET", "/v1/relations/{name}/page", page.page_of_rows),
    Endpoint("GET", "/v1/relations/{name}/graph", page.graph),
    Endpoint("GET", "/v1/relations/{name}/series", page.series),
    Endpoint("GET", "/v1/versions", versions.versions),
    Endpoint("GET", "/v1/versions/{name}", versions.version),
    Endpoint("POST", "/v1/transactions", transactions.commit),
    Endpoint("GET", "/v1/relations", views.relations),
    Endpoint("GET", "/v1/relations/{name}/rows", views.rows),
    Endpoint("GET", "/v1/relations/{name}/definition", views.definition),
    Endpoint("GET", "/v1/views", views.views),
    Endpoint("POST", "/v1/views", views.define),
    Endpoint("PUT", "/v1/views/{name}", views.replace),
    Endpoint("DELETE", "/v1/views/{name}", views.drop),
    Endpoint("GET", "/v1/views/{name}/rows", views.rows),
    Endpoint("GET", "/v1/views/{name}/explain", views.explain),
    Endpoint("GET", "/v1/views/{name}/why", views.why),
    Endpoint("GET", "/v1/views/{name}/changes", change_streams.changes),
    Endpoint("GET", "/v1/changes", change_streams.changes),
    Endpoint("GET", "/v1/rules", rules.rules),
    Endpoint("GET", "/v1/rules/{name}/firings", rules.firings),
    Endpoint("GET", "/v1/firings", rules.firings),
    Endpoint("GET", "/v1/subscriptions", status.subscriptions),
    Endpoint("GET", "/v1/status", status.overview),
    Endpoint("GET", "/v1/metrics", status.metrics),
    Endpoint("GET", "/v1/health", status.health, is_open=True),
    Endpoint("GET", "/v1/openapi.json", openapi, is_open=True),
)
# Files for a browser; they are not part of the API.
PAGE_FILES: Final = (
    Endpoint("GET", "/", page.index, is_open=True),
    Endpoint("GET", "/page/{name}", page.asset, is_open=True),
    Endpoint("GET", "/library/{name}", page.library, is_open=True),
)
STREAMED: Final = ("/v1/views/{name}/changes", "/v1/changes")


def make_app(project: Project, database: Database) -> Starlette:
    """Return the application that serves a database. It closes the database when it ends."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.service = service = Service.start(project, database)
        timers = (service.run_timers(), service.retry_waiting_views(), service.advance_time())
        tasks = [asyncio.create_task(timer) for timer in timers]
        yield
        for task in tasks:
            task.cancel()
        await service.close()

    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(project.origins),
        allow_methods=["GET", "POST", "PUT", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
        # A page of another origin reads no other headers of ours.
        expose_headers=["Rederive-Version", transactions.POSITION],
    )
    handlers: dict[Any, Any] = {RederiveError: _answer_error, HTTPException: _answer_http_error, 500: _answer_bug}
    app = Starlette(routes=_routes(), middleware=[cors], exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False  # a path with a slash at its end is another resource: 404, not a redirect
    return app


def _routes() -> list[BaseRoute]:
    endpoints = (*ENDPOINTS, *PAGE_FILES)
    paths = dict.fromkeys(endpoint.path for endpoint in endpoints)
    routes: list[BaseRoute] = [_route(path, [e for e in endpoints if e.path == path]) for path in paths]
    return routes + [WebSocketRoute(path, _socket) for path in STREAMED]


def _route(path: str, endpoints: list[Endpoint]) -> Route:
    by_method = {endpoint.method: endpoint for endpoint in endpoints}

    async def handle(request: Request) -> Response:
        service: Service = request.app.state.service
        # Starlette adds HEAD to every route with GET.
        endpoint = by_method["GET" if request.method == "HEAD" else request.method]
        token = NOBODY  # until it is authenticated: an error before that shows nothing
        try:
            token = admit(service, request, endpoint.is_open)
            response = await endpoint.handler(service, token, request)
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone; nobody reads this
        except Exception as error:
            response = answer_exception(redact(token, error))
        service.metrics.requests.labels(request.method, path, response.status_code).inc()
        return response

    return Route(path, handle, methods=list(by_method))


async def _socket(socket: WebSocket) -> None:
    service: Service = socket.app.state.service
    token = NOBODY
    try:
        token = admit(service, socket, False)
        await change_streams.socket_changes(service, token, socket)
    except Exception as error:
        # Before the handshake is accepted it can be refused with an HTTP answer. Later an error can only close the socket.
        if socket.application_state is not WebSocketState.CONNECTING:
            raise
        response = answer_exception(redact(token, error))
        service.metrics.requests.labels("WEBSOCKET", STREAMED["name" not in socket.path_params], response.status_code).inc()
        await socket.send_denial_response(response)


def admit(service: Service, connection: HTTPConnection, is_open: bool) -> Token:
    """Return the token of a request, after checking its origin, its secret and its rate."""
    _check_origin(service.project, connection)
    try:
        token = ANYONE if is_open else service.access.authenticate(_secret(connection))
    except Unauthorized:
        service.access.admit(Token("unknown", ""), monotonic())  # all guesses share one rate
        raise
    # After the secret is checked: requests with wrong secrets do not use up the rate of a token.
    service.access.admit(token, monotonic())
    return token


def _secret(connection: HTTPConnection) -> str | None:
    # RFC 7235: the name of the scheme is case-insensitive.
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None


def _check_origin(project: Project, connection: HTTPConnection) -> None:
    """Refuse requests that a web page of another host sends through a user's browser.

    A loopback service also checks the Host header: by DNS rebinding a page can give its own host name the address 127.0.0.1.
    """
    host = connection.headers.get("host", "")
    if is_loopback(project.address.host) and not is_loopback(_split_url(f"//{host}").hostname or ""):
        raise Forbidden(f"the request is for the host '{host}'", hint="use 127.0.0.1 or localhost")
    origin = connection.headers.get("origin")
    if origin is not None and origin not in project.origins and _split_url(origin).netloc != host:
        raise Forbidden(f"pages of {origin} may not send requests", hint="add the origin to 'origins' in rederive.toml")


def _split_url(url: str) -> SplitResult:
    """Return the parts of a URL; of a malformed one, empty parts."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _answer_error(request: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, RederiveError)
    return problem(error)


def _answer_http_error(request: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 405:
            return problem(
                WrongMethod(
                    f"this path does not support {request.scope.get('method', 'this method')}",
                    hint=(error.headers or {}).get("Allow"),
                )
            )
        case 404:
            return problem(NotFound("nothing is at this path", hint="see /v1/openapi.json"))
        case _:
            return problem(RequestError(error.detail))


def _answer_bug(request: HTTPConnection, error: Exception) -> Response:
    """Answer an exception that was raised outside of an endpoint."""
    service: Service | None = getattr(request.app.state, "service", None)
    if service is not None:
        service.metrics.requests.labels(request.scope.get("method", "WEBSOCKET"), "", 500).inc()
    return answer_exception(error)
