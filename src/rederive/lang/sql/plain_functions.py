"""Functions whose arguments are cast to fixed types: a call of one is a call of the scalar function with its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rederive.errors import TypeClash
from rederive.lang.sql.invocation import Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.types import (
    BIGINT,
    BOOL,
    BYTES,
    DAY,
    DOUBLE,
    DURATION,
    INT,
    MOMENT,
    SMALLINT,
    STRING,
    TINYINT,
    VOID,
    SqlType,
    decimal,
)
from rederive.scalar.sql.built_in import BuiltIn
from rederive.scalar.sql.built_ins import BUILT_INS

if TYPE_CHECKING:
    from sqlglot import exp

    from rederive.lang.sql.expressions import ExpressionLowering

_TYPES: Final[dict[str, SqlType]] = {
    "string": STRING,
    "tinyint": TINYINT,
    "smallint": SMALLINT,
    "int": INT,
    "bigint": BIGINT,
    "double": DOUBLE,
    "boolean": BOOL,
    "date": DAY,
    "timestamp": MOMENT,
    "binary": BYTES,
    "void": VOID,
    "interval": DURATION,
    "decimal": decimal(18, 6),
}


def number(lower: ExpressionLowering, node: exp.Expr) -> TypedTerm:
    """The term of an expression that must be a number."""
    typed = lower.lower(node)
    if typed.type == VOID:
        return lower.cast(typed, DOUBLE, node)
    if not typed.type.is_numeric:
        raise TypeClash(f"expected a number, not {typed.type}", lower.context.span(node))
    return typed


def cast_arguments(lower: ExpressionLowering, call: Invocation, *types: SqlType) -> list[TypedTerm]:
    """The arguments cast to these types; the last type is that of all further arguments."""
    return [lower.cast(lower.lower(part), types[min(i, len(types) - 1)], call.node) for i, part in enumerate(call.arguments)]


def call_built_in(lower: ExpressionLowering, found: BuiltIn, arguments: list[TypedTerm]) -> TypedTerm:
    """A call of a built-in function with arguments of its types."""
    return lower.call(found.name, arguments, _TYPES[found.gives], nullable=_nullable(found, arguments))


def _nullable(found: BuiltIn, arguments: list[TypedTerm]) -> bool | None:
    if found.maybe_null:
        return True
    return None if found.strict else any(argument.nullable for argument in arguments)


def plain_function(found: BuiltIn) -> SqlFunction:
    """The function that casts its arguments and calls the scalar function."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        arguments = []
        for i, part in enumerate(call.arguments):
            word = found.takes[min(i, len(found.takes) - 1)]
            arguments.append(number(lower, part) if word == "number" else lower.cast(lower.lower(part), _TYPES[word], call.node))
        return call_built_in(lower, found, arguments)

    return described(found, SqlFunction(found.least, found.most, handler))


def try_function(found: BuiltIn) -> SqlFunction:
    """The function that gives NULL where a built-in fails."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        arguments = cast_arguments(lower, call, *(_TYPES[word] for word in found.takes))
        return lower.call(f"try_{found.name}", arguments, _TYPES[found.gives], nullable=True)

    nulls = f"an argument is NULL, or {found.name} would fail"
    return SqlFunction(found.least, found.most, handler, signature=found.signature, nulls=nulls)


def described(found: BuiltIn, function: SqlFunction) -> SqlFunction:
    """The function with the description of a built-in."""
    nulls = "an argument is NULL" if found.strict else ""
    nulls += f"{', or ' if nulls else ''}the function has no value there" if found.maybe_null else ""
    return SqlFunction(
        function.least, function.most, function.lower, function.refused, found.signature, nulls or "see below", found.fallible
    )


def built_in(name: str, lower: SqlFunction | None = None) -> SqlFunction:
    """The function of a built-in, with a lowering of its own if one is given."""
    return plain_function(BUILT_INS[name]) if lower is None else described(BUILT_INS[name], lower)
