"""Arithmetic and rounding of SQL. A result must fit its type: overflow fails, as in Spark's ANSI mode."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, Final

from rederive.ir.terms import Kind, Type
from rederive.scalar.failures import ScalarError
from rederive.values import INTEGER_RANGES

Implementation = Callable[..., Any]
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
    return "division by zero" if name in ("/", "div", "%") and not arguments[1] else "overflow"


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
    """The value as a float; OverflowError if it is not finite."""
    result = float(value)
    if not math.isfinite(result):
        raise OverflowError
    return result + 0.0  # -0.0 becomes 0.0, so that equal values print alike


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
        return math.fmod(a, b)
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


ARITHMETIC: Final[dict[str, Implementation]] = {
    "+": lambda a, b: _EXACT.add(a, b) if isinstance(a, Decimal) else a + b,
    "-": lambda a, b: _EXACT.subtract(a, b) if isinstance(a, Decimal) else a - b,
    "*": lambda a, b: _EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b,
    "/": _divide,
    "div": divide_toward_zero,
    "%": _remainder,
    "negative": operator.neg,
    "abs": abs,
    "power": math.pow,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "ln": math.log,
}


def _round(gives: Type, value: Any, places: int = 0) -> Any:
    """round, half up. A float is rounded as it is printed, not by its binary value, as in Spark."""
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    rounded = exact if exponent >= -places else _WIDE.quantize(exact, Decimal(1).scaleb(-places))
    return _fitted(gives, rounded)


def _to_whole(rounding: str, gives: Type, value: Any) -> Any:
    """floor and ceil. A float beyond 64 bits gives the nearest integer of 64 bits, as in Java."""
    whole = Decimal(value).to_integral_value(rounding)
    return _fitted(gives, max(min(whole, Decimal(_MOST)), Decimal(_LEAST)) if isinstance(value, float) else whole)


def _fitted(gives: Type, value: Decimal) -> Any:
    try:
        return _fitting(gives)(int(value) if gives.kind is Kind.NUMBER else value)
    except ArithmeticError:
        raise ScalarError(f"overflow: {value} does not fit {gives}") from None


ROUNDING: Final[dict[str, Implementation]] = {
    "round": _round,
    "floor": partial(_to_whole, ROUND_FLOOR),
    "ceil": partial(_to_whole, ROUND_CEILING),
}


def sign(value: Any) -> float:
    """sign: -1.0, 0.0 or 1.0."""
    return float((value > 0) - (value < 0))
