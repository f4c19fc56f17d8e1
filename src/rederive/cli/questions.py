"""Where a question is answered: in a program or a copy of a store, opened for it, or by a service."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rederive
from rederive.cli.client_commands import note_silence
from rederive.cli.output import show_progress
from rederive.cli.place_kinds import PlaceKind, kind_of, store_in
from rederive.cli.program_files import open_for_questions
from rederive.client.blocking import Connection
from rederive.client.requests import JSON, HttpRequest
from rederive.errors import MalformedInput, MissingFile, StoreError
from rederive.ir.rules import Program
from rederive.lang.datalog.compiler import compile_program
from rederive.limits import Limits
from rederive.maintain.program import Strategy
from rederive.store import backup as backups
from rederive.store.journal.reader import JournalReader

# Programs and stores


@contextmanager
def open_place(place: str, facts: Path | None, base: Sequence[str] | None, limits: Limits) -> Iterator[rederive.Database]:
    """Open a program, or a copy of a store, for one question."""
    if kind_of(place) is PlaceKind.STORE:
        refuse_rows(place, facts, base)
        with _open_copy(store_in(place), limits) as db:
            yield db
        return
    if kind_of(place) is None:
        hint = "name a program (.dl, .sql), the folder of a store or the address of a service, such as http://127.0.0.1:8420"
        raise MissingFile("the place does not exist", hint=hint).at(place)
    with open_for_questions(Path(place), facts, base, limits) as db:
        yield db


def refuse_rows(place: str, facts: Path | None, base: Sequence[str] | None) -> None:
    """Refuse initial rows for a place that has rows of its own."""
    if facts is not None or base:
        hint = "leave out --facts and --base"
        raise MalformedInput("initial rows belong to a program, and this is a store or a service", hint=hint).at(place)


@contextmanager
def _open_copy(store: Path, limits: Limits) -> Iterator[rederive.Database]:
    """Open a copy of a store, so that the process that writes it goes on. With a lake, open the store itself."""
    with JournalReader.read(store) as journal:
        lake = journal.lake
    strategy = Strategy.ON_DEMAND.value
    if lake is not None:
        with rederive.open(store, lake=lake, limits=limits) as db:
            yield db
        return
    with tempfile.TemporaryDirectory(prefix="rederive-query-") as scratch:
        copy, opened = Path(scratch, "backup"), Path(scratch, "store")
        with show_progress(f"copying {store}"):
            backups.back_up(store, copy)
            backups.restore(copy, opened)
        try:
            with rederive.open(opened, strategy=strategy, limits=limits) as db:
                yield db
        except StoreError as error:
            raise error.at(str(store)) from None


# Services


def connect_service(url: str, token: str | None) -> Connection:
    """Connect to a service, and say at once if nobody answers."""
    service = rederive.connect(url, token=token)
    note_silence(url, service.patience)
    return service


def relations_of(service: Connection) -> tuple[Program, dict[str, list[str]]]:
    """The relations of a service, with types by position and no rules, and the names of their columns."""
    listed: list[dict[str, Any]] = service.ask(HttpRequest("GET", "/v1/relations", headers={"Accept": JSON}))["relations"]
    by_name = {one["name"]: one["columns"] for one in listed if one["name"].isidentifier()}
    # By position: a column of SQL may have a name that is none in Datalog.
    types = {name: [f"c{i}: {column['type']}" for i, column in enumerate(columns)] for name, columns in by_name.items()}
    declared = "\n".join(f".decl {name}({', '.join(columns)})" for name, columns in types.items())
    names = {name: [column["name"] for column in columns] for name, columns in by_name.items()}
    return compile_program(declared, "the relations of the service"), names
