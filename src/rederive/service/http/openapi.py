"""The OpenAPI document. It is written by hand; tests compare it with the endpoints and with real answers."""

from __future__ import annotations

from typing import Final

from rederive.service.http.openapi_schemas import BOOLEAN, POSITION, SCHEMAS, TEXT, VERSION, WEBHOOKS, Json, object_schema, ref


def _content(schema: Json, media: str = "application/json") -> Json:
    return {"content": {media: {"schema": schema}}}


_PROBLEMS: Final = {
    400: "The request is malformed.",
    401: "The token is missing or unknown.",
    403: "The token does not permit this.",
    404: "The relation, view or rule does not exist.",
    406: "No format of the resource is acceptable to the client.",
    409: "The request conflicts with the data or the definitions.",
    410: "The changes since this position are no longer retained.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    422: "The request is well formed, and its content is refused.",
    429: "The client has too many requests or subscriptions.",
    503: "The service cannot answer now; try again later.",
}
# The checks before every endpoint can answer with these.
_COMMON_PROBLEMS: Final = (400, 401, 403, 429, 503)


def _responses(success: Json, *statuses: int, status: int = 200) -> Json:
    """Return the answers of an operation: its success, its own problems, and those of every operation."""
    problems = {str(s): {"description": _PROBLEMS[s], **_content(ref("Problem"), "application/problem+json")} for s in _PROBLEMS}
    known = sorted({*statuses, *_COMMON_PROBLEMS})
    return {str(status): {"description": "Success.", **success}, **{str(s): problems[str(s)] for s in known}}


_NAME: Final[Json] = {"name": "name", "in": "path", "required": True, "schema": TEXT}


def _query(name: str, text: str, schema: Json = TEXT) -> Json:
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}


_NUMBER: Final[Json] = {"type": "integer", "minimum": 0}
_LAST_EVENT: Final[Json] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "The same as `since`, over which it takes precedence.",
    "schema": POSITION,
}


