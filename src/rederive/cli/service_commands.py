"""The commands around a project: `init` and `serve`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from rederive.errors import MissingDependency
from rederive.service.project import FILE, check_address, init, read_project
from rederive.service.project_file import address_from
from rederive.service.settings import Address


def start_project(folder: Path) -> None:
    init(folder)
    print(f"{folder / FILE} is written. Next: rederive serve {folder}")


def serve_project(folder: Path, address: str | None) -> None:
    """Serve until an interrupt; everything that was acknowledged is on disk by then."""
    try:
        from rederive.service.http.server import serve
    except ImportError as error:
        raise MissingDependency(f"the service needs {error.name}", hint="pip install 'rederive[service]'") from None
    project = read_project(folder)
    if address is not None:
        project = replace(project, address=address_from(address))
        check_address(project)
    serve(project, _ready)


def _ready(address: Address) -> None:
    sys.stderr.write(f"rederive serves http://{address}/v1\n")
    sys.stderr.flush()
