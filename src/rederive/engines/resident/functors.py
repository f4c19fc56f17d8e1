"""What the functors of `ir.functors` compute, by name and kind of their first argument."""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from typing import Any

from rederive.ir.terms import Kind, Type

RANGES = {Kind.NUMBER: (-(2**63), 2**63 - 1), Kind.UNSIGNED: (0, 2**64 - 1)}


class FunctorError(Exception):
    """A functor is not defined for its arguments. The rule that called it turns this into an EvaluationError."""


def implementation(name: str, first: Type, arity: int) -> Callable[..., Any]:
    """The function that evaluates a functor on values whose first argument has this type."""
    if first.kind is Kind.UNSIGNED and name == "bnot":
        return lambda a: a ^ RANGES[Kind.UNSIGNED][1]
    if first.kind in RANGES and name in _INTEGER:
        low, high = RANGES[first.kind]
        return _within(_INTEGER[name], low, high, name)
    if name == "-" and arity == 1:
        return operator.neg
    if first.kind is Kind.DECIMAL and name in _DECIMAL:
        return _decimal(_DECIMAL[name], first)
    if first.kind is Kind.FLOAT and name in _FLOAT:
        return _FLOAT[name]
    return _GENERAL[name]


def _within(function: Callable[..., int], low: int, high: int, name: str) -> Callable[..., int]:
    def checked(*arguments: int) -> int:
        result = function(*arguments)
        if low <= result <= high:
            return result
        raise FunctorError(f"{name} overflows 64 bits: {', '.join(map(str, arguments))}")

    return checked


def _divide(a: int, b: int) -> int:
    """Toward zero, as Soufflé and SQL do."""
    if b == 0:
        raise FunctorError(f"division by zero: {a} / 0")
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise FunctorError(f"division by zero: {a} % 0")
    return a - b * _divide(a, b)


def _power(a: int, b: int) -> int:
    if b < 0:
        raise FunctorError(f"negative exponent: {a} ^ {b}")
    if abs(a) > 1 and b > 64:
        raise FunctorError(f"^ overflows 64 bits: {a}, {b}")
    return int(a**b)


def _minus(a: int, b: int | None = None) -> int:
    return -a if b is None else a - b


def _shift_left(a: int, b: int) -> int:
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
    "land": lambda a, b: int(bool(a) and bool(b)),
    "lor": lambda a, b: int(bool(a) or bool(b)),
    "lxor": lambda a, b: int(bool(a) != bool(b)),
    "lnot": lambda a: int(not a),
}


def _finite(function: Callable[[float, float], float], symbol: str) -> Callable[[float, float], float]:
    def checked(a: float, b: float) -> float:
        try:
            result = function(a, b)
        except (ZeroDivisionError, OverflowError) as error:
            raise FunctorError(f"{error}: {a} {symbol} {b}") from None
        if isinstance(result, complex):
            raise FunctorError(f"not a real number: {a} {symbol} {b}")
        return result

    return checked


_FLOAT: dict[str, Callable[..., float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _finite(operator.truediv, "/"),
    "^": _finite(operator.pow, "^"),
}


def _decimal(function: Callable[[Decimal, Decimal], Decimal], type_: Type) -> Callable[[Decimal, Decimal], Decimal]:
    """The result in the type of the arguments, rounded half up to its scale; too many digits are an error."""
    unit, limit = Decimal(1).scaleb(-type_.scale), Decimal(10) ** (type_.precision - type_.scale)

    def checked(a: Decimal, b: Decimal) -> Decimal:
        if b == 0 and function is operator.truediv:
            raise FunctorError(f"division by zero: {a} / {b}")
        result = function(a, b).quantize(unit, ROUND_HALF_UP)
        if abs(result) >= limit:
            raise FunctorError(f"{result} does not fit {type_}")
        return result

    return checked


_DECIMAL: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def _substr(text: str, start: int, length: int) -> str:
    return text[max(start, 0) : max(start, 0) + max(length, 0)]


def _to_integer(value: Any, kind: Kind) -> int:
    try:
        number = int(value) if not isinstance(value, str) else int(value, 10)
    except (ValueError, OverflowError):
        raise FunctorError(f"not a {kind.value}: {value!r}") from None
    low, high = RANGES[kind]
    if not low <= number <= high:
        raise FunctorError(f"out of range for {kind.value}: {value!r}")
    return number


def _convert(function: Callable[[Any], Any], what: str) -> Callable[[Any], Any]:
    def converted(value: Any) -> Any:
        try:
            return function(value)
        except (ValueError, KeyError):
            raise FunctorError(f"not a {what}: {value!r}") from None

    return converted


def _to_date(value: str | datetime.datetime) -> datetime.date:
    return value.date() if isinstance(value, datetime.datetime) else datetime.date.fromisoformat(value)


def _to_timestamp(value: str | datetime.date) -> datetime.datetime:
    if isinstance(value, str):
        return datetime.datetime.fromisoformat(value)
    return datetime.datetime(value.year, value.month, value.day)


def to_string(value: Any) -> str:
    """As the value is written in a program."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


_GENERAL: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "cat": lambda *texts: "".join(texts),
    "strlen": len,
    "substr": _substr,
    "ord": lambda text: ord(text[0]) if text else 0,
    "to_string": to_string,
    "to_number": lambda value: _to_integer(value, Kind.NUMBER),
    "to_unsigned": lambda value: _to_integer(value, Kind.UNSIGNED),
    "to_float": _convert(float, "float"),
    "to_boolean": _convert({"true": True, "false": False}.__getitem__, "boolean"),
    "to_date": _convert(_to_date, "date"),
    "to_timestamp": _convert(_to_timestamp, "timestamp"),
}


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise FunctorError(f"not a regular expression: {text!r}: {error}") from None


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches the pattern."""
    return _pattern(pattern).fullmatch(text) is not None


def contains(part: str, text: str) -> bool:
    return part in text
