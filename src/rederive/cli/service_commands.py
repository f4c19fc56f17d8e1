"""The commands that run a service: `init`, `serve`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rederive.service import project as projects
from rederive.service.project_file import address_from
from rederive.service.settings import Address


def init(
    folder: Annotated[
        Path, typer.Argument(help="The folder of the project; it is created if it does not exist.", show_default=False)
    ],
) -> None:
    """Create a project: a folder with a rederive.toml and a program.

    Example: `rederive init graph`
    """
    projects.init(folder)
    print(f"{folder / projects.FILE} is written. Next: rederive serve {folder}")


def serve(
    project: Annotated[Path, typer.Argument(help="A folder with a rederive.toml.", show_default=False)],
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="Where to listen.", show_default="that of the project"),
    ] = None,
) -> None:
    """Serve a project over HTTP: accept transactions, and push the exact changes of views to subscribers.

    An interrupt ends the service. Every acknowledged transaction is durable.

    Example: `rederive serve graph --address 127.0.0.1:8420`
    """
    from rederive.service.http.server import serve as serve_project

    settings = projects.read_project(project)
    if address is not None:
        settings = replace(settings, address=address_from(address))
        projects.check_address(settings)
    serve_project(settings, _print_address)


def _print_address(address: Address) -> None:
    sys.stderr.write(f"rederive serves http://{address}/v1\n")
    sys.stderr.flush()
