"""The functions of Spark SQL that expressions can call: their arguments, and the scalar functions that they become."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.ir.terms import Constant
from rederive.lang.sql.invocation import Handler, Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.types import (
    BIGINT,
    BOOL,
    DAY,
    DOUBLE,
    INT,
    MOMENT,
    SMALLINT,
    STRING,
    TINYINT,
    SqlType,
    decimal,
)
from rederive.scalar.regex.java import java_pattern

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering


# Functions whose arguments have fixed types: the types of the arguments, then that of the result.
_PLAIN: Final[dict[str, tuple[tuple[SqlType, ...], SqlType]]] = {
    "length": ((STRING,), INT),
    "upper": ((STRING,), STRING),
    "lower": ((STRING,), STRING),
    "substring": ((STRING, INT, INT), STRING),
    "replace": ((STRING, STRING, STRING), STRING),
    "left": ((STRING, INT), STRING),
    "right": ((STRING, INT), STRING),
    "reverse": ((STRING,), STRING),
    "repeat": ((STRING, INT), STRING),
    "startswith": ((STRING, STRING), BOOL),
    "endswith": ((STRING, STRING), BOOL),
    "contains": ((STRING, STRING), BOOL),
    "like": ((STRING, STRING), BOOL),
    "ltrim": ((STRING,), STRING),
    "rtrim": ((STRING,), STRING),
    "instr": ((STRING, STRING), INT),
    "year": ((DAY,), INT),
    "month": ((DAY,), INT),
    "day": ((DAY,), INT),
    "quarter": ((DAY,), INT),
    "dayofweek": ((DAY,), INT),
    "dayofyear": ((DAY,), INT),
    "weekofyear": ((DAY,), INT),
    "last_day": ((DAY,), DAY),
    "datediff": ((DAY, DAY), INT),
    "hour": ((MOMENT,), INT),
    "minute": ((MOMENT,), INT),
    "second": ((MOMENT,), INT),
    "add_months": ((DAY, INT), DAY),
    "power": ((DOUBLE, DOUBLE), DOUBLE),
    "sqrt": ((DOUBLE,), DOUBLE),
    "exp": ((DOUBLE,), DOUBLE),
    "ln": ((DOUBLE,), DOUBLE),
    "sign": ((DOUBLE,), DOUBLE),
}
_OPTIONAL: Final = {"substring": 2, "replace": 2}  # the least number of arguments, if some are optional
_ALIASES: Final = {
    "len": "length",
    "char_length": "length",
    "character_length": "length",
    "ucase": "upper",
    "lcase": "lower",
    "dayofmonth": "day",
    "date_diff": "datediff",
    "pow": "power",
    "signum": "sign",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "locate": "position",
    "ceiling": "ceil",
    "dateadd": "date_add",
    "nvl": "ifnull",
}
_REFUSED: Final[dict[str, tuple[tuple[int, str, str | None], ...]]] = {
    "datediff": ((3, "a unit", "use datediff(end, start), which counts days"),),
    "like": ((3, "an escape character", "escape with a backslash"),),
    "ltrim": ((2, "the characters to remove", None),),
    "rtrim": ((2, "the characters to remove", None),),
}


def _plain(name: str) -> SqlFunction:
    takes, gives = _PLAIN[name]

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        nodes = zip(call.arguments, takes, strict=False)
        return lower.call(name, [lower.cast(lower.lower(part), type, call.node) for part, type in nodes], gives)

    return SqlFunction(_OPTIONAL.get(name, len(takes)), len(takes), handler, _REFUSED.get(name, ()))


def _lowered(lower: ExpressionLowering, call: Invocation, *types: SqlType) -> list[TypedTerm]:
    """The arguments cast to these types; the last type is that of all further arguments."""
    return [lower.cast(lower.lower(part), types[min(i, len(types) - 1)], call.node) for i, part in enumerate(call.arguments)]


# Texts


def _concat(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    if not call.arguments:
        return lower.lower(exp.Literal.string(""))
    return lower.call("concat", _lowered(lower, call, STRING), STRING)


def _concat_ws(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = _lowered(lower, call, STRING)
    # concat_ws skips arguments that are NULL; only a separator that is NULL gives NULL.
    return lower.call("concat_ws", parts, STRING, nullable=parts[0].nullable)


def _rlike(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """RLIKE; a literal pattern is checked when the statement is compiled."""
    text, pattern = _lowered(lower, call, STRING)
    if isinstance(pattern.term, Constant) and isinstance(pattern.term.value, str):
        try:
            java_pattern(pattern.term.value)
        except ValueError as error:
            hint = "write it without constructs that only Java has; see docs/sql.md for the supported patterns"
            raise lower.context.unsupported(f"this regular expression: {error}", call.node, hint) from None
    return lower.call("rlike", [text, pattern], BOOL)


def _ilike(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    # Spark defines ILIKE as LIKE of both sides in lower case.
    sides = [lower.call("lower", [side], STRING) for side in _lowered(lower, call, STRING)]
    return lower.call("like", sides, BOOL)


def _trim(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """TRIM([BOTH | LEADING | TRAILING] FROM text)."""
    node = call.node
    if node.args.get("expression") is not None:
        raise lower.context.unsupported("trim with the characters to remove", node)
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    return lower.call(name, [lower.cast(lower.lower(node.this), STRING, node)], STRING)


def _position(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    part, text = _lowered(lower, call, STRING)
    return lower.call("instr", [text, part], INT)


def _pad(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    text, width, *fill = _lowered(lower, call, STRING, INT, STRING)
    return lower.call(call.name, [text, width, *(fill or [lower.lower(exp.Literal.string(" "))])], STRING)


# Numbers


def _abs(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = _number(lower, call.arguments[0])
    # abs(-128) does not fit TINYINT.
    return _within(lower, lower.call("abs", [typed], typed.type))


def _within(lower: ExpressionLowering, typed: TypedTerm) -> TypedTerm:
    """The result of integer arithmetic, checked for the width of its type."""
    if typed.type.is_integer and typed.type.bits < 64:
        return TypedTerm(lower.call(typed.type.functor, [typed], typed.type).term, typed.type, typed.nullable)
    return typed


def _number(lower: ExpressionLowering, node: exp.Expr) -> TypedTerm:
    typed = lower.lower(node)
    if not typed.type.is_numeric:
        raise TypeClash(f"expected a number, not {typed.type}", lower.context.span(node))
    return typed


def _round(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = _number(lower, call.arguments[0])
    places = [lower.lower(node) for node in call.arguments[1:]]
    digits = places[0].term.value if places and isinstance(places[0].term, Constant) else 0 if not places else None
    if not isinstance(digits, int) or isinstance(digits, bool):
        raise lower.context.unsupported("round to a number of places that is not a literal", call.node)
    gives = typed.type
    if gives.is_decimal:
        # One more digit before the point, because rounding can add one: 9.9 becomes 10.
        scale = max(0, min(gives.type.scale, digits))
        gives = decimal(min(38, gives.type.precision - gives.type.scale + scale + 1), scale)
    return _within(lower, lower.call("round", [typed, *places], gives))


def _whole(name: str) -> Handler:
    """floor and ceil: a DECIMAL for a DECIMAL, else a BIGINT."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        typed = _number(lower, call.arguments[0])
        gives = decimal(min(38, typed.type.type.precision - typed.type.type.scale + 1), 0) if typed.type.is_decimal else BIGINT
        return lower.call(name, [typed], gives)

    return handler


