"""Functions of arrays: the types of elements follow from the arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.ir.terms import Constant, Kind
from rederive.lang.sql.intervals import interval_parts, is_interval
from rederive.lang.sql.invocation import Handler, Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.plain_functions import cast_arguments
from rederive.lang.sql.types import BIGINT, BOOL, DAY, INT, MOMENT, STRING, VOID, SqlType, array_of, common_type, struct_of
from rederive.scalar.regex.java import java_pattern
from rederive.scalar.sql.arrays import ARRAYS
from rederive.scalar.sql.built_in import BuiltIn

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

_FIXED: Final = {"int": INT, "bigint": BIGINT, "string": STRING, "boolean": BOOL}
# Functions that compare elements, which maps do not allow.
_COMPARING: Final = (
    "array_contains", "array_position", "array_max", "array_min", "sort_array", "array_distinct", "array_remove", "array_union",
    "array_intersect", "array_except", "arrays_overlap",
)  # fmt: skip


def array(lower: ExpressionLowering, node: exp.Expr) -> tuple[TypedTerm, SqlType]:
    """The term of an expression that must be an array, and the type of its elements."""
    typed = lower.lower(node)
    if typed.type.element is None:
        raise TypeClash(f"expected an array, not {typed.type}", lower.context.span(node))
    return typed, typed.type.element


def _of_array(found: BuiltIn) -> Handler:
    """A function whose first argument is an array; `element` and `array` in its signature have the type of its elements."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        typed = [lower.lower(part) for part in call.arguments]
        _element(lower, typed[0], call.arguments[0])
        words = [found.takes[min(i, len(found.takes) - 1)] for i in range(len(typed))]
        # The elements of all arrays, and the values to compare with them, have one type.
        elements = [
            _element(lower, one, part) if word == "array" else one.type
            for one, word, part in zip(typed, words, call.arguments, strict=True)
            if word in ("array", "element")
        ]
        element = _common(lower, elements, call.node)
        if found.name in _COMPARING:
            lower.check_comparable(element, call.node)
        if found.name == "array_join":
            if element.type.kind in (Kind.ARRAY, Kind.STRUCT, Kind.MAP, Kind.BINARY):
                raise TypeClash(f"array_join takes ARRAY<STRING>, not ARRAY<{element}>", lower.context.span(call.node))
            element = STRING  # Spark casts the elements
        known = {"array": array_of(element), "element": element, **_FIXED}
        arguments = [lower.cast(one, known[word], call.node) for one, word in zip(typed, words, strict=True)]
        nullable = True if found.maybe_null else None if found.strict else arguments[0].nullable
        return lower.call(found.name, arguments, known[found.gives], nullable=nullable)

    return handler


def _element(lower: ExpressionLowering, typed: TypedTerm, node: exp.Expr) -> SqlType:
    if typed.type == VOID:
        return VOID
    if typed.type.element is None:
        raise TypeClash(f"expected an array, not {typed.type}", lower.context.span(node))
    return typed.type.element


def _common(lower: ExpressionLowering, types: Sequence[SqlType], node: exp.Expr) -> SqlType:
    found = types[0]
    for other in types[1:]:
        both = common_type(found, other)
        if both is None:
            raise TypeClash(f"{found} and {other} have no common type", lower.context.span(node), hint="cast one of them")
        found = both
    return found


