"""The types of Spark SQL and the types of expressions, by the rules of Spark in ANSI mode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rederive.ir.rules import Column
from rederive.ir.terms import BINARY, BOOLEAN, DATE, FLOAT, INTERVAL, NUMBER, SYMBOL, TIMESTAMP, Kind, Part, Type

MAX_PRECISION: Final = 38
# Digits after the point that Spark keeps when it bounds a type: MINIMUM_ADJUSTED_SCALE.
_MIN_SCALE: Final = 6
_INTEGER_NAMES: Final = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
# Spark holds a BIGINT in a DECIMAL(20,0), although 19 digits suffice.
_INTEGER_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}
_NAMES: Final = {
    Kind.SYMBOL: "STRING",
    Kind.FLOAT: "DOUBLE",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.UNSIGNED: "UNSIGNED",
    Kind.BINARY: "BINARY",
    Kind.INTERVAL: "INTERVAL DAY TO SECOND",
}


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of the IR and, for integers and floats, a width in bits. VOID, the type of a bare NULL, has 0 bits.

    `without_zone`: a TIMESTAMP_NTZ, which is computed as the TIMESTAMP of the same time in UTC; tables of views have its type.
    """

    type: Type
    bits: int = 64
    without_zone: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.bits == 0:
            return "VOID"
        match self.type.kind:
            case Kind.NUMBER:
                return _INTEGER_NAMES[self.bits]
            case Kind.FLOAT if self.bits == 32:
                return "FLOAT"
            case Kind.DECIMAL:
                return str(self.type).upper()
            case Kind.STRUCT:
                return f"STRUCT<{', '.join(f'{_quoted(name)}: {type}' for name, type in self.fields)}>"
            case Kind.ARRAY | Kind.MAP:
                return f"{self.type.kind.value.upper()}<{', '.join(str(type) for _, type in self.fields)}>"
        return _NAMES[self.type.kind]

    @property
    def catalog_name(self) -> str:
        """The name that typeof gives: in lower case and without spaces, as `struct<a:int,B:array<string>>`."""
        parts = [type.catalog_name for _, type in self.fields]
        match self.type.kind:
            case Kind.STRUCT:
                return f"struct<{','.join(f'{name}:{part}' for (name, _), part in zip(self.fields, parts, strict=True))}>"
            case Kind.ARRAY | Kind.MAP:
                return f"{self.type.kind.value.lower()}<{','.join(parts)}>"
        return str(self).lower()

    @property
    def element(self) -> SqlType | None:
        """The type of the elements of an array; None for other types."""
        return self.fields[0][1] if self.type.kind is Kind.ARRAY else None

    @property
    def entry(self) -> tuple[SqlType, SqlType] | None:
        """The types of the keys and the values of a map; None for other types."""
        return (self.fields[0][1], self.fields[1][1]) if self.type.kind is Kind.MAP else None

    @property
    def fields(self) -> tuple[tuple[str, SqlType], ...]:
        """The parts of a nested type, by name."""
        return tuple((part.name, SqlType(part.type, part.bits)) for part in self.type.parts)

    @property
    def is_struct(self) -> bool:
        """Whether it is a STRUCT."""
        return self.type.kind is Kind.STRUCT

    @property
    def is_comparable(self) -> bool:
        """Whether its values can be compared and grouped: maps cannot."""
        return not self.type.contains(Kind.MAP)

    @property
    def is_integer(self) -> bool:
        """Whether it is TINYINT, SMALLINT, INT or BIGINT."""
        return self.type.kind is Kind.NUMBER

    @property
    def is_decimal(self) -> bool:
        """Whether it is a DECIMAL."""
        return self.type.kind is Kind.DECIMAL

    @property
    def is_numeric(self) -> bool:
        """Whether it is a type of numbers."""
        return self.is_integer or self.is_decimal or self.is_float

    @property
    def is_float(self) -> bool:
        """Whether it is FLOAT or DOUBLE."""
        return self.type.kind is Kind.FLOAT

    @property
    def width(self) -> int:
        """The width of a column of this type: 64, except for narrow integers and FLOAT."""
        return self.bits if self.is_integer or self.is_float else 64

    def widens_to(self, other: SqlType) -> bool:
        """Whether every value of this type is one of the other as it is: narrow numbers are held like wide ones."""
        alike = (self.is_integer and other.is_integer) or (self.is_float and other.is_float)
        return self == other or (alike and self.bits <= other.bits)

    @property
    def functor(self) -> str:
        """The scalar function that casts to this type."""
        return "decimal" if self.is_decimal else "interval" if self == DURATION else str(self).lower()


TINYINT, SMALLINT, INT, BIGINT = (SqlType(NUMBER, bits) for bits in (8, 16, 32, 64))
DOUBLE, STRING, BOOL, DAY, MOMENT = (SqlType(type) for type in (FLOAT, SYMBOL, BOOLEAN, DATE, TIMESTAMP))
WALL_TIME = SqlType(TIMESTAMP, without_zone=True)
SINGLE = SqlType(FLOAT, 32)  # FLOAT: doubles that a number of 32 bits holds
VOID = SqlType(SYMBOL, 0)
DURATION = SqlType(INTERVAL)  # the difference of two times
BYTES = SqlType(BINARY)


def array_of(element: SqlType) -> SqlType:
    """ARRAY<element>."""
    return _nested(Kind.ARRAY, [("element", element)])


