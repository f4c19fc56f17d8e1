"""Functions of numbers with fixed types: roots, logarithms, angles, bases and bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import BuiltIn, Implementation

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_64: Final = 2**64
_EVEN: Final = Context(prec=1000, rounding=ROUND_HALF_EVEN)


def _checked(name: str, function: Callable[..., float]) -> Implementation:
    """A function of doubles. It fails where Spark gives an infinity or NaN: no value of ours is one of these."""

    def finite(*values: float) -> float:
        try:
            result = float(function(*values))
        except (ArithmeticError, ValueError):
            result = math.nan
        if not math.isfinite(result):
            raise ScalarError(f"overflow: {name}({', '.join(map(str, values))})")
        return result + 0.0

    return finite


def _log(function: Callable[[float], float], above: float = 0.0) -> Implementation:
    """A logarithm, which is NULL for values that have none."""
    return lambda value: function(value) + 0.0 if value > above else None


def _log_of_base(base: float, value: float) -> float | None:
    if base <= 0 or value <= 0:
        return None
    return _checked("log", lambda b, x: math.log(x) / math.log(b))(base, value)  # type: ignore[no-any-return]


def _cube_root(value: float) -> float:
    root = round(abs(value) ** (1 / 3))
    # The root of a cube is exact, as in Java; the power alone is off by one bit.
    found = float(root) if float(root) ** 3 == abs(value) else math.cbrt(abs(value))
    return math.copysign(found, value)


def _width_bucket(value: float, low: float, high: float, buckets: int) -> int | None:
    if buckets <= 0 or buckets == 2**63 - 1 or low == high:
        return None
    below, ascending = min(low, high), low < high
    if value < below if ascending else value > low:
        return 0
    if value >= high if ascending else value <= high:
        return buckets + 1
    part = (value - low) if ascending else (low - value)
    return int(buckets * part / abs(high - low)) + 1


def _conv(text: str, base: int, to: int) -> str | None:
    """conv: the digits of an integer in another base. A negative target base means a signed result."""
    if not (2 <= base <= 36 and 2 <= abs(to) <= 36):
        return None
    # Spark ignores whatever comes after the last digit of the base.
    text = text.strip(" ")
    if not text:
        return None
    negative, digits = text.startswith("-"), text.removeprefix("-").upper()
    value = 0
    for character in digits:
        digit = _DIGITS.find(character)
        if not 0 <= digit < base:
            break
        value = value * base + digit
        if value >= _64:
            raise ScalarError(f"overflow: conv({text!r}, {base}, {to})")
    signed = value - _64 if value >= 2**63 else value
    if negative and to > 0:
        # As in Spark, a magnitude beyond 63 bits gives the largest number.
        signed = -1 if signed < 0 else -signed
    if to < 0 and signed < 0:
        signed, negative = -signed, True
    return ("-" if negative and to < 0 else "") + _in_base(signed % _64, abs(to))


def _in_base(value: int, base: int) -> str:
    found = ""
    while value:
        value, digit = divmod(value, base)
        found = _DIGITS[digit] + found
    return found or "0"


def _format_number(value: Any, places: int) -> str | None:
    """format_number: commas between thousands; the exact value is rounded half to even, as by Java's DecimalFormat."""
    if places < 0:
        return None
    rounded = _EVEN.quantize(Decimal(value), Decimal(1).scaleb(-places))
    text = f"{rounded:,f}"
    return text if rounded else text.removeprefix("-") if not str(value).startswith("-") else f"-{text.removeprefix('-')}"


MATHEMATICS: Final = (
    BuiltIn("sqrt", "double -> double", _checked("sqrt", math.sqrt), fallible=True),
    BuiltIn("cbrt", "double -> double", _cube_root),
    BuiltIn("exp", "double -> double", _checked("exp", math.exp), fallible=True),
    BuiltIn("expm1", "double -> double", _checked("expm1", math.expm1), fallible=True),
    BuiltIn("power", "double, double -> double", _checked("power", math.pow), fallible=True, aliases=("pow",)),
    BuiltIn("ln", "double -> double", _log(math.log), maybe_null=True),
    BuiltIn("log10", "double -> double", _log(math.log10), maybe_null=True),
    BuiltIn("log2", "double -> double", _log(math.log2), maybe_null=True),
    BuiltIn("log1p", "double -> double", _log(math.log1p, -1.0), maybe_null=True),
    BuiltIn("log", "double, double -> double", _log_of_base, maybe_null=True, fallible=True),
    BuiltIn("sign", "double -> double", lambda value: float((value > 0) - (value < 0)), aliases=("signum",)),
    BuiltIn("rint", "double -> double", lambda value: float(round(value)) + 0.0),
    BuiltIn("hypot", "double, double -> double", _checked("hypot", math.hypot), fallible=True),
    BuiltIn("degrees", "double -> double", _checked("degrees", lambda x: x * (180.0 / math.pi)), fallible=True),
    BuiltIn("radians", "double -> double", lambda x: x * (math.pi / 180.0)),
    BuiltIn("sin", "double -> double", math.sin),
    BuiltIn("cos", "double -> double", math.cos),
    BuiltIn("tan", "double -> double", math.tan),
    BuiltIn("cot", "double -> double", _checked("cot", lambda x: 1 / math.tan(x)), fallible=True),
    BuiltIn("sec", "double -> double", _checked("sec", lambda x: 1 / math.cos(x)), fallible=True),
    BuiltIn("csc", "double -> double", _checked("csc", lambda x: 1 / math.sin(x)), fallible=True),
    BuiltIn("asin", "double -> double", _checked("asin", math.asin), fallible=True),
    BuiltIn("acos", "double -> double", _checked("acos", math.acos), fallible=True),
    BuiltIn("atan", "double -> double", math.atan),
    BuiltIn("atan2", "double, double -> double", lambda y, x: math.atan2(y + 0.0, x + 0.0)),
    BuiltIn("sinh", "double -> double", _checked("sinh", math.sinh), fallible=True),
    BuiltIn("cosh", "double -> double", _checked("cosh", math.cosh), fallible=True),
    BuiltIn("tanh", "double -> double", math.tanh),
    BuiltIn("asinh", "double -> double", _checked("asinh", math.asinh), fallible=True),
    BuiltIn("acosh", "double -> double", _checked("acosh", math.acosh), fallible=True),
    BuiltIn("atanh", "double -> double", _checked("atanh", math.atanh), fallible=True),
    BuiltIn("e", "-> double", lambda: math.e),
    BuiltIn("pi", "-> double", lambda: math.pi),
    BuiltIn("factorial", "int -> bigint", lambda n: math.factorial(n) if 0 <= n <= 20 else None, maybe_null=True),
    BuiltIn("width_bucket", "double, double, double, bigint -> bigint", _width_bucket, maybe_null=True),
    BuiltIn("conv", "string, int, int -> string", _conv, maybe_null=True, fallible=True),
    BuiltIn("bin", "bigint -> string", lambda value: f"{value % _64:b}"),
    BuiltIn("hex_of_number", "bigint -> string", lambda value: f"{value % _64:X}"),
    BuiltIn("hex_of_text", "string -> string", lambda text: text.encode().hex().upper()),
    BuiltIn("bit_count", "bigint -> int", lambda value: (value % _64).bit_count()),
    BuiltIn("format_number", "number, int -> string", _format_number, maybe_null=True),
)
