"""Functions that choose among their arguments, and casts that are written as calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.lang.sql.invocation import Handler, Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.plain_functions import cast_arguments
from rederive.lang.sql.types import (
    BIGINT,
    BOOL,
    DAY,
    DOUBLE,
    INT,
    MOMENT,
    SINGLE,
    SMALLINT,
    STRING,
    TINYINT,
    SqlType,
    decimal,
)

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering


def _extreme(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = lower.to_common_type([lower.lower(part) for part in call.arguments], call.node)
    # greatest and least skip NULL, and are NULL only if all arguments are.
    return lower.call(call.name, parts, parts[0].type, nullable=all(part.nullable for part in parts))


def _coalesce(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = lower.to_common_type([lower.lower(part) for part in call.arguments], call.node)
    return lower.call("coalesce", parts, parts[0].type, nullable=all(part.nullable for part in parts))


def _nullif(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    left, right = (lower.lower(part) for part in call.arguments)
    return _null_if(lower, left, right, call.node)


def _null_if(lower: ExpressionLowering, left: TypedTerm, right: TypedTerm, node: exp.Expr) -> TypedTerm:
    test = lower.comparison("=", left, right, node)
    nothing = lower.cast(lower.lower(exp.Null()), left.type, node)
    return lower.call("case", [test, nothing, left], left.type, nullable=True)


def _zero(lower: ExpressionLowering) -> TypedTerm:
    return lower.lower(exp.Literal.number(0))


def _zero_if_null(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = lower.to_common_type([lower.lower(call.arguments[0]), _zero(lower)], call.node)
    return lower.call("coalesce", parts, parts[0].type, nullable=False)


def _if(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    test, *results = call.arguments
    return lower.choice([lower.boolean(test)], [lower.lower(result) for result in results], call.node)


def _nvl2(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    tested, *results = (lower.lower(part) for part in call.arguments)
    return lower.choice([lower.call("is not null", [tested], BOOL, nullable=False)], results, call.node)


def _decode(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """decode(value, search, result, ..., [default]), in which NULL finds NULL."""
    value, *pairs = (lower.lower(part) for part in call.arguments)
    # As in Spark, the NULL of a missing default is a STRING, which widens integers to BIGINT.
    default = [pairs.pop()] if len(pairs) % 2 else [lower.cast(lower.lower(exp.Null()), STRING, call.node)]
    tests = [lower.comparison("<=>", value, search, call.node) for search in pairs[::2]]
    return lower.choice(tests, [*pairs[1::2], *default], call.node)


def _null_test(name: str) -> Handler:
    return lambda lower, call: lower.call(name, [lower.lower(call.arguments[0])], BOOL, nullable=False)


def _equal_null(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    left, right = (lower.lower(part) for part in call.arguments)
    return lower.comparison("<=>", left, right, call.node)


def _is_nan(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    return lower.call("isnan", cast_arguments(lower, call, DOUBLE), BOOL, nullable=False)


def _nanvl(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """nanvl: a FLOAT of two FLOAT, else a DOUBLE."""
    sides = [lower.lower(part) for part in call.arguments]
    gives = SINGLE if all(side.type == SINGLE for side in sides) else DOUBLE
    nullable = any(side.nullable for side in sides)
    return lower.call("nanvl", [lower.cast(side, gives, call.node) for side in sides], gives, nullable=nullable)


def cast_function(type: SqlType) -> SqlFunction:
    """The name of a type as a function: `int(x)` is CAST(x AS INT)."""
    signature = f"any -> {str(type).lower()}"
    return SqlFunction(
        1, 1, lambda lower, call: lower.cast(lower.lower(call.arguments[0]), type, call.node), signature=signature, fails=True
    )


_TYPED: Final = {
    "tinyint": TINYINT,
    "smallint": SMALLINT,
    "int": INT,
    "bigint": BIGINT,
    "float": SINGLE,
    "double": DOUBLE,
    "decimal": decimal(10, 0),
    "string": STRING,
    "boolean": BOOL,
    "date": DAY,
    "timestamp": MOMENT,
}
_ALL: Final = "all arguments are NULL"
_CHOSEN: Final = "the chosen argument is NULL"
CHOICES: Final[dict[str, SqlFunction]] = {
    **{name: cast_function(type) for name, type in _TYPED.items()},
    "greatest": SqlFunction(2, None, _extreme, signature="any ... -> any", nulls=_ALL),
    "least": SqlFunction(2, None, _extreme, signature="any ... -> any", nulls=_ALL),
    "coalesce": SqlFunction(1, None, _coalesce, signature="any ... -> any", nulls=_ALL),
    "ifnull": SqlFunction(2, 2, _coalesce, signature="any, any -> any", nulls=_ALL),
    "nullif": SqlFunction(2, 2, _nullif, signature="any, any -> any", nulls="the first argument is NULL, or both are equal"),
    "nullifzero": SqlFunction(
        1, 1, lambda lower, call: _null_if(lower, lower.lower(call.arguments[0]), _zero(lower), call.node),
        signature="number -> number", nulls="the argument is NULL or 0",
    ),
    "zeroifnull": SqlFunction(1, 1, _zero_if_null, signature="number -> number", nulls="never"),
    "if": SqlFunction(3, 3, _if, signature="boolean, any, any -> any", nulls=_CHOSEN),
    "nvl2": SqlFunction(3, 3, _nvl2, signature="any, any, any -> any", nulls=_CHOSEN),
    "decode": SqlFunction(
        3, None, _decode, signature="any, any, any ... -> any", nulls="the chosen argument is NULL, or none is found"
    ),
    "equal_null": SqlFunction(2, 2, _equal_null, signature="any, any -> boolean", nulls="never"),
    "isnull": SqlFunction(1, 1, _null_test("is null"), signature="any -> boolean", nulls="never"),
    "isnotnull": SqlFunction(1, 1, _null_test("is not null"), signature="any -> boolean", nulls="never"),
    "isnan": SqlFunction(1, 1, _is_nan, signature="double -> boolean", nulls="never"),
    "nanvl": SqlFunction(
        2, 2, _nanvl, signature="double, double -> double", nulls="the first argument is NULL, or is NaN and the second is NULL"
    ),
}  # fmt: skip
