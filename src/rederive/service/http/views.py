"""Relations and views: listed, defined, replaced, dropped, read and explained."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response

from rederive.catalog import check_view
from rederive.database import Database
from rederive.errors import MalformedInput, UnknownOption, Unsupported
from rederive.ir.rules import Program, Relation
from rederive.lang.sql.ddl import definition_of as sql_definition
from rederive.lang.sql.parser import parse
from rederive.maintain.explain import FORMATS as EXPLAINED
from rederive.result import Result
from rederive.service.access import can_read, check_define, check_read
from rederive.service.http import bodies
from rederive.service.http.row_formats import FORMATS, VersionedRows, chosen
from rederive.service.http.service import Service
from rederive.service.settings import Token
from rederive.service.subscription_request import Parameters, question

POSITION: Final = "Rederive-Position"
"""The header that says which version of which epoch an answer is of: a point to follow the changes from."""
_MEDIA: Final = {"text": "text/plain", "json": "application/json", "dot": "text/vnd.graphviz"}


def answered(body: Any, status: int = 200) -> Response:
    return Response(json.dumps(body), status, media_type=bodies.JSON)


def parameters(connection: HTTPConnection) -> Parameters:
    return list(connection.query_params.multi_items())


async def relations(service: Service, token: Token, request: Request) -> Response:
    """The base relations and views that the token reads."""
    return await _listed(service, token, lambda program: program.relations, "relations")


async def views(service: Service, token: Token, request: Request) -> Response:
    """The views that the token reads."""
    return await _listed(service, token, lambda program: set(program.views) - set(program.tables), "views")


async def _listed(service: Service, token: Token, wanted: Callable[[Program], Container[str]], member: str) -> Response:
    version, program = await service.writer.ask(lambda db, _: (db.version, db.program))
    names = wanted(program)
    readable = (r for r in program.relations.values() if not r.auxiliary and can_read(token, r.name))
    return answered({"version": version, member: [_described(program, r) for r in readable if r.name in names]})


def _described(program: Program, relation: Relation) -> dict[str, Any]:
    return {
        "name": relation.name,
        "kind": "base" if relation.name in program.tables else "view",
        "monitored": relation.name in program.monitored,
        "columns": [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in relation.columns],
        "key": [relation.columns[i].name for i in relation.key],
    }


async def rows(service: Service, token: Token, request: Request) -> Response:
    """The rows of a relation or view now; parameters fix columns."""
    media = chosen(request.headers.get("accept"), list(FORMATS))
    name, given = request.path_params["name"], parameters(request)

    def read(db: Database) -> tuple[VersionedRows, str]:
        part = question(db.program, token, name, given, ())
        relation = db.program.relations[name]
        found = db.rows(name, {relation.columns[i].name: v for i, v in part.bindings})
        return VersionedRows(db.version, relation, found), db.position

    answer, position = await service.writer.ask(lambda db, _: read(db))
    headers = {"Rederive-PublishedVersion": str(answer.version), POSITION: position, "Vary": "Accept"}
    return Response(FORMATS[media](answer), media_type=media, headers=headers)


async def explain(service: Service, token: Token, request: Request) -> Response:
    """How a view is maintained, and why."""
    view, form = request.path_params["name"], request.query_params.get("format", "text")
    check_read(token, view)
    if form not in EXPLAINED:
        raise UnknownOption("format", form, EXPLAINED)
    text = await service.writer.ask(lambda db, _: db.explain(view, form))
    return PlainTextResponse(text, media_type=_MEDIA[form])


async def define(service: Service, token: Token, request: Request) -> Response:
    """Add relations and views: one text of Datalog, or one statement of SQL."""
    check_define(token)
    given = await _definition(service, request)

    def run(db: Database) -> Sequence[Result]:
        if given.language == "sql":
            _check_statement(given.text, None)
            return db.sql(given.text, "body")
        made = db.define(given.text, "body")
        return [made] if made is not None else []

    return await _redefined(service, run, 201)


async def replace(service: Service, token: Token, request: Request) -> Response:
    """Give a view other rules, or another CREATE VIEW: one version, with the exact change of every view above it."""
    check_define(token)
    view, given = request.path_params["name"], await _definition(service, request)

    def run(db: Database) -> Sequence[Result]:
        check_view(db.program, view)
        if given.language == "sql":
            _check_statement(given.text, view)
            return db.sql(given.text, "body")
        return [db.replace_view(view, given.text)]

    return await _redefined(service, run)


async def drop(service: Service, token: Token, request: Request) -> Response:
    """Remove a view; refused while others need it."""
    check_define(token)
    view = request.path_params["name"]
    return await _redefined(service, lambda db: [db.drop_view(view)])


async def _definition(service: Service, request: Request) -> bodies.DefinitionBody:
    bodies.media(request, (bodies.JSON,))
    return bodies.definition(await bodies.read(request, service.project.bounds.body))


async def _redefined(service: Service, run: Callable[[Database], Sequence[Result]], status: int = 200) -> Response:
    made = await service.writer.redefine(run)
    return answered({"version": made[-1].version if made else service.hub.version, "changed": _changed(made)}, status)


def _changed(results: Sequence[Result]) -> list[str]:
    return sorted({view for result in results for view in result.changes})


def _check_statement(text: str, view: str | None) -> None:
    """One definition, so that it stands as a whole or not at all; of this view where it is to replace one."""
    statements = parse(text, "body")
    kinds = ("create", "rule") if view is None else ("create",)
    if len(statements) != 1 or statements[0].kind not in kinds:
        raise Unsupported("one CREATE statement at a time", hint="send the others by themselves; data goes by transactions")
    if statements[0].kind == "rule":
        return
    given = sql_definition(statements[0])
    if view is not None and not (given.name == view and given.replaces):
        raise MalformedInput(f"this does not replace '{view}'", hint=f"CREATE OR REPLACE VIEW {view} AS ...").at("body")
