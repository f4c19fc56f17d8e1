"""`rederive query`: the rows of a program, a store or a service that match."""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

import rederive
from rederive.cli.options import DEFAULT_LIMITS, Base, Facts, MaxRounds, MaxTuples, Stats, TokenOption
from rederive.cli.output import rows_text, show_progress, write_file
from rederive.cli.program_files import open_for_questions
from rederive.client.blocking import Connection
from rederive.client.requests import JSON, HttpRequest
from rederive.errors import MalformedInput, StoreError, Unsupported
from rederive.ir.rules import Atom
from rederive.ir.terms import Constant, Row
from rederive.lang.datalog.compiler import compile_program, compile_query
from rederive.lang.programs import is_query
from rederive.locations import local_folder
from rederive.maintain.program import Strategy
from rederive.queries import with_equal_values
from rederive.store import backup as backups
from rederive.store.journal.file import FILE
from rederive.store.journal.reader import JournalReader
from rederive.values import to_json

_URL = re.compile(r"https?://", re.IGNORECASE)


def query(
    place: Annotated[
        str, typer.Argument(help="A program (.dl, .sql), the folder of a store or the address of a service.", show_default=False)
    ],
    question: Annotated[
        str,
        typer.Argument(
            help="A relation with constants, variables or _, for example 'closure(\"a\", y)'; or a SELECT.", show_default=False
        ),
    ],
    facts: Facts = None,
    base: Base = None,
    stats: Stats = None,
    max_rounds: MaxRounds = DEFAULT_LIMITS.rounds,
    max_tuples: MaxTuples = DEFAULT_LIMITS.tuples,
    token: TokenOption = None,
) -> None:
    """Print the rows of a program, a store or a service that match, one JSON array on each line.

    A store may be open in another process. A service answers relations with constants; a SELECT needs a view there.

    Example: `rederive query examples/closure.dl 'closure("a", y)' --base edge=examples/edges.csv`
    """
    program = not _URL.match(place) and not Path(place).is_dir()
    if not program and (facts is not None or base):
        raise MalformedInput("initial rows belong to a program, and this is a store or a service").at(place)
    if _URL.match(place):
        from rederive.cli.client_commands import note_silence  # only here: a program needs no client

        with rederive.connect(place, token=token) as service:
            note_silence(place, service.patience)
            found, cost = _ask(service, question), {}
    else:
        limits = rederive.Limits(max_rounds, max_tuples)
        opened = open_for_questions(Path(place), facts, base, limits) if program else _open_copy(Path(place), limits)
        with opened as db, show_progress("answering"):
            started = time.perf_counter()
            found = db.query(question)
            cost = {"seconds": time.perf_counter() - started, "touched": db.pipeline.state.engine.touched}
    if stats is not None:
        write_file(stats, json.dumps({"rows": len(found), **cost}, indent=2) + "\n")
    sys.stdout.buffer.writelines(f"{rows_text([row])[1:-1]}\n".encode() for row in found)


@contextmanager
def _open_copy(folder: Path, limits: rederive.Limits) -> Iterator[rederive.Database]:
    """Open a copy of a store, so that the process that writes it goes on. With a lake, open the store itself."""
    store = local_folder(folder, "a store")
    if not (store / FILE).exists() and (inside := next((one.parent for one in store.glob(f"*/{FILE}")), None)) is not None:
        # The folder of a project or of a lake, which holds its store.
        store = inside
    with JournalReader.read(store) as journal:
        lake = journal.lake
    strategy = Strategy.ON_DEMAND.value
    if lake is not None:
        with rederive.open(store, lake=lake, limits=limits) as db:
            yield db
        return
    with tempfile.TemporaryDirectory(prefix="rederive-query-") as scratch:
        copy, opened = Path(scratch, "backup"), Path(scratch, "store")
        with show_progress(f"copying {folder}"):
            backups.back_up(store, copy)
            backups.restore(copy, opened)
        try:
            with rederive.open(opened, strategy=strategy, limits=limits) as db:
                yield db
        except StoreError as error:
            raise error.at(str(folder)) from None


def _ask(service: Connection, question: str) -> list[Row]:
    """Ask a service for the rows that match an atom."""
    if is_query(question):
        raise Unsupported(
            "a service answers relations with constants, not a SELECT", hint="define a view for it: docs/service.md"
        )
    listed = service.ask(HttpRequest("GET", "/v1/relations", headers={"Accept": JSON}))["relations"]
    columns, atom = _parse(listed, question)
    bound = {columns[i]: _text(to_json(term.value)) for i, term in enumerate(atom.terms) if isinstance(term, Constant)}
    return with_equal_values(atom, service.answer(atom.relation, **bound).rows)


def _parse(relations: Sequence[Mapping[str, Any]], question: str) -> tuple[list[str], Atom]:
    """The columns of the relation that is asked for, and the atom, whose constants have the types of the columns."""
    by_name = {one["name"]: one["columns"] for one in relations if one["name"].isidentifier()}
    # By position: a column of SQL may have a name that is none in Datalog.
    types = {name: [f"c{i}: {column['type']}" for i, column in enumerate(columns)] for name, columns in by_name.items()}
    declared = [f".decl {name}({', '.join(columns)})" for name, columns in types.items()]
    atom = compile_query(question, compile_program("\n".join(declared), "the relations of the service"))
    return [column["name"] for column in by_name[atom.relation]], atom


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
