"""The endpoints of relations and views: list, read, explain, why, define, replace, drop."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response

from rederive.analysis.graph import needed
from rederive.catalog import check_view
from rederive.commit.past import PastReader
from rederive.commit.pipeline import DryRun
from rederive.commit.sql_statements import SqlRun
from rederive.database import Database
from rederive.errors import AbsentRow, Forbidden, MalformedInput, UnknownOption, Unsupported
from rederive.ingest.change_file import decode_line
from rederive.ingest.strict_json import Json, parse_line
from rederive.ir.printing import show_definition, show_relation
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Row
from rederive.lang.sql.ddl import definition_of as sql_definition
from rederive.lang.sql.parser import parse
from rederive.maintain.explain import FORMATS as EXPLAINED
from rederive.result import Result
from rederive.rows import typed_json_rows
from rederive.service.access import can_read, can_read_all_rows, check_define, check_read
from rederive.service.http.parameters import number_parameter
from rederive.service.http.request_limits import read_body
from rederive.service.http.row_formats import FORMATS, VersionedRows, choose_format
from rederive.service.http.service import JSON, Service
from rederive.service.http.transactions import POSITION, preview_answer, preview_limit
from rederive.service.settings import Token
from rederive.service.subscription_request import Parameters, parse_query
from rederive.why.explainer import MOST_DEPTH, Explainer
from rederive.why.explanation import Absence, Explanation
from rederive.why.instances import GroundAtom

LANGUAGES: Final = ("datalog", "sql")
_MEDIA: Final = {"text": "text/plain", "json": "application/json", "dot": "text/vnd.graphviz"}


@dataclass(frozen=True, slots=True)
class DefinitionBody:
    """The body of a request that defines or replaces views."""

    language: str
    text: str


def json_response(body: Any, status: int = 200) -> Response:
    """Return a JSON response."""
    return Response(json.dumps(body), status, media_type=JSON)


def url_parameters(connection: HTTPConnection) -> Parameters:
    """Return the parameters of a URL, in order."""
    return list(connection.query_params.multi_items())


async def relations(service: Service, token: Token, request: Request) -> Response:
    """List the base relations and views that the token reads."""
    return await _list(service, token, lambda program: program.relations, "relations")


async def views(service: Service, token: Token, request: Request) -> Response:
    """List the views that the token reads."""
    return await _list(service, token, lambda program: set(program.views) - set(program.tables), "views")


async def _list(service: Service, token: Token, names: Callable[[Program], Container[str]], member: str) -> Response:
    version, position, program = await service.writer.run(lambda db, _: (db.version, db.position, db.pipeline.state.program))
    # What a token may not read is left out, and not refused: the list is the answer to "what may I read".
    listed = names(program)
    readable = (r for r in program.relations.values() if not r.is_auxiliary and can_read(token, r.name))
    return json_response(
        {"version": version, "position": position, member: [_description(program, r) for r in readable if r.name in listed]}
    )


def _description(program: Program, relation: Relation) -> dict[str, Any]:
    return {
        "name": relation.name,
        "kind": "base" if relation.name in program.tables else "view",
        "monitored": relation.name in program.monitored,
        "columns": [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in relation.columns],
        "key": [relation.columns[i].name for i in relation.key],
    }


async def rows(service: Service, token: Token, request: Request) -> Response:
    """Return the present rows of a relation or view; parameters bind columns."""
    media = choose_format(request.headers.get("accept"), list(FORMATS))
    name, parameters = request.path_params["name"], url_parameters(request)

    def read(db: Database) -> tuple[VersionedRows, str]:
        # Without options: every parameter of the URL is a column.
        part = parse_query(db.pipeline.state.program, token, name, parameters, ())
        relation = db.pipeline.state.program.relations[name]
        found = db.rows(name, {relation.columns[i].name: v for i, v in part.bindings})
        return VersionedRows(db.version, relation, found), db.position

    # One job of the writer reads rows and version, so both are of one state. Encoding them is left to the event loop.
    answer, position = await service.writer.run(lambda db, _: read(db))
    headers = {"Rederive-Version": str(answer.version), POSITION: position, "Vary": "Accept"}
    return Response(FORMATS[media](answer), media_type=media, headers=headers)


async def definition(service: Service, token: Token, request: Request) -> Response:
    """Return the text that defines a relation or view, as it was written; of a base relation its declaration."""
    name = request.path_params["name"]
    check_read(token, name)

    def read(db: Database) -> str:
        state = db.pipeline.state
        relation, program = state.relation(name), state.program
        _check_sources(token, program, name)
        query = state.catalog.queries.get(name)
        if query is not None:
            return query
        rules = [one.span.whole if one.span else show_definition(one, program) for one in program.definitions_of(name)]
        return "\n".join(dict.fromkeys([show_relation(relation), *rules]))

    return PlainTextResponse(await service.writer.run(lambda db, _: read(db)))


async def explain(service: Service, token: Token, request: Request) -> Response:
    """Explain how a view is maintained, and why."""
    view, form = request.path_params["name"], request.query_params.get("format", "text")
    # Before the view is looked up: a token that may not read it does not learn whether it exists.
    check_read(token, view)
    if form not in EXPLAINED:
        raise UnknownOption("format", form, EXPLAINED)
    text = await service.writer.run(lambda db, _: db.explain(view, form))
    return PlainTextResponse(text, media_type=_MEDIA[form])


async def why(service: Service, token: Token, request: Request) -> Response:
    """Explain why a row is in a relation or view, or why it is not; with `changed`, why it entered or left at a version."""
    name, parameters = request.path_params["name"], request.query_params
    check_read(token, name)
    row = parse_line(parameters.get("row", ""), "row", 1)
    depth, width = (number_parameter(parameters, n, default, MOST_DEPTH, 1) for n, default in (("depth", 10), ("width", 3)))
    version = number_parameter(parameters, "version", 0, 2**53) if "version" in parameters else None
    changed, as_text = (parameters.get(name) == "true" for name in ("changed", "text"))

    def explain_row(db: Database) -> dict[str, Any]:
        program = db.pipeline.state.program
        _check_sources(token, program, name)
        (typed,) = typed_json_rows([row], db.pipeline.state.relation(name), lambda _: "row")
        at = db.version if version is None else version
        answer: dict[str, Any] = {"version": at}
        if changed:
            change = db.why_change(name, typed, at, depth=depth, width=width)
            return answer | change.to_json() | ({"text": str(change)} if as_text else {})
        if at != db.version:
            found = _explain_past(db, name, typed, at, depth, width)
        else:
            # One job of the writer: the row is looked up and explained in one state.
            try:
                found = db.why(name, typed, depth=depth, width=width)
            except AbsentRow:
                found = db.why_not(name, typed)
        answer["present"] = isinstance(found, Explanation)
        return answer | found.to_json() | ({"text": str(found)} if as_text else {})

    return json_response(await service.writer.run(lambda db, _: explain_row(db)))


def _explain_past(db: Database, name: str, row: Row, version: int, depth: int, width: int) -> Explanation | Absence:
    """Explain why a row was in a relation at an earlier version, or why it was not."""
    state, fact = db.pipeline.state, GroundAtom(name, row)
    with PastReader(state) as past:
        explainer = Explainer(state.program, past.read(version), state.catalog.queries)
        found = explainer.why(fact, depth, width) or explainer.why_not(fact)
        assert found is not None
        return found


def _check_sources(token: Token, program: Program, name: str) -> None:
    """Refuse a token from which rows are hidden that an explanation may show."""
    for source in sorted(needed(program, [name])):
        if not can_read_all_rows(token, source):
            raise Forbidden(f"the token '{token.name}' may not read all that '{name}' is computed from")


async def define(service: Service, token: Token, request: Request) -> Response:
    """Define relations and views: a text of Datalog, or one CREATE statement of SQL."""
    check_define(token)
    definition = await _read_definition(service, request)
    if request.query_params.get("preview") == "true":
        return await _preview_definition(service, token, definition, preview_limit(request))

    def run(db: Database) -> Sequence[Result]:
        if definition.language == "sql":
            _check_statement(definition.text, None)
            return db.sql(definition.text, "body")
        # None where no view has rows: there is no version, and so nothing to publish.
        made = db.define(definition.text, "body")
        return [made] if made is not None else []

    return await _redefine(service, run, 201)


async def _preview_definition(service: Service, token: Token, definition: DefinitionBody, most: int | None) -> Response:
    """Answer with what a definition would change; nothing is defined."""

    def run(db: Database) -> dict[str, Any]:
        pipeline = DryRun(db.pipeline.state, db.pipeline.runtime)
        if definition.language == "sql":
            _check_statement(definition.text, None)
            made: Sequence[Result | None] = list(SqlRun(pipeline).run(definition.text, "body"))
        else:
            made = [pipeline.define(db.pipeline.state.catalog.define(definition.text, "body"))]
        return preview_answer(token, db, [result for result in made if result is not None], most)

    return json_response(await service.writer.run(lambda db, _: run(db)))


async def replace(service: Service, token: Token, request: Request) -> Response:
    """Replace the definition of a view. This makes one version, with the exact change of the view and all views above it."""
    check_define(token)
    view, definition = request.path_params["name"], await _read_definition(service, request)

    def run(db: Database) -> Sequence[Result]:
        check_view(db.pipeline.state.program, view)
        if definition.language == "sql":
            _check_statement(definition.text, view)
            return db.sql(definition.text, "body")
        return [db.definitions.replace_view(view, definition.text)]

    return await _redefine(service, run)


async def drop(service: Service, token: Token, request: Request) -> Response:
    """Drop a view; refused while another view reads it."""
    check_define(token)
    view = request.path_params["name"]
    # Subscribers of the view get its last change, and then a problem event (`writer`).
    return await _redefine(service, lambda db: [db.definitions.drop_view(view)])


async def _read_definition(service: Service, request: Request) -> DefinitionBody:
    """Read `{"language": "datalog", "text": "..."}`."""
    _, body = await read_body(request, service.project.bounds, (JSON,))
    value: Json = parse_line(decode_line(body, "body", 1), "body", 1)
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise MalformedInput("the body is not an object with a text", hint='send {"language": "datalog", "text": "..."}').at(
            "body"
        )
    language = value.get("language", "datalog")
    if language not in LANGUAGES:
        raise MalformedInput(f"unknown language {language!r}", hint=f"known: {', '.join(LANGUAGES)}").at("body.language")
    # A misspelt key is refused, not ignored: it would define something else than the client meant.
    if unknown := [key for key in value if key not in ("language", "text")]:
        raise MalformedInput(f"unknown key '{unknown[0]}'", hint="known: language, text").at("body")
    return DefinitionBody(str(language), str(value["text"]))


async def _redefine(service: Service, run: Callable[[Database], Sequence[Result]], status: int = 200) -> Response:
    # The answer's version is the one at which subscribers saw the change.
    made = await service.writer.redefine(run)
    return json_response({"version": made[-1].version if made else service.hub.version, "changed": _changed_views(made)}, status)


def _changed_views(results: Sequence[Result]) -> list[str]:
    return sorted({view for result in results for view in result.changes})


def _check_statement(text: str, view: str | None) -> None:
    """Check that a SQL text is one definition, which takes effect whole or not at all; of `view`, where one is replaced."""
    # One statement: several would be several versions, and a refusal in the middle would leave the first ones.
    statements = parse(text, "body")
    kinds = ("create", "rule") if view is None else ("create",)
    if len(statements) != 1 or statements[0].kind not in kinds:
        raise Unsupported(
            "a request defines with one CREATE statement", hint="send one request for each; change data with transactions"
        )
    if statements[0].kind == "rule":
        return
    given = sql_definition(statements[0])
    if view is not None and not (given.name == view and given.replaces):
        raise MalformedInput(f"the statement does not replace '{view}'", hint=f"send CREATE OR REPLACE VIEW {view} AS ...").at(
            "body"
        )