def _array(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = [lower.lower(part) for part in call.arguments]
    if not parts:
        return lower.call("array", [], array_of(VOID), nullable=False)
    parts = lower.to_common_type(parts, call.node)
    return lower.call("array", parts, array_of(parts[0].type), nullable=False)


def _flatten(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, element = array(lower, call.arguments[0])
    if element.element is None:
        raise TypeClash(f"expected an array of arrays, not {typed.type}", lower.context.span(call.node))
    return lower.call("flatten", [typed], element, nullable=True)


def _zip(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    found = [array(lower, part) for part in call.arguments]
    named = (part.name if isinstance(part, exp.Column) else str(i) for i, part in enumerate(call.arguments))
    gives = array_of(struct_of((name, element) for name, (_, element) in zip(named, found, strict=True)))
    return lower.call("arrays_zip", [typed for typed, _ in found], gives)


def concat_arrays(lower: ExpressionLowering, parts: Sequence[TypedTerm], node: exp.Expr) -> TypedTerm:
    """concat of arrays."""
    parts = lower.to_common_type(parts, node)
    return lower.call("array_concat", parts, parts[0].type)


def _size(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = lower.lower(call.arguments[0])
    if typed.type.entry is None:
        _element(lower, typed, call.arguments[0])
    return lower.call("size", [typed], INT)


def _element_at(name: str) -> Handler:
    """element_at and subscripts of arrays and of maps, whose missing keys give NULL."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        typed = lower.lower(call.arguments[0])
        if typed.type.is_struct:
            raise TypeClash(f"{typed.type} has no elements", lower.context.span(call.node), hint="write s.field")
        key = lower.lower(call.arguments[1])
        if (entry := typed.type.entry) is not None:
            return lower.call("map value", [typed, lower.cast(key, entry[0], call.node)], entry[1], nullable=True)
        element = _element(lower, typed, call.arguments[0])
        return lower.call(name, [typed, lower.cast(key, INT, call.node)], element, nullable=True)

    return handler


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
    start, stop = lower.to_common_type([lower.lower(part) for part in call.arguments[:2]], call.node)
    if start.type in (DAY, MOMENT):
        return _sequence_of_times(lower, start, stop, call)
    parts = lower.to_common_type([start, stop, *(lower.lower(part) for part in call.arguments[2:])], call.node)
    if not parts[0].type.is_integer:
        raise lower.context.unsupported(f"a sequence of {parts[0].type}", call.node, "use integers, dates or timestamps")
    return lower.call("sequence", parts, array_of(parts[0].type))


def _sequence_of_times(lower: ExpressionLowering, start: TypedTerm, stop: TypedTerm, call: Invocation) -> TypedTerm:
    step = call.arguments[2] if len(call.arguments) > 2 else None
    if step is not None and not is_interval(step):
        raise lower.context.unsupported("a step that is not written as an interval", call.node, "write INTERVAL 1 DAY")
    found = list(interval_parts(step, lower.context)) if step is not None else []
    if len(found) > 1 or any(part.factor is not None for part in found):
        raise lower.context.unsupported("a step of several units", call.node, "write INTERVAL 1 DAY")
    unit, amount = (found[0].unit, found[0].amount) if found else ("DAY", 1)
    if start.type == DAY and unit == "MICROSECOND":
        raise lower.context.unsupported("a sequence of dates in steps of hours", call.node, "cast the dates to TIMESTAMP")
    # Without a step the sequence goes down where its end is before its start.
    texts = [TypedTerm(Constant(unit, STRING.type), STRING, False)]
    size = TypedTerm(Constant(amount, BIGINT.type), BIGINT, False)
    if step is None:
        down = TypedTerm(Constant(-1, BIGINT.type), BIGINT, False)
        size = lower.choice([lower.call(">", [start, stop], BOOL)], [down, size], call.node)
    return lower.call("time_sequence", [start, stop, size, *texts], array_of(start.type))


def _repeat(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    value, times = lower.lower(call.arguments[0]), lower.cast(lower.lower(call.arguments[1]), INT, call.node)
    return lower.call("array_repeat", [value, times], array_of(value.type), nullable=times.nullable)


def subscript(lower: ExpressionLowering, node: exp.Bracket) -> TypedTerm:
    """array[index], which counts from 0 and fails outside of the array."""
    if len(node.expressions) != 1:
        raise lower.context.unsupported("a subscript with several indexes", node)
    return _element_at("subscript")(lower, Invocation("subscript", [node.this, node.expressions[0]], node))


_OTHERS: Final = (
    "array", "split", "regexp_extract_all", "sequence", "time_sequence", "array_repeat", "subscript", "array_reverse", "flatten",
    "arrays_zip", "array_concat", "size", "element_at", "try_element_at", "array_sort",
)  # fmt: skip
ARRAY_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    **{
        found.name: SqlFunction(
            found.least, found.most, _of_array(found), signature=found.signature, fails=found.fallible,
            nulls="an argument is NULL" + (", or there is no such element" if found.maybe_null else ""),
        )
        for found in ARRAYS if found.name not in _OTHERS and " " not in found.name
    },
    "array": SqlFunction(0, None, _array, signature="any ... -> array", nulls="never"),
    "split": SqlFunction(2, 3, _split, signature="string, string, [int] -> array<string>"),
    "regexp_extract_all": SqlFunction(2, 3, _split, signature="string, string, [int] -> array<string>", fails=True),
    "sequence": SqlFunction(
        2, 3, _sequence, signature="integer, integer, [integer] -> array; date, date, [interval] -> array", fails=True
    ),
    "flatten": SqlFunction(1, 1, _flatten, signature="array<array> -> array", nulls="an argument or an element is NULL"),
    "arrays_zip": SqlFunction(1, None, _zip, signature="array ... -> array<struct>"),
    "size": SqlFunction(1, 1, _size, signature="array or map -> int"),
    "element_at": SqlFunction(
        2, 2, _element_at("element_at"), signature="array, int -> element; map, key -> value", fails=True,
        nulls="an argument is NULL, or there is no such element or key",
    ),
    "try_element_at": SqlFunction(
        2, 2, _element_at("try_element_at"), signature="array, int -> element; map, key -> value", fails=True,
        nulls="an argument is NULL, or there is no such element or key",
    ),
    "array_repeat": SqlFunction(2, 2, _repeat, signature="any, int -> array", nulls="the number is NULL", fails=True),
}  # fmt: skip
