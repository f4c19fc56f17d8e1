"""Micro-batches of Kafka messages, each a Debezium envelope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from rederive.engines.protocol import Operation
from rederive.errors import MalformedInput
from rederive.ingest.debezium import envelope_operations
from rederive.ingest.micro_batch import Item, read_or_reject
from rederive.ir.rules import Relation

if TYPE_CHECKING:
    import pyarrow


def message_items(table: pyarrow.Table, relations: Mapping[str, Relation]) -> Iterator[Item]:
    """The operations of messages, each partition in the order of its offsets. All messages with one key are in one partition."""
    # Kafka orders messages within a partition only. The order among
    # partitions is arbitrary, but must be the same at each reading.
    ordered = table.sort_by([(column, "ascending") for column in ("topic", "partition", "offset")])
    columns = (ordered.column(name).to_pylist() for name in ("topic", "partition", "offset", "value"))
    for topic, partition, offset, value in zip(*columns, strict=True):
        raw = None if value is None else value.decode(errors="replace")
        yield from read_or_reject(_reader(value, relations[topic], f"{topic}[{partition}]@{offset}"), raw)


def _reader(value: bytes | None, relation: Relation, place: str) -> Callable[[], tuple[Operation, ...]]:
    return lambda: envelope_operations(None if value is None else _text(value, place), relation, place)


def _text(value: bytes, place: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise MalformedInput(f"not UTF-8: byte 0x{value[error.start]:02x}").at(place) from None