# With style `form` and `explode`, each member of the object is a parameter of its own: ?x=a&y=b.
_BINDINGS: Final[Json] = {
    "name": "bindings",
    "in": "query",
    "required": False,
    "description": "Columns and the values that rows must have: `?x=a`, or `?closure.x=a` with the name of the relation.",
    "schema": {"type": "object", "additionalProperties": TEXT},
    "style": "form",
    "explode": True,
}
_SUBSCRIPTION_OPTIONS: Final[list[Json]] = [
    _query("only", "Only rows that enter (`plus`), or only rows that leave (`minus`).", {"enum": ["plus", "minus"]}),
    _query("every", "Send the net change of each interval: `5s`, `250ms`, `1m`."),
    _query(
        "precision", "Nervous changes may repeat rows that have not changed.", {"enum": ["exact", "nervous"], "default": "exact"}
    ),
    _query("since", "Resume after this position: the id of the last event.", POSITION),
    _LAST_EVENT,
]
_STREAM: Final[Json] = {
    "content": {
        "text/event-stream": {"schema": TEXT},
        "application/x-ndjson": {"schema": TEXT},
    }
}
_ROWS: Final[Json] = {
    "headers": {"Rederive-Version": {"schema": VERSION}},
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
    "description": "Applying the same transaction twice with one key has no further effect.",
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
    body = _content(object_schema({"version": VERSION, member: {"type": "array", "items": ref(item)}}, {"position": POSITION}))
    return {"summary": summary, "operationId": name, "responses": _responses(body)}


def _firings(summary: str, name: str, parameters: list[Json], *problems: int) -> Json:
    listed = object_schema(
        {"version": VERSION, "firings": {"type": "array", "items": ref("Firing")}, "more": BOOLEAN, "next": POSITION}
    )
    return {
        "summary": summary,
        "operationId": name,
        "parameters": [
            *parameters,
            _query("since", "The id or number of a firing; the answer has the later ones.", POSITION),
            _LAST_EVENT,
        ],
        "responses": _responses(
            {"content": {"application/json": {"schema": listed}, "text/event-stream": {"schema": TEXT}}}, 406, 409, *problems
        ),
    }


_PREVIEW_LIMIT: Final = _query(
    "limit", "How many rows of each sign a preview has of a view; `more` counts the others.", {"type": "integer", "minimum": 0}
)


PATHS: Final[Json] = {
    "/v1/transactions": {
        "post": {
            "summary": "Commit one transaction, or one on each line. The answer is sent when they are durable.",
            "operationId": "commit",
            "parameters": [
                _KEY,
                _query(
                    "preview", "Answer with the changes that the transaction would make, and commit nothing.", {"enum": ["true"]}
                ),
                _PREVIEW_LIMIT,
            ],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": ref("Transaction")},
                    "application/x-ndjson": {"schema": TEXT},
                    "application/sql": {"schema": TEXT},
                },
            },
            "responses": _responses(
                _content(
                    {
                        "anyOf": [
                            ref("Committed"),
                            object_schema({"transactions": {"type": "array", "items": ref("Committed")}}),
                            object_schema({"version": VERSION, "changes": {"type": "array", "items": {"type": "object"}}}),
                        ]
                    }
                ),
                404,
                409,
                413,
                415,
                422,
            ),
        }
    },
    "/v1/relations": {"get": _list("List base relations and views.", "relations", "relations", "Relation")},
    "/v1/relations/{name}/rows": {"get": _rows("Read the rows of a base relation or view.", "relation_rows")},
    "/v1/views": {
        "get": _list("List the views.", "views", "views", "Relation"),
        "post": {
            "summary": "Define relations and views with a text of Datalog or one CREATE statement of SQL.",
            "operationId": "define",
            "parameters": [
                _query(
                    "preview", "Answer with the changes that the definition would make, and define nothing.", {"enum": ["true"]}
                ),
                _PREVIEW_LIMIT,
            ],
            "requestBody": {"required": True, **_content(ref("Definition"))},
            "responses": {
                **_responses(_content(ref("Defined")), 404, 409, 413, 415, 422, status=201),
                "200": {"description": "What it would change.", **_content({"type": "object"})},
            },
        },
    },
    "/v1/views/{name}": {
        "put": {
            "summary": "Replace the definition of a view. This makes one version, with the exact change of every view above it.",
            "operationId": "replace",
            "parameters": [_NAME],
            "requestBody": {"required": True, **_content(ref("Definition"))},
            "responses": _responses(_content(ref("Defined")), 404, 409, 413, 415, 422),
        },
        "delete": {
            "summary": "Drop a view. This is refused while another view reads it.",
            "operationId": "drop",
            "parameters": [_NAME],
            "responses": _responses(_content(ref("Defined")), 404, 409, 422),
        },
    },
    "/v1/views/{name}/rows": {"get": _rows("Read the rows of a view.", "view_rows")},
    "/v1/network": {
        "get": {
            "summary": "List relations with sizes and strategies, and which of them reads which.",
            "operationId": "network",
            "parameters": [_query("version", "The sizes at this version.", _NUMBER)],
            "responses": _responses(_content({"type": "object"}), 410),
        },
    },
    "/v1/relations/{name}/page": {
        "get": {
            "summary": "Read one page of the rows of a relation or view, sorted and filtered.",
            "operationId": "page_of_rows",
            "parameters": [
                _NAME,
                _query("offset", "Rows to skip.", {"type": "integer", "minimum": 0, "default": 0}),
                _query("limit", "Rows to read.", {"type": "integer", "minimum": 0, "maximum": 1000, "default": 100}),
                _query("order", "A column; with - before it, descending.", TEXT),
                _query("where", 'Columns and values, as a JSON object: `{"x": "a", "y": {"contains": "b"}}`.', TEXT),
                _query("version", "The rows as they were at this version.", _NUMBER),
                _query("since", "Also say which rows of the page entered after this version, and which left.", _NUMBER),
            ],
            "responses": _responses(_content({"type": "object"}), 400, 403, 404, 409, 410, 422),
        },
    },
    "/v1/relations/{name}/definition": {
        "get": {
            "summary": "Read the text that defines a relation or view.",
            "operationId": "definition",
            "parameters": [_NAME],
            "responses": _responses({"content": {"text/plain": {"schema": TEXT}}}, 403, 404),
        },
    },
    "/v1/relations/{name}/graph": {
        "get": {
            "summary": "Read the rows of a binary relation around some nodes.",
            "operationId": "graph",
            "parameters": [
                _NAME,
                _query("node", "A node, as JSON; several are allowed.", {"type": "array", "items": TEXT}),
                _query("version", "The rows as they were at this version.", _NUMBER),
            ],
            "responses": _responses(_content({"type": "object"}), 400, 403, 404, 409, 410, 422),
        },
    },
    "/v1/relations/{name}/series": {
        "get": {
            "summary": "Read the number of rows, and the values of a numeric column, over the last versions.",
            "operationId": "series",
            "parameters": [
                _NAME,
                _query("versions", "How many versions.", {"type": "integer", "minimum": 1, "maximum": 400, "default": 200}),
                _query("column", "A numeric column; the last one by default.", TEXT),
            ],
            "responses": _responses(_content({"type": "object"}), 400, 403, 404, 409, 410, 422),
        },
    },
    "/v1/versions": {
        "get": {
            "summary": "List versions, newest first, with what they changed and cost; or follow them as events.",
            "operationId": "versions",
            "parameters": [
                _query("before", "List the versions before this one.", _NUMBER),
                _query("limit", "How many.", {"type": "integer", "minimum": 0, "maximum": 500, "default": 50}),
                _query("since", "Follow the versions after this position.", POSITION),
                _LAST_EVENT,
            ],
            "responses": _responses(
                {"content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": TEXT}}}, 406
            ),
        },
    },
    "/v1/versions/{name}": {
        "get": {
            "summary": "Read the rows that entered and left at one version.",
            "operationId": "version",
            "parameters": [_NAME],
            "responses": _responses(_content({"type": "object"}), 404, 409, 410, 422),
        },
    },
    "/v1/status": {
        "get": {
            "summary": "Read the state of the store, the lake, webhooks, constraints and subscribers.",
            "operationId": "status",
            "responses": _responses(_content({"type": "object"})),
        },
    },
    "/v1/views/{name}/why": {
        "get": {
            "summary": "Explain why a row is in a view, or why it is not.",
            "operationId": "why",
            "parameters": [
                _NAME,
                {**_query("row", "The row, as a JSON array.", TEXT), "required": True},
                _query("depth", "Levels of the tree.", {"type": "integer", "minimum": 1, "maximum": 100, "default": 10}),
                _query("width", "Derivations of the row.", {"type": "integer", "minimum": 1, "maximum": 100, "default": 3}),
                _query("version", "Explain the row as of this version.", _NUMBER),
                _query("changed", "Explain why the row entered or left at the version.", {"enum": ["true"]}),
                _query("text", "Add the explanation as text.", {"enum": ["true"]}),
            ],
            "responses": _responses(_content({"type": "object"}), 400, 403, 404, 409, 410, 422),
        },
    },
    "/v1/views/{name}/explain": {
        "get": {
            "summary": "Explain how a view is maintained, and why.",
            "operationId": "explain",
            "parameters": [
                _NAME,
                _query("format", "The format of the explanation.", {"enum": ["text", "json", "dot"], "default": "text"}),
            ],
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
            "summary": "Follow the changes of a view as events, or read them up to now as lines. Also a WebSocket.",
            "operationId": "changes",
            "parameters": [_NAME, _BINDINGS, *_SUBSCRIPTION_OPTIONS],
            "responses": _responses(_STREAM, 404, 406, 409, 410, 422),
        }
    },
    "/v1/changes": {
        "get": {
            "summary": "Follow the changes of several views, with one event for each version. Also a WebSocket.",
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
                *_SUBSCRIPTION_OPTIONS,
            ],
            "responses": _responses(_STREAM, 404, 406, 409, 410, 422),
        }
    },
    "/v1/rules": {"get": _list("List active rules, in the order in which they fire.", "rules", "rules", "Rule")},
    "/v1/rules/{name}/firings": {
        "get": _firings("Read the firings of one rule as a list, or follow them as events.", "rule_firings", [_NAME], 404)
    },
    "/v1/firings": {"get": _firings("Read firings as a list, or follow them as events.", "firings", [])},
    "/v1/subscriptions": {"get": _list("List the subscriptions.", "subscriptions", "subscriptions", "Subscription")},
    "/v1/metrics": {
        "get": {
            "summary": "Read metrics in the text format of Prometheus.",
            "operationId": "metrics",
            "responses": _responses({"content": {"text/plain": {"schema": TEXT}}}),
        }
    },
    "/v1/health": {
        "get": {
            "summary": "Check the service: its state, and the seconds that its writer has spent on the present job.",
            "operationId": "health",
            "security": [],
            "responses": _responses(
                _content(
                    object_schema(
                        {"status": TEXT, "version": VERSION, "engine": TEXT, "busy": {"type": "number"}}, {"webhooks": WEBHOOKS}
                    )
                )
            ),
        }
    },
    "/v1/openapi.json": {
        "get": {
            "summary": "Read this document.",
            "operationId": "openapi",
            "security": [],
            "responses": _responses(_content({"type": "object"})),
        }
    },
}


def openapi_document() -> Json:
    """Return the OpenAPI document.

    >>> sorted(openapi_document()["paths"])[:2]
    ['/v1/changes', '/v1/firings']
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "rederive", "version": "1", "description": "Exact changes of views, pushed to subscribers."},
        # The empty requirement: a service without tokens needs none.
        "security": [{"bearer": []}, {}],
        "paths": PATHS,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }
