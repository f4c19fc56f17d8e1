"""The page of the service: its files, and what only the page asks for: the network of the program, rows, graphs and series."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from rederive.analysis.declared import declared_sources
from rederive.commit.state import DatabaseState
from rederive.database import Database
from rederive.errors import Expired, MalformedInput, NotFound, Unsupported
from rederive.ingest.strict_json import Json, parse_line
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Kind, Row, Value
from rederive.queries import positions
from rederive.rules.rule_set import CompiledRule
from rederive.service.access import can_read, can_read_all_rows, check_read, restrict_bindings
from rederive.service.http.parameters import number_parameter
from rederive.service.http.service import Service
from rederive.service.http.views import json_response
from rederive.service.row_pages import RowFilter, RowOrder, RowPage, SortedRows, order_by, recorded_deltas
from rederive.service.settings import Token
from rederive.values import from_json, to_json

MEDIA: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# Scripts, styles and requests of this service alone, no frames and no forms: a row cannot make the page run or send anything.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
# Libraries for a browser that come in wheels (decision 140): the name, the package that carries it, and its file there.
LIBRARIES: Final = {"dagre.js": ("netron", "netron/dagre.js")}
MOST_ROWS: Final = 1_000  # rows of one page
MOST_NEIGHBOURS: Final = 40  # rows of a graph that begin or end at one node
MOST_NODES: Final = 20  # nodes that are asked for at once
MOST_POINTS: Final = 400  # versions of a series
MOST_SERIES: Final = 8  # lines of a chart
MOST_CHARTED: Final = 5_000  # rows of a view that is charted by its values
NUMERIC: Final = frozenset({Kind.NUMBER, Kind.UNSIGNED, Kind.FLOAT, Kind.DECIMAL})


async def index(service: Service, token: Token, request: Request) -> Response:
    """Return the page. It holds no data: what it shows it asks for, with the token of its user."""
    return _file("index.html", _texts()["index.html"])


async def asset(service: Service, token: Token, request: Request) -> Response:
    """Return a script or a style of the page."""
    name = request.path_params["name"]
    return _file(name, _texts().get(name))


async def library(service: Service, token: Token, request: Request) -> Response:
    """Return a library of the page, from the wheel that carries it."""
    name = request.path_params["name"]
    return _file(name, _library_text(*LIBRARIES[name]) if name in LIBRARIES else None)


def _file(name: str, text: str | None) -> Response:
    if text is None:
        raise NotFound(f"the page has no file '{name}'")
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}
    return Response(text, media_type=MEDIA[name.rpartition(".")[2]], headers={**headers, "Referrer-Policy": "no-referrer"})


@cache
def _texts() -> dict[str, str]:
    """The files of the page by name; a path that is none of these names leads nowhere."""
    folder = files("rederive.service").joinpath("page")
    return {one.name: one.read_text("utf-8") for one in folder.iterdir() if one.name.rpartition(".")[2] in MEDIA}


@cache
def _library_text(package: str, path: str) -> str:
    # Without importing the package: only its file is used.
    return Path(str(distribution(package).locate_file(path))).read_text("utf-8")


# The network


async def network(service: Service, token: Token, request: Request) -> Response:
    """Return relations, rules, constraints and subscribers, and which of them reads which; at an earlier version, as it was."""
    version = _version(service, request.query_params)

    def read(db: Database) -> dict[str, Any]:
        state = db.pipeline.state
        nodes, arcs = _relations(state, token)
        if token.admin:
            more = [*_rules(state), *_subscribers(service, state.program, token)]
            nodes += [node for node, _ in more]
            arcs += [arc for _, found in more for arc in found]
        sizes = _sizes_at(state, version) if version is not None else {}
        for node in nodes:
            if node["name"] in sizes and node["size"] is not None:
                node["size"] += sizes[node["name"]]
        return {"version": db.version if version is None else version, "nodes": nodes, "arcs": arcs}

    return json_response(await service.writer.run(lambda db, _: read(db)))


def _version(service: Service, parameters: QueryParams) -> int | None:
    """The earlier version that is asked for; None for the present one."""
    if "version" not in parameters:
        return None
    return number_parameter(parameters, "version", 0, service.hub.version)


def _relations(state: DatabaseState, token: Token) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    program = state.program
    constraints = {constraint.view: constraint for constraint in program.constraints}
    sections = {name: section for section in state.maintenance.sections for name in section.component.relations}
    nodes: list[dict[str, Any]] = []
    arcs: list[dict[str, Any]] = []
    for name, relation in program.relations.items():
        constraint = constraints.get(name)
        if (relation.is_auxiliary and constraint is None) or not can_read(token, name.partition(".")[0]):
            continue
        is_base = name in program.tables
        section = None if is_base else sections.get(program.counting_relation(name))
        is_stored = is_base or (section is not None and section.is_stored)
        node = {
            "name": name,
            "kind": "constraint" if constraint is not None else "base" if is_base else "view",
            # Counting a view that is not stored would derive it.
            "size": state.engine.size(program.numbered_copies(name) or name) if is_stored and state.parked is None else None,
            "strategy": section.strategy.value if section is not None else None,
            "reason": section.reason if section is not None else None,
        }
        if constraint is not None:
            node |= {"mode": constraint.mode.value, "text": constraint.text}
        nodes.append(node)
        if not is_base:
            sources = declared_sources(program, name).items()
            arcs += [{"source": s, "target": name, "negative": negative} for s, negative in sources if can_read(token, s)]
    return nodes, arcs


Drawn = tuple[dict[str, Any], list[dict[str, Any]]]


def _rules(state: DatabaseState) -> Iterator[Drawn]:
    """The active rules, each below what its condition reads and above the table that its action changes."""
    for one in state.rules.rules:
        name = f"rule {one.name}"
        node = {"name": name, "kind": "rule", "size": None, "strategy": None, "active": one.activity.default, "text": one.name}
        sources = _rule_sources(state.program, one)
        arcs = [{"source": source, "target": name, "negative": negative} for source, negative in sources]
        if one.write is not None:
            arcs.append({"source": name, "target": one.write.table, "negative": False})
        yield node, arcs


def _rule_sources(program: Program, one: CompiledRule) -> Iterable[tuple[str, bool]]:
    name = one.condition.name
    if not one.condition.is_auxiliary:
        return [(name, False)]
    return declared_sources(program, name).items()


def _subscribers(service: Service, program: Program, token: Token) -> Iterator[Drawn]:
    """The subscribers of each view, as one node."""
    counted: dict[str, list[bool]] = {}
    for subscriber in service.hub.subscribers.values():
        for part in subscriber.request.parts:
            counted.setdefault(part.view, []).append(subscriber.is_behind)
    for view, behind in counted.items():
        if view in program.relations:
            name = f"subscribers of {view}"
            node = {"name": name, "kind": "subscriber", "size": None, "strategy": None, "count": len(behind)}
            yield node | {"behind": sum(behind)}, [{"source": view, "target": name, "negative": False}]


def _sizes_at(state: DatabaseState, version: int) -> dict[str, int]:
    """By how many rows each relation was larger at an earlier version than it is now."""
    journal = state.durable("reading an earlier version").journal
    if version < journal.reach():
        raise Expired(f"the changes after version {version} are no longer recorded", hint=f"the first is {journal.reach()}")
    found: dict[str, int] = {}
    for summary in journal.summaries(version, state.version):
        for name, (plus, minus) in summary.changed.items():
            shown = state.program.bags.get(name, name)
            found[shown] = found.get(shown, 0) + minus - plus
    return found


# Rows


async def page_of_rows(service: Service, token: Token, request: Request) -> Response:
    """Return some rows of a relation, in order: `offset`, `limit`, `order` (a column, with - descending), `where` (JSON).

    `version`: as they were. `since`: also which rows of the page entered after that version, and which left.
    """
    name, parameters = request.path_params["name"], request.query_params
    check_read(token, name)
    offset, limit = number_parameter(parameters, "offset", 0, 10**9), number_parameter(parameters, "limit", 100, MOST_ROWS)
    where = parse_line(parameters.get("where", "{}"), "where", 1)
    version = _version(service, parameters)
    since = number_parameter(parameters, "since", 0, 2**53) if "since" in parameters else None

    def read(state: DatabaseState, relation: Relation, order: RowOrder) -> RowPage:
        wanted = _filter(token, relation, where)
        return service.pages.page(state, relation, order, wanted, offset, limit, version=version, since=since)

    found = await _sorted_read(service, name, parameters.get("order"), read)
    return json_response(
        {
            "version": found.version,
            "total": found.total,
            "complete": found.is_complete,
            "rows": [_json_row(row) for row in found.rows],
            "entered": [found.entered.get(row) for row in found.rows],
            "left": [{"row": _json_row(row), "version": at} for row, at in found.left],
        }
    )


async def _sorted_read(service: Service, name: str, order_text: str | None, read: Any) -> Any:
    """Read rows in order. The writer copies them, and goes on with its work while they are sorted."""

    def start(db: Database) -> tuple[Relation, RowOrder, Any]:
        state = db.pipeline.state
        relation = state.relation(name)
        state.check_evaluated(name)
        order = order_by(relation, order_text)
        return relation, order, service.pages.extent_to_sort(state, relation, order)

    relation, order, extent = await service.writer.run(lambda db, _: start(db))
    if extent is not None:
        service.pages.keep(relation, await asyncio.to_thread(SortedRows, extent[0], extent[1], order))

    def finish(db: Database) -> Any:
        state = db.pipeline.state
        return read(state, state.relation(name), order_by(state.relation(name), order_text))

    return await service.writer.run(lambda db, _: finish(db))


def _filter(token: Token, relation: Relation, where: Json) -> RowFilter:
    """The filter of a request, with what the token is bound to: `{"x": "a"}`, or `{"x": {"contains": "a"}}`."""
    if not isinstance(where, dict):
        raise MalformedInput("where is not an object of columns and values", hint='send {"x": "a"}').at("where")
    bound: dict[str, Value] = {}
    contains: dict[str, Value] = {}
    columns = {column.name: column for column in relation.columns}
    for name, value in where.items():
        if isinstance(value, dict) and list(value) == ["contains"] and isinstance(value["contains"], str):
            contains[name] = value["contains"]
        elif isinstance(value, list | dict):
            raise MalformedInput(f"the value of '{name}' is not a single value", hint='send {"x": "a"}').at("where")
        else:
            bound[name] = from_json(value, columns[name].type) if name in columns and value is not None else value
    texts = {i: str(value) for i, value in positions(relation, contains).items()} if contains else {}
    return RowFilter(restrict_bindings(token, relation, positions(relation, bound)), texts)


def _json_row(row: Row) -> list[Any]:
    return [to_json(value) for value in row]


# Graphs and series


async def graph(service: Service, token: Token, request: Request) -> Response:
    """Return the rows of a binary relation that begin or end at given nodes: the surroundings of these nodes."""
    name = request.path_params["name"]
    check_read(token, name)
    texts = request.query_params.getlist("node")
    if len(texts) > MOST_NODES:
        raise MalformedInput(f"{len(texts)} nodes are too many", hint=f"ask for at most {MOST_NODES}").at("node")
    nodes = [parse_line(text, "node", 1) for text in texts]
    version = _version(service, request.query_params)

    def read(state: DatabaseState, relation: Relation, order: RowOrder) -> dict[str, Any]:
        if relation.arity != 2 or len(set(relation.types)) != 1:
            raise Unsupported(f"'{name}' as a graph: it does not have two columns of one type")
        edges: dict[Row, None] = {}
        more: dict[str, int] = {}

        def add(column: int, node: Value) -> None:
            wanted = RowFilter(restrict_bindings(token, relation, {column: node}))
            found = service.pages.page(state, relation, order, wanted, 0, MOST_NEIGHBOURS, version=version)
            edges.update(dict.fromkeys(found.rows))
            key = str(to_json(node))
            more[key] = more.get(key, 0) + max(found.total - len(found.rows), 0)

        given = [from_json(node, relation.types[0]) for node in nodes]
        if not given:
            first = service.pages.page(state, relation, order, _filter(token, relation, {}), 0, 1, version=version)
            given = [row[0] for row in first.rows]
        for node in given:
            add(0, node)
            add(1, node)
        return {
            "version": state.version if version is None else version,
            "nodes": [to_json(node) for node in given],
            "edges": [_json_row(row) for row in edges],
            "more": {key: count for key, count in more.items() if count},
        }

    return json_response(await _sorted_read(service, name, None, read))


async def series(service: Service, token: Token, request: Request) -> Response:
    """Return the number of rows of a relation over the last versions, and the values of a numeric column, group by group."""
    name = request.path_params["name"]
    check_read(token, name)
    points = number_parameter(request.query_params, "versions", 200, MOST_POINTS, 1)
    column = request.query_params.get("column")

    def read(db: Database) -> dict[str, Any]:
        state = db.pipeline.state
        relation = state.relation(name)
        state.check_evaluated(name)
        if not can_read_all_rows(token, name):
            raise Unsupported(f"a chart of '{name}' with a token that reads some of its rows")
        journal = state.durable("reading past versions").journal
        after = max(db.version - points, journal.reach(), 0)
        sizes = [[db.version, state.engine.size(state.program.numbered_copies(name) or state.program.counting_relation(name))]]
        for summary in reversed(journal.summaries(after, db.version)):
            changed = [rows for known, rows in summary.changed.items() if state.program.bags.get(known, known) == name]
            size = sizes[-1][1] - sum(plus - minus for plus, minus in changed)
            sizes.append([summary.number - 1, size])
        numeric = [i for i, one in enumerate(relation.columns) if one.type.kind in NUMERIC]
        names = [one.name for one in relation.columns]
        chosen = names.index(column) if column in names else numeric[-1] if numeric else None
        lines = _lines(state, relation, chosen, after) if chosen in numeric and sizes[0][1] <= MOST_CHARTED else []
        found: dict[str, Any] = {"version": db.version, "sizes": sizes[::-1], "columns": [names[i] for i in numeric]}
        return found | {"column": names[chosen] if chosen is not None else None, "series": lines}

    return json_response(await service.writer.run(lambda db, _: read(db)))


def _point(value: Any) -> float | None:
    """The place of a value in a chart, which has none for NULL, NaN and infinities."""
    return float(value) if value is not None and math.isfinite(value) else None


def _rank(value: float | None) -> float:
    return value if value is not None else float("-inf")


def _lines(state: DatabaseState, relation: Relation, chosen: int | None, after: int) -> list[dict[str, Any]]:
    """The values of a column at each version, by the values of the columns before it: those with the largest values now."""
    assert chosen is not None
    try:
        deltas = recorded_deltas(state, relation, after, state.version)
    except Expired:
        return []
    keys = [i for i in range(relation.arity) if i != chosen and relation.columns[i].type.kind not in NUMERIC]
    now: dict[Row, float | None] = {}
    for row in state.rows(relation.name):
        if row[chosen] is not None:
            now[tuple(row[i] for i in keys)] = _point(row[chosen])
    lines: dict[Row, list[list[Any]]] = {key: [[state.version, value]] for key, value in now.items()}
    for version, delta in reversed(deltas):
        # Before this version, a group had the value that left here, or none.
        left = {tuple(row[i] for i in keys): row[chosen] for row in delta.minus}
        came = {tuple(row[i] for i in keys): row[chosen] for row in delta.plus}
        for key in {**left, **came}:
            line = lines.setdefault(key, [[version, None]])
            line.append([version, _point(came.get(key))])
            line.append([version - 1, _point(left.get(key))])
    ranked = sorted(lines, key=lambda key: (-_rank(now.get(key)), str(key)))[:MOST_SERIES]
    return [{"label": _json_row(key), "points": [*lines[key], [after, lines[key][-1][1]]][::-1]} for key in ranked]
