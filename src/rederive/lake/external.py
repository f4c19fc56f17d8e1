"""Tables and files that somebody else wrote, as rows of a base relation: Parquet, CSV, JSON lines, JDBC and Delta.

Everything is checked before the first row is handed on: that it is there, its columns, their types, each value, the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructType, TimestampNTZType, TimestampType

from rederive.engines.spark.run.data_frame_rows import DataFrameRows, lacking
from rederive.errors import (
    DuplicateKey,
    IllTypedRow,
    MalformedInput,
    MissingFile,
    NotATable,
    RederiveError,
    SchemaMismatch,
    nearest,
)
from rederive.ir.rules import Relation
from rederive.ir.terms import UTC
from rederive.lake.conversion import Converted, from_json, from_text, from_typed, is_value
from rederive.lake.delta_log import FAILURES, exists, snapshot
from rederive.lake.names import PRESENT, column_names
from rederive.lake.session import check_zone
from rederive.lake.types import METADATA, rows_of, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RAW: Final = "value"
_CSV: Final = {"header": "true", "mode": "FAILFAST", "enforceSchema": "false", "columnPruning": "false", "escape": '"'}


class ExternalFormat(Enum):
    """Where rows can come from."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    JDBC = "jdbc"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class ExternalData:
    """A path, or a JDBC address; `options` are those of Spark's reader: `header`, `sep`, `dbtable`, `driver`, ..."""

    format: ExternalFormat
    location: str
    options: Mapping[str, str] = field(default_factory=dict)


def read_external(spark: SparkSession, source: ExternalData, relation: Relation, *, nulls: bool = False) -> DataFrame:
    """The rows of `source` as a set, with the columns of the relation's table.

    With `nulls`, columns outside a declared key may lack a value. The source is read to be checked, and again to be used.
    """
    try:
        converted = _OPENERS[source.format](spark, source, relation)
        _check(converted, relation, relation.key if nulls else _required(relation))
        rows = _values(converted, relation).distinct()
        _check_key(rows, relation)
    except RederiveError as error:
        raise error if error.place else error.at(source.location) from None
    except FAILURES as error:
        raise MalformedInput(f"cannot be read as {source.format.value}: {first_line(error)}").at(source.location) from None
    return rows


def given_rows(frame: DataFrame, relation: Relation, zone: str = UTC) -> DataFrameRows:
    """The rows of a data frame, its columns taken by name and checked; one may be there twice.

    Where no value can be wrong, but one may be missing, whoever reads the rows looks for that. `zone`: the database's.
    """
    if any(isinstance(column.dataType, TimestampType) for column in frame.schema.fields):
        check_zone(frame.sparkSession, zone)
    check_times(frame.schema, zone)
    if (plain := _as_is(frame, relation)) is not None:
        return DataFrameRows(plain, relation.types, lambda: _check(typed(frame, relation), relation, _required(relation)))
    converted = typed(frame, relation)
    check = partial(_check, converted, relation, _required(relation))
    if _may_be_wrong(converted):
        check()
        return DataFrameRows(_values(converted, relation), relation.types)
    return DataFrameRows(_values(converted, relation), relation.types, check)


def check_times(schema: StructType, zone: str) -> None:
    """Refuse timestamps without a zone for a database outside UTC, unless a lake wrote them, which does so in UTC."""
    for column in schema.fields if zone != UTC else ():
        if isinstance(column.dataType, TimestampNTZType) and METADATA not in (column.metadata or {}):
            raise SchemaMismatch(
                f"column '{column.name}' is timestamp_ntz, which has no time zone, and the database is in '{zone}'",
                hint="cast it to timestamp",
            )


def first_line(error: Exception) -> str:
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    return text.strip().splitlines()[0]


# Opening: a frame with a pair of columns for each of the relation's, the value and the problem


