"""The commands that use a service: `watch`, `apply`."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import typer

import rederive
from rederive.cli.live_table import show_live
from rederive.cli.options import TokenOption, Url
from rederive.client.blocking import Connection, Subscription
from rederive.client.firings import follow_firings, list_firings
from rederive.client.replica import Change
from rederive.errors import MalformedInput, Refused
from rederive.ingest.change_file import parse_change_line, read_lines

MAX_BATCH: Final = 100  # transactions in one request
MAX_BATCH_BYTES: Final = 2**20

Patience = Annotated[float, typer.Option("--patience", min=0, help="Seconds without an answer after which to give up.")]


def watch(
    url: Url,
    view: Annotated[str | None, typer.Argument(help="A view or, with --rules, a rule.", show_default=False)] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Show the firings of active rules.")] = False,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Only rows with this value.", show_default=False)
    ] = None,
    only: Annotated[str | None, typer.Option("--only", help="Only plus, or only minus.", show_default=False)] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="INTERVAL", help="Net changes of an interval, for example 5s.", show_default=False),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show the present state, and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on each line.")] = False,
    patience: Patience = 60.0,
    token: TokenOption = None,
) -> None:
    """Show a view of a service as it changes: a table on a terminal, lines elsewhere. A lost connection is opened again.

    Example: `rederive watch http://127.0.0.1:8420 closure --where x=a`
    """
    if view is None and not rules:
        raise typer.BadParameter("name a view, or give --rules")
    bindings = parse_bindings(where or ())
    with rederive.connect(url, token=token, patience=patience) as db, suppress(KeyboardInterrupt):
        note_silence(url, patience)
        if rules:
            _watch_firings(db, view, once, as_json)
        else:
            _watch_view(db, str(view), {"only": only, "every": every}, bindings, once, as_json)


def note_silence(url: str, patience: float) -> None:
    """Say at once that nobody answers at an address: the client goes on trying, and a wrong port looks like a slow service."""
    try:
        at = urlsplit(url)
        socket.create_connection((at.hostname, at.port or (443 if at.scheme == "https" else 80)), timeout=2).close()
    except (OSError, ValueError) as error:
        print(f"{url} does not answer ({error}); trying for {patience:g} seconds", file=sys.stderr)


def _watch_view(db: Connection, view: str, options: dict[str, Any], bindings: dict[str, str], once: bool, as_json: bool) -> None:
    with db.subscribe(view, where=bindings, **options) as changes:
        # A table shows rows, which one sign does not determine.
        if sys.stdout.isatty() and not as_json and not once and options["only"] is None:
            show_live(view, changes)
            return
        # The first change of a subscription has all rows: the present state.
        for change in islice(changes, 1) if once else changes:
            _print(_change_lines(change, view, changes, as_json))


def _watch_firings(db: Connection, rule: str | None, once: bool, as_json: bool) -> None:
    for firing in list_firings(db, rule) if once else follow_firings(db, rule):
        _print([json.dumps(firing, ensure_ascii=False) if as_json else _firing_line(firing)])


def parse_bindings(given: Sequence[str]) -> dict[str, str]:
    """Parse COLUMN=VALUE.

    >>> parse_bindings(["x=a", "y=b=c"])
    {'x': 'a', 'y': 'b=c'}
    """
    # Values are typed by the service, which knows the columns.
    if bad := [one for one in given if "=" not in one]:
        raise MalformedInput(f"'{bad[0]}' is not COLUMN=VALUE").at("--where")
    return {name: value for name, _, value in (one.partition("=") for one in given)}


def _change_lines(change: Change, view: str, changes: Subscription, as_json: bool) -> Iterator[str]:
    if as_json:
        head = {"version": change.version, "kind": change.kind, "view": view, "columns": changes.columns_of(view)}
        body = {"plus": change.plus, "minus": change.minus}
        yield json.dumps({**head, **body, **({"coalesced": change.coalesced} if change.coalesced else {})}, ensure_ascii=False)
        return
    # What leaves comes first, so that whoever applies the lines in order never holds two rows with one key.
    for sign, rows in (("-", change.minus), ("+", change.plus)):
        for row in rows:
            yield f"{change.version} {sign} {json.dumps(row, ensure_ascii=False)}"


def _firing_line(firing: dict[str, Any]) -> str:
    rows = [
        f"{sign}{json.dumps(row, ensure_ascii=False)}" for sign, side in (("+", "plus"), ("-", "minus")) for row in firing[side]
    ]
    detail = f" ({firing['detail']})" if firing["detail"] else ""
    return f"{firing['version']} {firing['rule']} {firing['action']} {firing['outcome']}{detail}: {' '.join(rows)}"


def _print(lines: Iterator[str] | Sequence[str]) -> None:
    for line in lines:
        print(line)
    # After each change: whoever reads a pipe sees a change when it happens, not when a buffer is full.
    sys.stdout.flush()


def apply(
    url: Url,
    file: Annotated[Path, typer.Argument(help="JSON lines, one transaction each; - is standard input.", show_default=False)],
    key: Annotated[
        str | None,
        typer.Option(
            "--key", help="The idempotency key: applying the file twice with one key has no further effect.", show_default="new"
        ),
    ] = None,
    patience: Patience = 60.0,
    token: TokenOption = None,
) -> None:
    """Commit the transactions of a file at a service, each exactly once, even if an answer is lost. Print their versions.

    Example: `rederive apply http://127.0.0.1:8420 examples/changes.jsonl --key monday`
    """
    # A key in any case: a lost answer is repeated under it, and the transaction is applied once.
    key = key or uuid4().hex
    with rederive.connect(url, token=token, patience=patience) as db:
        note_silence(url, patience)
        for batch in _batches(file):
            name, first, _ = batch[0]
            try:
                # The key of a line is made of this key and its number: a repeated file is applied once.
                receipts = db.apply_lines([text for _, _, text in batch], f"{key}:{first}")
            except Refused as error:
                raise _locate(error, name, [number for _, number, _ in batch]) from None
            _print([json.dumps({"version": one.version, "repeated": one.repeated}) for one in receipts])


def _batches(file: Path) -> Iterator[list[tuple[str, int, str]]]:
    """Yield the lines that one request commits; each line of standard input is a batch.

    The same file always has the same batches: the key of a batch is made of the key of the file and its first line.
    """
    batch: list[tuple[str, int, str]] = []
    size, max_lines = 0, 1 if str(file) == "-" else MAX_BATCH
    for line in read_lines(file):
        name, number, text = line
        # Checked before the line is sent, so that the error names its place in the file.
        parse_change_line(text, name, number)
        if batch and (len(batch) >= max_lines or size + len(text) > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        # A line larger than the limit is a batch of its own; the service decides whether it takes it.
        batch.append(line)
        size += len(text)
    if batch:
        yield batch


def _locate(error: Refused, name: str, numbers: Sequence[int]) -> Refused:
    """Return the error with its place in the file: the service knows only the lines of the request."""

    # The service counts the lines of its request from 1, without the blank ones of the file.
    def place(found: re.Match[str]) -> str:
        return f"{name}:{numbers[int(found[1]) - 1]}"

    return error.at(re.sub(r"^body:(\d+)", place, error.place or f"body:{len(error.problem.get('committed', [])) + 1}"))
