"""Intervals as written: INTERVAL 1 HOUR 30 MINUTES, INTERVAL '1 2:03:04' DAY TO SECOND, n * INTERVAL 1 DAY."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp

from rederive.lang.sql.statement_context import StatementContext
from rederive.scalar.sql.calendar_steps import MICROSECONDS, MONTH_UNITS

# The fields of an interval from one unit to another one, and how many of the next smaller unit make one of each.
_FIELDS: Final = ("DAY", "HOUR", "MINUTE", "SECOND")
_SPAN: Final = re.compile(r"\s*([+-]?)\s*(?:(\d+)\s+)?(\d+(?::\d+)*(?:\.\d+)?)\s*", re.ASCII)
_YEARS: Final = re.compile(r"\s*([+-]?)(\d+)-(\d+)\s*", re.ASCII)
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
        case exp.Paren() | exp.Neg():
            return is_interval(node.this)
        case exp.Add() | exp.Sub():
            return is_interval(node.this) and is_interval(node.expression)
        case exp.Mul():
            return is_interval(node.this) != is_interval(node.expression)
    return False


def interval_parts(node: exp.Expr, context: StatementContext) -> Iterator[IntervalPart]:
    """The parts of an interval: months, or days and then microseconds. As in Spark, months do not mix with the others."""
    order = ("MONTH", "DAY", "MICROSECOND")
    found = sorted(_parts(node, 1, None, context), key=lambda part: order.index(part.unit))
    if len({part.unit == "MONTH" for part in found}) > 1:
        hint = "add them one after the other: date + INTERVAL 1 MONTH + INTERVAL 1 DAY"
        raise context.unsupported("an interval of months and of days or smaller units", node, hint)
    yield from found


def _parts(node: exp.Expr, sign: int, factor: exp.Expr | None, context: StatementContext) -> Iterator[IntervalPart]:
    match node:
        case exp.Paren():
            yield from _parts(node.this, sign, factor, context)
        case exp.Neg():
            yield from _parts(node.this, -sign, factor, context)
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
