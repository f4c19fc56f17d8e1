"""Functions that take a lambda: what its parameters are, and the type of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.lang.sql.array_functions import array
from rederive.lang.sql.invocation import Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.map_functions import map_value
from rederive.lang.sql.nested_values import LoweredLambda, lower_lambda
from rederive.lang.sql.types import BOOL, INT, VOID, SqlType, array_of, common_type, map_of

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering


def _condition(lower: ExpressionLowering, call: Invocation, types: list[SqlType]) -> LoweredLambda:
    made = lower_lambda(lower, call.arguments[-1], types, call.name)
    if made.gives not in (BOOL, VOID):
        raise TypeClash(f"the lambda of '{call.name}' is a condition, not {made.gives}", lower.context.span(call.arguments[-1]))
    return made


def _parameters(node: exp.Expr) -> int:
    return len(node.expressions) if isinstance(node, exp.Lambda) else 1


def _transform(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, element = array(lower, call.arguments[0])
    is_indexed = _parameters(call.arguments[1]) == 2
    made = lower_lambda(lower, call.arguments[1], [element, INT][: 2 if is_indexed else 1], call.name)
    name = "transform with index" if is_indexed else "transform"
    return lower.call(name, [typed, *made.arguments], array_of(made.gives), nullable=typed.nullable)


def _filter(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, element = array(lower, call.arguments[0])
    is_indexed = _parameters(call.arguments[1]) == 2
    made = _condition(lower, call, [element, INT][: 2 if is_indexed else 1])
    name = "filter with index" if is_indexed else "filter"
    return lower.call(name, [typed, *made.arguments], typed.type, nullable=typed.nullable)


def _quantifier(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, element = array(lower, call.arguments[0])
    made = _condition(lower, call, [element])
    return lower.call(call.name, [typed, *made.arguments], BOOL, nullable=True)


def _aggregate(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, element = array(lower, call.arguments[0])
    start = lower.lower(call.arguments[1])
    merge = lower_lambda(lower, call.arguments[2], [start.type, element], call.name)
    if merge.gives != start.type:
        hint = f"cast the start: CAST({call.arguments[1].sql('spark')} AS {merge.gives})"
        message = f"the lambda of '{call.name}' gives {merge.gives}, but its start is {start.type}"
        raise TypeClash(message, lower.context.span(call.node), hint=hint)
    total = lower.call("aggregate", [typed, start, *merge.arguments], start.type, nullable=True)
    if len(call.arguments) == 3:
        return total
    finish = lower_lambda(lower, call.arguments[3], [start.type], call.name)
    done = lower.call("apply lambda", [total, *finish.arguments], finish.gives, nullable=True)
    nothing = lower.call("is null", [typed], BOOL, nullable=False)
    # An array that is NULL has no total to finish.
    return lower.choice([nothing], [lower.cast(lower.lower(exp.Null()), finish.gives, call.node), done], call.node)


def _zip_with(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    (one, first), (two, second) = (array(lower, part) for part in call.arguments[:2])
    made = lower_lambda(lower, call.arguments[2], [first, second], call.name)
    return lower.call("zip_with", [one, two, *made.arguments], array_of(made.gives), nullable=one.nullable or two.nullable)


def _array_sort(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, element = array(lower, call.arguments[0])
    if len(call.arguments) == 1:
        lower.check_comparable(element, call.node)
        return lower.call("array_sort", [typed], typed.type)
    made = lower_lambda(lower, call.arguments[1], [element, element], call.name)
    if made.gives != INT:
        raise TypeClash(f"the lambda of 'array_sort' gives INT, not {made.gives}", lower.context.span(call.node))
    return lower.call("sort with", [typed, *made.arguments], typed.type, nullable=typed.nullable)


def _map_filter(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, key, value = map_value(lower, call.arguments[0])
    made = _condition(lower, call, [key, value])
    return lower.call("map_filter", [typed, *made.arguments], typed.type, nullable=typed.nullable)


def _transform_entries(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, key, value = map_value(lower, call.arguments[0])
    made = lower_lambda(lower, call.arguments[1], [key, value], call.name)
    gives = map_of(made.gives, value) if call.name == "transform_keys" else map_of(key, made.gives)
    return lower.call(call.name, [typed, *made.arguments], gives, nullable=typed.nullable)


def _map_zip_with(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    (one, key, first), (two, other, second) = (map_value(lower, part) for part in call.arguments[:2])
    if common_type(key, other) != key or key != other:
        raise TypeClash(f"keys of {key} and {other}", lower.context.span(call.node), hint="cast one of the maps")
    made = lower_lambda(lower, call.arguments[2], [key, first, second], call.name)
    nullable = one.nullable or two.nullable
    return lower.call("map_zip_with", [one, two, *made.arguments], map_of(key, made.gives), nullable=nullable)


def _entry(least: int, most: int, handler: object, signature: str, nulls: str = "the array is NULL") -> SqlFunction:
    return SqlFunction(least, most, handler, signature=signature, nulls=nulls, fails=True)  # type: ignore[arg-type]


_LOGIC: Final = "the array is NULL, or no element decides and a condition is NULL"
LAMBDA_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    "transform": _entry(2, 2, _transform, "array, x -> any or (x, i) -> any -> array"),
    "filter": _entry(2, 2, _filter, "array, x -> boolean or (x, i) -> boolean -> array"),
    "exists": _entry(2, 2, _quantifier, "array, x -> boolean -> boolean", _LOGIC),
    "forall": _entry(2, 2, _quantifier, "array, x -> boolean -> boolean", _LOGIC),
    "aggregate": _entry(3, 4, _aggregate, "array, any, (sum, x) -> any, [sum -> any] -> any"),
    "zip_with": _entry(3, 3, _zip_with, "array, array, (x, y) -> any -> array", "an array is NULL"),
    "array_sort": _entry(1, 2, _array_sort, "array, [(x, y) -> int] -> array"),
    "map_filter": _entry(2, 2, _map_filter, "map, (k, v) -> boolean -> map", "the map is NULL"),
    "transform_keys": _entry(2, 2, _transform_entries, "map, (k, v) -> any -> map", "the map is NULL"),
    "transform_values": _entry(2, 2, _transform_entries, "map, (k, v) -> any -> map", "the map is NULL"),
    "map_zip_with": _entry(3, 3, _map_zip_with, "map, map, (k, v, w) -> any -> map", "a map is NULL"),
}
