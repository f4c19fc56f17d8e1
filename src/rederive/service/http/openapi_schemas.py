"""The objects of the OpenAPI description."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def an_object(required: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


VERSION: Final[Json] = {"type": "integer", "minimum": 0}
POSITION: Final[Json] = {"type": "string", "pattern": "^([0-9a-f]{16}-)?[0-9]{1,18}$"}
TEXT: Final[Json] = {"type": "string"}
TRUTH: Final[Json] = {"type": "boolean"}
NAMES: Final[Json] = {"type": "array", "items": TEXT}
VALUES: Final[Json] = {"type": "array", "items": ref("Value")}

WEBHOOKS: Final[Json] = an_object(
    {"waiting": {"type": "integer"}, "lag": {"type": "number"}, "parked": {"type": "integer"}, "delivering": TRUTH}
)

SCHEMAS: Final[Json] = {
    "Value": {
        "description": "A value of a column. Decimals, dates and timestamps are texts; NULL is null.",
        "type": ["string", "number", "boolean", "null"],
    },
    "Row": {
        "description": "Values in the order of the columns, or by the names of the columns.",
        "oneOf": [{"type": "array", "items": ref("Value")}, {"type": "object", "additionalProperties": ref("Value")}],
    },
    "Rows": {"type": "object", "additionalProperties": {"type": "array", "items": ref("Row")}},
    "Transaction": {
        "description": "Rows by base relation, applied as a whole: deletes first, then inserts, then upserts.",
        "type": "object",
        "properties": {"insert": ref("Rows"), "delete": ref("Rows"), "upsert": ref("Rows")},
        "additionalProperties": False,
        "examples": [{"insert": {"edge": [["a", "b"]]}}],
    },
    "Committed": an_object({"version": VERSION, "repeated": TRUTH}),
    "Definition": {
        **an_object({"text": TEXT}, {"language": {"enum": ["datalog", "sql"], "default": "datalog"}}),
        "additionalProperties": False,
        "examples": [{"text": ".decl n(x: number)  .decl odd(x: number)  odd(x) :- n(x), x % 2 = 1."}],
    },
    "Defined": an_object({"version": VERSION, "changed": NAMES}),
    "Column": an_object({"name": TEXT, "type": TEXT}, {"nullable": TRUTH}),
    "Relation": an_object(
        {
            "name": TEXT,
            "kind": {"enum": ["base", "view"]},
            "monitored": TRUTH,
            "columns": {"type": "array", "items": ref("Column")},
            "key": NAMES,
        }
    ),
    "Answer": an_object(
        {
            "version": VERSION,
            "relation": TEXT,
            "columns": {"type": "array", "items": ref("Column")},
            "rows": {"type": "array", "items": VALUES},
        }
    ),
    "Subscription": an_object(
        {
            "id": {"type": "integer"},
            "token": TEXT,
            "views": {"type": "array", "items": an_object({"view": TEXT, "bindings": {"type": "object"}})},
            "only": {"type": "array", "items": {"enum": ["plus", "minus"]}},
            "every": {"type": "number"},
            "version": VERSION,
            "waiting": {"type": "integer"},
            "behind": TRUTH,
            "coalesced": {"type": "integer"},
        }
    ),
    "Rule": an_object(
        {
            "name": TEXT,
            "columns": NAMES,
            "action": TEXT,
            "precision": {"enum": ["strict", "nervous"]},
            "mode": {"enum": ["deferred", "immediate"]},
            "on": {"type": "array", "items": {"enum": ["plus", "minus"]}},
            "priority": {"type": "integer"},
            "event": {"type": ["string", "null"]},
            "active": TRUTH,
            "exceptions": {"type": "array", "items": an_object({"values": VALUES, "active": TRUTH})},
        }
    ),
    "Firing": an_object(
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
        **an_object(
            {"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "code": TEXT, "detail": TEXT},
            {
                "hint": TEXT,
                "place": TEXT,
                "excerpt": TEXT,
                "committed": {"type": "array", "items": VERSION},
                "violations": an_object(
                    {"view": TEXT, "rows": {"type": "array", "items": VALUES}, "more": {"type": "integer", "minimum": 0}}
                ),
            },
        ),
        "description": "What is wrong, and what to do. `code` is stable. `committed`: versions that stand all the same.",
    },
}
