"""The OpenAPI description, written by hand beside the endpoints it describes; tests hold the two together."""

from __future__ import annotations

from typing import Final

from rederive.service.http.openapi_schemas import POSITION, SCHEMAS, TEXT, TRUTH, VERSION, WEBHOOKS, Json, an_object, ref


def _content(schema: Json, media: str = "application/json") -> Json:
    return {"content": {media: {"schema": schema}}}


_WORDS: Final = {
    400: "Malformed.",
    401: "No token, or one that is not known.",
    403: "The token does not reach this.",
    404: "No such relation or view.",
    406: "None of the accepted formats can be given.",
    409: "It conflicts with what is there.",
    410: "Changes that are no longer kept.",
    413: "The body is too large.",
    415: "The format of the body is not taken.",
    422: "Understood, and refused.",
    429: "Too many requests, or too many subscriptions.",
    503: "The service cannot do it now.",
}
_ALWAYS: Final = (400, 401, 403, 429, 503)


def _responses(success: Json, *statuses: int, status: int = 200) -> Json:
    """What an operation may answer: its success, the problems of its own, and those that all share."""
    problems = {str(s): {"description": _WORDS[s], **_content(ref("Problem"), "application/problem+json")} for s in _WORDS}
    known = sorted({*statuses, *_ALWAYS})
    return {str(status): {"description": "Done.", **success}, **{str(s): problems[str(s)] for s in known}}


_NAME: Final[Json] = {"name": "name", "in": "path", "required": True, "schema": TEXT}


def _query(name: str, text: str, schema: Json = TEXT) -> Json:
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}


_BINDINGS: Final[Json] = {
    "name": "bindings",
    "in": "query",
    "required": False,
    "description": "Columns and the values that they must have, as in `?x=a`, or `?closure.x=a` with the relation's name.",
    "schema": {"type": "object", "additionalProperties": TEXT},
    "style": "form",
    "explode": True,
}
_QUALITY: Final[list[Json]] = [
    _query("only", "Only rows that enter, or only rows that leave.", {"enum": ["plus", "minus"]}),
    _query("every", "The net change of each interval: `5s`, `250ms`, `1m`."),
    _query("precision", "Nervous changes may tell rows again.", {"enum": ["exact", "nervous"], "default": "exact"}),
    _query("since", "How far the subscriber is: the id of its last event.", POSITION),
    {"name": "Last-Event-ID", "in": "header", "required": False, "description": "As `since`; it wins.", "schema": POSITION},
]
_STREAM: Final[Json] = {
    "content": {
        "text/event-stream": {"schema": TEXT},
        "application/x-ndjson": {"schema": TEXT},
    }
}
_ROWS: Final[Json] = {
    "headers": {"Rederive-PublishedVersion": {"schema": VERSION}},
    "content": {
        "application/json": {"schema": ref("Answer")},
        "text/csv": {"schema": TEXT},
        "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
    },
}
_KEY: Final[Json] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same transaction under the same key is applied once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}


def _rows(summary: str, name: str) -> Json:
    return {
        "summary": summary,
        "operationId": name,
        "parameters": [_NAME, _BINDINGS],
        "responses": _responses(_ROWS, 404, 406, 422),
    }


def _list(summary: str, name: str, member: str, item: str) -> Json:
    body = _content(an_object({"version": VERSION, member: {"type": "array", "items": ref(item)}}))
    return {"summary": summary, "operationId": name, "responses": _responses(body)}


def _firings(summary: str, name: str, parameters: list[Json], *problems: int) -> Json:
    listed = an_object(
        {"version": VERSION, "firings": {"type": "array", "items": ref("Firing")}, "more": TRUTH, "next": POSITION}
    )
    last = {"name": "Last-Event-ID", "in": "header", "required": False, "description": "As `since`; it wins.", "schema": POSITION}
    return {
        "summary": summary,
        "operationId": name,
        "parameters": [*parameters, _query("since", "The id or number of a firing; those after it are told.", POSITION), last],
        "responses": _responses(
            {"content": {"application/json": {"schema": listed}, "text/event-stream": {"schema": TEXT}}}, 406, 409, *problems
        ),
    }


