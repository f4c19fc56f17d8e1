"""Functions of dates and timestamps that need more than a cast of their arguments: units, formats and parts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.ir.terms import UTC, Constant
from rederive.lang.sql.invocation import Handler, Invocation, SqlFunction
from rederive.lang.sql.literals import numeric_literal
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.nested_values import field_of
from rederive.lang.sql.number_functions import number_text
from rederive.lang.sql.plain_functions import built_in, cast_arguments, number
from rederive.lang.sql.text_functions import text_constant
from rederive.lang.sql.types import (
    BIGINT,
    BOOL,
    DAY,
    DOUBLE,
    DURATION,
    INT,
    MOMENT,
    SMALLINT,
    STRING,
    TINYINT,
    WALL_TIME,
    SqlType,
    decimal,
)
from rederive.scalar.sql.built_ins import BUILT_INS
from rederive.scalar.sql.calendar_steps import MICROSECONDS, MONTH_UNITS
from rederive.scalar.sql.date_formats import format_problem

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

_SECONDS: Final = decimal(16, 6)
_DEFAULT_FORMAT: Final = "yyyy-MM-dd HH:mm:ss"
# The parts of EXTRACT and date_part: their names in Spark, and the scalar function of each.
_PARTS: Final = {
    name: part
    for names, part in (
        ("year y years yr yrs", "year"),
        ("yearofweek", "yearofweek"),
        ("quarter qtr", "quarter"),
        ("month mon mons months", "month"),
        ("week w weeks", "weekofyear"),
        ("day d days", "day"),
        ("dayofweek dow", "dayofweek"),
        ("dayofweek_iso dow_iso", "weekday"),
        ("doy", "dayofyear"),
        ("hour h hours hr hrs", "hour"),
        ("minute m min mins minutes", "minute"),
        ("second s sec seconds secs", "second_with_fraction"),
    )
    for name in names.split()
}


def extract_part(lower: ExpressionLowering, name: str, moment: exp.Expr, node: exp.Expr) -> TypedTerm:
    """A part of a date or timestamp, as EXTRACT and date_part give it."""
    part = _PARTS.get(name.lower())
    if part is None:
        raise lower.context.unsupported(f"extract({name} ...)", node, f"use one of {', '.join(dict.fromkeys(_PARTS.values()))}")
    typed = lower.lower(moment)
    if typed.type == DURATION:
        return _part_of_duration(lower, part, typed, node)
    of_clock = part in ("hour", "minute", "second_with_fraction")
    argument = lower.cast(typed, MOMENT if of_clock else DAY, node)
    if part == "second_with_fraction":
        return lower.call(part, [argument], decimal(8, 6))
    found = lower.call(part, [argument], INT)
    # Monday is 1 in ISO 8601, and 0 for weekday().
    return found if not name.lower().endswith("iso") else lower.call("+", [found, lower.lower(exp.Literal.number(1))], INT)


def _part_of_duration(lower: ExpressionLowering, part: str, typed: TypedTerm, node: exp.Expr) -> TypedTerm:
    if part not in ("day", "hour", "minute", "second_with_fraction"):
        raise lower.context.unsupported(f"extract({part} ...) of an interval", node, "use DAY, HOUR, MINUTE or SECOND")
    gives = {"second_with_fraction": decimal(8, 6), "day": INT}.get(part, TINYINT)
    return lower.call("interval part", [text_constant(part.partition("_")[0].upper()), typed], gives)


def _extract(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """EXTRACT(part FROM moment)."""
    return extract_part(lower, call.node.this.name, call.node.expression, call.node)


def _date_part(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    name = lower.lower(call.arguments[0]).term
    if not isinstance(name, Constant) or not isinstance(name.value, str):
        raise lower.context.unsupported(f"{call.name} of a part that is not a literal", call.node)
    return extract_part(lower, name.value, call.arguments[1], call.node)


def _unit(lower: ExpressionLowering, call: Invocation) -> str:
    """The unit that is the first argument, written as a word."""
    node = call.arguments[0]
    name = node.name.upper() if isinstance(node, exp.Column) and node.args.get("table") is None else ""
    name = {"DAYOFYEAR": "DAY"}.get(name, name)
    if name not in MICROSECONDS and name not in MONTH_UNITS:
        hint = f"write one of {', '.join((*MONTH_UNITS, *MICROSECONDS))} as the first argument"
        raise lower.context.unsupported(f"{call.name} with this unit", node, hint)
    return name


def _difference(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """datediff(end, start), or datediff(unit, start, end)."""
    if len(call.arguments) == 2:
        return lower.call("datediff", cast_arguments(lower, call, DAY), INT)
    unit = _unit(lower, call)
    moments = [lower.cast(lower.lower(part), MOMENT, call.node) for part in call.arguments[1:]]
    return lower.call("timestampdiff", [text_constant(unit), *moments], BIGINT)


def _add_units(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """timestampadd(unit, amount, moment)."""
    unit = _unit(lower, call)
    amount = lower.cast(lower.lower(call.arguments[1]), BIGINT, call.node)
    moment = lower.cast(lower.lower(call.arguments[2]), MOMENT, call.node)
    return lower.step(moment, amount, unit)


def _date_add(sign: int) -> Handler:
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        if len(call.arguments) == 3:
            return _add_units(lower, call)
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


# Formats


def _format(lower: ExpressionLowering, call: Invocation, place: int, *, parses: bool) -> TypedTerm:
    """The format that is an argument: a literal, checked when the statement is compiled."""
    typed = lower.lower(call.arguments[place]) if place < len(call.arguments) else text_constant(_DEFAULT_FORMAT)
    pattern = typed.term.value if isinstance(typed.term, Constant) else None
    if not isinstance(pattern, str):
        raise lower.context.unsupported(
            f"{call.name} with a format that is not a literal", call.node, "write the format as a text"
        )
    if (problem := format_problem(pattern, parses=parses)) is not None:
        hint = "see docs/sql.md for the supported letters"
        raise lower.context.unsupported(f"{problem} in the format '{pattern}'", call.node, hint)
    return typed


def _date_format(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    moment = lower.cast(lower.lower(call.arguments[0]), MOMENT, call.node)
    return lower.call("date_format", [moment, _format(lower, call, 1, parses=False)], STRING)


def _parse(to: SqlType, *, attempt: bool = False) -> Handler:
    """to_date and to_timestamp, with a format or without one."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        typed = lower.lower(call.arguments[0])
        if len(call.arguments) == 1 or typed.type in (DAY, MOMENT):
            if to == MOMENT and typed.type.is_numeric and len(call.arguments) == 1:
                return _from_seconds(lower, typed)
            return lower.cast(typed, to, call.node, attempt=attempt)
        text, pattern = lower.cast(typed, STRING, call.node), _format(lower, call, 1, parses=True)
        name = "try_parse_timestamp" if attempt else "parse_timestamp"
        return lower.cast(lower.call(name, [text, pattern], MOMENT, nullable=attempt or text.nullable), to, call.node)

    return handler


