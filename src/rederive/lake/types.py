"""Schemas of tables, and rows as Arrow tables and data frames. Both directions are exact.

Types follow from `rederive.arrow_types`. The metadata of each field hold our name of its type, so that an unsigned number, which
Spark has as `decimal(20,0)`, is read back as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import from_arrow_type

from rederive import arrow_types
from rederive.arrow_types import from_arrow_columns, to_arrow_columns
from rederive.engines.spark.session.sessions import from_table
from rederive.engines.spark.session.types import arrow_type, without_maps
from rederive.errors import SchemaMismatch
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import (
    BINARY,
    BOOLEAN,
    DATE,
    FLOAT,
    INTERVAL,
    NUMBER,
    SYMBOL,
    TIMESTAMP,
    UNSIGNED,
    Kind,
    Part,
    Row,
    Type,
)
from rederive.lake.names import PRESENT, column_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

METADATA: Final = "rederive.type"
INTEGER_BITS: Final[dict[type[spark_types.DataType], int]] = {
    spark_types.ByteType: 8,
    spark_types.ShortType: 16,
    spark_types.IntegerType: 32,
    spark_types.LongType: 64,
}
BITS: Final[dict[type[spark_types.DataType], int]] = {**INTEGER_BITS, spark_types.FloatType: 32}
"""The width of numbers by their type in Spark, 64 bits for all others."""
_NAME: Final = re.compile(r"([a-z]+)(?:\((\d+),(\d+)\))?(?::(\d+))?")
_SIMPLE: Final = {str(type): type for type in (SYMBOL, NUMBER, UNSIGNED, FLOAT, BOOLEAN, DATE, TIMESTAMP, BINARY, INTERVAL)}
_INTEGERS: Final = {"byte": pyarrow.int8(), "short": pyarrow.int16(), "integer": pyarrow.int32(), "long": pyarrow.int64()}
_TIMES: Final = {"timestamp": pyarrow.timestamp("us", "UTC"), "timestamp_ntz": pyarrow.timestamp("us")}
STORED_TYPES: Final = {**_INTEGERS, **_TIMES, "float": pyarrow.float32()}
MANY_ROWS: Final = 20_000
"""Rows from which on a Parquet file is faster than sending them to Spark."""


@lru_cache(maxsize=4096)
def spark_type(type: Type) -> spark_types.DataType:
    """The Spark type that holds every value of `type`, in frames. It follows from the Arrow type, so there is one type map.

    >>> spark_type(UNSIGNED), spark_type(TIMESTAMP)
    (DecimalType(20,0), TimestampNTZType())
    """
    return from_arrow_type(arrow_type(type))


@lru_cache(maxsize=4096)
def holds_exactly(found: spark_types.DataType, column: Column) -> bool:
    """Whether every value of a Spark type is one of the column's type, without conversion or check.

    >>> holds_exactly(spark_types.LongType(), Column("n", NUMBER)), holds_exactly(spark_types.IntegerType(), Column("n", NUMBER))
    (True, False)
    """
    kind = column.type.kind
    is_whole = kind in (Kind.SYMBOL, Kind.BOOLEAN, Kind.DECIMAL, Kind.BINARY, Kind.INTERVAL) or (
        kind is Kind.NUMBER and column.bits == 64
    )
    return is_whole and found == spark_type(column.type)


def column_type(field: spark_types.StructField) -> Type:
    """Our type of a table's column: the one that it was written with, or the smallest that holds every value of Spark's type.

    >>> column_type(spark_types.StructField("n", spark_types.ShortType())) == NUMBER
    True
    """
    if METADATA in (field.metadata or {}):
        return type_named(field.metadata[METADATA])
    return nested_type(field.dataType, field.name)


def nested_type(found: spark_types.DataType, name: str) -> Type:
    """Our type of a type of Spark, of a column of this name."""
    match found:
        case spark_types.ArrayType():
            return Type(Kind.ARRAY, parts=(_part("element", found.elementType, name),))
        case spark_types.MapType():
            return Type(Kind.MAP, parts=(_part("key", found.keyType, name), _part("value", found.valueType, name)))
        case spark_types.StructType():
            return Type(Kind.STRUCT, parts=tuple(_part(field.name, field.dataType, name) for field in found.fields))
        case spark_types.BinaryType():
            return BINARY
        case spark_types.DayTimeIntervalType():
            return INTERVAL
        case spark_types.StringType():
            return SYMBOL
        case spark_types.LongType() | spark_types.IntegerType() | spark_types.ShortType() | spark_types.ByteType():
            return NUMBER
        case spark_types.DoubleType() | spark_types.FloatType():
            return FLOAT
        case spark_types.BooleanType():
            return BOOLEAN
        case spark_types.DateType():
            return DATE
        case spark_types.TimestampNTZType() | spark_types.TimestampType():
            return TIMESTAMP
        case spark_types.DecimalType() as decimal:
            return Type(Kind.DECIMAL, decimal.precision, decimal.scale)
        case other:
            raise SchemaMismatch(
                f"column '{name}' has the type {other.simpleString()}, which a relation cannot have",
                hint=f"leave it out or convert it; known: {', '.join(_SIMPLE)}, decimal(p,s)",
            )


def _part(name: str, found: spark_types.DataType, column: str) -> Part:
    return Part(name, nested_type(found, column), BITS.get(type(found), 64))


def type_named(name: str) -> Type:
    """The type that prints as `name`.

    >>> type_named("decimal(10,2)")
    Type(kind=<Kind.DECIMAL: 'decimal'>, precision=10, scale=2, parts=())
    >>> str(type_named("struct<`a` array<number:32>, `b c` map<symbol, float>>"))
    'struct<`a` array<number:32>, `b c` map<symbol, float>>'
    """
    return _read_part(name, 0, "")[0].type


def _read_part(text: str, start: int, name: str) -> tuple[Part, int]:
    """The type that begins at a place of a text, and where it ends."""
    found = _NAME.match(text, start)
    assert found is not None, text[start:]
    kind, place = found[1], found.end()
    if found[2] is not None:
        return Part(name, Type(Kind.DECIMAL, int(found[2]), int(found[3]))), place
    if not text.startswith("<", place):
        return Part(name, _SIMPLE[kind], int(found[4] or 64)), place
    parts: list[Part] = []
    names = {"array": ("element",), "map": ("key", "value")}.get(kind)
    while not text.startswith(">", place):
        place += 1 if not parts else 2
        if names is None:
            end = text.index("` ", place + 1)
            called, place = text[place + 1 : end], end + 2
        else:
            called = names[len(parts)]
        part, place = _read_part(text, place, called)
        parts.append(part)
    return Part(name, Type(Kind(kind), parts=tuple(parts))), place + 1


@lru_cache(maxsize=4096)
def schema_of(relation: Relation) -> spark_types.StructType:
    """The schema of frames with the rows of a relation. Every column may be NULL: keys are checked when rows enter the database.

    Made once for each relation; nobody changes it.
    """
    if not relation.columns:
        return spark_types.StructType([spark_types.StructField(PRESENT, spark_types.BooleanType())])
    return spark_types.StructType(
        [
            spark_types.StructField(name, spark_type(type), True, {METADATA: str(type)} if not type.parts else {})
            for name, type in zip(column_names(relation), relation.types, strict=True)
        ]
    )


def table_field(field: spark_types.StructField, column: Column, *, instants: bool = True) -> spark_types.StructField:
    """The field of a column in a Delta table: it has Spark's own type, and is NOT NULL where no row can have a NULL.

    `instants`: whether a TIMESTAMP is one there, as in tables of the present format. In those of format 1 it is a TIMESTAMP_NTZ.
    """
    found = field.dataType
    if column.type == INTERVAL:
        found = spark_types.LongType()
    elif column.type.parts:
        found = from_arrow_type(arrow_types.arrow_type(column.type))
    elif column.type == NUMBER:
        found = next(kind for kind, bits in INTEGER_BITS.items() if bits == column.bits)()
    elif column.type == FLOAT and column.bits == 32:
        found = spark_types.FloatType()
    if instants and not column.without_zone:
        found = _with_instants(found)
    return spark_types.StructField(field.name, found, column.nullable, field.metadata)


def _with_instants(found: spark_types.DataType) -> spark_types.DataType:
    match found:
        case spark_types.TimestampNTZType():
            return spark_types.TimestampType()
        case spark_types.ArrayType():
            return spark_types.ArrayType(_with_instants(found.elementType), found.containsNull)
        case spark_types.MapType():
            return spark_types.MapType(_with_instants(found.keyType), _with_instants(found.valueType), found.valueContainsNull)
        case spark_types.StructType():
            fields = ((one.name, _with_instants(one.dataType), one.nullable) for one in found.fields)
            return spark_types.StructType([spark_types.StructField(*field) for field in fields])
    return found


# Rows


def arrow_table(relation: Relation, rows: Iterable[Row]) -> pyarrow.Table:
    """Rows as an Arrow table with the columns of the relation's table.

    >>> arrow_table(Relation("r", (Column("n", UNSIGNED),)), [(2**64 - 1,)]).to_pylist()
    [{'n': Decimal('18446744073709551615')}]
    """
    if not relation.columns:
        return pyarrow.table({PRESENT: pyarrow.array([True for _ in rows], pyarrow.bool_())})
    return pyarrow.table(
        to_arrow_columns(rows, [without_maps(type) for type in relation.types]), names=list(column_names(relation))
    )


def rows_of(table: pyarrow.Table, relation: Relation) -> list[Row]:
    """The rows of an Arrow table whose columns are the relation's, in its order.

    >>> r = Relation("r", (Column("n", UNSIGNED), Column("s", SYMBOL)))
    >>> rows_of(arrow_table(r, [(7, "a"), (None, "b")]), r)
    [(7, 'a'), (None, 'b')]
    """
    if not relation.columns:
        return [()] * table.num_rows
    # A table has instants, which rows have in UTC.
    columns = (c.cast(pyarrow.timestamp("us")) if pyarrow.types.is_timestamp(c.type) else c for c in table.columns)
    return from_arrow_columns(columns, relation.types)


def dataframe(spark: SparkSession, relation: Relation, rows: Iterable[Row], staging: str | None = None) -> DataFrame:
    """Rows as a data frame with the columns of the relation's table.

    `staging`: a local folder that every executor sees. Many rows go through a Parquet file in it, which must exist as long as the
    data frame is used.
    """
    return frame_of(spark, arrow_table(relation, rows), schema_of(relation), staging)


def frame_of(spark: SparkSession, table: pyarrow.Table, schema: spark_types.StructType, staging: str | None = None) -> DataFrame:
    """An Arrow table as a data frame; see `dataframe`."""
    file = f"{staging}/{uuid4().hex}.parquet" if staging is not None and table.num_rows >= MANY_ROWS else None
    return from_table(spark, table, schema, file)


def collect(frame: DataFrame, relation: Relation) -> list[Row]:
    """The rows of a data frame whose columns are the relation's, in its order."""
    if not relation.columns:
        return [()] * frame.count()
    return rows_of(frame.toArrow(), relation)
