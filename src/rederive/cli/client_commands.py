"""The commands that talk to a service: `watch` and `apply`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import rederive
from rederive.cli.live_table import live
from rederive.client.blocking import Connection, Subscription
from rederive.client.firings import follow_firings, list_firings
from rederive.client.replica import Change
from rederive.errors import MalformedInput, Refused
from rederive.ingest.change_file import parse, read_lines

BATCH: Final = 100  # transactions in one request
BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class WatchFormat:
    """How changes are shown: `once`, what there is now; `as_json`, an object on each line."""

    once: bool
    as_json: bool


def watch(db: Connection, view: str, options: dict[str, Any], bindings: dict[str, str], way: WatchFormat) -> None:
    """Show a view as it changes, until an interrupt. On a terminal a table, unless one sign alone is told; else lines."""
    with db.subscribe(view, where=bindings, **options) as changes:
        if sys.stdout.isatty() and not way.as_json and not way.once and options["only"] is None:
            live(view, changes)
            return
        for change in islice(changes, 1) if way.once else changes:
            _print(_change_lines(change, view, changes, way.as_json))


def watch_rules(db: Connection, rule: str | None, way: WatchFormat) -> None:
    """Show what rules do, from now on; with `once`, what they did so far."""
    for firing in list_firings(db, rule) if way.once else follow_firings(db, rule):
        _print([json.dumps(firing, ensure_ascii=False) if way.as_json else _firing_line(firing)])


def apply(db: Connection, file: Path, key: str | None) -> None:
    """Commit the transactions of a file, a line each; print the version of each."""
    key = key or uuid4().hex
    for batch in _batches(file):
        name, first, _ = batch[0]
        try:
            done = db.apply_lines([text for _, _, text in batch], f"{key}:{first}")
        except Refused as error:
            raise _placed(error, name, [number for _, number, _ in batch]) from None
        _print(json.dumps({"version": one.version, "repeated": one.repeated}) for one in done)


def pairs(given: Sequence[str]) -> dict[str, str]:
    """
    >>> pairs(["x=a", "y=b=c"])
    {'x': 'a', 'y': 'b=c'}
    """
    if bad := [one for one in given if "=" not in one]:
        raise MalformedInput(f"'{bad[0]}' is not COLUMN=VALUE").at("--where")
    return {name: value for name, _, value in (one.partition("=") for one in given)}


def connected(url: str, token: str | None, patience: float) -> Connection:
    return rederive.connect(url, token=token, patience=patience)


def _batches(file: Path) -> Iterator[list[tuple[str, int, str]]]:
    """Lines that go together: the same ones each time that a file is read. What comes on standard input goes as it comes."""
    batch: list[tuple[str, int, str]] = []
    size = 0
    for line in read_lines(file):
        name, number, text = line
        parse(text, name, number)
        if batch and (len(batch) >= (1 if str(file) == "-" else BATCH) or size + len(text) > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(text)
    if batch:
        yield batch


def _placed(error: Refused, name: str, numbers: Sequence[int]) -> Refused:
    """The error with the place in the file: the service knows only the lines that it was sent."""

    def place(found: re.Match[str]) -> str:
        return f"{name}:{numbers[int(found[1]) - 1]}"

    return error.at(re.sub(r"^body:(\d+)", place, error.place or f"body:{len(error.problem.get('committed', [])) + 1}"))


def _change_lines(change: Change, view: str, changes: Subscription, as_json: bool) -> Iterator[str]:
    if as_json:
        head = {"version": change.version, "kind": change.kind, "view": view, "columns": changes.columns_of(view)}
        body = {"plus": change.plus, "minus": change.minus}
        yield json.dumps({**head, **body, **({"coalesced": change.coalesced} if change.coalesced else {})}, ensure_ascii=False)
        return
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
    sys.stdout.flush()
