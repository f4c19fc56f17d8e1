"""Structured Streaming into a database: every micro-batch is one transaction, which applies once.

The order of steps for a batch, and why a kill between two of them loses nothing and applies nothing twice:
  1. The batch is read.                      Killed here: Spark returns the same batch after the restart.
  2. The database commits it, with a key made of the stream's id and the batch's number. Killed here: the batch is read again,
     gives the same operations, and the database knows the key and changes nothing.
  3. Rejected input goes to the quarantine.  The table's log has the last batch of the stream, so a repetition appends nothing.
  4. The store's cursor of the stream moves; then Spark's checkpoint has the batch.
A lake is settled in the background while the next batches are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol

from rederive import failpoints
from rederive.engines.protocol import Operation
from rederive.engines.spark.session.sessions import acting, like_session
from rederive.errors import DataError, Mismatch, NoStore, RederiveError, StreamError, UnknownOption
from rederive.ingest.micro_batch import DecodedBatch, decode_batch
from rederive.ingest.quarantine import quarantine as put_into_quarantine
from rederive.ingest.stream_cursor import cursor_of_stream
from rederive.ingest.stream_reader import Items, open_stream
from rederive.ingest.stream_sources import StreamSource, identity
from rederive.ir.rules import Program
from rederive.lake.file_system import names_in, spark_path
from rederive.lake.session import check_zone, spark_session
from rederive.locations import parse_location
from rederive.result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ON_ERROR: Final = ("fail", "quarantine")


class TargetState(Protocol):
    """What a stream needs of the state of a database."""

    version: int
    spark: SparkSession | None

    @property
    def program(self) -> Program:
        """The current definitions."""

    @property
    def folder(self) -> Path | None:
        """The folder of the store."""

    @property
    def lake(self) -> str | None:
        """The root of the lake."""

    def cursor(self, name: str) -> int | None:
        """The version that a named cursor has acknowledged."""

    def acknowledge(self, name: str, version: int) -> None:
        """Move a named cursor."""

    @property
    def streams(self) -> dict[str, Ingestion]:
        """The streams of this process, by the names of their cursors."""


class IngestTarget(Protocol):
    """What a stream needs of the commit pipeline of a database."""

    @property
    def state(self) -> TargetState:
        """The state of the database."""

    def commit_operations(self, operations: Sequence[Operation], key: str | None = None) -> Result:
        """Commit a transaction under an idempotency key."""

    def settle(self, *, wait: bool = True) -> int:
        """Bring the lake to the last version."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch that is done. `rows`: how many were applied. `result`: None if there was nothing to apply."""

    number: int
    rows: int
    quarantined: int
    result: Result | None


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """What a stream has done since it was started. `repeated`: batches that had been committed before a crash."""

    batches: int = 0
    rows: int = 0
    quarantined: int = 0
    repeated: int = 0
    version: int | None = None

    def after(self, batch: MicroBatch) -> StreamProgress:
        """The progress after one more batch."""
        result = batch.result
        return replace(
            self,
            batches=self.batches + 1,
            rows=self.rows + batch.rows,
            quarantined=self.quarantined + batch.quarantined,
            repeated=self.repeated + (result is not None and result.repeated),
            version=self.version if result is None else result.version,
        )


OnBatch = Callable[[MicroBatch], None]


class Ingestion:
    """A stream that runs or has ended. While it runs, no other thread may use the database."""

    def __init__(self, batches: BatchLoop, query: StreamingQuery) -> None:
        self._batches = batches
        self.query = query

    @property
    def id(self) -> str:
        """The stream's id, which is stored in its checkpoint."""
        return str(self.query.id)

    @property
    def progress(self) -> StreamProgress:
        """What the stream has done so far."""
        return self._batches.progress

    @property
    def running(self) -> bool:
        """Whether the stream has not ended yet."""
        return self.query.isActive

    @property
    def error(self) -> str | None:
        """What ended the stream, or stopped its last batch; None if nothing did."""
        return str(self._batches.error) if self._batches.error is not None else None

    def wait(self, seconds: float | None = None) -> StreamProgress:
        """The progress when the stream ends, or after so many seconds; raises the error that ended the stream."""
        from pyspark.errors import StreamingQueryException

        try:
            # In seconds; None waits without end. pyspark's annotation does not allow None.
            self.query.awaitTermination(seconds)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            raise self._batches.error or _stream_error(str(error)) from None
        return self.progress

    def stop(self) -> StreamProgress:
        """End the stream after the current batch."""
        # Stopping a query interrupts its thread. So the current batch ends first, and then one that began in between.
        self._batches.idle.wait()
        self.query.stop()
        self._batches.idle.wait()
        return self.progress


