"""Functions of CSV texts: the type of from_csv is that of its schema, and its options are literals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.ir.terms import Constant, Kind
from rederive.lang.sql.invocation import Invocation, SqlFunction
from rederive.lang.sql.json_functions import literal_text, schema_literal
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.nested_values import as_printed
from rederive.lang.sql.text_functions import text_constant
from rederive.lang.sql.types import STRING
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.csv_text import BLANK
from rederive.scalar.sql.csv_values import schema_of_csv

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

_SUPPORTED: Final = ("sep", "delimiter", "nullvalue", "mode")


def _options(lower: ExpressionLowering, call: Invocation, place: int, *, modes: bool = False) -> tuple[str, str, str]:
    """The separator, what NULL is, and the mode: those of the map of literals at a place, if there is one."""
    given = _pairs(lower, call.arguments[place]) if len(call.arguments) > place else {}
    for name in given:
        if name not in _SUPPORTED or (name == "mode" and not modes):
            hint = f"the options are sep and nullValue{', and mode with from_csv' if not modes else ' and mode'}"
            raise lower.context.unsupported(f"the option '{name}' of {call.name}", call.node, hint)
    separator, mode = given.get("sep", given.get("delimiter", ",")), given.get("mode", "PERMISSIVE").upper()
    if len(separator) != 1 or separator in '"\\\n\r\0':
        raise lower.context.unsupported(f"the separator {separator!r} of {call.name}", call.node, "use one character")
    if mode not in ("PERMISSIVE", "FAILFAST"):
        raise lower.context.unsupported(f"the mode {mode} of {call.name}", call.node, "use PERMISSIVE or FAILFAST")
    return separator, given.get("nullvalue", ""), mode


def _pairs(lower: ExpressionLowering, node: exp.Expr) -> dict[str, str]:
    hint = "write map('sep', ';')"
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "map" or len(node.expressions) % 2:
        raise lower.context.unsupported("options that are not a map of literals", node, hint)
    texts = [literal_text(lower, part, "an option") for part in node.expressions]
    names = [name.lower() for name in texts[::2]]
    if len(set(names)) < len(names):
        raise lower.context.unsupported("an option that is given twice", node, hint)
    return dict(zip(names, texts[1::2], strict=True))


def _from_csv(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    text = lower.cast(lower.lower(call.arguments[0]), STRING, call.node)
    gives = schema_literal(lower, call.arguments[1])
    if not gives.is_struct:
        raise TypeClash(f"from_csv gives a struct, not {gives}", lower.context.span(call.node))
    for name, type in gives.fields:
        if type.type.parts or type.type.kind is Kind.INTERVAL or name == "_corrupt_record":
            what = f"from_csv with the column '{name}' of the type {type}"
            raise lower.context.unsupported(what, call.node, "read a STRING of another name, and convert it")
    options = map(text_constant, _options(lower, call, 2, modes=True))
    return lower.call("from_csv", [text, *options], gives)


def _to_csv(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = lower.lower(call.arguments[0])
    if not typed.type.is_struct:
        raise TypeClash(f"to_csv takes a struct, not {typed.type}", lower.context.span(call.node))
    for name, type in typed.type.fields:
        if type.type.parts or type.type.kind is Kind.BINARY:
            what = f"to_csv of the field '{name}' of the type {type}"
            raise lower.context.unsupported(what, call.node, "convert it to a STRING: to_json(...), hex(...)")
    separator, null, _ = _options(lower, call, 1)
    if null and not null.strip(BLANK):
        raise lower.context.unsupported("a nullValue of to_csv that is white space", call.node, "use '' or another text")
    options = [text_constant(separator), text_constant(null)]
    return lower.call("to_csv", [as_printed(lower, typed, call.node), *options], STRING, nullable=True)


def _schema_of_csv(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    separator, null, _ = _options(lower, call, 1)
    try:
        found = schema_of_csv(literal_text(lower, call.arguments[0], "a CSV text of schema_of_csv"), separator, null)
    except ScalarError as error:
        raise lower.context.unsupported(f"schema_of_csv of this text: {error}", call.node) from None
    return TypedTerm(Constant(found, STRING.type), STRING, False)


CSV_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    "from_csv": SqlFunction(
        2, 3, _from_csv, signature="string, string literal, [map of literals] -> struct", nulls="the text is NULL", fails=True
    ),
    "to_csv": SqlFunction(
        1, 2, _to_csv, signature="struct, [map of literals] -> string", nulls="the struct is NULL, or its one field is"
    ),
    "schema_of_csv": SqlFunction(
        1, 2, _schema_of_csv, signature="string literal, [map of literals] -> string", nulls="never"
    ),
}  # fmt: skip
