"""Parts of nested values: fields of structs, lambdas over elements, and casts part by part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from rederive.errors import TypeClash, UnknownName, WrongArity
from rederive.ir.terms import BOOLEAN, NUMBER, SYMBOL, Constant, Lambda, Part, variables
from rederive.lang.sql.lowered_relation import TypedTerm, column_of
from rederive.lang.sql.types import DOUBLE, INT, SINGLE, STRING, VOID, SqlType, array_of, struct_of

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering


@dataclass(frozen=True, slots=True)
class LoweredLambda:
    """A lambda as arguments of a call: the constant, and the values that it captures; and what its body gives."""

    arguments: tuple[TypedTerm, ...]
    gives: SqlType


def lower_lambda(lower: ExpressionLowering, node: exp.Expr, types: Sequence[SqlType], name: str) -> LoweredLambda:
    """A lambda that is called with values of these types."""
    if not isinstance(node, exp.Lambda):
        raise lower.context.unsupported(f"this argument of {name}", node, "write a lambda: x -> x + 1")
    if len(node.expressions) != len(types):
        takes = f"{len(types)} parameter{'s' if len(types) != 1 else ''}"
        raise WrongArity(f"the lambda of '{name}' has {takes}, not {len(node.expressions)}", lower.context.span(node))
    names = [parameter.name for parameter in node.expressions]

    def body(parameters: Sequence[TypedTerm]) -> TypedTerm:
        inner = replace(lower, parameters={**lower.parameters, **dict(zip(map(str.lower, names), parameters, strict=True))})
        return inner.lower(node.this)

    return make_lambda(lower, names, types, body)


def make_lambda(
    lower: ExpressionLowering, names: Sequence[str], types: Sequence[SqlType], body: Callable[[Sequence[TypedTerm]], TypedTerm]
) -> LoweredLambda:
    """The lambda whose body is a function of its parameters. What else it mentions, it captures."""
    context = lower.context
    parameters = [TypedTerm(context.fresh(name), type, True) for name, type in zip(names, types, strict=True)]
    own = [v for parameter in parameters for v in variables(parameter.term)]
    context.columns.update({v.name: column_of(p, v.name) for v, p in zip(own, parameters, strict=True)})
    found = body(parameters)
    captured = [v for v in dict.fromkeys(variables(found.term)) if v not in own]
    inner = [context.columns[v.name].type for v in (*own, *captured)]
    constant = Constant(Lambda(tuple(v.name for v in (*own, *captured)), tuple(inner), found.term), SYMBOL)
    arguments = (TypedTerm(constant, STRING, False), *(TypedTerm(v, STRING, True) for v in captured))
    return LoweredLambda(arguments, found.type)


def field_of(lower: ExpressionLowering, typed: TypedTerm, name: str, node: exp.Expr) -> TypedTerm:
    """A field of a struct, of each struct in an array, or the value of a key of a map."""
    element = typed.type.element
    if element is not None and element.is_struct:
        made = make_lambda(lower, ["x"], [element], lambda parameters: field_of(lower, parameters[0], name, node))
        return lower.call("transform", [typed, *made.arguments], array_of(made.gives), nullable=typed.nullable)
    if (entry := typed.type.entry) is not None:
        key = lower.cast(TypedTerm(Constant(name, SYMBOL), STRING, False), entry[0], node)
        return lower.call("map value", [typed, key], entry[1], nullable=True)
    if not typed.type.is_struct:
        raise TypeClash(f"{typed.type} has no field '{name}'", lower.context.span(node), hint="only a STRUCT has fields")
    names = [field.lower() for field, _ in typed.type.fields]
    if name.lower() not in names:
        raise UnknownName("field", name, (field for field, _ in typed.type.fields), lower.context.span(node))
    place = names.index(name.lower())
    position = TypedTerm(Constant(place, NUMBER), INT, False)
    return lower.call("struct field", [typed, position], typed.type.fields[place][1], nullable=True)


CastPart = Callable[[TypedTerm, SqlType], TypedTerm]


def cast_nested(
    lower: ExpressionLowering, typed: TypedTerm, to: SqlType, node: exp.Expr, cast: CastPart, *, may_keep: bool = True
) -> TypedTerm:
    """A nested value whose parts are cast; structs by position, as in Spark. `may_keep`: whether equal parts stay as they are."""
    one = typed.type
    if one.type.kind is not to.type.kind or len(one.fields) != len(to.fields):
        raise TypeClash(f"{one} cannot be cast to {to}", lower.context.span(node))
    if may_keep and _is_same(one, to):
        return lower.call("as type", [typed], to, nullable=typed.nullable)

    def part(i: int) -> Callable[[Sequence[TypedTerm]], TypedTerm]:
        return lambda parameters: cast(parameters[i], to.fields[i][1])

    if one.element is not None:
        made = make_lambda(lower, ["x"], [one.element], part(0))
        return lower.call("transform", [typed, *made.arguments], to, nullable=typed.nullable)
    if (entry := one.entry) is not None:
        keys, values = (make_lambda(lower, ["k", "v"], entry, part(i)) for i in (0, 1))
        changed = lower.call("transform_values", [typed, *values.arguments], to, nullable=typed.nullable)
        return lower.call("transform_keys", [changed, *keys.arguments], to, nullable=typed.nullable)
    parts = [cast(field_of(lower, typed, name, node), to.fields[i][1]) for i, (name, _) in enumerate(one.fields)]
    made_struct = lower.call("named_struct", parts, to, nullable=False)
    return null_if_null(lower, typed, made_struct)


def as_printed(lower: ExpressionLowering, typed: TypedTerm, node: exp.Expr) -> TypedTerm:
    """The value with a DOUBLE for each FLOAT that prints as the FLOAT does: 0.1 for the nearest number of 32 bits."""

    def shortest(part: TypedTerm, to: SqlType) -> TypedTerm:
        if part.type == to:
            return part
        if part.type == SINGLE:
            return lower.call("shortest", [part], DOUBLE)
        return cast_nested(lower, part, to, node, shortest, may_keep=False)

    return shortest(typed, _without_single(typed.type))


def _without_single(type: SqlType) -> SqlType:
    if not type.fields:
        return DOUBLE if type == SINGLE else type
    parts = ((part.name, _without_single(SqlType(part.type, part.bits))) for part in type.type.parts)
    return SqlType(replace(type.type, parts=tuple(Part(name, found.type, found.bits) for name, found in parts)))


def null_if_null(lower: ExpressionLowering, tested: TypedTerm, typed: TypedTerm) -> TypedTerm:
    """The value, or NULL where another one is NULL."""
    if not tested.nullable:
        return typed
    is_null = lower.call("is null", [tested], SqlType(BOOLEAN), nullable=False)
    nothing = TypedTerm(Constant(None, typed.type.type), typed.type, True)
    return lower.call("case", [is_null, nothing, typed], typed.type, nullable=True)


def _is_same(one: SqlType, to: SqlType) -> bool:
    """Whether every value of a type is one of the other as it is: integers may get wider, and structs other names."""
    if one == VOID or one.widens_to(to):
        return True
    pairs = zip(one.fields, to.fields, strict=False)
    return bool(one.fields) and one.type.kind is to.type.kind and all(_is_same(a, b) for (_, a), (_, b) in pairs)


def struct_value(lower: ExpressionLowering, named: Sequence[tuple[str, TypedTerm]]) -> TypedTerm:
    """A struct of these fields."""
    gives = struct_of((name, typed.type) for name, typed in named)
    return lower.call("named_struct", [typed for _, typed in named], gives, nullable=False)
