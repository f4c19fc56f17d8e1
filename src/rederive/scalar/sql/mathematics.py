"""Functions of numbers with fixed types: roots, logarithms, angles, bases and bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from rederive.ir.floats import NAN, canonical
from rederive.scalar.failures import ScalarError
from rederive.scalar.float_power import power
from rederive.scalar.sql.built_in import BuiltIn, Implementation

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_64: Final = 2**64
_EVEN: Final = Context(prec=1000, rounding=ROUND_HALF_EVEN)


def _ieee(function: Callable[..., float], beyond: Callable[..., float] = lambda *_: math.inf) -> Implementation:
    """A function of doubles: NaN outside of its domain, and where it overflows the infinity that `beyond` gives."""

    def compute(*values: float) -> float:
        try:
            return canonical(float(function(*values)))
        except (OverflowError, ZeroDivisionError):
            return beyond(*values)
        except ValueError:
            return NAN

    return compute


def _signed(value: float) -> float:
    return math.copysign(math.inf, value)


def _atanh(value: float) -> float:
    return _signed(value) if abs(value) == 1 else math.atanh(value)


def _sign(value: float) -> float:
    return value if math.isnan(value) else float((value > 0) - (value < 0))


def _log(function: Callable[[float], float], above: float = 0.0) -> Implementation:
    """A logarithm, which is NULL for values that have none."""
    return lambda value: canonical(function(value)) if value > above else None


def _log_of_base(base: float, value: float) -> float | None:
    if base <= 0 or value <= 0:
        return None
    # Java divides by zero where the base is 1.
    quotient = _ieee(lambda b, x: math.log(x) / math.log(b), lambda b, x: _signed(math.log(x)) if x != 1 else NAN)
    return quotient(base, value)  # type: ignore[no-any-return]


def _cube_root(value: float) -> float:
    if not math.isfinite(value):
        return value
    root = round(abs(value) ** (1 / 3))
    # The root of a cube is exact, as in Java; the power alone is off by one bit.
    found = float(root) if float(root) ** 3 == abs(value) else math.cbrt(abs(value))
    return math.copysign(found, value)


def _width_bucket(value: float, low: float, high: float, buckets: int) -> int | None:
    if buckets <= 0 or buckets == 2**63 - 1 or low == high or math.isnan(value):
        return None
    if not (math.isfinite(low) and math.isfinite(high)):
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
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "NaN")
    rounded = _EVEN.quantize(Decimal(value), Decimal(1).scaleb(-places))
    text = f"{rounded:,f}"
    return text if rounded else text.removeprefix("-") if not str(value).startswith("-") else f"-{text.removeprefix('-')}"


MATHEMATICS: Final = (
    BuiltIn("sqrt", "double -> double", _ieee(math.sqrt)),
    BuiltIn("cbrt", "double -> double", _cube_root),
    BuiltIn("exp", "double -> double", _ieee(math.exp)),
    BuiltIn("expm1", "double -> double", _ieee(math.expm1)),
    BuiltIn("power", "double, double -> double", power, aliases=("pow",)),
    BuiltIn("ln", "double -> double", _log(math.log), maybe_null=True),
    BuiltIn("log10", "double -> double", _log(math.log10), maybe_null=True),
    BuiltIn("log2", "double -> double", _log(math.log2), maybe_null=True),
    BuiltIn("log1p", "double -> double", _log(math.log1p, -1.0), maybe_null=True),
    BuiltIn("log", "double, double -> double", _log_of_base, maybe_null=True),
    BuiltIn("sign", "double -> double", _sign, aliases=("signum",)),
    BuiltIn("rint", "double -> double", lambda value: canonical(float(round(value))) if math.isfinite(value) else value),
    BuiltIn("hypot", "double, double -> double", _ieee(math.hypot)),
    BuiltIn("degrees", "double -> double", _ieee(lambda x: x * (180.0 / math.pi))),
    BuiltIn("radians", "double -> double", _ieee(lambda x: x * (math.pi / 180.0))),
    BuiltIn("sin", "double -> double", _ieee(math.sin)),
    BuiltIn("cos", "double -> double", _ieee(math.cos)),
    BuiltIn("tan", "double -> double", _ieee(math.tan)),
    BuiltIn("cot", "double -> double", _ieee(lambda x: 1 / math.tan(x))),
    BuiltIn("sec", "double -> double", _ieee(lambda x: 1 / math.cos(x))),
    BuiltIn("csc", "double -> double", _ieee(lambda x: 1 / math.sin(x))),
    BuiltIn("asin", "double -> double", _ieee(math.asin)),
    BuiltIn("acos", "double -> double", _ieee(math.acos)),
    BuiltIn("atan", "double -> double", _ieee(math.atan)),
    BuiltIn("atan2", "double, double -> double", _ieee(math.atan2)),
    BuiltIn("sinh", "double -> double", _ieee(math.sinh, _signed)),
    BuiltIn("cosh", "double -> double", _ieee(math.cosh)),
    BuiltIn("tanh", "double -> double", _ieee(math.tanh)),
    BuiltIn("asinh", "double -> double", _ieee(math.asinh)),
    BuiltIn("acosh", "double -> double", _ieee(math.acosh)),
    BuiltIn("atanh", "double -> double", _ieee(_atanh)),
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
