"""The types of Spark SQL, and what becomes of them in expressions: Spark's own rules, in ANSI mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rederive.ir.rules import Column
from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, Kind, Type

MAX_PRECISION: Final = 38
_MIN_SCALE: Final = 6
_INTEGER_NAMES: Final = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_INTEGER_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
_NAMES: Final = {
    Kind.SYMBOL: "STRING",
    Kind.FLOAT: "DOUBLE",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.UNSIGNED: "UNSIGNED",
}


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of the IR; integers have a width. The type of a bare NULL has none: it becomes whatever is needed."""

    type: Type
    bits: int = 64

    def __str__(self) -> str:
        if self.bits == 0:
            return "VOID"
        if self.integer:
            return _INTEGER_NAMES[self.bits]
        return str(self.type).upper() if self.decimal else _NAMES[self.type.kind]

    @property
    def integer(self) -> bool:
        return self.type.kind is Kind.NUMBER

    @property
    def decimal(self) -> bool:
        return self.type.kind is Kind.DECIMAL

    @property
    def numeric(self) -> bool:
        return self.integer or self.decimal or self.type.kind is Kind.FLOAT

    @property
    def functor(self) -> str:
        """The scalar that casts to it."""
        return "decimal" if self.decimal else str(self).lower()


TINYINT, SMALLINT, INT, BIGINT = (SqlType(NUMBER, bits) for bits in (8, 16, 32, 64))
DOUBLE, STRING, BOOL, DAY, MOMENT = (SqlType(type) for type in (FLOAT, SYMBOL, BOOLEAN, DATE, TIMESTAMP))
VOID = SqlType(SYMBOL, 0)


def decimal(precision: int, scale: int) -> SqlType:
    return SqlType(Type(Kind.DECIMAL, precision, scale))


def column_type(column: Column) -> SqlType:
    return SqlType(column.type, column.bits if column.type.kind is Kind.NUMBER else 64)


def as_decimal(type: SqlType) -> SqlType:
    """The decimal that holds every value of an integer type."""
    return decimal(_INTEGER_DIGITS[type.bits], 0) if type.integer else type


def _bounded(precision: int, scale: int) -> SqlType:
    """Spark keeps the digits before the point, and at least six after it where there were so many."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    return decimal(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), min(scale, _MIN_SCALE)))


def common_type(one: SqlType, two: SqlType) -> SqlType | None:
    """The type that two values are compared in, or None where there is none.

    >>> str(common_type(INT, decimal(4, 2))), str(common_type(DAY, STRING)), common_type(DAY, INT)
    ('DECIMAL(12,2)', 'DATE', None)
    """
    if one == two or two == VOID:
        return one
    if one == VOID:
        return two
    if one.integer and two.integer:
        return max(one, two, key=lambda type: type.bits)
    if one.numeric and two.numeric:
        return _common_decimal(as_decimal(one), as_decimal(two)) if DOUBLE not in (one, two) else DOUBLE
    if STRING in (one, two):
        other = two if one == STRING else one
        return BIGINT if other.integer else DOUBLE if other.decimal else other
    return MOMENT if {one, two} == {DAY, MOMENT} else None


def _common_decimal(one: SqlType, two: SqlType) -> SqlType:
    a, b = one.type, two.type
    scale = max(a.scale, b.scale)
    return _bounded(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def arithmetic_type(operator: str, one: SqlType, two: SqlType) -> SqlType | None:
    """The type of `one operator two` for numbers; a string beside a number is read as the number it is compared with.

    >>> str(arithmetic_type("/", INT, INT)), str(arithmetic_type("*", decimal(10, 2), decimal(4, 2)))
    ('DOUBLE', 'DECIMAL(15,4)')
    """
    shared = common_type(one, two)
    if shared is None or not shared.numeric:
        return DOUBLE if shared == VOID and operator != "div" else None
    if operator == "div":
        return BIGINT if shared != DOUBLE else None
    if shared == DOUBLE or (operator == "/" and shared.integer):
        return DOUBLE
    if shared.integer:
        return shared
    return _decimal_arithmetic(operator, as_decimal(one).type, as_decimal(two).type)


def _decimal_arithmetic(operator: str, a: Type, b: Type) -> SqlType:
    whole, scale = max(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale)
    match operator:
        case "*":
            return _bounded(a.precision + b.precision + 1, a.scale + b.scale)
        case "/":
            scale = max(_MIN_SCALE, a.scale + b.precision + 1)
            return _bounded(a.precision - a.scale + b.scale + scale, scale)
        case "%":
            return _bounded(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
        case _:
            return _bounded(whole + scale + 1, scale)


def sum_type(type: SqlType) -> SqlType | None:
    """The type of a sum: of integers BIGINT, of decimals ten digits more."""
    if type.integer:
        return BIGINT
    if type.decimal:
        return decimal(min(MAX_PRECISION, type.type.precision + 10), type.type.scale)
    return DOUBLE if type in (DOUBLE, STRING, VOID) else None


def mean_type(type: SqlType) -> SqlType | None:
    """The type of a mean: of decimals four digits more on both sides, else DOUBLE."""
    if type.decimal:
        return _bounded(type.type.precision + 4, type.type.scale + 4)
    return DOUBLE if type.integer or type in (DOUBLE, STRING, VOID) else None
