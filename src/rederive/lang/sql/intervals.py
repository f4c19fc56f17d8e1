"""Intervals as written: INTERVAL 1 HOUR 30 MINUTES, INTERVAL '1 2:03:04' DAY TO SECOND, n * INTERVAL 1 DAY, make_interval(1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Final

from sqlglot import exp

from rederive.errors import WrongArity
from rederive.lang.sql.statement_context import StatementContext
from rederive.scalar.sql.calendar_steps import MICROSECONDS, MONTH_UNITS

# The fields of an interval from one unit to another one, and how many of the next smaller unit make one of each.
_FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
_SPAN: Final = re.compile(r"\s*([+-]?)\s*(?:(\d+)\s+)?(\d+(?::\d+)*(?:\.\d+)?)\s*", re.ASCII)
_YEARS: Final = re.compile(r"\s*([+-]?)(\d+)-(\d+)\s*", re.ASCII)
# Functions of parts: the most arguments of each.
_MADE: Final = {"make_ym_interval": 2, "make_interval": 7, "try_make_interval": 7}
_WORDS: Final = re.compile(r"\s*([+-]?\s*\d+(?:\.\d+)?)\s+([a-z]+)\s*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class IntervalPart:
    """A number of months, days or microseconds, times the value of an expression if there is one."""

    unit: str
    amount: int
    factor: exp.Expr | None = None


def is_interval(node: exp.Expr) -> bool:
    """Whether an expression is written as an interval."""
    match node:
        case exp.Interval():
            return True
        case exp.Anonymous():
            return node.name.lower() in _MADE
        case exp.Paren() | exp.Neg():
            return is_interval(node.this)
        case exp.Add() | exp.Sub():
            return is_interval(node.this) and is_interval(node.expression)
        case exp.Mul():
            return is_interval(node.this) != is_interval(node.expression)
    return False


def is_mixed(node: exp.Expr) -> bool:
    """Whether an interval is one of make_interval, which has months and also days and smaller units."""
    match node:
        case exp.Paren() | exp.Neg():
            return is_mixed(node.this)
        case exp.Anonymous():
            return node.name.lower() in ("make_interval", "try_make_interval")
    return False


def interval_parts(node: exp.Expr, context: StatementContext) -> Iterator[IntervalPart]:
    """The parts of an interval: months, days and microseconds. As in Spark, only make_interval mixes months with the others."""
    order = ("MONTH", "DAY", "MICROSECOND")
    found = sorted(_parts(node, 1, None, context), key=lambda part: order.index(part.unit))
    if not is_mixed(node) and len({part.unit == "MONTH" for part in found}) > 1:
        hint = "add them one after the other: date + INTERVAL 1 MONTH + INTERVAL 1 DAY"
        raise context.unsupported("an interval of months and of days or smaller units", node, hint)
    yield from found


def _parts(node: exp.Expr, sign: int, factor: exp.Expr | None, context: StatementContext) -> Iterator[IntervalPart]:
    match node:
        case exp.Paren():
            yield from _parts(node.this, sign, factor, context)
        case exp.Neg():
            yield from _parts(node.this, -sign, factor, context)
        case exp.Add() | exp.Sub() if is_mixed(node.this) or is_mixed(node.expression):
            raise context.unsupported("a sum of make_interval and another interval", node, "add them one after the other")
        case exp.Add() | exp.Sub():
            yield from _parts(node.this, sign, factor, context)
            yield from _parts(node.expression, sign if isinstance(node, exp.Add) else -sign, factor, context)
        case exp.Mul():
            one, other = (node.this, node.expression) if is_interval(node.this) else (node.expression, node.this)
            if factor is not None:
                raise context.unsupported("an interval with two factors", node, "multiply the factors first")
            yield from _parts(one, sign, other, context)
        case exp.Interval():
            yield from (IntervalPart(unit, sign * amount, factor) for unit, amount in _literal(node, context))
        case exp.Anonymous() if factor is None:
            yield from (IntervalPart(unit, sign, total) for unit, total in _made(node, context))
        case _:
            raise context.unsupported("a multiple of this interval", node, "multiply its arguments")


def _made(node: exp.Anonymous, context: StatementContext) -> Iterator[tuple[str, exp.Expr]]:
    """The months, days and microseconds of make_interval and make_ym_interval, as sums that fail as Spark's do."""
    name, given = node.name.lower(), node.expressions
    if len(given) > _MADE[name]:
        raise WrongArity(f"'{name}' takes 0 to {_MADE[name]} arguments, not {len(given)}", context.span(node))
    total = _tried_total if name.startswith("try_") else _total
    if name == "make_ym_interval":
        given = [*given[:1], *[exp.Literal.number(0)] * (1 - len(given)), *given[1:]]
    pairs = (("MONTH", 12, given[:2]), ("DAY", 7, given[2:4]))
    for unit, size, parts in pairs:
        if parts:
            whole: list[exp.Expr] = [exp.cast(part.copy(), exp.DType.INT) for part in parts]
            yield unit, total(whole, size)
    if clock := given[4:]:
        sizes = (MICROSECONDS["HOUR"], MICROSECONDS["MINUTE"])
        counts = [exp.cast(exp.cast(part.copy(), exp.DType.INT), exp.DType.BIGINT) for part in clock[:2]]
        if len(clock) == 3:
            seconds = exp.cast(clock[2].copy(), exp.DataType.build("DECIMAL(18, 6)"))
            counts.append(exp.cast(_times(seconds, MICROSECONDS["SECOND"]), exp.DType.BIGINT))
        scaled = [_times(count, size) for count, size in zip(counts, (*sizes, 1), strict=False)]
        yield "MICROSECOND", reduce(lambda one, two: exp.Add(this=one, expression=two), scaled)


