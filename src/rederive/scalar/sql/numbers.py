"""Arithmetic and rounding of SQL. A result must fit its type: overflow fails, as in Spark's ANSI mode."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, Final

from rederive.ir.floats import NAN, canonical, single
from rederive.ir.terms import Kind, Type
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn, Implementation
from rederive.values import INTEGER_RANGES

_EXACT: Final = Context(prec=100, rounding=ROUND_HALF_UP)  # more than twice the 38 digits of a decimal: products are exact
_WIDE: Final = Context(prec=1000, rounding=ROUND_HALF_UP)  # enough for all digits of any float
_LEAST, _MOST = INTEGER_RANGES[Kind.NUMBER]


def arithmetic(name: str, gives: Type) -> Implementation:
    """The function of an arithmetic operator whose result has this type."""
    function, fit = ARITHMETIC[name], _fitting(gives)

    def checked(*arguments: Any) -> Any:
        try:
            return fit(function(*arguments))
        except (ArithmeticError, ValueError):
            raise ScalarError(f"{_reason(name, arguments)}: {_shown(name, arguments)}") from None

    return checked


def _reason(name: str, arguments: Sequence[Any]) -> str:
    return "division by zero" if name in _DIVIDING and not arguments[1] else "overflow"


def _shown(name: str, arguments: Sequence[Any]) -> str:
    return f" {name} ".join(map(str, arguments)) if len(arguments) == 2 else f"{name}({', '.join(map(str, arguments))})"


def _fitting(gives: Type) -> Callable[[Any], Any]:
    match gives.kind:
        case Kind.NUMBER:
            return _fit_integer
        case Kind.DECIMAL:
            return partial(fit_decimal, gives)
        case Kind.FLOAT:
            return fit_float
        case _:
            return lambda value: value


def _fit_integer(value: int) -> int:
    if _LEAST <= value <= _MOST:
        return value
    raise OverflowError


def fit_decimal(gives: Type, value: Decimal) -> Decimal:
    """The value rounded half up to the scale of its type; OverflowError if it has too many digits."""
    result = _EXACT.quantize(value, Decimal(1).scaleb(-gives.scale))
    if abs(result) >= Decimal(10) ** (gives.precision - gives.scale):
        raise OverflowError
    return result


def fit_float(value: Any) -> float:
    """The value as a float; an integer beyond all floats does not occur."""
    return canonical(float(value))


def _divide(a: Any, b: Any) -> Any:
    return _EXACT.divide(a, b) if isinstance(a, Decimal) else a / b


def divide_toward_zero(a: Any, b: Any) -> int:
    """DIV: the quotient, rounded toward zero."""
    if b == 0:
        raise ZeroDivisionError
    # Python's // rounds down and its % has the sign of the divisor; SQL cuts toward zero.
    quotient = int(abs(a) // abs(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: Any, b: Any) -> Any:
    """%: the remainder, which has the sign of the dividend."""
    if b == 0:
        raise ZeroDivisionError
    if isinstance(a, float):
        return NAN if math.isinf(a) else math.fmod(a, b)
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _positive_remainder(a: Any, b: Any, rounded: Callable[[Any], Any] = lambda moved: moved) -> Any:
    """pmod: the remainder, moved by the divisor if it is negative; FLOAT rounds the sum to 32 bits."""
    rest = _remainder(a, b)
    return _remainder(rounded(rest + b), b) if rest < 0 else rest


_DIVIDING: Final = ("/", "div", "%", "pmod", "pmod of floats")
ARITHMETIC: Final[dict[str, Implementation]] = {
    "+": lambda a, b: _EXACT.add(a, b) if isinstance(a, Decimal) else a + b,
    "-": lambda a, b: _EXACT.subtract(a, b) if isinstance(a, Decimal) else a - b,
    "*": lambda a, b: _EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b,
    "/": _divide,
    "div": divide_toward_zero,
    "%": _remainder,
    "pmod": _positive_remainder,
    "pmod of floats": lambda a, b: _positive_remainder(a, b, single),
    "negative": operator.neg,
    "abs": abs,
}


def _round(rounding: str, gives: Type, value: Any, places: int = 0) -> Any:
    """A number rounded to places. A float is rounded as it is printed, not by its binary value, as in Spark."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    rounded = exact if exponent >= -places else exact.quantize(Decimal(1).scaleb(-places), rounding, _WIDE)
    return _fitted(gives, rounded)


def _to_whole(rounding: str, gives: Type, value: Any) -> Any:
    """floor and ceil. A float beyond 64 bits gives the nearest integer of 64 bits, as in Java."""
    if isinstance(value, float) and not math.isfinite(value):
        return 0 if math.isnan(value) else _MOST if value > 0 else _LEAST
    whole = Decimal(value).to_integral_value(rounding)
    return _fitted(gives, max(min(whole, Decimal(_MOST)), Decimal(_LEAST)) if isinstance(value, float) else whole)


def _fitted(gives: Type, value: Decimal) -> Any:
    try:
        return _fitting(gives)(int(value) if gives.kind is Kind.NUMBER else value)
    except ArithmeticError:
        raise ScalarError(f"overflow: {value} does not fit {gives}") from None


ROUNDING: Final[dict[str, Implementation]] = {
    "round": partial(_round, ROUND_HALF_UP),
    "bround": partial(_round, ROUND_HALF_EVEN),
    "floor": partial(_to_whole, ROUND_FLOOR),
    "ceil": partial(_to_whole, ROUND_CEILING),
    "floor_to": partial(_round, ROUND_FLOOR),
    "ceil_to": partial(_round, ROUND_CEILING),
}


def _bits(operation: Callable[[int, int], int]) -> Implementation:
    """A shift of an integer of so many bits. As in Java, the distance is taken modulo the width, and high bits are lost."""

    def shift(value: int, distance: int, width: int) -> int:
        found: int = operation(value, distance % width) & (2**width - 1)
        return found - 2**width if found >= 2 ** (width - 1) else found

    def shift_unsigned(value: int, distance: int, width: int) -> int:
        bits: int = value & (2**width - 1)
        return shift(bits, distance, width)

    return shift_unsigned if operation is _unsigned else shift


def _unsigned(value: int, distance: int) -> int:
    return value >> distance


def _bit(value: int, place: int, width: int) -> int:
    if not 0 <= place < width:
        raise ScalarError(f"bit {place} of an integer with {width} bits")
    return value >> place & 1


BITS: Final = (
    BuiltIn("&", "bigint, bigint -> bigint", operator.and_),
    BuiltIn("|", "bigint, bigint -> bigint", operator.or_),
    BuiltIn("^", "bigint, bigint -> bigint", operator.xor),
    BuiltIn("~", "bigint -> bigint", operator.invert),
    # The last argument of these is the width of the first one.
    BuiltIn("shiftleft", "bigint, int, int -> bigint", _bits(operator.lshift)),
    BuiltIn("shiftright", "bigint, int, int -> bigint", _bits(operator.rshift)),
    BuiltIn("shiftrightunsigned", "bigint, int, int -> bigint", _bits(_unsigned)),
    BuiltIn("bit_get", "bigint, int, int -> tinyint", _bit, fallible=True),
)
