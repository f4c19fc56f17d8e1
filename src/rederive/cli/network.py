"""The commands around a service: `init` and `serve` on its side, `watch` and `apply` on the other."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[str, typer.Argument(help="Address of a service, as in http://127.0.0.1:8420.", show_default=False)]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="REDERIVE_TOKEN", help="What the service knows you by; better in the environment.", show_default=False
    ),
]
Patience = Annotated[float, typer.Option("--patience", min=0, help="Seconds without an answer after which to give up.")]


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the project; made where there is none.", show_default=False)],
) -> None:
    """Start a project: a folder with a rederive.toml and a program.

    Example: `rederive init graph`
    """
    from rederive.cli import service_commands as service

    service.start_project(folder)


def serve(
    project: Annotated[Path, typer.Argument(help="Folder with a rederive.toml.", show_default=False)],
    address: Annotated[
        str | None, typer.Option("--address", metavar="HOST:PORT", help="Where to listen.", show_default="as the project says")
    ] = None,
) -> None:
    """Serve a project over HTTP: transactions in, the exact changes of every view out, to whoever subscribes.

    Example: `rederive serve graph --address 127.0.0.1:8420`
    """
    from rederive.cli import service_commands as service

    service.serve_project(project, address)


def watch(
    url: Url,
    view: Annotated[str | None, typer.Argument(help="A view, or with --rules a rule.", show_default=False)] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Show what active rules do.")] = False,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Only rows with this value.", show_default=False)
    ] = None,
    only: Annotated[str | None, typer.Option("--only", help="Plus or minus alone.", show_default=False)] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="INTERVAL", help="Net changes, as 5s.", show_default=False)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show what there is now, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="An object on each line.")] = False,
    patience: Patience = 60.0,
    token: Token = None,
) -> None:
    """Show a view of a service as it changes: a table on a terminal, lines elsewhere. A lost connection is made again.

    Example: `rederive watch http://127.0.0.1:8420 closure --where x=a`
    """
    from rederive.cli import client_commands as clients

    if view is None and not rules:
        raise typer.BadParameter("name a view, or give --rules")
    way = clients.WatchFormat(once, as_json)
    with clients.connected(url, token, patience) as db, suppress(KeyboardInterrupt):
        if rules:
            clients.watch_rules(db, view, way)
        else:
            clients.watch(db, str(view), {"only": only, "every": every}, clients.pairs(where or ()), way)


def apply(
    url: Url,
    file: Annotated[Path, typer.Argument(help="JSON lines, a transaction each; - is standard input.", show_default=False)],
    key: Annotated[
        str | None,
        typer.Option("--key", help="Names the file: applied again under it, nothing is applied twice.", show_default="a new one"),
    ] = None,
    patience: Patience = 60.0,
    token: Token = None,
) -> None:
    """Commit the transactions of a file at a service, each once, also where an answer is lost. Prints their versions.

    Example: `rederive apply http://127.0.0.1:8420 examples/changes.jsonl --key monday`
    """
    from rederive.cli import client_commands as clients

    with clients.connected(url, token, patience) as db:
        clients.apply(db, file, key)