def ingest(
    db: IngestTarget,
    source: StreamSource,
    *,
    relation: str | None = None,
    checkpoint: str | Path | None = None,
    on_error: str = "fail",
    once: bool = True,
    trigger: str | None = None,
    quarantine: str | None = None,
    on_batch: OnBatch | None = None,
    spark: SparkSession | None = None,
) -> Ingestion:
    """Start to take a stream into a database that has a store, one transaction for each micro-batch.

    `relation`: the relation of the rows of CSV, Parquet and a change feed. `checkpoint`: where Spark stores its progress;
    by default a folder in the store. `on_error`: with "fail", input that cannot be read ends the stream, and nothing of its batch
    is applied; with "quarantine", it goes to the Delta table `quarantine`, by default a folder in the lake or in the store.
    `once`: take what is available now, then end; otherwise continue, at intervals of `trigger` ("5 seconds") if it is given.
    `on_batch` is called after each batch. `spark`: the session whose context runs the stream, by default the database's; its
    configuration does not change.
    """
    check_on_error(on_error)
    state = db.state
    if state.folder is None:
        raise NoStore("a stream")
    # A session in another zone would read other timestamps out of the same input.
    check_zone(spark or state.spark, state.program.zone)
    # A session of the stream's own: the settings of streams do not reach the user's.
    session = like_session(spark_session(spark or state.spark))
    name = identity(source, relation)
    root = parse_location(quarantine) if quarantine else parse_location(state.lake or state.folder) / "quarantine"
    rejected = spark_path(session, root)
    # A folder for each source: its name may be any text, and a hash of it is a name for a folder.
    folder = spark_path(session, parse_location(checkpoint or state.folder / "streams" / sha256(name.encode()).hexdigest()[:16]))
    with acting(session):
        stream = open_stream(source, relation, state.program, session)
        transactions = _Transactions(db, stream.items, name, rejected if on_error == "quarantine" else None)
        _check_checkpoint(db, session, folder, name)
        started = start_stream(stream.frame, BatchLoop(transactions.apply, on_batch), folder, once=once, trigger=trigger)
        state.streams[cursor_of_stream(started.id, name)] = started
        return started


def start_stream(frame: DataFrame, batches: BatchLoop, checkpoint: str, *, once: bool, trigger: str | None) -> Ingestion:
    """Start a query whose micro-batches go to `batches`: what is available now, or without end."""
    writer = frame.writeStream.foreachBatch(batches.take).option("checkpointLocation", checkpoint)
    # availableNow takes what is there in batches of the size that
    # the options allow; Spark's older `once` takes all in one.
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger or "0 seconds")
    query = _start(writer.start)
    batches.begin(str(query.id))
    return Ingestion(batches, query)


def check_on_error(choice: str) -> None:
    """Raise UnknownOption for a choice that is neither fail nor quarantine."""
    if choice not in ON_ERROR:
        raise UnknownOption("on_error", choice, ON_ERROR)


def _check_checkpoint(db: IngestTarget, spark: SparkSession, checkpoint: str, source: str) -> None:
    """Refuse a checkpoint whose finished batches are not in this store: Spark would skip them, and they would be missing.

    Every finished batch leaves a cursor in the store, with the stream's id and its source in the name.
    """
    # Spark writes the file commits/N after batch N is done, and metadata with the id when the stream first starts.
    if not names_in(spark, f"{checkpoint}/commits"):
        return
    line = spark.read.text(f"{checkpoint}/metadata").head()
    # The id is Spark's, and survives restarts: it is part of every idempotency key.
    id = json.loads(line[0])["id"] if line is not None else ""
    try:
        is_known = db.state.cursor(cursor_of_stream(id, source)) is not None
    except Mismatch:
        raise Mismatch(
            f"the checkpoint has batches of a history that the store no longer has, as it was restored: this is {source}",
            hint="use another checkpoint: what the source still has is read from its beginning",
        ).at(checkpoint) from None
    if not is_known:
        raise Mismatch(
            f"the checkpoint has batches of another stream, which are not in this store: this is {source}",
            hint="use one checkpoint for each store and source",
        ).at(checkpoint)


