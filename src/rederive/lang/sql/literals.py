"""Literals: the type of a number as written, and casts of constants when a statement is compiled."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

from sqlglot import exp

from rederive.errors import SyntaxProblem
from rederive.ir.floats import nearest_single
from rederive.ir.terms import NUMBER, Constant
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import BIGINT, DAY, DOUBLE, INT, MAX_PRECISION, MOMENT, SINGLE, SqlType, decimal
from rederive.time_zones import parse_instant, start_of_day
from rederive.values import from_text


def numeric_literal(text: str) -> TypedTerm:
    """A numeric literal: the narrowest of INT, BIGINT and DECIMAL, or DOUBLE if it has an exponent."""
    # Spark: 1e0 is a DOUBLE, and 1.0 is a DECIMAL(2,1).
    if "e" in text.lower():
        if not math.isfinite(value := float(text)):
            raise ValueError(f"{text} does not fit DOUBLE")
        return TypedTerm(Constant(value, DOUBLE.type), DOUBLE, False)
    if "." not in text:
        whole = int(text)
        for type in (INT, BIGINT):
            if -(2 ** (type.bits - 1)) <= whole < 2 ** (type.bits - 1):
                return TypedTerm(Constant(whole, NUMBER), type, False)
    exact = Decimal(text)
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    if max(len(digits), -exponent) > MAX_PRECISION:
        raise ValueError(f"{text} has more than {MAX_PRECISION} digits")
    # 0.001 has one digit and three places, so it needs DECIMAL(3,3).
    gives = decimal(max(len(digits), -exponent), -exponent)
    return TypedTerm(Constant(exact, gives.type), gives, False)


def hex_bytes(node: exp.Expr, context: StatementContext) -> bytes:
    """The bytes of X'1C7'; as in Spark, a half of a byte in front counts as a byte."""
    text = node.name
    try:
        return bytes.fromhex(text.rjust(len(text) + len(text) % 2, "0"))
    except ValueError:
        raise SyntaxProblem(f"not SQL: X'{text}' is not a number in hex", context.span(node)) from None


def cast_constant(constant: Constant, one: SqlType, to: SqlType, zone: str) -> Constant | None:
    """A literal cast to another type if that is exact; None if the cast must run, and may fail, as in Spark."""
    value = constant.value
    try:
        if isinstance(value, str) and to == MOMENT:
            return Constant(parse_instant(value.strip(), zone), to.type)
        if isinstance(value, str) and (to == DAY or to.is_integer or to.is_decimal):
            found = from_text(value.strip(), to.type)
            return Constant(found, to.type) if _in_width(found, to) else None
        if isinstance(value, int) and one.is_integer and to.is_decimal:
            return Constant(Decimal(value).quantize(Decimal(1).scaleb(-to.type.scale)), to.type)
        if isinstance(value, int | Decimal) and one.is_numeric and to == DOUBLE:
            return Constant(float(value), to.type)
        if isinstance(value, int | Decimal) and one.is_numeric and to == SINGLE:
            return Constant(nearest_single(value), to.type)
        if isinstance(value, Decimal) and to.is_decimal and to.type.scale >= one.type.scale:
            return Constant(from_text(str(value), to.type), to.type)
        if type(value) is datetime.date and to == MOMENT:
            return Constant(start_of_day(value, zone), to.type)
    except (ValueError, OverflowError):
        pass
    return None


def _in_width(value: object, to: SqlType) -> bool:
    return not to.is_integer or (isinstance(value, int) and -(2 ** (to.bits - 1)) <= value < 2 ** (to.bits - 1))