PATHS: Final[Json] = {
    "/v1/transactions": {
        "post": {
            "summary": "Commit a transaction, or one on each line; the answer comes when it is on disk.",
            "operationId": "commit",
            "parameters": [_KEY],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": ref("Transaction")},
                    "application/x-ndjson": {"schema": TEXT},
                },
            },
            "responses": _responses(
                _content(
                    {"anyOf": [ref("Committed"), an_object({"transactions": {"type": "array", "items": ref("Committed")}})]}
                ),
                404,
                409,
                413,
                415,
                422,
            ),
        }
    },
    "/v1/relations": {"get": _list("Base relations and views.", "relations", "relations", "Relation")},
    "/v1/relations/{name}/rows": {"get": _rows("The rows of a base relation or view.", "relation_rows")},
    "/v1/views": {
        "get": _list("The views.", "views", "views", "Relation"),
        "post": {
            "summary": "Define relations and views: a text of Datalog, or one CREATE statement of SQL.",
            "operationId": "define",
            "requestBody": {"required": True, **_content(ref("Definition"))},
            "responses": _responses(_content(ref("Defined")), 404, 409, 413, 415, 422, status=201),
        },
    },
    "/v1/views/{name}": {
        "put": {
            "summary": "Give a view another definition; one version, with the exact change of every view above it.",
            "operationId": "replace",
            "parameters": [_NAME],
            "requestBody": {"required": True, **_content(ref("Definition"))},
            "responses": _responses(_content(ref("Defined")), 404, 409, 413, 415, 422),
        },
        "delete": {
            "summary": "Drop a view; refused while another one needs it.",
            "operationId": "drop",
            "parameters": [_NAME],
            "responses": _responses(_content(ref("Defined")), 404, 409, 422),
        },
    },
    "/v1/views/{name}/rows": {"get": _rows("The rows of a view.", "view_rows")},
    "/v1/views/{name}/explain": {
        "get": {
            "summary": "How a view is maintained, and why.",
            "operationId": "explain",
            "parameters": [_NAME, _query("format", "How it is printed.", {"enum": ["text", "json", "dot"], "default": "text"})],
            "responses": _responses(
                {
                    "content": {
                        "text/plain": {"schema": TEXT},
                        "application/json": {"schema": {}},
                        "text/vnd.graphviz": {"schema": TEXT},
                    }
                },
                404,
            ),
        }
    },
    "/v1/views/{name}/changes": {
        "get": {
            "summary": "The changes of a view: as events, or as lines up to now. Also a WebSocket.",
            "operationId": "changes",
            "parameters": [_NAME, _BINDINGS, *_QUALITY],
            "responses": _responses(_STREAM, 404, 406, 409, 410, 422),
        }
    },
    "/v1/changes": {
        "get": {
            "summary": "The changes of several views, one event for each version. Also a WebSocket.",
            "operationId": "changes_together",
            "parameters": [
                {
                    "name": "view",
                    "in": "query",
                    "required": True,
                    "description": "The views.",
                    "schema": {"type": "array", "items": TEXT, "minItems": 1},
                },
                _BINDINGS,
                *_QUALITY,
            ],
            "responses": _responses(_STREAM, 404, 406, 409, 410, 422),
        }
    },
    "/v1/rules": {"get": _list("Active rules, in the order in which they fire.", "rules", "rules", "Rule")},
    "/v1/rules/{name}/firings": {
        "get": _firings("What fired of one rule, as a list or as events.", "rule_firings", [_NAME], 404)
    },
    "/v1/firings": {"get": _firings("What fired, as a list or as events.", "firings", [])},
    "/v1/subscriptions": {"get": _list("Who follows what.", "subscriptions", "subscriptions", "Subscription")},
    "/v1/metrics": {
        "get": {
            "summary": "Metrics for Prometheus.",
            "operationId": "metrics",
            "responses": _responses({"content": {"text/plain": {"schema": TEXT}}}),
        }
    },
    "/v1/health": {
        "get": {
            "summary": "Whether the service is alive, and for how many seconds its writer has been at one job.",
            "operationId": "health",
            "security": [],
            "responses": _responses(
                _content(
                    an_object(
                        {"status": TEXT, "version": VERSION, "engine": TEXT, "busy": {"type": "number"}}, {"webhooks": WEBHOOKS}
                    )
                )
            ),
        }
    },
    "/v1/openapi.json": {
        "get": {
            "summary": "This description.",
            "operationId": "openapi",
            "security": [],
            "responses": _responses(_content({"type": "object"})),
        }
    },
}


def described() -> Json:
    """
    >>> sorted(described()["paths"])[:2]
    ['/v1/changes', '/v1/firings']
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "rederive", "version": "1", "description": "Exact changes of views, pushed to whoever subscribes."},
        "security": [{"bearer": []}, {}],
        "paths": PATHS,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }
