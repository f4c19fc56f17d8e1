"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rederive import ENGINES, Limits
from rederive.cli.place_kinds import PlaceKind, only
from rederive.maintain.plan import AUTO, STRATEGIES

DEFAULT_LIMITS = Limits()

Program = Annotated[
    Path,
    typer.Argument(help="A program in Datalog (.dl) or SQL (.sql).", show_default=False, callback=only(PlaceKind.PROGRAM)),
]
Programs = Annotated[
    list[Path],
    typer.Argument(help="Files in Datalog (.dl) or SQL (.sql), in order.", show_default=False, callback=only(PlaceKind.PROGRAM)),
]
PlaceArgument = Annotated[
    str, typer.Argument(help="A program (.dl, .sql), the folder of a store or the address of a service.", show_default=False)
]
Url = Annotated[
    str,
    typer.Argument(
        help="The address of a service, for example http://127.0.0.1:8420.", show_default=False, callback=only(PlaceKind.SERVICE)
    ),
]
Facts = Annotated[
    Path | None, typer.Option("--facts", help="A folder with one file for each .input relation.", show_default=False)
]
Base = Annotated[
    list[str] | None,
    typer.Option("--base", metavar="REL=FILE", help="Initial rows of a base relation: .facts, .csv, .jsonl or .parquet."),
]
Changes = Annotated[
    Path | None,
    typer.Option("--changes", help="JSON lines, one transaction each; - is standard input.", show_default=False),
]
StoreFolder = Annotated[
    Path | None,
    typer.Option("--store", help="The folder of the store; it is created if it does not exist.", show_default="in the lake"),
]
StoreArgument = Annotated[Path, typer.Argument(help="The folder of a store.", show_default=False, callback=only(PlaceKind.STORE))]
StoredStrategy = Annotated[
    str | None,
    typer.Option("--strategy", help=f"One of {', '.join(STRATEGIES)}.", show_default=f"{AUTO}, or that of the store"),
]
MaxRounds = Annotated[int, typer.Option("--max-rounds", min=1, help="Rounds after which a recursion is refused.")]
MaxTuples = Annotated[int, typer.Option("--max-tuples", min=1, help="Created tuples after which a recursion is refused.")]
Stats = Annotated[Path | None, typer.Option("--stats", help="Write times and counts as JSON.", show_default=False)]
Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        help="Delta tables of relations, views and changes: a folder, or a URL, which also needs --store.",
        show_default=False,
    ),
]
Zone = Annotated[
    str | None,
    typer.Option(
        "--zone", help="Time zone of SQL timestamps, for example Europe/Berlin.", show_default="UTC, or that of the store"
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine", help=f"The engine that maintains views: {', '.join(ENGINES)}.", show_default="resident; auto with a lake"
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option("--token", envvar="REDERIVE_TOKEN", help="The token; prefer the environment variable.", show_default=False),
]
