"""What a stream can come from. These classes only describe a source: creating one starts no Spark and reads nothing.

Users import them from `rederive.sources`; `ingest.stream_reader` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from rederive.locations import parse_location

OPERATION: Final = "_op"
"""The default name of the column that says what to do with a row."""

ReaderOptions: TypeAlias = Mapping[str, str]
"""Options of Spark's stream reader, such as `maxFilesPerTrigger`."""


@dataclass(frozen=True, slots=True)
class ChangeFiles:
    """A folder of change files: JSON lines in the format of `rederive run --changes`, each line with its own relations.

    >>> ChangeFiles("/data/changes", {"maxFilesPerTrigger": "1"}).path
    '/data/changes'
    """

    path: str
    options: ReaderOptions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CsvFiles:
    """A folder of CSV files with a header, for one relation. The column `operation` holds insert, delete or upsert.

    >>> CsvFiles("/data/edges").operation
    '_op'
    """

    path: str
    operation: str = OPERATION
    options: ReaderOptions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """A folder of Parquet files, for one relation. The column `operation` holds insert, delete or upsert.

    >>> ParquetFiles("/data/edges", operation="action").operation
    'action'
    """

    path: str
    operation: str = OPERATION
    options: ReaderOptions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """The change data feed of a Delta table, for one relation: first the rows of the table, then its changes.

    The option `startingVersion` leaves out the rows and starts with the changes of that Delta commit.

    >>> ChangeFeed("/lake/orders", {"startingVersion": "7"}).path
    '/lake/orders'
    """

    path: str
    options: ReaderOptions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KafkaTopics:
    """Kafka topics of Debezium envelopes, from their beginning; `relations` maps each topic to a relation.

    >>> KafkaTopics("localhost:9092", {"shop.public.stock": "stock"}).servers
    'localhost:9092'
    """

    servers: str
    relations: Mapping[str, str]
    options: ReaderOptions = field(default_factory=dict)


StreamSource: TypeAlias = ChangeFiles | CsvFiles | ParquetFiles | ChangeFeed | KafkaTopics


def identity(source: StreamSource, relation: str | None) -> str:
    """The text that says which stream a checkpoint belongs to: the same location, read for the same relation.

    Stores hold it in the names of cursors, so it must not change from one release to the next.

    >>> identity(CsvFiles("/data/edges"), "edge")
    'CsvFiles /data/edges edge'
    >>> identity(KafkaTopics("localhost:9092", {"t": "stock"}), None)
    'Topics t=stock'
    """
    match source:
        # Without the servers: a cluster may move to other addresses, and the stream stays the same.
        case KafkaTopics(_, relations):
            return " ".join(("Topics", *(f"{topic}={name}" for topic, name in sorted(relations.items()))))
        case _:
            return " ".join((type(source).__name__, str(parse_location(source.path)), *([relation] if relation else ())))
