"""The schemas of the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]


def ref(name: str) -> Json:
    """Return a reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_schema(required: Json, optional: Json | None = None) -> Json:
    """Return the schema of an object with these members."""
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


VERSION: Final[Json] = {"type": "integer", "minimum": 0}
POSITION: Final[Json] = {"type": "string", "pattern": "^([0-9a-f]{16}-)?[0-9]{1,18}$"}
TEXT: Final[Json] = {"type": "string"}
BOOLEAN: Final[Json] = {"type": "boolean"}
NAMES: Final[Json] = {"type": "array", "items": TEXT}
VALUES: Final[Json] = {"type": "array", "items": ref("Value")}

WEBHOOKS: Final[Json] = object_schema(
    {"waiting": {"type": "integer"}, "lag": {"type": "number"}, "parked": {"type": "integer"}, "delivering": BOOLEAN}
)

SCHEMAS: Final[Json] = {
    "Value": {
        "description": "A value of a column. Decimals, dates and timestamps are strings; NULL is null.",
        "type": ["string", "number", "boolean", "null"],
    },
    "Row": {
        "description": "Values in the order of the columns, or an object by column name.",
        "oneOf": [{"type": "array", "items": ref("Value")}, {"type": "object", "additionalProperties": ref("Value")}],
    },
    "Rows": {"type": "object", "additionalProperties": {"type": "array", "items": ref("Row")}},
    "Transaction": {
        "description": "Rows by base relation. A transaction is applied whole: deletes, then inserts, then upserts.",
        "type": "object",
        "properties": {"insert": ref("Rows"), "delete": ref("Rows"), "upsert": ref("Rows")},
        "additionalProperties": False,
        "examples": [{"insert": {"edge": [["a", "b"]]}}],
    },
    "Committed": object_schema({"version": VERSION, "repeated": BOOLEAN}),
    "Definition": {
        **object_schema({"text": TEXT}, {"language": {"enum": ["datalog", "sql"], "default": "datalog"}}),
        "additionalProperties": False,
        "examples": [{"text": ".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1."}],
    },
    "Defined": object_schema({"version": VERSION, "changed": NAMES}),
    "Column": object_schema({"name": TEXT, "type": TEXT}, {"nullable": BOOLEAN}),
    "Relation": object_schema(
        {
            "name": TEXT,
            "kind": {"enum": ["base", "view"]},
            "monitored": BOOLEAN,
            "columns": {"type": "array", "items": ref("Column")},
            "key": NAMES,
        }
    ),
    "Answer": object_schema(
        {
            "version": VERSION,
            "relation": TEXT,
            "columns": {"type": "array", "items": ref("Column")},
            "rows": {"type": "array", "items": VALUES},
        }
    ),
    "Subscription": object_schema(
        {
            "id": {"type": "integer"},
            "token": TEXT,
            "views": {"type": "array", "items": object_schema({"view": TEXT, "bindings": {"type": "object"}})},
            "only": {"type": "array", "items": {"enum": ["plus", "minus"]}},
            "every": {"type": "number"},
            "version": VERSION,
            "waiting": {"type": "integer"},
            "behind": BOOLEAN,
            "coalesced": {"type": "integer"},
        }
    ),
    "Rule": object_schema(
        {
            "name": TEXT,
            "columns": NAMES,
            "action": TEXT,
            "precision": {"enum": ["strict", "nervous"]},
            "mode": {"enum": ["deferred", "immediate"]},
            "on": {"type": "array", "items": {"enum": ["plus", "minus"]}},
            "priority": {"type": "integer"},
            "event": {"type": ["string", "null"]},
            "active": BOOLEAN,
            "exceptions": {"type": "array", "items": object_schema({"values": VALUES, "active": BOOLEAN})},
        }
    ),
    "Firing": object_schema(
        {
            "number": {"type": "integer", "minimum": 1},
            "version": VERSION,
            "rule": TEXT,
            "action": {"enum": ["call", "webhook", "write"]},
            "columns": NAMES,
            "plus": {"type": "array", "items": VALUES},
            "minus": {"type": "array", "items": VALUES},
            "outcome": {"enum": ["done", "waiting", "delivered", "failed"]},
            "detail": TEXT,
        }
    ),
    "Problem": {
        **object_schema(
            {"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "code": TEXT, "detail": TEXT},
            {
                "hint": TEXT,
                "place": TEXT,
                "excerpt": TEXT,
                "committed": {"type": "array", "items": VERSION},
                "violations": object_schema(
                    {"view": TEXT, "rows": {"type": "array", "items": VALUES}, "more": {"type": "integer", "minimum": 0}}
                ),
            },
        ),
        "description": "What is wrong and what to do. `code` is stable. `committed`: versions of earlier lines, which stay.",
    },
}
