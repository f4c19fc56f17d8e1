"""Functions of numbers whose type follows from their arguments: rounding, remainders, tries and bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.ir.terms import NUMBER, Constant
from rederive.lang.sql.invocation import Handler, Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.plain_functions import built_in, number
from rederive.lang.sql.types import (
    BIGINT,
    BOOL,
    DOUBLE,
    INT,
    MAX_PRECISION,
    SINGLE,
    STRING,
    TINYINT,
    SqlType,
    as_decimal,
    decimal,
)
from rederive.scalar.sql.number_formats import NumberFormat, number_format

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

# What Spark takes a DOUBLE and a FLOAT for in floor(x, n) and ceil(x, n).
_AS_DECIMAL: Final = {DOUBLE: decimal(30, 15), SINGLE: decimal(14, 7)}


def within(lower: ExpressionLowering, typed: TypedTerm) -> TypedTerm:
    """The result of arithmetic in 64 bits in its own width: an integer is checked, and a FLOAT is rounded."""
    if typed.type.width < 64:
        return TypedTerm(lower.call(typed.type.functor, [typed], typed.type).term, typed.type, typed.nullable)
    return typed


def _abs(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = number(lower, call.arguments[0])
    # abs(-128) does not fit TINYINT.
    return within(lower, lower.call("abs", [typed], typed.type))


def _places(lower: ExpressionLowering, call: Invocation) -> int:
    places = [lower.lower(node) for node in call.arguments[1:]]
    digits = places[0].term.value if places and isinstance(places[0].term, Constant) else 0 if not places else None
    if not isinstance(digits, int) or isinstance(digits, bool):
        raise lower.context.unsupported(f"{call.name} to a number of places that is not a literal", call.node)
    return digits


def _constant(value: int) -> TypedTerm:
    return TypedTerm(Constant(value, NUMBER), INT, False)


def _rounded_type(given: SqlType, places: int) -> SqlType:
    """The type of a DECIMAL that is rounded: one more digit before the point, because 9.9 becomes 10."""
    whole = given.type.precision - given.type.scale
    if places < 0:
        # Rounding to tens or hundreds keeps at least so many digits.
        return decimal(min(MAX_PRECISION, max(whole, -places) + 1), 0)
    scale = min(given.type.scale, places)
    return decimal(min(MAX_PRECISION, whole + scale + 1), scale)


def _round(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed, places = number(lower, call.arguments[0]), _places(lower, call)
    gives = _rounded_type(typed.type, places) if typed.type.is_decimal else typed.type
    parts = [typed, *([_constant(places)] if call.arguments[1:] else [])]
    return within(lower, lower.call(call.name, parts, gives))


def _whole(name: str) -> Handler:
    """floor and ceil: a DECIMAL for a DECIMAL, else a BIGINT; with places, always a DECIMAL."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        typed = number(lower, call.arguments[0])
        if not call.arguments[1:]:
            given = typed.type.type
            gives = decimal(min(MAX_PRECISION, given.precision - given.scale + 1), 0) if typed.type.is_decimal else BIGINT
            return lower.call(name, [typed], gives)
        places = _places(lower, call)
        exact = _AS_DECIMAL.get(typed.type) or as_decimal(typed.type)
        return lower.call(f"{name}_to", [lower.cast(typed, exact, call.node), _constant(places)], _rounded_type(exact, places))

    return handler


def _arithmetic(operator: str) -> Handler:
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        left, right = (lower.lower(part) for part in call.arguments)
        return lower.combine(operator, left, right, call.node)

    return handler


