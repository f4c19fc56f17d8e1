"""Functions of texts that need more than a cast of their arguments: patterns, paddings, formats and hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rederive.ir.terms import Constant
from rederive.lang.sql.invocation import Handler, Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.plain_functions import built_in, call_built_in, cast_arguments
from rederive.lang.sql.types import BIGINT, BOOL, DAY, DOUBLE, INT, SINGLE, STRING, VOID, SqlType, array_of
from rederive.scalar.failures import ScalarError
from rederive.scalar.regex.java import java_pattern
from rederive.scalar.sql.built_ins import BUILT_INS
from rederive.scalar.sql.format_string import check_format

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering


def text_constant(value: str) -> TypedTerm:
    """A text as a term."""
    return TypedTerm(Constant(value, STRING.type), STRING, False)


def _concat(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    return lower.call("concat", cast_arguments(lower, call, STRING), STRING) if call.arguments else text_constant("")


def _concat_ws(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    found = [lower.lower(part) for part in call.arguments]
    types = [array_of(STRING) if typed.type.element is not None and i else STRING for i, typed in enumerate(found)]
    parts = [lower.cast(typed, to, call.node) for typed, to in zip(found, types, strict=True)]
    return lower.call("concat_ws", parts, STRING, nullable=parts[0].nullable)


def _pattern(name: str) -> Handler:
    """A function whose second argument is a regular expression; a literal one is checked when the statement is compiled."""
    found = BUILT_INS[name]

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        arguments = cast_arguments(lower, call, STRING, STRING, INT if name != "regexp_replace" else STRING, INT)
        pattern = arguments[1].term
        if isinstance(pattern, Constant) and isinstance(pattern.value, str):
            try:
                java_pattern(pattern.value)
            except ValueError as error:
                hint = "write it without constructs that only Java has; see docs/sql.md for the supported patterns"
                raise lower.context.unsupported(f"this regular expression: {error}", call.node, hint) from None
        return call_built_in(lower, found, arguments)

    return handler


def _like(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """LIKE and ILIKE; the escape character must be one character."""
    arguments = cast_arguments(lower, call, STRING)
    if len(arguments) == 3:
        escape = arguments[2].term
        if not isinstance(escape, Constant) or not isinstance(escape.value, str) or len(escape.value) != 1:
            raise lower.context.unsupported("an escape that is not one character", call.node, "write ESCAPE '/'")
    if call.name == "ilike":
        # Spark defines ILIKE as LIKE of both sides in lower case.
        arguments[:2] = [lower.call("lower", [side], STRING) for side in arguments[:2]]
    return lower.call("like", arguments, BOOL)


def _trim(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """TRIM([BOTH | LEADING | TRAILING] [characters] FROM text)."""
    node = call.node
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    parts = [node.this, *([characters] if (characters := node.args.get("expression")) is not None else [])]
    return lower.call(name, [lower.cast(lower.lower(part), STRING, node) for part in parts], STRING)


def _trim_of(name: str) -> Handler:
    # Of two arguments, Spark takes the characters first: ltrim('x', 'xxa').
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        return lower.call(name, cast_arguments(lower, call, STRING)[::-1], STRING)

    return handler


def _pad(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    text, width, *fill = cast_arguments(lower, call, STRING, INT, STRING)
    return lower.call(call.name, [text, width, *(fill or [text_constant(" ")])], STRING)


def _mask(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    given = cast_arguments(lower, call, STRING)
    nothing = TypedTerm(Constant(None, STRING.type), STRING, True)
    rest = [text_constant("X"), text_constant("x"), text_constant("n"), nothing][len(given) - 1 :]
    if any(not isinstance(one.term, Constant) for one in given[1:]):
        raise lower.context.unsupported("mask with characters that are not literals", call.node)
    if any(isinstance(one.term, Constant) and one.term.value is not None and len(str(one.term.value)) != 1 for one in given[1:]):
        raise lower.context.unsupported("mask with more than one character", call.node, "give one character for each kind")
    return lower.call("mask", [*given, *rest], STRING, nullable=given[0].nullable)


def _hex(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = lower.lower(call.arguments[0])
    is_number = typed.type.is_numeric
    argument = lower.cast(typed, BIGINT if is_number else STRING, call.node)
    return lower.call("hex_of_number" if is_number else "hex_of_text", [argument], STRING)


def kind_of(type: SqlType) -> str:
    """How Spark's hash functions see a type: by width, and a decimal by its precision."""
    if type.is_integer:
        return "long" if type.bits == 64 else "int"
    if type == SINGLE:
        return "float"
    return str(type.type.precision) if type.is_decimal else "int" if type in (BOOL, DAY) else "other"


