"""The page of the service: its files, and what only the page asks for: the network of the program, and pages of rows."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from rederive.analysis.declared import declared_sources
from rederive.bags import read_rows
from rederive.database import Database
from rederive.delta import sort_rows
from rederive.errors import MalformedInput, NotFound, UnknownColumn, UnknownOption
from rederive.ingest.strict_json import Json, parse_line
from rederive.ir.rules import Relation
from rederive.ir.terms import Value
from rederive.queries import positions
from rederive.service.access import can_read, check_read, restrict_bindings
from rederive.service.http.service import Service
from rederive.service.http.views import json_response
from rederive.service.settings import Token
from rederive.values import to_json

MEDIA: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
# Scripts, styles and requests of this service alone, no frames and no forms: a row cannot make the page run or send anything.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MOST_ROWS: Final = 1_000  # rows of one page
MOST_SORTED: Final = 50_000  # rows that are read and sorted for a page: about 0.2 s of the writer's time


async def index(service: Service, token: Token, request: Request) -> Response:
    """Return the page. It holds no data: what it shows it asks for, with the token of its user."""
    return _file("index.html")


async def asset(service: Service, token: Token, request: Request) -> Response:
    """Return a script or a style of the page."""
    return _file(request.path_params["name"])


def _file(name: str) -> Response:
    texts = _texts()
    if name not in texts:
        raise NotFound(f"the page has no file '{name}'")
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}
    return Response(texts[name], media_type=MEDIA[name.rpartition(".")[2]], headers={**headers, "Referrer-Policy": "no-referrer"})


@cache
def _texts() -> dict[str, str]:
    """The files of the page by name; a path that is none of these names leads nowhere."""
    folder = files("rederive.service").joinpath("page")
    return {one.name: one.read_text("utf-8") for one in folder.iterdir() if one.name.rpartition(".")[2] in MEDIA}


async def network(service: Service, token: Token, request: Request) -> Response:
    """Return the relations that the token reads, with their sizes and strategies, and which of them reads which."""
    return json_response(await service.writer.run(lambda db, _: _network(db, token)))


def _network(db: Database, token: Token) -> dict[str, Any]:
    state = db.pipeline.state
    program = state.program
    sections = {name: section for section in state.maintenance.sections for name in section.component.relations}
    nodes, arcs = [], []
    for name, relation in program.relations.items():
        if relation.is_auxiliary or not can_read(token, name):
            continue
        is_base = name in program.tables
        section = None if is_base else sections.get(program.counting_relation(name))
        is_stored = is_base or (section is not None and section.strategy.is_stored)
        nodes.append(
            {
                "name": name,
                "kind": "base" if is_base else "view",
                # Counting a view that is not stored would derive it.
                "size": state.engine.size(program.numbered_copies(name) or name) if is_stored else None,
                "strategy": section.strategy.value if section is not None else None,
                "reason": section.reason if section is not None else None,
            }
        )
        if not is_base:
            sources = declared_sources(program, name).items()
            arcs += [{"source": s, "target": name, "negative": negative} for s, negative in sources if can_read(token, s)]
    return {"version": db.version, "nodes": nodes, "arcs": arcs}


async def page_of_rows(service: Service, token: Token, request: Request) -> Response:
    """Return some rows of a relation, in order: `offset`, `limit`, `order` (a column, with - descending), `where` (JSON)."""
    name, parameters = request.path_params["name"], request.query_params
    check_read(token, name)
    offset, limit = _number(parameters, "offset", 0, 10**9), _number(parameters, "limit", 100, MOST_ROWS)
    where = _bindings(parse_line(parameters.get("where", "{}"), "where", 1))

    def read(db: Database) -> dict[str, Any]:
        state = db.pipeline.state
        relation = state.relation(name)
        state.check_evaluated(name)
        bound = restrict_bindings(token, relation, positions(relation, where))
        with state.budget():
            found = read_rows(state.program, name, bound, state.engine, MOST_SORTED + 1)
            is_complete = len(found) <= MOST_SORTED
            # The rows of a relation are counted without reading them; those of a part of it only up to the limit.
            total = len(found) if is_complete or bound else state.engine.size(state.program.numbered_copies(name) or name)
        rows = _ordered(found[:MOST_SORTED], relation, parameters.get("order"))[offset : offset + limit]
        answer = {"version": db.version, "total": total, "read": min(len(found), MOST_SORTED), "complete": is_complete}
        return answer | {"rows": [[to_json(value) for value in row] for row in rows]}

    return json_response(await service.writer.run(lambda db, _: read(db)))


def _bindings(where: Json) -> dict[str, Value]:
    if not isinstance(where, dict):
        raise MalformedInput("where is not an object of columns and values", hint='send {"x": "a"}').at("where")
    found: dict[str, Value] = {}
    for name, value in where.items():
        if isinstance(value, list | dict):
            raise MalformedInput(f"the value of '{name}' is not a single value", hint='send {"x": "a"}').at("where")
        found[name] = value
    return found


def _ordered(rows: list[Any], relation: Relation, order: str | None) -> list[Any]:
    found = sort_rows(rows)
    if order is None:
        return found
    column, names = order.removeprefix("-"), [column.name for column in relation.columns]
    if column not in names:
        raise UnknownColumn(relation.name, column, names)
    at = names.index(column)
    # Stable: rows that are equal in this column stay in the order of all columns. NULL comes first, as in Spark.
    return sorted(found, key=lambda row: (row[at] is not None, row[at]), reverse=order.startswith("-"))


def _number(parameters: QueryParams, name: str, default: int, most: int) -> int:
    text = parameters.get(name, str(default))
    if not text.isdecimal() or int(text) > most:
        raise UnknownOption(name, text, (f"0 to {most}",))
    return int(text)
