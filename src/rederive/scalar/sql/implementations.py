"""What the scalar functions of SQL compute, as Spark does in its ANSI mode. NULL is None; strict functions never see it."""

from __future__ import annotations

import calendar
import datetime
import math
import operator
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any, NoReturn

from rederive.ir.printing import show_value
from rederive.ir.terms import TIMESTAMP, UTC, Kind, Type, Value
from rederive.scalar.failures import ScalarError, check_length, join_texts
from rederive.scalar.regex.matching import has_match, like_pattern
from rederive.scalar.sql.signatures import SCALARS
from rederive.time_zones import from_wall, offset_at, parse_instant, start_of_day, to_wall
from rederive.values import from_text

Implementation = Callable[..., Any]
WIDTHS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_EXACT = Context(prec=100, rounding=ROUND_HALF_UP)
_WIDE = Context(prec=1000, rounding=ROUND_HALF_UP)  # enough for all digits of any float
_EPOCH = datetime.date(1970, 1, 1)
_SOME_DAY = datetime.datetime(2000, 1, 1)
_DAY = 86_400  # seconds
_WITHIN_A_DAY = ("day", "dd", "hour", "minute", "second", "millisecond", "microsecond")
_LEAST, _MOST = -(2**63), 2**63 - 1
_DATE = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)


def scalar_function(name: str, arguments: Sequence[Type], gives: Type) -> Implementation:
    """The function that computes a scalar function on values of these types.

    >>> from rederive.ir.terms import NUMBER
    >>> scalar_function("+", (NUMBER, NUMBER), NUMBER)(1, None) is None
    True
    """
    if name.startswith("try_"):
        return _strict(_tried(_implementation(name.removeprefix("try_"), arguments, gives)))
    function = _implementation(name, arguments, gives)
    return _strict(function) if SCALARS[name].strict else function


def membership_test(options: Sequence[Value]) -> Implementation:
    """The test whether a value is one of these constants. It gives NULL if it is none of them and one is NULL.

    NaN equals itself, as in Spark.

    >>> [membership_test([1, 2, None])(value) for value in (1, 3, None)]
    [True, None, None]
    """
    known, otherwise = frozenset(options), None if None in options else False
    has_nan = any(option != option for option in options)

    def found(value: Any) -> bool | None:
        if value is None:
            return None
        return True if value in known or (has_nan and value != value) else otherwise

    return found


def _strict(function: Implementation) -> Implementation:
    def strict(*arguments: Any) -> Any:
        return None if None in arguments else function(*arguments)

    return strict


