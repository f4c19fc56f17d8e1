"""How Spark reads a stream source, and how a micro-batch of it becomes operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from rederive.errors import MalformedInput, MissingDependency, MissingFile, NotATable, SchemaMismatch
from rederive.ingest.change_feed import feed_items
from rederive.ingest.change_file import input_relation
from rederive.ingest.kafka_messages import message_items
from rederive.ingest.micro_batch import Item
from rederive.ingest.stream_sources import (
    ChangeFeed,
    ChangeFiles,
    CsvFiles,
    KafkaTopics,
    ParquetFiles,
    ReaderOptions,
    StreamSource,
)
from rederive.ingest.streamed_files import Read, change_items, csv_items, file_items, parquet_items
from rederive.ir.rules import Program, Relation
from rederive.ir.terms import Kind
from rederive.lake.delta_log import table_state
from rederive.lake.file_system import names_in, spark_path
from rederive.lake.frame_rows import check_times
from rederive.lake.jars import COMMAND, KAFKA
from rederive.lake.session import has_class
from rederive.lake.types import column_type
from rederive.locations import parse_location
from rederive.rows import wrong_names

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructType

_FILES: Final = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
# Spark silently skips files that are older than the newest one by more than this.
_ANY_AGE: Final = {"maxFileAge": "36500d"}
_PROVIDER: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_FEED_PROPERTY: Final = "delta.enableChangeDataFeed"
# Kinds of table columns that fit a declared kind; each value is checked.
_FITTING: Final = {
    Kind.NUMBER: (Kind.NUMBER, Kind.UNSIGNED),
    Kind.UNSIGNED: (Kind.UNSIGNED, Kind.NUMBER, Kind.DECIMAL),
    Kind.FLOAT: (Kind.FLOAT, Kind.NUMBER),
}

Items: TypeAlias = Callable[["pyarrow.Table"], Iterable[Item]]
"""Reads a micro-batch: its items in the order in which they apply."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An open source. `frame`: a streaming data frame. `items`: reads its batches."""

    frame: DataFrame
    items: Items


def open_stream(source: StreamSource, relation: str | None, program: Program, spark: SparkSession) -> Stream:
    """Open a source. Whatever is missing or does not fit raises an error here, before the stream starts."""
    match source:
        case ChangeFiles(path, options):
            _check_unbound(relation)
            return Stream(_files(spark, path, options), _by_file(partial(change_items, program=program)))
        case CsvFiles(path, operation, options):
            read = partial(csv_items, relation=_bound(relation, program), operation=operation)
            return Stream(_files(spark, path, options), _by_file(read))
        case ParquetFiles(path, operation, options):
            read = partial(parquet_items, relation=_bound(relation, program), operation=operation)
            return Stream(_files(spark, path, options), _by_file(read))
        case ChangeFeed(path, options):
            target = _bound(relation, program)
            return Stream(_feed(spark, path, options, target, program.zone), partial(feed_items, relation=target, name=path))
        case KafkaTopics(servers, names, options):
            _check_unbound(relation)
            # Before the stream starts: a wrong relation is an error of the call, not of a batch.
            relations = {topic: input_relation(name, program, f"topic '{topic}'") for topic, name in names.items()}
            return Stream(_topics(spark, servers, list(names), options), partial(message_items, relations=relations))


def _bound(relation: str | None, program: Program) -> Relation:
    if relation is None:
        raise MalformedInput("the relation of the rows is not named", hint="name it: relation=..., or --relation")
    return input_relation(relation, program, "relation")


def _check_unbound(relation: str | None) -> None:
    if relation is not None:
        raise MalformedInput(
            f"this source names its relations itself, and '{relation}' is named too", hint="leave the relation out"
        )


def _by_file(read: Read) -> Items:
    return partial(file_items, read=read)


# How Spark reads each source


def _reader(spark: SparkSession, form: str, options: ReaderOptions) -> DataStreamReader:
    return spark.readStream.format(form).options(**options)


def _files(spark: SparkSession, path: str, options: ReaderOptions) -> DataFrame:
    """A stream of whole files: only these give the number, the text and the order of lines."""
    path = spark_path(spark, parse_location(path))
    if names_in(spark, path) is None:
        raise MissingFile("no such folder").at(path)
    # A stream of files needs its schema in advance.
    return _reader(spark, "binaryFile", {**_ANY_AGE, **options}).schema(_FILES).load(path)


def _feed(spark: SparkSession, path: str, options: ReaderOptions, relation: Relation, zone: str) -> DataFrame:
    path = spark_path(spark, parse_location(path))
    table = table_state(spark, path)
    if table is None:
        raise NotATable("this is not a Delta table").at(path)
    if table.properties.get(_FEED_PROPERTY) != "true":
        hint = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({_FEED_PROPERTY} = true)"
        raise NotATable("the table has no change data feed", hint=hint).at(path)
    _check_columns(table.schema, relation, path)
    check_times(table.schema, zone)
    return _reader(spark, "delta", {**options, "readChangeFeed": "true"}).load(path)


def _check_columns(schema: StructType, relation: Relation, path: str) -> None:
    declared = {column.name: column.type for column in relation.columns}
    if set(schema.names) != set(declared):
        raise wrong_names(schema.names, relation).at(path)
    for found in schema.fields:
        if (type := column_type(found)).kind not in _FITTING.get(declared[found.name].kind, (declared[found.name].kind,)):
            raise SchemaMismatch(
                f"column '{found.name}' of relation '{relation.name}' is {declared[found.name]}, that of the table is {type}",
                hint="declare it as the table has it",
            ).at(path)


def _topics(spark: SparkSession, servers: str, topics: Sequence[str], options: ReaderOptions) -> DataFrame:
    if not has_class(spark, _PROVIDER):
        raise MissingDependency(
            f"the Spark session cannot read Kafka: it was started without {', '.join(KAFKA)}",
            hint=f"fetch it once for sessions that rederive starts: {COMMAND} kafka; or start yours with spark.jars.packages",
        )
    # Spark's defaults would lose messages silently: those from before the start, and those that Kafka has deleted unread.
    fixed = {"kafka.bootstrap.servers": servers, "subscribe": ",".join(topics), "failOnDataLoss": "true"}
    return _reader(spark, "kafka", {"startingOffsets": "earliest", **options, **fixed}).load()
