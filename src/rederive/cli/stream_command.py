"""`rederive stream`: a stream into a store, its changes on standard output as they are committed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rederive
from rederive.cli.commands import change_line, settle
from rederive.cli.program_files import InitialRows, Loading, define, run_files
from rederive.errors import MalformedInput
from rederive.ingest.ingestion import Ingestion, MicroBatch, StreamProgress, check_on_error, ingest
from rederive.ingest.stream_sources import ChangeFeed, ChangeFiles, CsvFiles, KafkaTopics, ParquetFiles, StreamSource
from rederive.ir.terms import UTC
from rederive.lake.session import session_in
from rederive.time_zones import zone_name


@dataclass(frozen=True, slots=True)
class StreamPlaces:
    """Where the stream comes from: exactly one of them is given; topics belong to Kafka."""

    changes: str | None
    csv: str | None
    parquet: str | None
    delta: str | None
    kafka: str | None
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How it is taken in."""

    relation: str | None
    checkpoint: str | None
    once: bool
    every: str | None
    on_error: str
    quarantine: str | None
    master: str | None
    zone: str | None


def source_of(places: StreamPlaces) -> StreamSource:
    """The one source that is given.

    >>> source_of(StreamPlaces(None, None, None, None, "localhost:9092", ("shop.stock=stock",))).relations
    {'shop.stock': 'stock'}
    """
    sources: dict[str, tuple[str | None, Callable[[str], StreamSource]]] = {
        "--changes": (places.changes, ChangeFiles),
        "--csv": (places.csv, CsvFiles),
        "--parquet": (places.parquet, ParquetFiles),
        "--delta": (places.delta, ChangeFeed),
        "--kafka": (places.kafka, lambda servers: KafkaTopics(servers, _topics(places.topics))),
    }
    given = [make(place) for place, make in sources.values() if place is not None]
    if len(given) != 1:
        raise MalformedInput(f"{len(given)} sources are given, and a stream has one", hint=f"one of {', '.join(sources)}")
    if places.topics and places.kafka is None:
        raise MalformedInput("--topic belongs to --kafka")
    return given[0]


def _topics(options: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for option in options:
        topic, equals, relation = option.rpartition("=")
        if not equals or not topic or not relation:
            raise MalformedInput(f"--topic needs TOPIC=REL, not '{option}'", hint="for example --topic shop.stock=stock")
        found[topic] = relation
    if not found:
        raise MalformedInput("--kafka needs a topic", hint="for example --topic shop.stock=stock")
    return found


def stream(path: Path, places: StreamPlaces, way: StreamOptions, opened: Callable[..., rederive.Database]) -> None:
    """What is wrong with the program or the options is said before Spark is started and the store is opened."""
    source = source_of(places)
    define(rederive.open(zone=way.zone), [path])
    check_on_error(way.on_error)
    spark = session_in(zone_name(way.zone or UTC), way.master)
    _quieten(spark._jvm)
    with opened(spark=spark) as db:
        for extended in run_files(db, [path], Loading(db, InitialRows(None, (), inputs=False))):
            _print(extended)
        running = ingest(
            db,
            source,
            relation=way.relation,
            checkpoint=way.checkpoint,
            on_error=way.on_error,
            once=way.once,
            trigger=way.every,
            quarantine=way.quarantine,
            on_batch=_told,
            spark=spark,
        )
        _say(_ended(running))
        settle(db)


def _quieten(jvm: Any) -> None:
    """Spark logs what ends a stream with a page of its own stack; here the error is said once, at the end."""
    level = jvm.org.apache.logging.log4j.Level.OFF
    jvm.org.apache.logging.log4j.core.config.Configurator.setLevel("org.apache.spark.sql.execution.streaming", level)


def _ended(running: Ingestion[rederive.Result]) -> str:
    """Wait for the end; Ctrl-C is one, after the batch that is under way."""
    try:
        progress = running.wait()
    except KeyboardInterrupt:
        progress = running.stop()
    return _summary(progress)


def _summary(progress: StreamProgress) -> str:
    return f"{progress.batches} batches, {progress.rows} rows applied, {progress.quarantined} in quarantine"


def _told(batch: MicroBatch[rederive.Result]) -> None:
    if batch.result is not None:
        _print(batch.result)
    version = "no version" if batch.result is None else f"version {batch.result.version}"
    again = ", again" if batch.result is not None and batch.result.repeated else ""
    _say(f"batch {batch.number}: {version}{again}, {batch.rows} rows, {batch.quarantined} in quarantine")


def _print(result: rederive.Result) -> None:
    """A version that was committed before a crash is printed again: it may not have been printed then."""
    for view, change in result.changes.items():
        sys.stdout.buffer.write(change_line(result.version, view, change.plus, change.minus, change.counts))
    sys.stdout.buffer.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
