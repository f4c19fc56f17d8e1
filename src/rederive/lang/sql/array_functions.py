"""Functions of arrays: the types of elements follow from the arguments. Arrays exist inside of expressions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rederive.errors import TypeClash
from rederive.ir.terms import Constant
from rederive.lang.sql.invocation import Handler, Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.plain_functions import cast_arguments
from rederive.lang.sql.types import BIGINT, BOOL, INT, STRING, VOID, SqlType, array_of
from rederive.scalar.regex.java import java_pattern
from rederive.scalar.sql.arrays import ARRAYS
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.json_paths import path_steps

if TYPE_CHECKING:
    from sqlglot import exp

    from rederive.lang.sql.expressions import ExpressionLowering

_FIXED: Final = {"int": INT, "bigint": BIGINT, "string": STRING, "boolean": BOOL}
_BY_NAME: Final = {found.name: found for found in ARRAYS}


def array(lower: ExpressionLowering, node: exp.Expr) -> tuple[TypedTerm, SqlType]:
    """The term of an expression that must be an array, and the type of its elements."""
    typed = lower.lower(node)
    if typed.type.element is None:
        raise TypeClash(f"expected an array, not {typed.type}", lower.context.span(node))
    return typed, typed.type.element


def _of_array(found: BuiltIn) -> Handler:
    """A function whose first argument is an array; `element` and `array` in its signature have the type of its elements."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        first, element = array(lower, call.arguments[0])
        arguments = [first]
        for part, word in zip(call.arguments[1:], found.takes[1:], strict=False):
            if word == "array":
                other, theirs = array(lower, part)
                if theirs != element:
                    raise TypeClash(f"ARRAY<{element}> and ARRAY<{theirs}> differ", lower.context.span(part))
                arguments.append(other)
            else:
                arguments.append(lower.cast(lower.lower(part), element if word == "element" else _FIXED[word], call.node))
        if found.name == "array_join" and element != STRING:
            raise TypeClash(f"array_join takes ARRAY<STRING>, not ARRAY<{element}>", lower.context.span(call.node))
        gives = {"array": array_of(element), "element": element}.get(found.gives) or _FIXED[found.gives]
        return lower.call(found.name, arguments, gives, nullable=True if found.maybe_null else None)

    return handler


def _array(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = [lower.lower(part) for part in call.arguments]
    if not parts:
        return lower.call("array", [], array_of(VOID), nullable=False)
    parts = lower.to_common_type(parts, call.node)
    return lower.call("array", parts, array_of(parts[0].type), nullable=False)


def _split(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    arguments = cast_arguments(lower, call, STRING, STRING, INT)
    pattern = arguments[1].term
    if isinstance(pattern, Constant) and isinstance(pattern.value, str):
        try:
            java_pattern(pattern.value)
        except ValueError as error:
            raise lower.context.unsupported(f"this regular expression: {error}", call.node) from None
    return lower.call(call.name, arguments, array_of(STRING))


def _sequence(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = lower.to_common_type([lower.lower(part) for part in call.arguments], call.node)
    if not parts[0].type.is_integer:
        raise lower.context.unsupported(f"a sequence of {parts[0].type}", call.node, "use integers, and date_add for dates")
    return lower.call("sequence", parts, array_of(parts[0].type))


def _repeat(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    value, times = lower.lower(call.arguments[0]), lower.cast(lower.lower(call.arguments[1]), INT, call.node)
    return lower.call("array_repeat", [value, times], array_of(value.type), nullable=times.nullable)


def _json_object(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    arguments = cast_arguments(lower, call, STRING)
    path = arguments[1].term
    if not isinstance(path, Constant) or not isinstance(path.value, str) or path_steps(path.value) is None:
        hint = "write a literal with names and indexes, such as '$.a[0].b'"
        raise lower.context.unsupported("this path of get_json_object", call.node, hint)
    return lower.call("get_json_object", arguments, STRING, nullable=True)


def subscript(lower: ExpressionLowering, node: exp.Bracket) -> TypedTerm:
    """array[index], which counts from 0 and fails outside of the array."""
    if len(node.expressions) != 1:
        raise lower.context.unsupported("a subscript with several indexes", node)
    return _of_array(_BY_NAME["subscript"])(lower, Invocation("subscript", [node.this, node.expressions[0]], node))


_OTHERS: Final = ("array", "split", "regexp_extract_all", "sequence", "array_repeat", "subscript", "array_reverse")
ARRAY_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    **{
        found.name: SqlFunction(
            found.least, found.most, _of_array(found), signature=found.signature, fails=found.fallible,
            nulls="an argument is NULL" + (", or there is no such element" if found.maybe_null else ""),
        )
        for found in ARRAYS if found.name not in _OTHERS
    },
    "array": SqlFunction(0, None, _array, signature="any ... -> array", nulls="never"),
    "split": SqlFunction(2, 3, _split, signature="string, string, [int] -> array<string>"),
    "regexp_extract_all": SqlFunction(2, 3, _split, signature="string, string, [int] -> array<string>", fails=True),
    "sequence": SqlFunction(2, 3, _sequence, signature="integer, integer, [integer] -> array", fails=True),
    "array_repeat": SqlFunction(2, 2, _repeat, signature="any, int -> array", nulls="the number is NULL", fails=True),
    "get_json_object": SqlFunction(
        2, 2, _json_object, signature="string, string literal -> string",
        nulls="an argument is NULL, the text is not JSON, or the path has no value",
    ),
}  # fmt: skip
