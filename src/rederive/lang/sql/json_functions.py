"""Functions of JSON texts: the type of from_json is that of its schema, a literal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from rederive.errors import TypeClash
from rederive.ir.terms import Constant
from rederive.lang.sql.dialect import AnsiSpark
from rederive.lang.sql.invocation import Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.nested_values import as_printed
from rederive.lang.sql.plain_functions import cast_arguments
from rederive.lang.sql.type_names import named_type
from rederive.lang.sql.types import STRING, SqlType, array_of
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.json_paths import path_steps
from rederive.scalar.sql.json_values import schema_of_json

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering


def literal_text(lower: ExpressionLowering, node: exp.Expr, what: str) -> str:
    """The text that an argument is; `what` says in an error what must be a literal."""
    term = lower.lower(node).term
    if not isinstance(term, Constant) or not isinstance(term.value, str):
        raise lower.context.unsupported(f"{what} that is not a literal", node)
    return term.value


def _json_object(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    arguments = cast_arguments(lower, call, STRING)
    path = arguments[1].term
    if not isinstance(path, Constant) or not isinstance(path.value, str) or path_steps(path.value) is None:
        hint = "write a literal with names and indexes, such as '$.a[0].b'"
        raise lower.context.unsupported("this path of get_json_object", call.node, hint)
    return lower.call("get_json_object", arguments, STRING, nullable=True)


def schema_literal(lower: ExpressionLowering, node: exp.Expr) -> SqlType:
    """The type that a schema means, which is a literal: columns of a struct, or a type."""
    text = literal_text(lower, node, "a schema")
    for written in (text, f"STRUCT<{text}>"):
        try:
            parsed = exp.DataType.build(written, dialect=AnsiSpark)
        except SqlglotError:
            continue
        if any(part.this is exp.DType.TIMESTAMPNTZ for part in parsed.find_all(exp.DataType)):
            raise lower.context.unsupported("TIMESTAMP_NTZ in a schema", node, "use TIMESTAMP")
        if isinstance(parsed.this, exp.DType) and (parsed.expressions or written == text):
            return named_type(parsed, lower.context)
    raise lower.context.unsupported(f"the schema '{text}'", node, "write 'a INT, b STRING' or a type such as 'ARRAY<INT>'")


def _from_json(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    text = lower.cast(lower.lower(call.arguments[0]), STRING, call.node)
    gives = schema_literal(lower, call.arguments[1])
    if not gives.type.parts or (gives.entry is not None and gives.entry[0] != STRING):
        raise TypeClash(f"from_json gives a struct, an array or a map of texts, not {gives}", lower.context.span(call.node))
    return lower.call("from_json", [text], gives, nullable=True)


def _to_json(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = lower.lower(call.arguments[0])
    if not typed.type.type.parts:
        raise TypeClash(f"to_json takes a struct, an array or a map, not {typed.type}", lower.context.span(call.node))
    return lower.call("to_json", [as_printed(lower, typed, call.node)], STRING)


def _schema_of_json(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    try:
        found = schema_of_json(literal_text(lower, call.arguments[0], "a JSON text of schema_of_json"))
    except (ValueError, ScalarError) as error:
        raise lower.context.unsupported(f"schema_of_json of this text: {error}", call.node) from None
    return TypedTerm(Constant(found, STRING.type), STRING, False)


def _json_keys(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    return lower.call("json_object_keys", cast_arguments(lower, call, STRING), array_of(STRING), nullable=True)


_OPTIONS: Final = ("options", "the defaults of Spark apply")
JSON_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    "get_json_object": SqlFunction(
        2, 2, _json_object, signature="string, string literal -> string",
        nulls="an argument is NULL, the text is not JSON, or the path has no value",
    ),
    "from_json": SqlFunction(
        2, 2, _from_json, ((3, *_OPTIONS),), "string, string literal -> struct, array or map",
        "the text is NULL, or is no array or map",
    ),
    "to_json": SqlFunction(1, 1, _to_json, ((2, *_OPTIONS),), "struct, array or map -> string"),
    "schema_of_json": SqlFunction(1, 1, _schema_of_json, ((2, *_OPTIONS),), "string literal -> string", "never"),
    "json_object_keys": SqlFunction(
        1, 1, _json_keys, signature="string -> array<string>", nulls="the text is NULL, or is no JSON object"
    ),
}  # fmt: skip
