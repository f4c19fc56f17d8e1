"""`rederive serve`: open a project's database and serve it until a signal ends the process."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from rederive.database import Database
from rederive.errors import ProjectError
from rederive.service.http.app import make_app
from rederive.service.http.request_limits import BoundedProtocol, QuietWebSocket
from rederive.service.http.service import Service
from rederive.service.project import open_project
from rederive.service.settings import Address, Project

GRACE_SECONDS = 5  # for open requests when the server ends


class Server(uvicorn.Server):
    """A server that ends the streams when it shuts down; it would wait for them otherwise."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until the end."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End on a signal."""
        super().handle_exit(sig, frame)
        self.end()

    def end(self) -> None:
        """End the server. Any thread may call this."""
        self.should_exit = True
        service: Service | None = getattr(self._app.state, "service", None)
        if service is not None and self._loop is not None:
            # uvicorn waits for open responses before it ends the application, and a stream has no end of its own.
            self._loop.call_soon_threadsafe(service.end_streams)


def serve(project: Project, ready: Callable[[Address], None]) -> None:
    """Serve a project. `ready` is called with the address when the server accepts connections."""
    allow_many_connections()
    # The socket is opened before the database: a wrong address fails
    # at once, and clients that connect early wait in the backlog.
    listening = listen(project.address)
    with listening:
        server = make_server(project)
        host, port = listening.getsockname()[:2]
        ready(Address(host, port))
        server.run(sockets=[listening])


def allow_many_connections() -> None:
    """Raise the limit of open files to the maximum: each subscriber needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def make_server(project: Project, database: Database | None = None) -> Server:
    """Return a server for a project, or for an open database of it. The database is closed when the server ends."""
    app = make_app(project, database or open_project(project))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="on",
        http=partial(BoundedProtocol, project.bounds),  # type: ignore[arg-type]
        loop="uvloop",
        ws=QuietWebSocket,
        ws_per_message_deflate=False,  # an event is encoded once for all subscribers; compression is per connection
        server_header=False,
        proxy_headers=False,  # the rate is limited by token, not by address
        timeout_keep_alive=75,  # seconds that an idle connection stays open
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws_max_size=2**16,  # bytes of a client's message; streams ignore messages
    )
    return Server(config, app)


def listen(address: Address) -> socket.socket:
    """Return a socket that listens on an address."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        # A long backlog, because all subscribers reconnect at once after a restart.
        return socket.create_server((address.host, address.port), family=family, backlog=4096)
    except OSError as error:
        raise ProjectError(f"cannot listen on {address}: {error.strerror}", hint="choose another address").at("address") from None
