"""Columns of outside data as columns of a relation: the value of each, or the problem that leaves it without one.

Text and JSON mean the same as in `rederive.values`, whatever the session's time zone. Typed columns are widened, never narrowed.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from rederive.errors import SchemaMismatch
from rederive.ir.rules import Column
from rederive.ir.terms import Kind, Type
from rederive.lake.nested_columns import as_type, in_utc
from rederive.lake.types import INTEGER_BITS, nested_type, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

_INTEGER: Final = r"^[+-]?[0-9]{1,40}$"
_FLOAT: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?$"
_NOT_FINITE: Final = r"^(?i:[+-]?inf(inity)?|nan)$"
_DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP: Final = rf"^{_DATE}([T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}(\.[0-9]{{1,6}})?)?(Z|[+-][0-9]{{2}}:[0-9]{{2}})?)?$"
_OFFSET: Final = r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_INTEGERS: Final = tuple(INTEGER_BITS)
_DIGITS: Final = {spark_types.ByteType: 3, spark_types.ShortType: 5, spark_types.IntegerType: 10, spark_types.LongType: 19}
_NOT_TEXT: Final = frozenset({Kind.BINARY, Kind.INTERVAL, Kind.ARRAY, Kind.STRUCT, Kind.MAP})
_FIRST, _LAST = "0001-01-01", "9999-12-31"


class ConvertedColumn(NamedTuple):
    """A value of the column's type, and the reason why there is none; NULL has neither.

    `problem` is None if every value fits, so that nothing has to be checked.
    """

    value: SparkColumn
    problem: SparkColumn | None = None


def from_text(text: SparkColumn, column: Column) -> ConvertedColumn:
    """The value that a text field denotes."""
    if column.type.kind in _NOT_TEXT:
        raise SchemaMismatch(
            f"column '{column.name}' is {column.type}, which Spark does not read from text", hint="use Parquet, or rows of Python"
        )
    value = _parsed(text, column.type)
    if column.type.kind is Kind.SYMBOL:
        return ConvertedColumn(text)
    # Spark's casts trim blanks and take forms such as '1d' or '2024' that `rederive.values` refuses: the pattern decides.
    matching = text.rlike(_pattern(column.type))
    # NULL where the pattern does not match, and the check below tells that from a text that is NULL itself.
    value = F.when(matching, _one_zero(value, column) if column.type.kind is Kind.FLOAT else value)
    return _checked(value, column, text.isNotNull() & value.isNull(), text)


def _pattern(type: Type) -> str:
    match type.kind:
        case Kind.SYMBOL:
            return ""
        case Kind.NUMBER | Kind.UNSIGNED:
            return _INTEGER
        case Kind.FLOAT:
            return f"{_FLOAT}|{_NOT_FINITE}"
        case Kind.BOOLEAN:
            return "^(true|false)$"
        case Kind.DATE:
            return f"^{_DATE}$"
        case Kind.TIMESTAMP:
            return _TIMESTAMP
        case Kind.BINARY | Kind.INTERVAL | Kind.ARRAY | Kind.STRUCT | Kind.MAP:
            raise AssertionError(type)  # refused before
        case Kind.DECIMAL:  # only zeros may follow the digits of the scale: nothing is rounded
            return rf"^[+-]?([0-9]+(\.[0-9]{{0,{type.scale}}}0*)?|\.[0-9]{{1,{max(type.scale, 1)}}}0*)$"


def _parsed(text: SparkColumn, type: Type) -> SparkColumn:
    if type.kind is Kind.TIMESTAMP:
        # A text without an offset is in UTC. Spark would take it in the time zone of the session.
        dated = F.when(F.length(text) == len(_FIRST), F.concat(text, F.lit("T00:00"))).otherwise(text)
        return in_utc(F.when(dated.rlike(_OFFSET), dated).otherwise(F.concat(dated, F.lit("Z"))).try_cast("timestamp"))
    return text.try_cast(spark_type(type))


def from_typed(value: SparkColumn, found: spark_types.DataType, column: Column) -> ConvertedColumn:
    """A typed column, widened to the column's type; raises SchemaMismatch if some of its values might not fit."""
    if not _fits(found, column.type):
        raise SchemaMismatch(
            f"column '{column.name}' is {found.simpleString()}, which does not fit {column.type}",
            hint="convert the column in the source, or declare another type",
        )
    # A timestamp of Spark is an instant; the database holds it as UTC, without a zone.
    widened = as_type(value, found, spark_type(column.type))
    if column.type.parts:
        return ConvertedColumn(widened)
    if column.type.kind is Kind.FLOAT:
        return ConvertedColumn(_one_zero(widened, column))
    # An integer type that is no wider than the column needs no check of its range, which would be a query.
    if column.type.kind is Kind.NUMBER and INTEGER_BITS[found.__class__] <= column.bits:
        return ConvertedColumn(widened)
    return _checked(widened, column, None, value)


def _one_zero(value: SparkColumn, column: Column) -> SparkColumn:
    """A float of the column's width, 0.0 for -0.0."""
    return (value.cast("float").cast("double") if column.bits < 64 else value) + F.lit(0.0)


