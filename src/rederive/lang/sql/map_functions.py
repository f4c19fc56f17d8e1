"""Functions of structs and maps: the types of fields, keys and values follow from the arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.ir.terms import Constant
from rederive.lang.sql.array_functions import array
from rederive.lang.sql.invocation import Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.nested_values import struct_value
from rederive.lang.sql.plain_functions import cast_arguments
from rederive.lang.sql.types import BOOL, STRING, VOID, SqlType, array_of, map_of, struct_of

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering


def map_value(lower: ExpressionLowering, node: exp.Expr) -> tuple[TypedTerm, SqlType, SqlType]:
    """The term of an expression that must be a map, and the types of its keys and values."""
    typed = lower.lower(node)
    if typed.type.entry is None:
        raise TypeClash(f"expected a map, not {typed.type}", lower.context.span(node))
    return typed, *typed.type.entry


def _struct(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    named = []
    for i, part in enumerate(call.arguments, 1):
        is_named = isinstance(part, exp.Alias | exp.Column | exp.Dot)
        name = (part.alias if isinstance(part, exp.Alias) else part.name) if is_named else f"col{i}"
        named.append((name, lower.lower(part.this if isinstance(part, exp.Alias) else part)))
    return struct_value(lower, named)


def _named_struct(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    if len(call.arguments) % 2:
        raise lower.context.unsupported("named_struct with a name and no value", call.node, "write named_struct('a', 1)")
    named = []
    for name, part in zip(call.arguments[::2], call.arguments[1::2], strict=True):
        term = lower.lower(name).term
        if not isinstance(term, Constant) or not isinstance(term.value, str):
            raise lower.context.unsupported("a name of a field that is not a literal", name)
        named.append((term.value, lower.lower(part)))
    return struct_value(lower, named)


def _checked_key(lower: ExpressionLowering, key: SqlType, call: Invocation) -> SqlType:
    if not key.is_comparable:
        raise TypeClash(f"{key} cannot be the type of a key", lower.context.span(call.node))
    return key


def _map(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    if len(call.arguments) % 2:
        raise lower.context.unsupported("map with a key and no value", call.node, "write map('a', 1)")
    typed = [lower.lower(part) for part in call.arguments]
    keys, values = (lower.to_common_type(typed[i::2], call.node) if typed else [] for i in (0, 1))
    key, value = (found[0].type if found else VOID for found in (keys, values))
    parts = [part for pair in zip(keys, values, strict=True) for part in pair]
    return lower.call("map", parts, map_of(_checked_key(lower, key, call), value), nullable=False)


def _from_arrays(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    (keys, key), (values, value) = (array(lower, part) for part in call.arguments)
    return lower.call("map_from_arrays", [keys, values], map_of(_checked_key(lower, key, call), value))


def _from_entries(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, element = array(lower, call.arguments[0])
    if not element.is_struct or len(element.fields) != 2:
        raise TypeClash(f"expected an array of structs with two fields, not {typed.type}", lower.context.span(call.node))
    (_, key), (_, value) = element.fields
    return lower.call("map_from_entries", [typed], map_of(_checked_key(lower, key, call), value), nullable=True)


def _of_map(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, key, value = map_value(lower, call.arguments[0])
    entry = struct_of((("key", key), ("value", value)))
    gives = {"map_keys": key, "map_values": value, "map_entries": entry}[call.name]
    return lower.call(call.name, [typed], array_of(gives))


def _concat(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    if not call.arguments:
        return lower.call("map", [], map_of(VOID, VOID), nullable=False)
    typed = lower.to_common_type([map_value(lower, part)[0] for part in call.arguments], call.node)
    return lower.call("map_concat", typed, typed[0].type)


def _contains_key(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, key, _ = map_value(lower, call.arguments[0])
    return lower.call(call.name, [typed, lower.cast(lower.lower(call.arguments[1]), key, call.node)], BOOL)


def _str_to_map(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    given = cast_arguments(lower, call, STRING)
    defaults = [TypedTerm(Constant(text, STRING.type), STRING, False) for text in (",", ":")]
    return lower.call("str_to_map", [*given, *defaults[len(given) - 1 :]], map_of(STRING, STRING))


MAP_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    "struct": SqlFunction(1, None, _struct, signature="any ... -> struct", nulls="never"),
    "named_struct": SqlFunction(2, None, _named_struct, signature="string literal, any, ... -> struct", nulls="never"),
    "map": SqlFunction(0, None, _map, signature="key, value, ... -> map", nulls="never", fails=True),
    "map_from_arrays": SqlFunction(2, 2, _from_arrays, signature="array, array -> map", fails=True),
    "map_from_entries": SqlFunction(
        1, 1, _from_entries, signature="array<struct> -> map", nulls="an argument or an element is NULL", fails=True
    ),
    "map_keys": SqlFunction(1, 1, _of_map, signature="map -> array"),
    "map_values": SqlFunction(1, 1, _of_map, signature="map -> array"),
    "map_entries": SqlFunction(1, 1, _of_map, signature="map -> array<struct>"),
    "map_concat": SqlFunction(0, None, _concat, signature="map ... -> map", fails=True),
    "map_contains_key": SqlFunction(2, 2, _contains_key, signature="map, key -> boolean"),
    "str_to_map": SqlFunction(1, 3, _str_to_map, signature="string, [string], [string] -> map<string, string>", fails=True),
}