def _total(parts: list[exp.Expr], size: int) -> exp.Expr:
    large = _times(parts[0], size)
    return large if len(parts) == 1 else exp.Add(this=large, expression=parts[1])


def _tried_total(parts: list[exp.Expr], size: int) -> exp.Expr:
    large = exp.Anonymous(this="try_multiply", expressions=[parts[0], exp.Literal.number(size)])
    return large if len(parts) == 1 else exp.Anonymous(this="try_add", expressions=[large, parts[1]])


def _times(value: exp.Expr, size: int) -> exp.Expr:
    return exp.Mul(this=value, expression=exp.Literal.number(size)) if size != 1 else value


def _literal(node: exp.Interval, context: StatementContext) -> Iterator[tuple[str, int]]:
    text, unit = node.this, node.args.get("unit")
    if not isinstance(text, exp.Literal):
        raise context.unsupported("an interval that is not a literal", node, "multiply it: n * INTERVAL 1 DAY")
    try:
        if isinstance(unit, exp.IntervalSpan):
            yield from _span(text.name, unit.this.name.upper(), unit.expression.name.upper())
        elif unit is not None:
            yield _amount(Decimal(text.name.strip()), unit.name.upper())
        else:
            yield from _words(text.name)
    except (ValueError, InvalidOperation):
        hint = "use YEAR, MONTH, WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND or MICROSECOND with a whole number"
        raise context.unsupported(f"the interval {node.sql('spark')}", node, hint) from None


def _amount(number: Decimal, unit: str) -> tuple[str, int]:
    """A number of a unit in months, days or microseconds. Only seconds may have a fraction."""
    unit = unit.removesuffix("S")
    if number % 1 and unit != "SECOND":
        raise ValueError
    # Spark's intervals know no quarters.
    if unit in ("MONTH", "YEAR"):
        return "MONTH", int(number) * MONTH_UNITS[unit]
    if unit in ("DAY", "WEEK"):
        return "DAY", int(number) * (7 if unit == "WEEK" else 1)
    if unit not in MICROSECONDS:
        raise ValueError
    return "MICROSECOND", int(number * MICROSECONDS[unit])


def _words(text: str) -> Iterator[tuple[str, int]]:
    """'1 day 2 hours'."""
    place = 0
    text = re.sub(r"^\s*interval\s", "", text, flags=re.IGNORECASE)
    if not text.strip():
        raise ValueError
    while place < len(text):
        found = _WORDS.match(text, place)
        if found is None:
            raise ValueError
        place = found.end()
        yield _amount(Decimal(found[1].replace(" ", "")), found[2].upper())


def _span(text: str, first: str, last: str) -> Iterator[tuple[str, int]]:
    """'1-2' YEAR TO MONTH, or '1 2:03:04.5' DAY TO SECOND and parts of it."""
    if (first, last) == ("YEAR", "MONTH"):
        found = _YEARS.fullmatch(text)
        if found is None or int(found[3]) > 11:
            raise ValueError
        yield "MONTH", (-1 if found[1] == "-" else 1) * (int(found[2]) * 12 + int(found[3]))
        return
    found = _SPAN.fullmatch(text)
    if found is None or first not in _FIELDS or last not in _FIELDS:
        raise ValueError
    units = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    numbers = [*([found[2]] if found[2] is not None else []), *found[3].split(":")]
    if len(numbers) != len(units) or (first == "DAY") != (found[2] is not None):
        raise ValueError
    sign = -1 if found[1] == "-" else 1
    for number, unit in zip(numbers, units, strict=True):
        kind, amount = _amount(Decimal(number), unit)
        yield kind, sign * amount
