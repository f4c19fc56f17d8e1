"""Nested columns of Spark in other types: maps as arrays of entries, timestamps in UTC, intervals as numbers of microseconds.

Frames on their way have a map as the array of its entries, which Spark can compare; tables have it as a MAP. Delta has no
intervals, so tables have them as BIGINT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from rederive.ir.terms import Kind, Type

if TYPE_CHECKING:
    from pyspark.sql import Column

_START = "TIMESTAMP_NTZ'1970-01-01'"


def as_type(value: Column, found: spark_types.DataType, wanted: spark_types.DataType) -> Column:
    """A column of one type in another one that holds the same values."""
    if found == wanted:
        return value
    match found, wanted:
        case spark_types.MapType(), spark_types.ArrayType(elementType=spark_types.StructType() as entry):
            return _transformed(F.map_entries(value), _entry(found), entry)
        case spark_types.ArrayType(elementType=spark_types.StructType() as entry), spark_types.MapType():
            return F.map_from_entries(_transformed(value, entry, _entry(wanted)))
        case spark_types.ArrayType(), spark_types.ArrayType():
            return _transformed(value, found.elementType, wanted.elementType)
        case spark_types.StructType(), spark_types.StructType():
            return F.when(value.isNotNull(), F.struct(*_fields(value, found, wanted)))
        case spark_types.DayTimeIntervalType(), spark_types.LongType():
            return _micros(value)
        case spark_types.LongType(), spark_types.DayTimeIntervalType():
            return F.expr("INTERVAL '0.000001' SECOND") * value
        case spark_types.TimestampType(), spark_types.TimestampNTZType():
            return in_utc(value)
        case spark_types.TimestampNTZType(), spark_types.TimestampType():
            # By the number of microseconds: a cast would read the time in the session's zone.
            return F.timestamp_micros(_micros(value - F.expr(_START)))
    return value.cast(wanted)


def comparable(value: str, type: Type, depth: int = 0) -> str:
    """A column of a table, as Spark SQL, in a type that Spark can compare: the entries of a map instead of the map.

    >>> from rederive.ir.terms import NUMBER, SYMBOL, Part
    >>> comparable("old.m", Type(Kind.MAP, parts=(Part("key", SYMBOL), Part("value", NUMBER))))
    'map_entries(old.m)'
    """
    if not type.contains(Kind.MAP):
        return value
    part = f"x{depth}"
    if type.kind is Kind.STRUCT:
        fields = (comparable(f"{value}.`{field.name}`", field.type, depth) for field in type.parts)
        return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(fields)}) END"
    if type.kind is Kind.ARRAY:
        return f"transform({value}, {part} -> {comparable(part, type.parts[0].type, depth + 1)})"
    inner = type.parts[1].type
    if not inner.contains(Kind.MAP):
        return f"map_entries({value})"
    return f"transform(map_entries({value}), {part} -> struct({part}.key, {comparable(f'{part}.value', inner, depth + 1)}))"


def in_utc(instant: Column) -> Column:
    """An instant as a UTC timestamp without zone, whatever the session's time zone.

    It is computed from the microseconds since 1970: Spark subtracts two timestamps by the session's wall clock, which is an hour
    off across a change to summer time.
    """
    return F.expr(_START) + F.expr("INTERVAL '0.000001' SECOND") * F.unix_micros(instant)


def _micros(value: Column) -> Column:
    parts = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000))
    whole = sum((F.extract(F.lit(unit), value).cast("long") * length for unit, length in parts), F.lit(0).cast("long"))
    return whole + (F.extract(F.lit("second"), value) * 1_000_000).cast("long")


def _entry(found: spark_types.MapType) -> spark_types.StructType:
    return spark_types.StructType(
        [spark_types.StructField("key", found.keyType), spark_types.StructField("value", found.valueType)]
    )


def _transformed(value: Column, found: spark_types.DataType, wanted: spark_types.DataType) -> Column:
    return value if found == wanted else F.transform(value, lambda one: as_type(one, found, wanted))


def _fields(value: Column, found: spark_types.StructType, wanted: spark_types.StructType) -> list[Column]:
    pairs = zip(found.fields, wanted.fields, strict=True)
    return [as_type(value.getField(a.name), a.dataType, b.dataType).alias(b.name) for a, b in pairs]
