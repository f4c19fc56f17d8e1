"""`rederive stream`: ingest a stream into a store, and print the changes of each version when it is committed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import rederive
from rederive import opening
from rederive.cli.options import EngineName, Lake, Program, StoredStrategy, StoreFolder, Zone
from rederive.cli.output import change_line, settle_lake
from rederive.cli.program_files import InitialRows, Loading, define, run_files
from rederive.errors import MalformedInput
from rederive.ir.terms import UTC
from rederive.lake.session import session_in
from rederive.store.recovery import stored_zone
from rederive.time_zones import zone_name

# `rederive.ingest` imports PySpark, which takes a second: the other commands must not wait for it.
if TYPE_CHECKING:
    from rederive.ingest.ingestion import Ingestion, MicroBatch, StreamProgress
    from rederive.ingest.stream_sources import StreamSource


@dataclass(frozen=True, slots=True)
class StreamPlaces:
    """Where a stream comes from. Exactly one place is given; topics belong to Kafka."""

    changes: str | None
    csv: str | None
    parquet: str | None
    delta: str | None
    kafka: str | None
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream is ingested."""

    relation: str | None
    checkpoint: str | None
    once: bool
    every: str | None
    on_error: str
    quarantine: str | None
    master: str | None
    zone: str | None


def stream(
    program: Program,
    store: StoreFolder = None,
    lake: Lake = None,
    changes: Annotated[
        str | None, typer.Option("--changes", help="A folder of JSON lines, as for run.", show_default=False)
    ] = None,
    csv: Annotated[str | None, typer.Option("--csv", help="A folder of CSV files with a column _op.", show_default=False)] = None,
    parquet: Annotated[
        str | None, typer.Option("--parquet", help="A folder of Parquet files with a column _op.", show_default=False)
    ] = None,
    delta: Annotated[
        str | None, typer.Option("--delta", help="A Delta table with a change data feed.", show_default=False)
    ] = None,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="SERVERS", help="Kafka with Debezium envelopes.", show_default=False)
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC=REL", help="A topic and the relation that it changes.")
    ] = None,
    relation: Annotated[
        str | None, typer.Option("--relation", help="The relation that --csv, --parquet or --delta changes.", show_default=False)
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Where Spark stores its offsets.", show_default="in the store")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when the present input is ingested.")] = False,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="INTERVAL", help='Time between batches, for example "5 seconds".', show_default=False),
    ] = None,
    on_error: Annotated[str, typer.Option("--on-error", help="For input that cannot be read: fail or quarantine.")] = "fail",
    quarantine: Annotated[
        str | None, typer.Option("--quarantine", help="A Delta table for input that cannot be read.", show_default="in the store")
    ] = None,
    strategy: StoredStrategy = None,
    engine: EngineName = None,
    master: Annotated[str | None, typer.Option("--master", help="The master of Spark.", show_default="local[*]")] = None,
    zone: Zone = None,
) -> None:
    """Ingest a stream, one transaction for each micro-batch, and print the exact changes of each version as JSON lines.

    After any end, the next start continues from the store and applies nothing twice. Needs Spark and Java.

    Example: `rederive stream examples/closure.dl --store graph --changes incoming --on-error quarantine`
    """
    folder, _ = opening.places(store, None, lake)
    # A store has its zone already. Opening it refuses another one.
    of_store = stored_zone(folder) if folder is not None else None
    places = StreamPlaces(changes, csv, parquet, delta, kafka, tuple(topic or ()))
    options = StreamOptions(relation, checkpoint, once, every, on_error, quarantine, master, of_store or zone)
    open_database = partial(rederive.open, store, strategy=strategy, engine=engine, lake=lake, zone=zone)
    _stream(program, places, options, open_database)