def _try(operator: str) -> Handler:
    """try_add and its like: NULL where the operator fails."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        left, right = (lower.lower(part) for part in call.arguments)
        return lower.combine(operator, left, right, call.node, attempt=True)

    return handler


def _log(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    arguments = [lower.cast(lower.lower(part), DOUBLE, call.node) for part in call.arguments]
    return lower.call("ln" if len(arguments) == 1 else "log", arguments, DOUBLE, nullable=True)


def integer(lower: ExpressionLowering, node: exp.Expr) -> TypedTerm:
    """The term of an expression that must be an integer."""
    typed = lower.lower(node)
    if not typed.type.is_integer:
        raise TypeClash(f"expected an integer, not {typed.type}", lower.context.span(node), hint="cast it to BIGINT")
    return typed


def bits(name: str) -> Handler:
    """A bit operator: & | ^ ~ in the widest type of the operands, and shifts."""
    if name.startswith("shift"):
        return _shift(name)

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        sides = [integer(lower, part) for part in call.arguments]
        return lower.call(name, sides, max((side.type for side in sides), key=lambda type: type.bits))

    return handler


def _shift(name: str) -> Handler:
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        value, distance = integer(lower, call.arguments[0]), lower.cast(lower.lower(call.arguments[1]), INT, call.node)
        # Spark shifts integers of fewer than 32 bits as INT.
        gives = BIGINT if value.type == BIGINT else INT
        return lower.call(name, [value, distance, _constant(gives.bits)], gives)

    return handler


def _bit_get(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    value, place = integer(lower, call.arguments[0]), lower.cast(lower.lower(call.arguments[1]), INT, call.node)
    return lower.call("bit_get", [value, place, _constant(value.type.bits)], TINYINT)


def _number_format(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """The format that is the second argument: a literal, checked when the statement is compiled."""
    typed = lower.cast(lower.lower(call.arguments[1]), STRING, call.node)
    if not isinstance(typed.term, Constant):
        hint = "write the format as a text, such as '999,999.99'"
        raise lower.context.unsupported(f"{call.name} with a format that is not a literal", call.node, hint)
    try:
        _read_format(typed)
    except ValueError as error:
        hint = "write [MI | S] [$] 0, 9 and , or G [. or D 0 and 9] [PR | MI | S]"
        raise TypeClash(str(error), lower.context.span(call.node), hint=hint) from None
    return typed


def _read_format(typed: TypedTerm) -> NumberFormat:
    value = typed.term.value if isinstance(typed.term, Constant) else None
    return number_format(value if isinstance(value, str) else "9" * 10)


def _to_number(attempt: bool) -> Handler:
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        text, format = lower.cast(lower.lower(call.arguments[0]), STRING, call.node), _number_format(lower, call)
        read = _read_format(format)
        gives = decimal(read.precision, read.places)
        return lower.call("try_to_number" if attempt else "to_number", [text, format], gives, nullable=attempt or None)

    return handler


def number_text(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """to_char of a number."""
    typed = lower.lower(call.arguments[0])
    typed = lower.cast(typed, decimal(38, 18), call.node) if typed.type == STRING else number(lower, call.arguments[0])
    exact = _AS_DECIMAL.get(typed.type) or as_decimal(typed.type)
    value = lower.cast(typed, exact, call.node)
    return lower.call("number text", [value, _number_format(lower, call)], STRING)


def _bit_count(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = lower.lower(call.arguments[0])
    return lower.call("bit_count", [lower.cast(typed, INT, call.node) if typed.type == BOOL else typed], INT)


_NUMBERS: Final = "number, number -> number"
_INTEGERS: Final = "integer, integer -> integer"
_TRIED: Final = "an argument is NULL, or the operator would fail"
NUMBER_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    "abs": SqlFunction(1, 1, _abs, signature="number -> number", fails=True),
    "positive": SqlFunction(1, 1, lambda lower, call: number(lower, call.arguments[0]), signature="number -> number"),
    "negative": SqlFunction(
        1, 1, lambda lower, call: lower.negative(exp.Neg(this=call.arguments[0])), signature="number -> number", fails=True
    ),
    "log": SqlFunction(
        1, 2, _log, signature="[double], double -> double", nulls="an argument is NULL or not positive", fails=True
    ),
    "round": SqlFunction(1, 2, _round, signature="number, [int literal] -> number", fails=True),
    "bround": SqlFunction(1, 2, _round, signature="number, [int literal] -> number", fails=True),
    "floor": SqlFunction(1, 2, _whole("floor"), signature="number, [int literal] -> bigint or decimal", fails=True),
    "ceil": SqlFunction(1, 2, _whole("ceil"), signature="number, [int literal] -> bigint or decimal", fails=True),
    "mod": SqlFunction(2, 2, _arithmetic("%"), signature=_NUMBERS, fails=True),
    "pmod": SqlFunction(2, 2, _arithmetic("pmod"), signature=_NUMBERS, fails=True),
    "div": SqlFunction(2, 2, _arithmetic("div"), signature=_NUMBERS, fails=True),
    "try_add": SqlFunction(2, 2, _try("+"), signature=_NUMBERS, nulls=_TRIED),
    "try_subtract": SqlFunction(2, 2, _try("-"), signature=_NUMBERS, nulls=_TRIED),
    "try_multiply": SqlFunction(2, 2, _try("*"), signature=_NUMBERS, nulls=_TRIED),
    "try_divide": SqlFunction(2, 2, _try("/"), signature=_NUMBERS, nulls=_TRIED),
    "try_mod": SqlFunction(2, 2, _try("%"), signature=_NUMBERS, nulls=_TRIED),
    "shiftleft": SqlFunction(2, 2, _shift("shiftleft"), signature=_INTEGERS),
    "shiftright": SqlFunction(2, 2, _shift("shiftright"), signature=_INTEGERS),
    "shiftrightunsigned": SqlFunction(2, 2, _shift("shiftrightunsigned"), signature=_INTEGERS),
    "bit_get": SqlFunction(2, 2, _bit_get, signature="integer, int -> tinyint", fails=True),
    "to_number": SqlFunction(2, 2, _to_number(attempt=False), signature="string, string literal -> decimal", fails=True),
    "try_to_number": SqlFunction(
        2, 2, _to_number(attempt=True), signature="string, string literal -> decimal",
        nulls="an argument is NULL, or the text has no such format",
    ),
    "bit_count": built_in("bit_count", SqlFunction(1, 1, _bit_count)),
}  # fmt: skip
