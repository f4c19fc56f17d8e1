"""The commands on a store: `log`, `backup`, `restore`, `refresh`."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from rederive import open as open_database
from rederive.cli.options import EngineName, StoreArgument, StoreFolder
from rederive.cli.output import change_line, print_on_success
from rederive.cli.place_kinds import store_in
from rederive.locations import local_folder, parse_location
from rederive.store import backup as backups
from rederive.store.journal.reader import JournalReader
from rederive.store.store import changes_of


def log(
    store: StoreArgument,
    since: Annotated[
        str | None,
        typer.Option("--since", help="Only versions after this version or saved position.", show_default="all retained versions"),
    ] = None,
    view: Annotated[str | None, typer.Option("--view", help="Only this view.", show_default=False)] = None,
) -> None:
    """Print the changes of a store's committed versions as JSON lines. Another process may write the store meanwhile.

    Example: `rederive log graph --since 10 --view closure`
    """
    with JournalReader.read(store_in(store)) as journal, print_on_success() as output:
        # A number that a person types is a version of this history. A saved position is checked against its epoch.
        start = journal.version_at(int(since) if since.isdecimal() else since) if since is not None else journal.reach(view)
        for entry in journal.since(start, view):
            for change in changes_of(entry):
                output.write(change_line(change.version, change.view, change.plus, change.minus, change.counts))


def backup(
    store: StoreArgument,
    target: Annotated[Path, typer.Argument(help="A folder that does not exist yet.", show_default=False)],
) -> None:
    """Copy a store at its last committed version. Another process may write the store meanwhile.

    The copy does not include the tables of a lake and the checkpoints of streams.

    Example: `rederive backup graph /backups/graph-1`
    """
    _print_copied(backups.back_up(store_in(store), local_folder(target, "a backup")))


def restore(
    backup: Annotated[Path, typer.Argument(help="A backup.", show_default=False)],
    store: Annotated[Path, typer.Argument(help="A folder that does not exist yet.", show_default=False)],
    lake: Annotated[str | None, typer.Option("--lake", help="Where the lake is, if it has moved.", show_default=False)] = None,
) -> None:
    """Create a store from a backup. The store has a new epoch: clients with positions of the old one start over.

    Example: `rederive restore /backups/graph-1 graph`
    """
    folders = local_folder(backup, "a backup"), local_folder(store, "a store")
    _print_copied(backups.restore(*folders, str(parse_location(lake)) if lake is not None else None))


def _print_copied(copied: backups.StoreCopy) -> None:
    position = {"version": copied.version, "epoch": copied.epoch}
    lake = {"lake": copied.lake, "settled": copied.settled} if copied.lake is not None else {}
    print(json.dumps(position | lake))


def refresh(
    lake: Annotated[str, typer.Argument(help="The lake: a folder, or a URL, which also needs --store.", show_default=False)],
    store: StoreFolder = None,
    schema: Annotated[
        str | None, typer.Option("--schema", help="The schema of Spark's catalog for tables of views.", show_default=False)
    ] = None,
    engine: EngineName = None,
    follow: Annotated[
        float | None, typer.Option("--follow", help="Refresh every so many seconds, without end.", show_default=False)
    ] = None,
    resync: Annotated[
        bool, typer.Option("--resync", help="Compare everything, where commits in between cannot be read any more.")
    ] = False,
) -> None:
    """Follow the tables in place to their last commits, and print each version that this makes as a JSON line.

    Example: `rederive refresh mart --schema mart`
    """
    with open_database(lake=lake, store=store, schema=schema, engine=engine) as db:
        first = db.tables.resync() if resync else db.refresh()
        for result in chain([first], db.tables.follow(follow) if follow is not None else ()):
            changes = {view: [len(c.plus), len(c.minus)] for view, c in result.changes.items()} if result is not None else {}
            print(json.dumps({"version": db.version, "commits": db.tables.versions, "changes": changes}), flush=True)