def _fits(found: spark_types.DataType, type: Type) -> bool:
    match type.kind:
        case Kind.SYMBOL:
            return isinstance(found, spark_types.StringType)
        case Kind.NUMBER:
            return isinstance(found, _INTEGERS)
        case Kind.UNSIGNED:
            return isinstance(found, _INTEGERS) or (isinstance(found, spark_types.DecimalType) and _digits(found) <= (20, 0))
        case Kind.FLOAT:
            # Integers are not widened: a double holds them exactly up to 2**53 only.
            return isinstance(found, spark_types.DoubleType | spark_types.FloatType)
        case Kind.BOOLEAN:
            return isinstance(found, spark_types.BooleanType)
        case Kind.DATE:
            return isinstance(found, spark_types.DateType)
        case Kind.TIMESTAMP:
            return isinstance(found, spark_types.TimestampType | spark_types.TimestampNTZType)
        case Kind.BINARY:
            return isinstance(found, spark_types.BinaryType)
        case Kind.INTERVAL:
            return isinstance(found, spark_types.DayTimeIntervalType)
        case Kind.ARRAY | Kind.STRUCT | Kind.MAP:
            return nested_type(found, "") == type
        case Kind.DECIMAL:
            if not isinstance(found, spark_types.DecimalType | spark_types.IntegralType):
                return False
            whole, scale = _digits(found)
            return whole <= type.precision - type.scale and scale <= type.scale


def _digits(found: spark_types.DataType) -> tuple[int, int]:
    """The numbers of digits before and after the point."""
    if isinstance(found, spark_types.DecimalType):
        return found.precision - found.scale, found.scale
    return _DIGITS[type(found)], 0  # type: ignore[index]


def _checked(value: SparkColumn, column: Column, unreadable: SparkColumn | None, shown: SparkColumn) -> ConvertedColumn:
    fits = _in_range(value, column)
    # NULL is neither inside nor outside of a range; whether it is allowed is checked elsewhere.
    beyond = F.coalesce(~fits, F.lit(False)) if fits is not None else None
    tests = [test for test in (unreadable, beyond) if test is not None]
    if not tests:
        return ConvertedColumn(value)
    refused = reduce(or_, tests)
    reason = F.concat(
        F.lit(f"column '{column.name}': '"), F.substring(shown.cast("string"), 1, 60), F.lit(f"' is not a {_shown(column)}")
    )
    return ConvertedColumn(value, F.when(refused, reason))


def _shown(column: Column) -> str:
    return f"{column.type} of {column.bits} bits" if column.bits < 64 else str(column.type)


def _in_range(value: SparkColumn, column: Column) -> SparkColumn | None:
    """Whether a value is in the column's range; None if Spark's type has the same range.

    Spark's dates and timestamps reach beyond the years 1 to 9999.
    """
    match column.type.kind:
        case Kind.NUMBER if column.bits < 64:
            return value.between(F.lit(-(2 ** (column.bits - 1))), F.lit(2 ** (column.bits - 1) - 1))
        case Kind.UNSIGNED:
            return value.between(F.lit(0), F.lit(str(2**64 - 1)).cast("decimal(20,0)"))
        case Kind.DATE:
            return value.between(F.lit(_FIRST).cast("date"), F.lit(_LAST).cast("date"))
        case Kind.TIMESTAMP:
            return value.between(F.lit(_FIRST).cast("timestamp_ntz"), F.lit(f"{_LAST} 23:59:59.999999").cast("timestamp_ntz"))
        case _:
            return None


def from_json(document: SparkColumn, column: Column) -> ConvertedColumn:
    """A field of a parsed JSON document: its JSON type is checked first, then the value that its text denotes."""
    field = F.variant_get(document, f"$['{column.name}']", "variant")
    text = F.variant_get(document, f"$['{column.name}']", "string")
    kind = F.schema_of_variant(field)
    # A JSON null is a variant of its own; a field that is missing is SQL's NULL.
    null = F.is_variant_null(field) | field.isNull()
    value, problem = from_text(F.when(~null, text), column)
    reason = F.concat(F.lit(f"column '{column.name}': a JSON value of type "), F.lower(kind), F.lit(f" is not a {column.type}"))
    fits = kind.rlike(_json_kind(column.type))
    if column.type.kind is Kind.FLOAT:  # JSON has NaN and infinities as texts
        fits = fits | ((kind == F.lit("STRING")) & text.rlike(_NOT_FINITE))
    return ConvertedColumn(value, F.when(~null & ~fits, reason).otherwise(problem))


def _json_kind(type: Type) -> str:
    match type.kind:
        case Kind.SYMBOL | Kind.DATE | Kind.TIMESTAMP:
            return "^STRING$"
        case Kind.NUMBER | Kind.UNSIGNED:
            return r"^(BIGINT|DECIMAL\(\d+,0\))$"
        case Kind.FLOAT:
            return r"^(BIGINT|DOUBLE|FLOAT|DECIMAL\(.*\))$"
        case Kind.BOOLEAN:
            return "^BOOLEAN$"
        case Kind.BINARY | Kind.INTERVAL | Kind.ARRAY | Kind.STRUCT | Kind.MAP:
            raise AssertionError(type)  # refused before
        case Kind.DECIMAL:
            # A fraction must come as text, because many writers of JSON round numbers to doubles.
            return r"^(BIGINT|STRING|DECIMAL\(\d+,0\))$"