def _unix_timestamp(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    moment = lower.lower(call.arguments[0])
    if moment.type not in (DAY, MOMENT):
        text = lower.cast(moment, STRING, call.node)
        moment = lower.call("parse_timestamp", [text, _format(lower, call, 1, parses=True)], MOMENT)
    return lower.call("unix_seconds", [lower.cast(moment, MOMENT, call.node)], BIGINT)


def _from_unixtime(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    seconds = lower.cast(lower.lower(call.arguments[0]), BIGINT, call.node)
    zone = [text_constant(lower.context.builder.zone)]
    return lower.call("from_unixtime", [seconds, _format(lower, call, 1, parses=False), *zone], STRING)


def _months_between(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    arguments = cast_arguments(lower, call, MOMENT, MOMENT, BOOL)
    rounds = [lower.lower(exp.true())] if len(arguments) == 2 else []
    return lower.call("months_between", [*arguments, *rounds], DOUBLE)


def _make_timestamp(attempt: bool) -> Handler:
    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        arguments = cast_arguments(lower, call, INT, INT, INT, INT, INT, _SECONDS, STRING)
        zone = [] if len(arguments) == 7 else [text_constant(lower.context.builder.zone)]
        name = "try_make_timestamp" if attempt else "make_timestamp"
        return lower.call(name, [*arguments, *zone], MOMENT, nullable=attempt or None)

    return handler


def _of_wall_time(handler: Handler) -> Handler:
    """The function whose result has no zone, which is a TIMESTAMP only in UTC."""

    def of_wall_time(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        if lower.context.builder.zone != UTC:
            hint = "use TIMESTAMP, or open the database with zone='UTC'"
            raise lower.context.unsupported(f"{call.name} in a database in another zone than UTC", call.node, hint)
        return replace(handler(lower, call), type=WALL_TIME)

    return of_wall_time


def _parse_wall_time(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """to_timestamp_ntz. A text may name a zone, which Spark ignores; a format without one reads none."""
    if len(call.arguments) == 1:
        typed = lower.lower(call.arguments[0])
        lower.check_without_zone(typed, call.node)
    else:
        pattern = lower.lower(call.arguments[1]).term
        if isinstance(pattern, Constant) and set(re.sub("'[^']*'", "", str(pattern.value))) & set("VzOXxZ"):
            raise lower.context.unsupported(f"{call.name} with a zone in the format", call.node, "use to_timestamp")
    return _parse(MOMENT)(lower, call)


def _timestamp_seconds(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    return _from_seconds(lower, number(lower, call.arguments[0]))


def _from_seconds(lower: ExpressionLowering, typed: TypedTerm) -> TypedTerm:
    return lower.call("timestamp_seconds", [typed], MOMENT, nullable=typed.type.is_float or None)


def _to_char(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """Of a date or timestamp, date_format; of a number, its text in a format."""
    return _date_format(lower, call) if lower.lower(call.arguments[0]).type in (DAY, MOMENT) else number_text(lower, call)


def window_moment(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """A timestamp, or of a window the last moment in it, as window_time gives it."""
    typed = lower.lower(call.arguments[0])
    if not typed.type.is_struct:
        return lower.cast(typed, MOMENT, call.node)
    end = lower.cast(field_of(lower, typed, "end", call.node), MOMENT, call.node)
    return lower.step(end, numeric_literal("-1"), "MICROSECOND")


def window_start(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """The start of the tumbling window of a timestamp or of another window."""
    sizes = [lower.cast(lower.lower(part), BIGINT, call.node) for part in call.arguments[1:]]
    return lower.call("window_start", [window_moment(lower, call), *sizes], MOMENT)


def _window_time(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    typed = lower.lower(call.arguments[0])
    if [name.lower() for name, _ in typed.type.fields] != ["start", "end"]:
        raise TypeClash(f"window_time takes a window, not {typed.type}", lower.context.span(call.node))
    return window_moment(lower, call)


def _convert_timezone(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
    """The time of day of one zone in another one. Spark's result has no zone, which is a TIMESTAMP only in UTC."""
    if lower.context.builder.zone != UTC:
        raise lower.context.unsupported("convert_timezone in a database in another zone than UTC", call.node)
    *zones, moment = cast_arguments(lower, call, *[STRING] * (len(call.arguments) - 1), MOMENT)
    source, target = zones if len(zones) == 2 else (text_constant(UTC), zones[0])
    return lower.call("from_utc_timestamp", [lower.call("to_utc_timestamp", [moment, source], MOMENT), target], MOMENT)


_TEXT_TO_MOMENT: Final = "string or timestamp, [string literal] -> timestamp"
_PARTS_TO_WALL_TIME: Final = "int, int, int, int, int, decimal -> timestamp_ntz, in UTC only"
DATE_FUNCTIONS: Final[dict[str, SqlFunction]] = {
    "extract": SqlFunction(0, 0, _extract, signature="part FROM date or timestamp -> int or decimal(8,6)"),
    "date_part": SqlFunction(2, 2, _date_part, signature="string literal, date or timestamp -> int or decimal(8,6)"),
    "datediff": SqlFunction(
        2, 3, _difference, signature="date, date -> int; unit, timestamp, timestamp -> bigint", fails=True
    ),
    "timestampdiff": SqlFunction(3, 3, _difference, signature="unit, timestamp, timestamp -> bigint", fails=True),
    "timestampadd": SqlFunction(3, 3, _add_units, signature="unit, bigint, timestamp -> timestamp", fails=True),
    "date_add": SqlFunction(2, 3, _date_add(1), signature="date, int -> date; unit, int, timestamp -> timestamp", fails=True),
    "date_sub": SqlFunction(2, 2, _date_add(-1), signature="date, int -> date", fails=True),
    "date_format": built_in("date_format", SqlFunction(2, 2, _date_format)),
    "to_char": SqlFunction(2, 2, _to_char, signature="number, date or timestamp, string literal -> string"),
    "to_date": SqlFunction(1, 2, _parse(DAY), signature="string or timestamp, [string literal] -> date", fails=True),
    "try_to_date": SqlFunction(
        1, 2, _parse(DAY, attempt=True), signature="string or timestamp, [string literal] -> date",
        nulls="an argument is NULL, or the text has no such format",
    ),
    "to_timestamp": SqlFunction(1, 2, _parse(MOMENT), signature=_TEXT_TO_MOMENT, fails=True),
    "try_to_timestamp": SqlFunction(
        1, 2, _parse(MOMENT, attempt=True), signature=_TEXT_TO_MOMENT,
        nulls="an argument is NULL, or the text has no such format",
    ),
    "unix_timestamp": SqlFunction(
        1, 2, _unix_timestamp, ((0, "no argument, which is the current time", "use it in WHERE: ts > now() - INTERVAL 1 HOUR"),),
        signature="timestamp or string, [string literal] -> bigint", fails=True,
    ),
    "to_unix_timestamp": SqlFunction(
        1, 2, _unix_timestamp, signature="timestamp or string, [string literal] -> bigint", fails=True
    ),
    "from_unixtime": SqlFunction(1, 2, _from_unixtime, signature="bigint, [string literal] -> string", fails=True),
    "months_between": SqlFunction(2, 3, _months_between, signature="timestamp, timestamp, [boolean] -> double", fails=True),
    "make_timestamp": built_in("make_timestamp", SqlFunction(6, 7, _make_timestamp(attempt=False))),
    "try_make_timestamp": SqlFunction(
        6, 7, _make_timestamp(attempt=True), signature=BUILT_INS["make_timestamp"].signature,
        nulls="an argument is NULL, or there is no such timestamp",
    ),
    "to_timestamp_ltz": SqlFunction(1, 2, _parse(MOMENT), signature=_TEXT_TO_MOMENT, fails=True),
    "to_timestamp_ntz": SqlFunction(
        1, 2, _of_wall_time(_parse_wall_time), signature=f"{_TEXT_TO_MOMENT}_ntz, in UTC only", fails=True
    ),
    "make_timestamp_ltz": built_in("make_timestamp", SqlFunction(6, 7, _make_timestamp(attempt=False))),
    "try_make_timestamp_ltz": SqlFunction(
        6, 7, _make_timestamp(attempt=True), signature=BUILT_INS["make_timestamp"].signature,
        nulls="an argument is NULL, or there is no such timestamp",
    ),
    "make_timestamp_ntz": SqlFunction(
        6, 6, _of_wall_time(_make_timestamp(attempt=False)), signature=_PARTS_TO_WALL_TIME, fails=True
    ),
    "try_make_timestamp_ntz": SqlFunction(
        6, 6, _of_wall_time(_make_timestamp(attempt=True)), signature=_PARTS_TO_WALL_TIME,
        nulls="an argument is NULL, or there is no such timestamp",
    ),
    "timestamp_seconds": built_in("timestamp_seconds", SqlFunction(1, 1, _timestamp_seconds)),
    "window_time": SqlFunction(1, 1, _window_time, signature="window -> timestamp"),
    "convert_timezone": SqlFunction(
        2, 3, _convert_timezone, signature="[string], string, timestamp -> timestamp, in UTC only", fails=True
    ),
    "current_timezone": SqlFunction(
        0, 0, lambda lower, call: text_constant(lower.context.builder.zone), signature="-> string", nulls="never"
    ),
}  # fmt: skip