def _hash(name: str, gives: SqlType) -> Handler:
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        arguments = [lower.lower(part) for part in call.arguments]
        kinds = text_constant(" ".join(kind_of(one.type) for one in arguments))
        return lower.call(name, [kinds, *arguments], gives, nullable=False)

    return handler


def _format_string(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    pattern, *arguments = (lower.lower(part) for part in call.arguments)
    if not isinstance(pattern.term, Constant) or not isinstance(pattern.term.value, str):
        raise lower.context.unsupported("format_string with a format that is not a literal", call.node)
    kinds = "".join(_format_kind(one.type) for one in arguments)
    try:
        check_format(pattern.term.value, kinds)
    except (ScalarError, ValueError) as error:
        raise lower.context.unsupported(f"this format: {error}", call.node, "cast the arguments, or use concat") from None
    return lower.call("format_string", [pattern, *arguments], STRING, nullable=False)


def _format_kind(type: SqlType) -> str:
    if type.is_integer:
        return "d"
    return {DOUBLE: "f", SINGLE: "g", STRING: "s", BOOL: "b", VOID: "s"}.get(type, "?")


def _type_of(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    return text_constant(lower.lower(call.arguments[0]).type.catalog_name)


def _like_function(most: int) -> SqlFunction:
    return SqlFunction(2, most, _like, signature="string, string, [string] -> boolean")


_NEVER: Final = "never"
TEXT_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    "concat": built_in("concat", SqlFunction(0, None, _concat)),
    "concat_ws": SqlFunction(
        1, None, _concat_ws, signature="string, string or array<string> ... -> string",
        nulls="the separator is NULL; other NULLs are skipped"
    ),
    **{name: built_in(name, SqlFunction(2, 2, _pattern(name))) for name in ("rlike", "regexp_count", "regexp_substr")},
    "regexp_replace": built_in("regexp_replace", SqlFunction(3, 4, _pattern("regexp_replace"))),
    "regexp_extract": built_in("regexp_extract", SqlFunction(2, 3, _pattern("regexp_extract"))),
    "regexp_instr": built_in("regexp_instr", SqlFunction(2, 3, _pattern("regexp_instr"))),
    "like": _like_function(3),
    "ilike": _like_function(3),
    "trim": SqlFunction(1, 2, _trim_of("trim"), signature="[string], string -> string"),
    "ltrim": SqlFunction(1, 2, _trim_of("ltrim"), signature="[string], string -> string"),
    "rtrim": SqlFunction(1, 2, _trim_of("rtrim"), signature="[string], string -> string"),
    "btrim": SqlFunction(
        1, 2, lambda lower, call: lower.call("trim", cast_arguments(lower, call, STRING), STRING),
        signature="string, [string] -> string",
    ),
    "lpad": SqlFunction(2, 3, _pad, signature="string, int, [string] -> string"),
    "rpad": SqlFunction(2, 3, _pad, signature="string, int, [string] -> string"),
    "mask": SqlFunction(
        1, 5, _mask, signature="string, [string], [string], [string], [string] -> string", nulls="the text is NULL"
    ),
    "hex": SqlFunction(1, 1, _hex, signature="bigint or string -> string"),
    "hash": SqlFunction(1, None, _hash("hash", INT), signature="any ... -> int", nulls=_NEVER),
    "xxhash64": SqlFunction(1, None, _hash("xxhash64", BIGINT), signature="any ... -> bigint", nulls=_NEVER),
    "format_string": SqlFunction(1, None, _format_string, signature="string, any ... -> string", nulls=_NEVER),
    "typeof": SqlFunction(1, 1, _type_of, signature="any -> string", nulls=_NEVER),
}  # fmt: skip
TRIM_SYNTAX: Final = SqlFunction(0, 0, _trim, signature="[BOTH | LEADING | TRAILING] [string] FROM string -> string")
