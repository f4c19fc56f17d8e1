"""The OpenAPI description, written by hand beside the endpoints it describes; tests hold the two together."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


_VERSION: Final[Json] = {"type": "integer", "minimum": 0}
_TEXT: Final[Json] = {"type": "string"}
_TRUTH: Final[Json] = {"type": "boolean"}
_NAMES: Final[Json] = {"type": "array", "items": _TEXT}
_TUPLES: Final[Json] = {"type": "array", "items": {"type": "array", "items": _ref("Value")}}

SCHEMAS: Final[Json] = {
    "Value": {
        "description": "A value of a column. Decimals, dates and timestamps are texts; NULL is null.",
        "type": ["string", "number", "boolean", "null"],
    },
    "Row": {
        "description": "Values in the order of the columns, or by the names of the columns.",
        "oneOf": [{"type": "array", "items": _ref("Value")}, {"type": "object", "additionalProperties": _ref("Value")}],
    },
    "Rows": {"type": "object", "additionalProperties": {"type": "array", "items": _ref("Row")}},
    "Transaction": {
        "description": "Rows by base relation, applied as a whole: deletes first, then inserts, then upserts.",
        "type": "object",
        "properties": {"insert": _ref("Rows"), "delete": _ref("Rows"), "upsert": _ref("Rows")},
        "additionalProperties": False,
        "examples": [{"insert": {"edge": [["a", "b"]]}}],
    },
    "Committed": _object({"version": _VERSION, "repeated": _TRUTH}),
    "Definition": {
        **_object({"text": _TEXT}, {"language": {"enum": ["datalog", "sql"], "default": "datalog"}}),
        "additionalProperties": False,
        "examples": [{"text": ".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1."}],
    },
    "Defined": _object({"version": _VERSION, "changed": _NAMES}),
    "Column": _object({"name": _TEXT, "type": _TEXT}, {"nullable": _TRUTH}),
    "Relation": _object(
        {
            "name": _TEXT,
            "kind": {"enum": ["base", "view"]},
            "monitored": _TRUTH,
            "columns": {"type": "array", "items": _ref("Column")},
            "key": _NAMES,
        }
    ),
    "Answer": _object(
        {
            "version": _VERSION,
            "relation": _TEXT,
            "columns": {"type": "array", "items": _ref("Column")},
            "rows": _TUPLES,
        }
    ),
    "Subscription": _object(
        {
            "id": {"type": "integer"},
            "token": _TEXT,
            "views": {"type": "array", "items": _object({"view": _TEXT, "bindings": {"type": "object"}})},
            "only": {"type": "array", "items": {"enum": ["plus", "minus"]}},
            "every": {"type": "number"},
            "version": _VERSION,
            "waiting": {"type": "integer"},
            "behind": _TRUTH,
            "coalesced": {"type": "integer"},
        }
    ),
    "Problem": {
        **_object(
            {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "code": _TEXT, "detail": _TEXT},
            {
                "hint": _TEXT,
                "place": _TEXT,
                "excerpt": _TEXT,
                "committed": {"type": "array", "items": _VERSION},
                "violated": _object({"view": _TEXT, "rows": _TUPLES}),
            },
        ),
        "description": "What is wrong, and what to do. `code` is stable. `committed`: versions that stand all the same.",
    },
}


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
    problems = {str(s): {"description": _WORDS[s], **_content(_ref("Problem"), "application/problem+json")} for s in _WORDS}
    known = sorted({*statuses, *_ALWAYS})
    return {str(status): {"description": "Done.", **success}, **{str(s): problems[str(s)] for s in known}}


_NAME: Final[Json] = {"name": "name", "in": "path", "required": True, "schema": _TEXT}


def _query(name: str, text: str, schema: Json = _TEXT) -> Json:
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}


_BINDINGS: Final[Json] = {
    "name": "bindings",
    "in": "query",
    "required": False,
    "description": "Columns and the values that they must have, as in `?x=a`, or `?closure.x=a` with the relation's name.",
    "schema": {"type": "object", "additionalProperties": _TEXT},
    "style": "form",
    "explode": True,
}
_QUALITY: Final[list[Json]] = [
    _query("only", "Only rows that enter, or only rows that leave.", {"enum": ["plus", "minus"]}),
    _query("every", "The net change of each interval: `5s`, `250ms`, `1m`."),
    _query("precision", "Nervous changes may tell rows again.", {"enum": ["exact", "nervous"], "default": "exact"}),
    _query("since", "The version that the subscriber has.", _VERSION),
    {"name": "Last-Event-ID", "in": "header", "required": False, "description": "As `since`; it wins.", "schema": _VERSION},
]
_STREAM: Final[Json] = {
    "content": {
        "text/event-stream": {"schema": _TEXT},
        "application/x-ndjson": {"schema": _TEXT},
    }
}
_ROWS: Final[Json] = {
    "headers": {"Rederive-Version": {"schema": _VERSION}},
    "content": {
        "application/json": {"schema": _ref("Answer")},
        "text/csv": {"schema": _TEXT},
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
    body = _content(_object({"version": _VERSION, member: {"type": "array", "items": _ref(item)}}))
    return {"summary": summary, "operationId": name, "responses": _responses(body)}


PATHS: Final[Json] = {
    "/v1/transactions": {
        "post": {
            "summary": "Commit a transaction, or one on each line; the answer comes when it is on disk.",
            "operationId": "commit",
            "parameters": [_KEY],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": _ref("Transaction")},
                    "application/x-ndjson": {"schema": _TEXT},
                },
            },
            "responses": _responses(
                _content(
                    {"anyOf": [_ref("Committed"), _object({"transactions": {"type": "array", "items": _ref("Committed")}})]}
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
            "requestBody": {"required": True, **_content(_ref("Definition"))},
            "responses": _responses(_content(_ref("Defined")), 404, 409, 413, 415, 422, status=201),
        },
    },
    "/v1/views/{name}": {
        "put": {
            "summary": "Give a view another definition; one version, with the exact change of every view above it.",
            "operationId": "replace",
            "parameters": [_NAME],
            "requestBody": {"required": True, **_content(_ref("Definition"))},
            "responses": _responses(_content(_ref("Defined")), 404, 409, 413, 415, 422),
        },
        "delete": {
            "summary": "Drop a view; refused while another one needs it.",
            "operationId": "drop",
            "parameters": [_NAME],
            "responses": _responses(_content(_ref("Defined")), 404, 409, 422),
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
                        "text/plain": {"schema": _TEXT},
                        "application/json": {"schema": {}},
                        "text/vnd.graphviz": {"schema": _TEXT},
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
                    "schema": {"type": "array", "items": _TEXT, "minItems": 1},
                },
                _BINDINGS,
                *_QUALITY,
            ],
            "responses": _responses(_STREAM, 404, 406, 409, 410, 422),
        }
    },
    "/v1/subscriptions": {"get": _list("Who follows what.", "subscriptions", "subscriptions", "Subscription")},
    "/v1/metrics": {
        "get": {
            "summary": "Metrics for Prometheus.",
            "operationId": "metrics",
            "responses": _responses({"content": {"text/plain": {"schema": _TEXT}}}),
        }
    },
    "/v1/health": {
        "get": {
            "summary": "Whether the service can commit.",
            "operationId": "health",
            "security": [],
            "responses": _responses(_content(_object({"status": _TEXT, "version": _VERSION, "engine": _TEXT}))),
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
    ['/v1/changes', '/v1/health']
    """
    return {
        "openapi": "3.1.0",
        "info": {"title": "rederive", "version": "1", "description": "Exact changes of views, pushed to whoever subscribes."},
        "security": [{"bearer": []}, {}],
        "paths": PATHS,
        "components": {"schemas": SCHEMAS, "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
    }
