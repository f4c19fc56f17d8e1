"""A server as a process that is quick to start and can be killed: forked from one that has everything imported."""

from __future__ import annotations

import multiprocessing
import socket
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from time import monotonic, sleep

import rederive.failpoints
from rederive.service.http.server import serve
from rederive.service.project import read_project
from rederive.service.project_file import address_from

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.service.serving"])


def _serve(folder: str, port: int, fault: str) -> None:
    point, _, passing = fault.partition("@")
    rederive.failpoints._point, rederive.failpoints._left = point, int(passing or 1)
    from dataclasses import replace

    project = replace(read_project(Path(folder)), address=address_from(f"127.0.0.1:{port}"))
    serve(project, lambda address: None)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def started(folder: Path, port: int, fault: str = "") -> ForkServerProcess:
    """Serve a project at a port, up to a fault point where one is named; it takes connections when this returns, or is dead."""
    process = _CONTEXT.Process(target=_serve, args=(str(folder), port, fault), daemon=True)
    process.start()
    end = monotonic() + 60
    while process.is_alive() and monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        sleep(0.01)
    return process
