"""`rederive serve`: a project's database, behind a socket, until it is told to end."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from rederive.errors import ProjectError
from rederive.service.http.app import make_app
from rederive.service.http.bounded_protocol import BoundedProtocol, QuietWebSocket
from rederive.service.http.service import Service
from rederive.service.project import open_project
from rederive.service.settings import Address, Project

GRACE = 5  # seconds in which streams may end


class Server(uvicorn.Server):
    """Ends the subscriptions when it is to end: a stream would otherwise keep it waiting."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.end()

    def end(self) -> None:
        """From any thread."""
        self.should_exit = True
        service: Service | None = getattr(self._app.state, "service", None)
        if service is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(service.end)


def serve(project: Project, ready: Callable[[Address], None]) -> None:
    """Serve a project; `ready` is told the address when requests are taken."""
    allow_many_connections()
    listening = listen(project.address)
    with listening:
        server = make_server(project)
        host, port = listening.getsockname()[:2]
        ready(Address(host, port))
        server.run(sockets=[listening])


def allow_many_connections() -> None:
    """As many open files as the system lets this process have: each subscriber is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def make_server(project: Project) -> Server:
    """A server for a project, whose database it opens."""
    app = make_app(project, open_project(project))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="on",
        http=partial(BoundedProtocol, project.bounds),  # type: ignore[arg-type]
        loop="uvloop",
        ws=QuietWebSocket,
        ws_per_message_deflate=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE,
        ws_max_size=2**16,
    )
    return Server(config, app)


def listen(address: Address) -> socket.socket:
    """A socket at an address, which nobody else has."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=4096)
    except OSError as error:
        raise ProjectError(f"cannot listen on {address}: {error.strerror}", hint="give another address").at("address") from None