def _arithmetic(operator: str) -> Handler:
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        left, right = (lower.lower(part) for part in call.arguments)
        return lower.combine(operator, left, right, call.node)

    return handler


# Choices


def _extreme(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = lower.to_common_type([lower.lower(part) for part in call.arguments], call.node)
    # greatest and least skip NULL, and are NULL only if all arguments are.
    return lower.call(call.name, parts, parts[0].type, nullable=all(part.nullable for part in parts))


def _coalesce(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    parts = lower.to_common_type([lower.lower(part) for part in call.arguments], call.node)
    return lower.call("coalesce", parts, parts[0].type, nullable=all(part.nullable for part in parts))


def _nullif(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    left, right = (lower.lower(part) for part in call.arguments)
    test = lower.comparison("=", left, right, call.node)
    nothing = lower.cast(lower.lower(exp.Null()), left.type, call.node)
    return lower.call("case", [test, nothing, left], left.type, nullable=True)


def _if(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    test, *results = call.arguments
    return lower.choice([lower.boolean(test)], [lower.lower(result) for result in results], call.node)


def _null_test(name: str) -> Handler:
    return lambda lower, call: lower.call(name, [lower.lower(call.arguments[0])], BOOL, nullable=False)


# Dates


_EXTRACTED: Final = ("year", "month", "day", "quarter", "hour", "minute")


def _extract(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """EXTRACT(unit FROM moment)."""
    node, unit = call.node, call.node.this.name.lower()
    if unit not in _EXTRACTED:
        raise lower.context.unsupported(f"extract({unit} ...)", node, f"use one of {', '.join(_EXTRACTED)}")
    needed = MOMENT if unit in ("hour", "minute") else DAY
    return lower.call(unit, [lower.cast(lower.lower(node.expression), needed, node)], INT)


def _date_add(sign: int) -> Handler:
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        moment, days = call.arguments
        shift = lower.lower(days)
        # Spark refuses BIGINT here.
        if shift.type not in (TINYINT, SMALLINT, INT, STRING):
            message = f"'{call.name}' needs a number of days as INT, not {shift.type}"
            raise TypeClash(message, lower.context.span(days), hint="cast it to INT")
        shift = lower.cast(shift, INT, call.node)
        shift = lower.call("negative", [shift], INT) if sign < 0 else shift
        return lower.call("add_days", [lower.cast(lower.lower(moment), DAY, call.node), shift], DAY)

    return handler


def _trunc(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    moment, unit = _lowered(lower, call, DAY, STRING)
    # A unit that does not exist gives NULL, and no error.
    return lower.call("trunc", [moment, unit], DAY, nullable=True)


def _date_trunc(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    unit, moment = _lowered(lower, call, STRING, MOMENT)
    return lower.call("date_trunc", [unit, moment], MOMENT, nullable=True)


def _cast(type: SqlType) -> SqlFunction:
    """The name of a type as a function: `int(x)` is CAST(x AS INT)."""
    return SqlFunction(1, 1, lambda lower, call: lower.cast(lower.lower(call.arguments[0]), type, call.node))


_FORMAT: Final = (2, "a format", "use CAST(text AS DATE) for dates such as 2024-02-29; cut others with substring")
_INTERVAL: Final = (3, "a unit", "add an INTERVAL")
_PLACES: Final = (2, "a number of places", None)
_TYPED: Final = {
    "tinyint": TINYINT,
    "smallint": SMALLINT,
    "int": INT,
    "bigint": BIGINT,
    "double": DOUBLE,
    "decimal": decimal(10, 0),
    "string": STRING,
    "boolean": BOOL,
    "date": DAY,
    "timestamp": MOMENT,
}
_OWN: Final[dict[str, SqlFunction]] = {
    **{name: _plain(name) for name in _PLAIN},
    **{name: _cast(type) for name, type in _TYPED.items()},
    "concat": SqlFunction(0, None, _concat),
    "concat_ws": SqlFunction(1, None, _concat_ws),
    "rlike": SqlFunction(2, 2, _rlike),
    "ilike": SqlFunction(2, 2, _ilike, _REFUSED["like"]),
    "trim": SqlFunction(0, 0, _trim),
    "position": SqlFunction(2, 2, _position, ((3, "a place to start at", None),)),
    "lpad": SqlFunction(2, 3, _pad),
    "rpad": SqlFunction(2, 3, _pad),
    "abs": SqlFunction(1, 1, _abs),
    "positive": SqlFunction(1, 1, lambda lower, call: _number(lower, call.arguments[0])),
    "log": SqlFunction(1, 1, _plain("ln").lower, ((2, "a base", "divide ln(x) by ln(base)"),)),
    "round": SqlFunction(1, 2, _round),
    "floor": SqlFunction(1, 1, _whole("floor"), (_PLACES,)),
    "ceil": SqlFunction(1, 1, _whole("ceil"), (_PLACES,)),
    "mod": SqlFunction(2, 2, _arithmetic("%")),
    "div": SqlFunction(2, 2, _arithmetic("div")),
    "greatest": SqlFunction(2, None, _extreme),
    "least": SqlFunction(2, None, _extreme),
    "coalesce": SqlFunction(1, None, _coalesce),
    "ifnull": SqlFunction(2, 2, _coalesce),
    "nullif": SqlFunction(2, 2, _nullif),
    "if": SqlFunction(3, 3, _if),
    "isnull": SqlFunction(1, 1, _null_test("is null")),
    "isnotnull": SqlFunction(1, 1, _null_test("is not null")),
    "extract": SqlFunction(0, 0, _extract),
    "date_add": SqlFunction(2, 2, _date_add(1), (_INTERVAL,)),
    "date_sub": SqlFunction(2, 2, _date_add(-1)),
    "trunc": SqlFunction(2, 2, _trunc),
    "date_trunc": SqlFunction(2, 2, _date_trunc),
    "to_date": SqlFunction(1, 1, _cast(DAY).lower, (_FORMAT,)),
    "to_timestamp": SqlFunction(1, 1, _cast(MOMENT).lower, (_FORMAT,)),
}
FUNCTIONS: Final[dict[str, SqlFunction]] = {**_OWN, **{alias: _OWN[name] for alias, name in _ALIASES.items()}}
