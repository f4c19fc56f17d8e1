"""`rederive query`: the rows of a program, a store or a service that match."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import typer

import rederive
from rederive.cli.options import DEFAULT_LIMITS, Base, Facts, MaxRounds, MaxTuples, PlaceArgument, Stats, TokenOption
from rederive.cli.output import rows_text, show_progress, write_file
from rederive.cli.place_kinds import PlaceKind, kind_of
from rederive.cli.questions import connect_service, open_place, refuse_rows, relations_of
from rederive.client.blocking import Connection
from rederive.errors import Unsupported
from rederive.ir.terms import Constant, Row
from rederive.lang.datalog.compiler import compile_query
from rederive.lang.programs import is_query
from rederive.queries import with_equal_values
from rederive.values import to_json


def query(
    place: PlaceArgument,
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
    if kind_of(place) is PlaceKind.SERVICE:
        refuse_rows(place, facts, base)
        with connect_service(place, token) as service:
            found, cost = _ask(service, question), {}
    else:
        with open_place(place, facts, base, rederive.Limits(max_rounds, max_tuples)) as db, show_progress("answering"):
            started = time.perf_counter()
            found = db.query(question)
            cost = {"seconds": time.perf_counter() - started, "touched": db.pipeline.state.engine.touched}
    if stats is not None:
        write_file(stats, json.dumps({"rows": len(found), **cost}, indent=2) + "\n")
    sys.stdout.buffer.writelines(f"{rows_text([row])[1:-1]}\n".encode() for row in found)


def _ask(service: Connection, question: str) -> list[Row]:
    """Ask a service for the rows that match an atom."""
    if is_query(question):
        raise Unsupported(
            "a service answers relations with constants, not a SELECT", hint="define a view for it: docs/service.md"
        )
    program, names = relations_of(service)
    # The constants of the atom have the types of the columns.
    atom = compile_query(question, program)
    columns = names[atom.relation]
    bound = {columns[i]: _text(to_json(term.value)) for i, term in enumerate(atom.terms) if isinstance(term, Constant)}
    return with_equal_values(atom, service.answer(atom.relation, **bound).rows)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
