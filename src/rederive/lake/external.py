"""Tables and files that others wrote, as rows of a base relation: Parquet, CSV, JSON lines, JDBC and Delta.

Everything is checked before the first row is handed on: that the data exist, their columns, their types, each value, the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import functions as F

from rederive.errors import DuplicateKey, MalformedInput, MissingFile, NotATable, RederiveError
from rederive.ir.rules import Relation
from rederive.lake.conversion import ConvertedColumn, from_json, from_text
from rederive.lake.delta_log import FAILURES, table_state
from rederive.lake.file_system import exists
from rederive.lake.frame_rows import check_names, check_rows, convert_frame, converted_frame, frame_columns, values
from rederive.lake.names import column_names, quote
from rederive.lake.types import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RAW: Final = "value"
# FAILFAST: a row of another width is an error, not a row with NULL. Without column pruning Spark counts the fields of each row.
_CSV: Final = {"header": "true", "mode": "FAILFAST", "enforceSchema": "false", "columnPruning": "false", "escape": '"'}


class ExternalFormat(Enum):
    """What the data are written in."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    JDBC = "jdbc"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class ExternalData:
    """A path, or a JDBC address. `options` are those of Spark's reader: `header`, `sep`, `dbtable`, `driver`, ..."""

    format: ExternalFormat
    location: str
    options: Mapping[str, str] = field(default_factory=dict)


def read_external(spark: SparkSession, source: ExternalData, relation: Relation, *, nulls: bool = False) -> DataFrame:
    """The rows of `source` as a set, with the columns of the relation's table.

    With `nulls`, columns outside a declared key may be NULL. The source is read twice: once to check it, once to use it.
    """
    try:
        converted = _OPENERS[source.format](spark, source, relation)
        check_rows(converted, relation, relation.key if nulls else None)
        # A base relation is a set.
        rows = values(converted, relation).distinct()
        _check_key(rows, relation)
    except RederiveError as error:
        raise error if error.place else error.at(source.location) from None
    except FAILURES as error:
        raise MalformedInput(f"cannot be read as {source.format.value}: {first_line(error)}").at(source.location) from None
    return rows


def first_line(error: Exception) -> str:
    """The first line of what Spark or Java reports."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    return text.strip().splitlines()[0]


def _check_key(rows: DataFrame, relation: Relation) -> None:
    if not relation.key:
        return
    names = column_names(relation)
    keys = [quote(names[i]) for i in relation.key]
    # The rows are distinct, so two rows with one key differ in another column.
    twice = rows.groupBy(*keys).agg(F.count("*").alias("_rows")).where(F.col("_rows") > 1).limit(1).drop("_rows")
    shared = rows.join(twice, [names[i] for i in relation.key], "left_semi").select(*map(quote, names)).limit(2)
    if len(found := rows_of(shared.toArrow(), relation)) == 2:
        raise DuplicateKey(relation.name, [relation.columns[i].name for i in relation.key], found[0], found[1])


# Opening: each gives a converted frame, see `frame_rows`


def _delta(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    if table_state(spark, source.location) is None:
        raise NotATable("no Delta table", hint="give the folder that holds _delta_log")
    return convert_frame(spark.read.format("delta").options(**source.options).load(source.location), relation)


def _parquet(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    _require(spark, source)
    if table_state(spark, source.location) is not None:
        raise NotATable("a Delta table, not plain Parquet: its folder holds deleted rows too", hint="register it as delta")
    return convert_frame(spark.read.options(**source.options).parquet(source.location), relation)


def _jdbc(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    reader = spark.read.format("jdbc").options(**source.options).option("url", source.location)
    try:
        return convert_frame(reader.load(), relation)
    except FAILURES as error:
        raise NotATable(
            f"the table cannot be opened: {first_line(error)}",
            hint="check url, dbtable, user, and the driver's jar in spark.jars",
        ) from None


def _csv(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    """With `header` (the default), columns go by name; without, by position. A row of another width is refused.

    An empty field without quotes is NULL; with quotes it is the empty text.
    """
    _require(spark, source)
    options = {**_CSV, **source.options}
    reader = spark.read.options(**options).option("inferSchema", "false").option("nullValue", "\0").option("emptyValue", "")
    if options["header"] == "true":
        check_names(reader.csv(source.location).columns, relation)
        frame = reader.csv(source.location)
    else:
        frame = reader.schema(", ".join(f"`{name}` string" for name in column_names(relation))).csv(source.location)
    pairs = zip(frame_columns(frame, relation), relation.columns, strict=True)
    return converted_frame(frame, [from_text(F.col(quote(name)), column) for name, column in pairs])


def _json(spark: SparkSession, source: ExternalData, relation: Relation) -> DataFrame:
    """Each line is an object by column name, without other names."""
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
    columns = [from_json(document, column) for column in relation.columns]
    return converted_frame(lines, columns, shape=ConvertedColumn(F.lit(None), shape))


_OPENERS: Final[Mapping[ExternalFormat, Callable[[SparkSession, ExternalData, Relation], DataFrame]]] = {
    ExternalFormat.PARQUET: _parquet,
    ExternalFormat.CSV: _csv,
    ExternalFormat.JSON: _json,
    ExternalFormat.JDBC: _jdbc,
    ExternalFormat.DELTA: _delta,
}


def _require(spark: SparkSession, source: ExternalData) -> None:
    """Refuse a path that does not exist. A path with wildcards is left to Spark."""
    if not any(sign in source.location for sign in "*?[{") and not exists(spark, source.location):
        raise MissingFile("no such path")