def struct_of(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    """STRUCT of these fields."""
    return _nested(Kind.STRUCT, fields)


def map_of(key: SqlType, value: SqlType) -> SqlType:
    """MAP<key, value>."""
    return _nested(Kind.MAP, [("key", key), ("value", value)])


def _nested(kind: Kind, fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    return SqlType(Type(kind, parts=tuple(Part(name, found.type, found.bits) for name, found in fields)))


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL(precision, scale)."""
    return SqlType(Type(Kind.DECIMAL, precision, scale))


def column_type(column: Column) -> SqlType:
    """The type of a column of the IR."""
    return SqlType(column.type, column.bits if column.type.kind in (Kind.NUMBER, Kind.FLOAT) else 64, column.without_zone)


def column_of_type(name: str, type: SqlType, nullable: bool) -> Column:
    """The column of the IR that holds values of a type."""
    return Column(name, type.type, nullable, type.width, without_zone=type.without_zone)


def as_decimal(type: SqlType) -> SqlType:
    """The decimal that holds every value of an integer type."""
    return decimal(_INTEGER_DIGITS[type.bits], 0) if type.is_integer else type


def _bounded(precision: int, scale: int) -> SqlType:
    """A DECIMAL of at most 38 digits: Spark keeps the digits before the point, and up to six of those after it."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    return decimal(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), min(scale, _MIN_SCALE)))


def common_type(one: SqlType, two: SqlType) -> SqlType | None:
    """The type in which two values are compared; None if there is none.

    >>> str(common_type(INT, decimal(4, 2))), str(common_type(DAY, STRING)), common_type(DAY, INT)
    ('DECIMAL(12,2)', 'DATE', None)
    """
    if one == two == MOMENT:
        return WALL_TIME if one.without_zone and two.without_zone else MOMENT
    if one == two or two == VOID:
        return one
    if one == VOID:
        return two
    if one.type.parts or two.type.parts:
        return _common_nested(one, two)
    if one.is_integer and two.is_integer:
        return max(one, two, key=lambda type: type.bits)
    if one.is_numeric and two.is_numeric:
        return DOUBLE if one.is_float or two.is_float else _common_decimal(as_decimal(one), as_decimal(two))
    if STRING in (one, two):
        # ANSI mode casts the text: to BIGINT for integers, to DOUBLE for other numbers, to other types as they are.
        other = two if one == STRING else one
        return BIGINT if other.is_integer else DOUBLE if other.is_numeric else other if other != DURATION else None
    return (two if one == DAY else one) if {one, two} == {DAY, MOMENT} else None


def _common_nested(one: SqlType, two: SqlType) -> SqlType | None:
    """The nested type whose parts are the common types; structs have fields of the same names."""
    names = [[name.lower() for name, _ in type.fields] for type in (one, two)]
    if one.type.kind is not two.type.kind or names[0] != names[1]:
        return None
    shared = [common_type(a, b) for (_, a), (_, b) in zip(one.fields, two.fields, strict=True)]
    found = [(name, part) for (name, _), part in zip(one.fields, shared, strict=True) if part is not None]
    return _nested(one.type.kind, found) if len(found) == len(shared) else None


def _common_decimal(one: SqlType, two: SqlType) -> SqlType:
    a, b = one.type, two.type
    scale = max(a.scale, b.scale)
    return _bounded(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def arithmetic_type(operator: str, one: SqlType, two: SqlType) -> SqlType | None:
    """The type of `one operator two`; a STRING is read as the type of the other operand. None if there is no such type.

    >>> str(arithmetic_type("/", INT, INT)), str(arithmetic_type("*", decimal(10, 2), decimal(4, 2)))
    ('DOUBLE', 'DECIMAL(15,4)')
    """
    shared = common_type(one, two)
    if shared is None or not shared.is_numeric:
        return DOUBLE if shared == VOID and operator != "div" else None
    # DIV is BIGINT, also of decimals. `/` of integers and FLOAT is a DOUBLE, and they keep their width otherwise.
    if operator == "div":
        return BIGINT if not shared.is_float else None
    if shared == DOUBLE or (operator == "/" and not shared.is_decimal):
        return DOUBLE
    if shared.is_integer or shared == SINGLE:
        return shared
    return _decimal_arithmetic(operator, as_decimal(one).type, as_decimal(two).type)


def _decimal_arithmetic(operator: str, a: Type, b: Type) -> SqlType:
    # Spark's rules of DecimalPrecision: the type holds every exact result,
    # a quotient with at least six places. Then it is bounded to 38 digits.
    whole, scale = max(a.precision - a.scale, b.precision - b.scale), max(a.scale, b.scale)
    match operator:
        case "*":
            return _bounded(a.precision + b.precision + 1, a.scale + b.scale)
        case "/":
            scale = max(_MIN_SCALE, a.scale + b.precision + 1)
            return _bounded(a.precision - a.scale + b.scale + scale, scale)
        case "%" | "pmod":
            return _bounded(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
        case _:
            return _bounded(whole + scale + 1, scale)


def sum_type(type: SqlType) -> SqlType | None:
    """The type of a sum: BIGINT for integers, ten more digits for DECIMAL; None if there is none."""
    if type.is_integer:
        return BIGINT
    if type.is_decimal:
        return decimal(min(MAX_PRECISION, type.type.precision + 10), type.type.scale)
    return DOUBLE if type.is_float or type in (STRING, VOID) else None


def mean_type(type: SqlType) -> SqlType | None:
    """The type of a mean: four more digits on both sides of the point for DECIMAL, else DOUBLE; None if there is none."""
    if type.is_decimal:
        return _bounded(type.type.precision + 4, type.type.scale + 4)
    return DOUBLE if type.is_integer or type.is_float or type in (STRING, VOID) else None