def _start(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return start()
    except PySparkException as error:
        raise _stream_error(str(error)) from error
    except Py4JJavaError as error:
        raise _stream_error(str(error.java_exception.getMessage())) from error


def _stream_error(message: str) -> StreamError:
    """The first line of what Spark reports, without the stack trace."""
    # The rest is a stack trace of Java, which Spark logs itself.
    reason = next((line.strip() for line in message.splitlines() if line.strip()), "Spark gives no reason")
    return StreamError(reason, hint="the next start continues with the batch that was not finished")


class BatchLoop:
    """Applies the batches of one stream, one after the other, in Spark's thread: `apply(frame, number, id of the stream)`."""

    def __init__(self, apply: Callable[[DataFrame, int, str], MicroBatch], on_batch: OnBatch | None) -> None:
        self.progress = StreamProgress()
        self.error: BaseException | None = None
        self.idle = Event()
        self.idle.set()
        self._apply = apply
        self._on_batch = on_batch
        self._id = ""
        self._begun = Event()

    def begin(self, id: str) -> None:
        """Let the first batch start: a batch needs the stream's id, which is known only after Spark has started the query."""
        self._id = id
        self._begun.set()

    def take(self, frame: DataFrame, number: int) -> None:
        """Apply one batch. An error reaches Spark too, so that Spark repeats the batch; `wait` raises the original."""
        # Spark may run the first batch before `start` has returned.
        self._begun.wait()
        self.idle.clear()
        try:
            batch = self._apply(frame, number, self._id)
            # Another thread reads it: the whole value is replaced, never changed in place.
            self.progress = self.progress.after(batch)
            if self._on_batch is not None:
                self._on_batch(batch)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.idle.set()


class _Transactions:
    """Commits each batch as one transaction."""

    def __init__(self, db: IngestTarget, items: Items, source: str, quarantine: str | None) -> None:
        self._db = db
        self._items = items
        self._source = source
        self._quarantine = quarantine

    def apply(self, frame: DataFrame, number: int, id: str) -> MicroBatch:
        """Commit one batch; what cannot be read goes to the quarantine."""
        # Reading a batch again gives the same operations, so the key finds the version of the first time.
        read = operations_of(frame, self._items)
        if read.rejected and self._quarantine is None:
            raise _with_help(read.rejected[0].error)
        failpoints.hit("stream:batch")
        # The commit precedes the quarantine: if the database refuses the
        # batch, nothing of it is in quarantine, and all of it is read again.
        result = self._db.commit_operations(read.operations, key=f"stream:{id}:{number}") if read.operations else None
        failpoints.hit("stream:committed")
        if read.rejected and self._quarantine is not None:
            put_into_quarantine(frame.sparkSession, self._quarantine, id, number, read.rejected)
        # After the quarantine: a cursor says that everything of a batch is in its place.
        self._db.state.acknowledge(cursor_of_stream(id, self._source), self._db.state.version)
        failpoints.hit("stream:quarantined")
        # In the background: a batch is done when the journal has it, not when the lake does.
        if self._db.state.lake is not None and result is not None:
            self._db.settle(wait=False)
        return MicroBatch(number, read.rows, len(read.rejected), result)


def operations_of(frame: DataFrame, items: Items) -> DecodedBatch:
    """A micro-batch as operations. Only here do its rows come to the driver."""
    return decode_batch(items(frame.toArrow()))


def _with_help(error: DataError) -> RederiveError:
    help = "correct the input, or leave such rows out with on_error=quarantine; nothing of the batch was applied"
    error.hint = f"{error.hint}; {help}" if error.hint else help
    return error