def _tried(function: Implementation) -> Implementation:
    def tried(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ScalarError:
            return None

    return tried


def _implementation(name: str, arguments: Sequence[Type], gives: Type) -> Implementation:
    if name in WIDTHS:
        return partial(_to_integer, name)
    if name in _CASTS:
        return partial(_CASTS[name], gives)
    if name in _ROUNDED:
        return partial(_ROUNDED[name], gives)
    if name in _NUMERIC:
        return _arithmetic(name, gives)
    return _GENERAL[name]


# Numbers


def _arithmetic(name: str, gives: Type) -> Implementation:
    function, fit = _NUMERIC[name], _fitting(gives)

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
            return partial(_fit_decimal, gives)
        case Kind.FLOAT:
            return _fit_float
        case _:
            return lambda value: value


def _fit_integer(value: int) -> int:
    if -(2**63) <= value < 2**63:
        return value
    raise OverflowError


def _fit_decimal(gives: Type, value: Decimal) -> Decimal:
    result = _EXACT.quantize(value, Decimal(1).scaleb(-gives.scale))
    if abs(result) >= Decimal(10) ** (gives.precision - gives.scale):
        raise OverflowError
    return result


def _fit_float(value: Any) -> float:
    result = float(value)
    if not math.isfinite(result):
        raise OverflowError
    return result + 0.0


def _divide(a: Any, b: Any) -> Any:
    return _EXACT.divide(a, b) if isinstance(a, Decimal) else a / b


def _truncated(a: Any, b: Any) -> int:
    if b == 0:
        raise ZeroDivisionError
    quotient = int(abs(a) // abs(b))
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: Any, b: Any) -> Any:
    if b == 0:
        raise ZeroDivisionError
    if isinstance(a, float):
        return math.fmod(a, b)
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


_NUMERIC: dict[str, Implementation] = {
    "+": lambda a, b: _EXACT.add(a, b) if isinstance(a, Decimal) else a + b,
    "-": lambda a, b: _EXACT.subtract(a, b) if isinstance(a, Decimal) else a - b,
    "*": lambda a, b: _EXACT.multiply(a, b) if isinstance(a, Decimal) else a * b,
    "/": _divide,
    "div": _truncated,
    "%": _remainder,
    "negative": operator.neg,
    "abs": abs,
    "power": math.pow,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "ln": math.log,
}


def _round(gives: Type, value: Any, places: int = 0) -> Any:
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    exponent = exact.as_tuple().exponent
    assert isinstance(exponent, int)
    rounded = exact if exponent >= -places else _WIDE.quantize(exact, Decimal(1).scaleb(-places))
    return _converted(gives, rounded)


def _to_whole(rounding: str, gives: Type, value: Any) -> Any:
    """Of a float beyond 64 bits, the integer that is nearest to it, as in Java."""
    whole = Decimal(value).to_integral_value(rounding)
    return _converted(gives, max(min(whole, Decimal(_MOST)), Decimal(_LEAST)) if isinstance(value, float) else whole)


def _converted(gives: Type, value: Decimal) -> Any:
    try:
        return _fitting(gives)(int(value) if gives.kind is Kind.NUMBER else value)
    except ArithmeticError:
        raise ScalarError(f"overflow: {value} does not fit {gives}") from None


_ROUNDED: dict[str, Implementation] = {
    "round": _round,
    "floor": partial(_to_whole, ROUND_FLOOR),
    "ceil": partial(_to_whole, ROUND_CEILING),
}


# Conversions


def _to_integer(name: str, value: Any) -> int:
    bits = WIDTHS[name]
    try:
        number = _parsed_integer(value.strip()) if isinstance(value, str) else _seconds(value)
    except (ValueError, ArithmeticError):
        raise ScalarError(f"{_literal(value)} cannot be cast to {name.upper()}") from None
    if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        return number
    raise ScalarError(f"overflow: {_literal(value)} does not fit {name.upper()}")


def _parsed_integer(text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) is None:
        raise ValueError
    return int(text)


def _seconds(value: Any) -> int:
    if isinstance(value, datetime.datetime):
        return (value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(seconds=1)
    return int(value)


def _to_double(gives: Type, value: Any) -> float:
    if not isinstance(value, str):
        return _fit_float(value)
    return _from_text(gives, value)  # type: ignore[return-value]


def _to_decimal(gives: Type, value: Any) -> Decimal:
    try:
        if isinstance(value, str):
            return _fit_decimal(gives, Decimal(str(from_text(value.strip(), Type(Kind.DECIMAL, 38, 18)))))
        return _fit_decimal(gives, Decimal(repr(value)) if isinstance(value, float) else Decimal(value))
    except (ArithmeticError, ValueError):
        raise ScalarError(f"{_literal(value)} cannot be cast to {gives}") from None


def _to_boolean(gives: Type, value: Any) -> bool:
    if not isinstance(value, str):
        return bool(value)
    text = value.strip().lower()
    if text in ("t", "true", "y", "yes", "1"):
        return True
    if text in ("f", "false", "n", "no", "0"):
        return False
    raise ScalarError(f"{_literal(value)} cannot be cast to BOOLEAN")


def _to_date(gives: Type, value: Any, zone: str = UTC) -> datetime.date:
    """CAST(value AS DATE). A text has a year, and may have a month, a day, and a time, which is ignored."""
    if isinstance(value, datetime.datetime):
        return _wall(value, zone).date()
    found = _DATE.fullmatch(value.strip())
    try:
        return datetime.date(*(int(part or 1) for part in found.groups())) if found is not None else _not_a_date(value)
    except ValueError:
        return _not_a_date(value)


def _not_a_date(value: str) -> NoReturn:
    raise ScalarError(f"{_literal(value)} cannot be cast to DATE")


def _to_timestamp(gives: Type, value: Any, zone: str = UTC) -> datetime.datetime:
    try:
        return parse_instant(value.strip(), zone) if isinstance(value, str) else start_of_day(value, zone)
    except (ValueError, OverflowError):
        raise ScalarError(f"{_literal(value)} cannot be cast to TIMESTAMP") from None


def _from_text(type_: Type, text: str) -> Value:
    try:
        return from_text(text.strip(), type_)
    except ValueError:
        raise ScalarError(f"{_literal(text)} cannot be cast to {type_.kind.value.upper()}") from None


def to_text(gives: Type, value: Any, zone: str = UTC) -> str:
    """CAST(value AS STRING), as Spark writes values."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case Decimal():
            return format(value, "f")
        case datetime.datetime():
            text = _wall(value, zone).isoformat(sep=" ")
            return text.rstrip("0") if "." in text else text
        case _:
            return str(value)


def _float_text(value: float) -> str:
    """A double as Java writes it: plain between 10^-3 and 10^7, else with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    head, tail = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{head}.{tail}E{exponent + len(digits) - 1}"


def _literal(value: Value) -> str:
    return show_value(value)


_CASTS: dict[str, Implementation] = {
    "double": _to_double,
    "decimal": _to_decimal,
    "boolean": _to_boolean,
    "date": _to_date,
    "timestamp": _to_timestamp,
    "string": to_text,
}


# Text


def _substring(text: str, start: int, length: int | None = None) -> str:
    """substring, which counts from 1, or from the end if the start is negative. Without a length, it goes to the end."""
    size = len(text)
    begin = start - 1 if start > 0 else size + start if start < 0 else 0
    end = begin + (2**31 - 1 if length is None else length)
    return text[max(begin, 0) : max(end, 0)] if end > begin else ""


def _pad(text: str, length: int, fill: str, *, left: bool) -> str:
    if length <= len(text) or not fill:
        return text[: max(length, 0)]
    check_length(length)
    missing = length - len(text)
    padding = (fill * (missing // len(fill) + 1))[:missing]
    return padding + text if left else text + padding


# Dates


def _wall(instant: datetime.datetime, zone: str) -> datetime.datetime:
    try:
        return to_wall(instant, zone)
    except OverflowError:
        raise ScalarError(f"overflow: {instant} in {zone}") from None


def _instant(wall: datetime.datetime, zone: str, like: datetime.datetime) -> datetime.datetime:
    """The instant of a wall time. If clocks show the time twice, it is the instant with the offset of `like`."""
    try:
        return from_wall(wall, zone, offset_at(like, zone))
    except OverflowError:
        raise ScalarError(f"overflow: {wall} in {zone}") from None


def _on_wall(move: Implementation) -> Implementation:
    """The step of a calendar. For a timestamp in a zone, it is a step of the wall time."""

    def moved(moment: Any, amount: int, zone: str = UTC) -> Any:
        return move(moment, amount) if zone == UTC else _instant(move(_wall(moment, zone), amount), zone, moment)

    return moved


def _add_seconds(moment: datetime.datetime, amount: int, zone: str = UTC) -> Any:
    """Add seconds. In a zone, whole days are days of the calendar, and the rest is elapsed time."""
    days = _truncated(amount, _DAY) if zone != UTC else 0
    return _add("seconds", _on_wall(partial(_add, "days"))(moment, days, zone) if days else moment, amount - days * _DAY)


def _on_some_day(moment: datetime.datetime) -> datetime.datetime:
    return datetime.datetime.combine(_SOME_DAY, moment.time())


def _clock(part: Callable[[datetime.datetime], int]) -> Implementation:
    """A part of the wall time. It is computed on a fixed day, so that no zone moves it out of the calendar."""

    def shown(moment: datetime.datetime, zone: str = UTC) -> int:
        return part(moment) if zone == UTC else part(_on_some_day(moment) + offset_at(moment, zone))

    return shown


def _date_trunc(unit: str, moment: datetime.datetime, zone: str = UTC) -> datetime.datetime | None:
    if zone == UTC:
        return _cut(moment, unit)  # type: ignore[no-any-return]
    cut = _cut(_wall(moment, zone), unit)
    if cut is None or unit.lower() in _WITHIN_A_DAY:
        return cut if cut is None else _instant(cut, zone, moment)
    return _to_timestamp(TIMESTAMP, cut.date(), zone)


def _add_months(date: Any, months: int) -> Any:
    """Add months; the day is at most the last day of the resulting month."""
    year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
    try:
        return date.replace(year=year, month=month + 1, day=min(date.day, calendar.monthrange(year, month + 1)[1]))
    except (ValueError, OverflowError):
        raise ScalarError(f"overflow: {date} plus {months} months") from None


def _add(unit: str, moment: Any, amount: int) -> Any:
    try:
        return moment + datetime.timedelta(**{unit: amount})
    except OverflowError:
        raise ScalarError(f"overflow: {moment} plus {amount} {unit}") from None


def _trunc(date: Any, unit: str) -> Any:
    """The first day of a year, quarter, month or week; NULL for other units."""
    match unit.lower():
        case "year" | "yyyy" | "yy":
            return _midnight(date).replace(month=1, day=1)
        case "quarter":
            return _midnight(date).replace(month=(date.month - 1) // 3 * 3 + 1, day=1)
        case "month" | "mon" | "mm":
            return _midnight(date).replace(day=1)
        case "week":
            return _midnight(date) - datetime.timedelta(days=date.weekday())
        case _:
            return None


def _cut(moment: Any, unit: str) -> Any:
    """The first moment of a unit; NULL if there is no such unit."""
    match unit.lower():
        case "day" | "dd":
            return _midnight(moment)
        case "hour":
            return moment.replace(minute=0, second=0, microsecond=0)
        case "minute":
            return moment.replace(second=0, microsecond=0)
        case "second":
            return moment.replace(microsecond=0)
        case "millisecond":
            return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        case "microsecond":
            return moment
        case _:
            return _trunc(moment, unit)


def _midnight(date: Any) -> Any:
    return datetime.datetime(date.year, date.month, date.day) if isinstance(date, datetime.datetime) else date


def _sign(value: Any) -> float:
    return float((value > 0) - (value < 0))


def _joined_by(by: str, texts: list[str]) -> str:
    check_length(sum(map(len, texts)) + len(by) * max(len(texts) - 1, 0))
    return by.join(texts)


def _replaced(text: str, old: str, new: str) -> str:
    check_length(len(text) + text.count(old) * (len(new) - len(old)))
    return text.replace(old, new)


def _repeated(text: str, times: int) -> str:
    check_length(len(text) * times)
    return text * times


_GENERAL: dict[str, Implementation] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "<=>": operator.eq,
    "not": operator.not_,
    "is null": lambda value: value is None,
    "is not null": lambda value: value is not None,
    "greatest": lambda *values: max((v for v in values if v is not None), default=None),
    "least": lambda *values: min((v for v in values if v is not None), default=None),
    "nullif": lambda a, b: None if a is not None and a == b else a,
    "sign": _sign,
    "like": lambda text, pattern: like_pattern(pattern).fullmatch(text) is not None,
    "rlike": has_match,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": lambda text, part: part in text,
    "concat": join_texts,
    "concat_ws": lambda by, *texts: None if by is None else _joined_by(by, [text for text in texts if text is not None]),
    "length": len,
    "upper": str.upper,
    "lower": str.lower,
    "substring": _substring,
    "trim": lambda text: text.strip(" "),
    "ltrim": lambda text: text.lstrip(" "),
    "rtrim": lambda text: text.rstrip(" "),
    "replace": lambda text, old, new="": _replaced(text, old, new) if old else text,
    "instr": lambda text, part: text.find(part) + 1,
    "left": lambda text, count: text[: max(count, 0)],
    "right": lambda text, count: text[-count:] if count > 0 else "",
    "lpad": partial(_pad, left=True),
    "rpad": partial(_pad, left=False),
    "reverse": lambda text: text[::-1],
    "repeat": lambda text, times: _repeated(text, max(times, 0)),
    "add_days": _on_wall(partial(_add, "days")),
    "add_seconds": _add_seconds,
    "add_months": _on_wall(_add_months),
    "year": lambda date: date.year,
    "month": lambda date: date.month,
    "day": lambda date: date.day,
    "quarter": lambda date: (date.month + 2) // 3,
    "hour": _clock(lambda clock: clock.hour),
    "minute": _clock(lambda clock: clock.minute),
    "second": _clock(lambda clock: clock.second),
    "dayofweek": lambda date: date.isoweekday() % 7 + 1,
    "dayofyear": lambda date: date.timetuple().tm_yday,
    "weekofyear": lambda date: date.isocalendar().week,
    "last_day": lambda date: date.replace(day=calendar.monthrange(date.year, date.month)[1]),
    "datediff": lambda end, start: (end - start).days,
    "trunc": _trunc,
    "date_trunc": _date_trunc,
}