def _delta(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    if snapshot(spark, source.location) is None:
        raise NotATable("no Delta table", hint="give the folder that holds _delta_log")
    return typed(spark.read.format("delta").options(**source.options).load(source.location), relation)


def _parquet(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    _require(spark, source)
    if snapshot(spark, source.location) is not None:
        raise NotATable("a Delta table, not plain Parquet: its folder holds deleted rows too", hint="register it as delta")
    return typed(spark.read.options(**source.options).parquet(source.location), relation)


def _jdbc(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    reader = spark.read.format("jdbc").options(**source.options).option("url", source.location)
    try:
        return typed(reader.load(), relation)
    except FAILURES as error:
        raise NotATable(
            f"the table cannot be opened: {first_line(error)}",
            hint="check url, dbtable, user, and the driver's jar in spark.jars",
        ) from None


def _csv(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    """With `header` (the default), columns go by name; without, by position. A row of another width is refused.

    A field with nothing in it, not even quotes, is NULL.
    """
    _require(spark, source)
    options = {**_CSV, **source.options}
    reader = spark.read.options(**options).option("inferSchema", "false").option("nullValue", "\0").option("emptyValue", "")
    if options["header"] == "true":
        _check_names(reader.csv(source.location).columns, relation)
        frame = reader.csv(source.location)
    else:
        frame = reader.schema(", ".join(f"`{name}` string" for name in column_names(relation))).csv(source.location)
    return _pairs(
        frame, [from_text(F.col(_quoted(name)), c) for name, c in zip(_sources(frame, relation), relation.columns, strict=True)]
    )


def _json(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    """A line is an object by column name, with no other names."""
    _require(spark, source)
    lines = spark.read.options(**source.options).text(source.location).where(F.trim(_RAW) != "")
    document = F.try_parse_json(_RAW)
    names = F.array(*(F.lit(column.name) for column in relation.columns))
    surplus = F.array_except(F.json_object_keys(_RAW), names)
    known = ", ".join(column.name for column in relation.columns)
    shape = F.when(
        document.isNull() | F.json_object_keys(_RAW).isNull(), F.concat(F.lit("not a JSON object: "), F.substring(_RAW, 1, 60))
    )
    shape = shape.when(F.size(surplus) > 0, F.concat(F.lit("unknown column '"), surplus[0], F.lit(f"'; known: {known}")))
    return _pairs(lines, [Converted(F.lit(None), shape), *(from_json(document, column) for column in relation.columns)], 1)


_OPENERS: Final[Mapping[ExternalFormat, Callable[[SparkSession, ExternalData, Relation], DataFrame]]] = {
    ExternalFormat.PARQUET: _parquet,
    ExternalFormat.CSV: _csv,
    ExternalFormat.JSON: _json,
    ExternalFormat.JDBC: _jdbc,
    ExternalFormat.DELTA: _delta,
}


def _require(spark: SparkSession, source: ExternalData) -> None:
    if not any(sign in source.location for sign in "*?[{") and not exists(spark, source.location):
        raise MissingFile("no such path")


def typed(frame: DataFrame, relation: Relation, beside: Sequence[str] = ()) -> DataFrame:
    """`v0, v1, ...`, the frame's columns as the relation's, then `problem`, why a row is none; then the columns `beside` them."""
    _check_names([name for name in frame.columns if name not in beside], relation)
    found = {f.name: f.dataType for f in frame.schema.fields}
    pairs = zip(_sources(frame, relation), relation.columns, strict=True)
    return _pairs(frame, [from_typed(F.col(_quoted(n)), found[n], c) for n, c in pairs], beside=beside)


def _as_is(frame: DataFrame, relation: Relation) -> DataFrame | None:
    """The frame's columns in the relation's order, where they hold nothing but values of its types; NULL aside."""
    found = {field.name: field.dataType for field in frame.schema.fields}
    declared = {column.name: column for column in relation.columns}
    if not declared or found.keys() != declared.keys() or not all(is_value(found[name], declared[name]) for name in found):
        return None
    return frame if list(found) == list(declared) else frame.select(*map(_quoted, declared))


def _sources(frame: DataFrame, relation: Relation) -> list[str]:
    """For each of the relation's columns, the frame's column: by its own name, or by the name that its table gives it."""
    stored = column_names(relation)
    return [c.name if c.name in frame.columns else stored[i] for i, c in enumerate(relation.columns)]


def _check_names(names: Sequence[str], relation: Relation) -> None:
    stored = column_names(relation)
    declared = [column.name for column in relation.columns]
    for name, other in zip(declared, stored, strict=False):
        if name not in names and other not in names:
            raise SchemaMismatch(f"column '{name}' of relation '{relation.name}' is missing", hint=nearest(name, names))
    if surplus := [name for name in names if name not in declared and name not in stored]:
        raise SchemaMismatch(
            f"relation '{relation.name}' has no column '{surplus[0]}'", hint=f"leave it out: {', '.join(declared)}"
        )


def _pairs(frame: DataFrame, converted: Sequence[Converted], ahead: int = 0, beside: Sequence[str] = ()) -> DataFrame:
    """`v0, v1, ...` and the first problem. The `ahead` first pairs are no columns."""
    values = [value.alias(f"v{i}") for i, (value, _) in enumerate(converted[ahead:])]
    problems = [problem for _, problem in converted if problem is not None]
    problem = F.coalesce(*problems, F.lit(None).cast("string")) if problems else F.lit(None)
    return frame.select(*values, problem.alias("problem"), *beside)


# Checking


def _required(relation: Relation) -> list[int]:
    return [i for i, column in enumerate(relation.columns) if not column.nullable]


def _check(converted: DataFrame, relation: Relation, required: Sequence[int]) -> None:
    """Refuse what is no value, and NULL in the columns that need one. What Spark rules out is not looked for."""
    fields = {field.name: field for field in converted.schema.fields}
    nullable = [i for i in required if fields[f"v{i}"].nullable]
    nulls = [F.col(f"v{i}").isNull() for i in nullable]
    watched = [*nulls, *([F.col("problem").isNotNull()] if _may_be_wrong(converted) else [])]
    wrong = converted.where(reduce(or_, watched)).select("problem", *nulls).limit(1).collect() if watched else []
    for problem, *null in wrong:
        if problem is not None:
            shape = problem.startswith(("not a JSON", "unknown column"))
            raise (MalformedInput if shape else IllTypedRow)(f"relation '{relation.name}': {problem}")
        raise lacking(relation, nullable[null.index(True)])


def _may_be_wrong(converted: DataFrame) -> bool:
    """Whether a value of another type is on its way to the relation's; NULL aside."""
    return not isinstance(converted.schema["problem"].dataType, NullType)


def _values(converted: DataFrame, relation: Relation) -> DataFrame:
    if not relation.columns:
        return converted.select(F.lit(True).alias(PRESENT))
    fields = schema_of(relation).fields
    return converted.select(*(F.col(f"v{i}").alias(f.name, metadata=f.metadata) for i, f in enumerate(fields)))


def _check_key(rows: DataFrame, relation: Relation) -> None:
    if not relation.key:
        return
    names = column_names(relation)
    keys = [_quoted(names[i]) for i in relation.key]
    twice = rows.groupBy(*keys).agg(F.count("*").alias("_rows")).where(F.col("_rows") > 1).limit(1).drop("_rows")
    shared = rows.join(twice, [names[i] for i in relation.key], "left_semi").select(*map(_quoted, names)).limit(2)
    if len(found := rows_of(shared.toArrow(), relation)) == 2:
        raise DuplicateKey(relation.name, [relation.columns[i].name for i in relation.key], found[0], found[1])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