def _stream(path: Path, places: StreamPlaces, options: StreamOptions, open_database: Callable[..., rederive.Database]) -> None:
    from rederive.ingest.ingestion import check_on_error, ingest

    # The program and the options are checked before Spark starts and the store is opened.
    source = source_of(places)
    # In a database of its own, which is thrown away: only the errors matter here.
    define(rederive.open(zone=options.zone), [path])
    check_on_error(options.on_error)
    spark = session_in(zone_name(options.zone or UTC), options.master)
    _silence_stream_log(spark._jvm)
    with open_database(spark=spark) as db:
        for result in run_files(db, [path], Loading(db, InitialRows(None, (), inputs=False))):
            _print_changes(result)
        running = ingest(
            db.pipeline,
            source,
            relation=options.relation,
            checkpoint=options.checkpoint,
            on_error=options.on_error,
            once=options.once,
            trigger=options.every,
            quarantine=options.quarantine,
            on_batch=_report_batch,
            spark=spark,
        )
        _report(_wait(running))
        settle_lake(db)


def source_of(places: StreamPlaces) -> StreamSource:
    """Return the one source that is given.

    >>> source_of(StreamPlaces(None, None, None, None, "localhost:9092", ("shop.stock=stock",))).relations
    {'shop.stock': 'stock'}
    """
    from rederive.ingest.stream_sources import ChangeFeed, ChangeFiles, CsvFiles, KafkaTopics, ParquetFiles

    sources: dict[str, tuple[str | None, Callable[[str], StreamSource]]] = {
        "--changes": (places.changes, ChangeFiles),
        "--csv": (places.csv, CsvFiles),
        "--parquet": (places.parquet, ParquetFiles),
        "--delta": (places.delta, ChangeFeed),
        "--kafka": (places.kafka, lambda servers: KafkaTopics(servers, _topics(places.topics))),
    }
    # One source: the checkpoint and the keys of its batches belong to it.
    given = [make(place) for place, make in sources.values() if place is not None]
    if len(given) != 1:
        raise MalformedInput(f"{len(given)} sources are given, and a stream has one", hint=f"give one of {', '.join(sources)}")
    if places.topics and places.kafka is None:
        raise MalformedInput("--topic is given without --kafka", hint="give --kafka SERVERS")
    return given[0]


def _topics(options: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for option in options:
        # From the right: a topic may contain "=", and a relation cannot.
        topic, equals, relation = option.rpartition("=")
        if not equals or not topic or not relation:
            raise MalformedInput(f"--topic needs TOPIC=REL, not '{option}'", hint="for example --topic shop.stock=stock")
        found[topic] = relation
    if not found:
        raise MalformedInput("--kafka needs a topic", hint="for example --topic shop.stock=stock")
    return found


def _silence_stream_log(jvm: Any) -> None:
    """Silence the stack trace that Spark logs when a stream fails: the error is printed once, at the end."""
    level = jvm.org.apache.logging.log4j.Level.OFF
    jvm.org.apache.logging.log4j.core.config.Configurator.setLevel("org.apache.spark.sql.execution.streaming", level)


def _wait(running: Ingestion) -> StreamProgress:
    """Wait for the end of the stream. Ctrl-C ends it after the present batch."""
    try:
        return running.wait()
    except KeyboardInterrupt:
        # The batch is committed whole before the stream ends, so the next start repeats nothing.
        return running.stop()


def _report_batch(batch: MicroBatch) -> None:
    if batch.result is not None:
        _print_changes(batch.result)
    version = "no version" if batch.result is None else f"version {batch.result.version}"
    repeated = ", repeated" if batch.result is not None and batch.result.repeated else ""
    _write_status(f"batch {batch.number}: {version}{repeated}, {batch.rows} rows, {batch.quarantined} in quarantine")


def _report(progress: StreamProgress) -> None:
    _write_status(f"{progress.batches} batches, {progress.rows} rows applied, {progress.quarantined} in quarantine")


def _print_changes(result: rederive.Result) -> None:
    """Print the changes of a version. A version of a batch that is repeated after a crash is printed again: at least once."""
    for view, change in result.changes.items():
        sys.stdout.buffer.write(change_line(result.version, view, change.plus, change.minus, change.counts))
    # Flushed with each version, so that a reader of the pipe follows the stream.
    sys.stdout.buffer.flush()


def _write_status(text: str) -> None:
    sys.stderr.write(f"{text}\n")
