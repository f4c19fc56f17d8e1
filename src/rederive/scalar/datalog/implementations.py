"""What the functors of Datalog compute, by name and by the kind of their first argument."""

from __future__ import annotations

import datetime
import math
import operator
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from rederive.ir.floats import canonical
from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, TIMESTAMP, UNSIGNED, Kind, Type, Value
from rederive.scalar.failures import ScalarError, join_texts
from rederive.scalar.float_power import power
from rederive.values import INTEGER_RANGES, from_python, from_text, not_finite_text


def functor_function(name: str, first: Type, arity: int) -> Callable[..., Any]:
    """The function that computes a functor on values; its first argument has this type."""
    if first.kind is Kind.UNSIGNED and name == "bnot":
        return lambda a: a ^ INTEGER_RANGES[Kind.UNSIGNED][1]
    # Integers of Python have no width: the result of every operation is checked for 64 bits.
    if first.kind in INTEGER_RANGES and name in _INTEGER:
        low, high = INTEGER_RANGES[first.kind]
        return _within(_INTEGER[name], low, high, name)
    if name == "-" and arity == 1:
        return operator.neg if first.kind is not Kind.FLOAT else lambda a: canonical(-a)
    if first.kind is Kind.DECIMAL and name in _DECIMAL:
        return _decimal(name, first)
    if first.kind is Kind.FLOAT and name in _FLOAT:
        return _FLOAT[name]
    return _GENERAL[name]


def _within(function: Callable[..., int], low: int, high: int, name: str) -> Callable[..., int]:
    def checked(*arguments: int) -> int:
        result = function(*arguments)
        if low <= result <= high:
            return result
        raise ScalarError(f"{name} overflows 64 bits: {', '.join(map(str, arguments))}")

    return checked


def _divide(a: int, b: int) -> int:
    """Divide and round toward zero, as Soufflé and SQL do."""
    if b == 0:
        raise ScalarError(f"division by zero: {a} / 0")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise ScalarError(f"division by zero: {a} % 0")
    # a = b * (a / b) + a % b, where / rounds toward zero: the remainder has the sign of the dividend.
    return a - b * _divide(a, b)


def _power(a: int, b: int) -> int:
    if b < 0:
        raise ScalarError(f"negative exponent: {a} ^ {b}")
    if abs(a) > 1 and b > 64:  # refused before Python computes a number of many digits
        raise ScalarError(f"^ overflows 64 bits: {a}, {b}")
    return int(a**b)


def _minus(a: int, b: int | None = None) -> int:
    return -a if b is None else a - b


def _shift_left(a: int, b: int) -> int:
    # Soufflé takes the count modulo the width of 64 bits.
    return a << (b % 64)


_INTEGER: dict[str, Callable[..., int]] = {
    "+": operator.add,
    "-": _minus,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
    "^": _power,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
    "bnot": operator.invert,
    "bshl": _shift_left,
    "bshr": lambda a, b: a >> (b % 64),
    # The logical operators of Soufflé take numbers, and give 0 or 1.
    "land": lambda a, b: int(bool(a) and bool(b)),
    "lor": lambda a, b: int(bool(a) or bool(b)),
    "lxor": lambda a, b: int(bool(a) != bool(b)),
    "lnot": lambda a: int(not a),
}


def _divide_floats(a: float, b: float) -> float:
    """As in SQL, a division by zero fails."""
    if b == 0:
        raise ScalarError(f"division by zero: {a} / {b}")
    return canonical(a / b)


_FLOAT: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: canonical(a + b),
    "-": lambda a, b: canonical(a - b),
    "*": lambda a, b: canonical(a * b),
    "/": _divide_floats,
    "^": power,
}


def _decimal(name: str, type_: Type) -> Callable[[Decimal, Decimal], Decimal]:
    """The function with a result in the type of its arguments: rounded half up to the scale; too many digits fail."""
    unit, limit = Decimal(1).scaleb(-type_.scale), Decimal(10) ** (type_.precision - type_.scale)
    function = _DECIMAL[name]

    def checked(a: Decimal, b: Decimal) -> Decimal:
        if b == 0 and name == "/":
            raise ScalarError(f"division by zero: {a} / {b}")
        result = _EXACT.quantize(function(a, b), unit)
        if abs(result) >= limit:
            raise ScalarError(f"{result} does not fit {type_}")
        return result

    return checked


_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)  # more than twice the 38 digits of a decimal: products are exact
_DECIMAL: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": _EXACT.add,
    "-": _EXACT.subtract,
    "*": _EXACT.multiply,
    "/": _EXACT.divide,
}


def _substr(text: str, start: int, length: int) -> str:
    """A part of a text, empty if it starts outside and shorter if it ends outside; a negative length means to the end."""
    if start < 0:
        return ""
    return text[start : start + length] if length >= 0 else text[start:]


def _converted(type_: Type) -> Callable[[Any], Value]:
    """A conversion to a type: text is read as in a facts file, and numbers are truncated to integers."""

    def convert(value: Any) -> Value:
        try:
            if isinstance(value, str):
                return from_text(value, type_)
            if type_.kind in INTEGER_RANGES:
                return from_python(int(value), type_)
            if type_.kind is Kind.DATE and isinstance(value, datetime.datetime):
                return value.date()
            if type_.kind is Kind.TIMESTAMP:
                return datetime.datetime(value.year, value.month, value.day)
            return from_python(float(value), type_)
        except (ValueError, OverflowError) as error:
            raise ScalarError(str(error)) from None

    return convert


def to_string(value: Any) -> str:
    """The text of a value, as a program writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return not_finite_text(value)
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


_GENERAL: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "cat": join_texts,
    "strlen": len,
    "substr": _substr,
    # A code point (decision 0005).
    "ord": lambda text: ord(text[0]) if text else 0,
    "to_string": to_string,
    **{f"to_{t.kind.value}": _converted(t) for t in (NUMBER, UNSIGNED, FLOAT, BOOLEAN, DATE, TIMESTAMP)},
}


def contains(part: str, text: str) -> bool:
    """Whether a text contains another."""
    return part in text
