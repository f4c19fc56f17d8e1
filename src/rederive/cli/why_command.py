"""`rederive why`: explain a row of a program, a store or a service."""

from __future__ import annotations

import json
from typing import Annotated
from urllib.parse import quote

import typer

from rederive.cli.named_rows import ground_row, json_row
from rederive.cli.options import DEFAULT_LIMITS, Base, Facts, PlaceArgument, TokenOption
from rederive.cli.output import show_progress
from rederive.cli.place_kinds import PlaceKind, kind_of
from rederive.cli.questions import connect_service, open_place, refuse_rows, relations_of
from rederive.client.blocking import Connection
from rederive.client.requests import JSON, HttpRequest
from rederive.database import Database
from rederive.errors import AbsentRow
from rederive.rows import typed_json_rows
from rederive.values import to_json
from rederive.why.explainer import MOST_DEPTH
from rederive.why.explanation import Absence, Explanation


def why(
    place: PlaceArgument,
    view: Annotated[
        str,
        typer.Argument(
            help='A row of a view or base relation, for example \'closure("a", "c")\'; or its name, if ROW follows.',
            show_default=False,
        ),
    ],
    row: Annotated[
        str | None, typer.Argument(help='The row as a JSON array, for example \'["a", "c"]\'.', show_default=False)
    ] = None,
    depth: Annotated[int, typer.Option("--depth", min=1, max=MOST_DEPTH, help="Levels of the tree.")] = 10,
    width: Annotated[int, typer.Option("--width", min=1, help="Derivations of the row, and rows of a group.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tree as JSON.")] = False,
    facts: Facts = None,
    base: Base = None,
    token: TokenOption = None,
) -> None:
    """Explain why a row is in a view, or why it is not.

    Example: `rederive why examples/closure.dl 'closure("a", "c")' --base edge=examples/edges.csv`
    """
    if kind_of(place) is PlaceKind.SERVICE:
        refuse_rows(place, facts, base)
        with connect_service(place, token) as service:
            answer = _ask(service, view, row, depth, width)
        text = answer.pop("text")
        tree = {name: value for name, value in answer.items() if name not in ("version", "present")}
    else:
        with open_place(place, facts, base, DEFAULT_LIMITS) as db, show_progress("answering"):
            found = explain_row(db, view, row, depth, width)
        text, tree = str(found), found.to_json()
    print(json.dumps(tree, indent=2, ensure_ascii=False) if as_json else text)


def explain_row(
    db: Database, view: str, row: str | None, depth: int = 10, width: int = 3, name: str = "row"
) -> Explanation | Absence:
    """Explain a row, whether it is there or not. Without `row`, `view` is an atom; `name`: what an error calls the input."""
    if row is None:
        relation, typed = ground_row(view, db.pipeline.state.program)
    else:
        relation = view
        (typed,) = typed_json_rows([json_row(row, name)], db.pipeline.state.relation(view), lambda _: name)
    # Both questions are answered at one version: nobody else has this database.
    try:
        return db.why(relation, typed, depth=depth, width=width)
    except AbsentRow:
        return db.why_not(relation, typed)


def _ask(service: Connection, view: str, row: str | None, depth: int, width: int) -> dict[str, object]:
    """The answer of a service, which types the row."""
    if row is None:
        view, values = ground_row(view, relations_of(service)[0])
        row = json.dumps([to_json(value) for value in values])
    else:
        json_row(row, "row")
    parameters = (("row", row), ("depth", str(depth)), ("width", str(width)), ("text", "true"))
    path = f"/v1/views/{quote(view, safe='')}/why"
    found: dict[str, object] = service.ask(HttpRequest("GET", path, parameters, {"Accept": JSON}))
    return found
