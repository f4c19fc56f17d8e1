"""Structured Streaming into a database: every micro-batch is one transaction, applied once.

A batch is committed under a key made of the stream's id, which its checkpoint keeps, and the batch's number. After a crash Spark
hands out the batch that was not finished once more; read again it gives the same operations, and the database, which knows the
key, changes nothing. What could not be read is put into quarantine after the commit, once too: the table remembers the batch.
A lake is settled in the background while the next batches are taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from rederive import failpoints
from rederive.engines.protocol import Operation
from rederive.engines.spark.session.sessions import acting, like_session
from rederive.errors import DataError, Mismatch, NoStore, RederiveError, StreamError, UnknownOption
from rederive.ingest.micro_batch import Decoded, gathered
from rederive.ingest.quarantine import quarantine as put_into_quarantine
from rederive.ingest.stream_reader import Items, open_stream
from rederive.ingest.stream_sources import StreamSource, identity
from rederive.ir.rules import Program
from rederive.lake.file_system import names_in, spark_path
from rederive.lake.session import check_zone, spark_session
from rederive.locations import parse_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ON_ERROR: Final = ("fail", "quarantine")


class Committed(Protocol):
    """The result of a transaction, as far as a stream looks at it."""

    @property
    def version(self) -> int: ...

    @property
    def repeated(self) -> bool: ...


R = TypeVar("R", bound=Committed)
R_co = TypeVar("R_co", bound=Committed, covariant=True)


class TargetState(Protocol):
    """The state of a database, as far as a stream needs it."""

    version: int
    spark: SparkSession | None

    @property
    def program(self) -> Program: ...

    @property
    def folder(self) -> Path | None: ...

    @property
    def lake(self) -> str | None: ...

    def cursor(self, name: str) -> int | None: ...

    def acknowledge(self, name: str, version: int) -> None: ...


class Target(Protocol[R_co]):
    """The commit pipeline of a database, as far as a stream needs it."""

    @property
    def state(self) -> TargetState: ...

    def commit_operations(self, operations: Sequence[Operation], key: str | None = None) -> R_co: ...

    def settle(self, *, wait: bool = True) -> int: ...


@dataclass(frozen=True, slots=True)
class MicroBatch(Generic[R]):
    """A micro-batch that is done. `result`: None where there was nothing to apply. `rows`: how many were applied."""

    number: int
    rows: int
    quarantined: int
    result: R | None


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """What a stream has done since it was started. `repeated`: batches that were committed before a crash already."""

    batches: int = 0
    rows: int = 0
    quarantined: int = 0
    repeated: int = 0
    version: int | None = None


class Ingestion(Generic[R]):
    """A stream that is running, or has ended. While it runs, the database is the stream's: other threads leave it alone."""

    def __init__(self, batches: _Batches[R], query: StreamingQuery) -> None:
        self._batches = batches
        self.query = query

    @property
    def id(self) -> str:
        """The stream's id, which its checkpoint keeps."""
        return str(self.query.id)

    @property
    def progress(self) -> StreamProgress:
        return self._batches.progress

    @property
    def running(self) -> bool:
        return self.query.isActive

    def wait(self, seconds: float | None = None) -> StreamProgress:
        """What the stream has done when it ends, or after so many seconds; the error that ended it is raised."""
        from pyspark.errors import StreamingQueryException

        try:
            self.query.awaitTermination(seconds)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            raise self._batches.error or _explained(str(error)) from None
        return self.progress

    def stop(self) -> StreamProgress:
        """End the stream, after the batch that it is at."""
        self._batches.idle.wait()
        self.query.stop()
        self._batches.idle.wait()
        return self.progress


def ingest(
    db: Target[R],
    source: StreamSource,
    *,
    relation: str | None = None,
    checkpoint: str | Path | None = None,
    on_error: str = "fail",
    once: bool = True,
    trigger: str | None = None,
    quarantine: str | None = None,
    on_batch: Callable[[MicroBatch[R]], None] | None = None,
    spark: SparkSession | None = None,
) -> Ingestion[R]:
    """Start to take a stream into a database that has a store, one transaction for each micro-batch.

    `relation`: the one that CSV, Parquet and a change feed are for. `checkpoint`: where Spark keeps how far the stream is, by
    default a folder in the store. `on_error`: what cannot be read ends the stream, with nothing of its batch applied; or it goes
    to the Delta table `quarantine`, by default a folder in the lake or, without one, in the store. `once`: what is there now,
    then end; otherwise go on, at intervals of `trigger` ("5 seconds") where it is given. `on_batch` is told of each batch when
    it is done. `spark`: the session on whose context to run, by default the database's; it stays as it is.
    """
    check_on_error(on_error)
    state = db.state
    if state.folder is None:
        raise NoStore("a stream")
    check_zone(spark or state.spark, state.program.zone)
    session = like_session(spark_session(spark or state.spark))
    name = identity(source, relation)
    aside = spark_path(
        session, parse_location(quarantine) if quarantine else parse_location(state.lake or state.folder) / "quarantine"
    )
    kept = spark_path(session, parse_location(checkpoint or state.folder / "streams" / sha256(name.encode()).hexdigest()[:16]))
    with acting(session):
        stream = open_stream(source, relation, state.program, session)
        batches = _Batches(db, stream.items, name, aside if on_error == "quarantine" else None, on_batch)
        _check_known(db, session, kept, name)
        writer = stream.frame.writeStream.foreachBatch(batches.take).option("checkpointLocation", kept)
        writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=trigger or "0 seconds")
        query = _started(writer.start)
    batches.begin(str(query.id))
    return Ingestion(batches, query)


def check_on_error(choice: str) -> None:
    """Refuse what is neither of the two."""
    if choice not in ON_ERROR:
        raise UnknownOption("on_error", choice, ON_ERROR)


def _check_known(db: Target[R], spark: SparkSession, checkpoint: str, source: str) -> None:
    """Whoever has finished a batch of a stream has left a cursor: a store without one would miss that batch."""
    if not names_in(spark, f"{checkpoint}/commits"):
        return
    line = spark.read.text(f"{checkpoint}/metadata").head()
    id = json.loads(line[0])["id"] if line is not None else ""
    try:
        known = db.state.cursor(_cursor(id, source)) is not None
    except Mismatch:
        raise Mismatch(
            f"the checkpoint has batches of a history that the store no longer has, as it was restored: this is {source}",
            hint="use another checkpoint: what the source still has is read from its beginning",
        ).at(checkpoint) from None
    if not known:
        raise Mismatch(
            f"the checkpoint has batches of another stream, which are not in this store: this is {source}",
            hint="use one checkpoint for each store and source",
        ).at(checkpoint)


def _cursor(id: str, source: str) -> str:
    return f"stream:{id} {source}"


def _started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        return start()
    except PySparkException as error:
        raise _explained(str(error)) from error
    except Py4JJavaError as error:
        raise _explained(str(error.java_exception.getMessage())) from error


def _explained(said: str) -> StreamError:
    """Spark's own words, without the trace."""
    reason = next((line.strip() for line in said.splitlines() if line.strip()), "Spark gives no reason")
    return StreamError(reason, hint="the next start goes on with the batch that was not finished")


class _Batches(Generic[R]):
    """What is done with the batches of one stream, by Spark's thread, one after the other."""

    def __init__(
        self, db: Target[R], items: Items, source: str, quarantine: str | None, on_batch: Callable[[MicroBatch[R]], None] | None
    ) -> None:
        self.progress = StreamProgress()
        self.error: BaseException | None = None
        self.idle = Event()
        self.idle.set()
        self._db = db
        self._items = items
        self._source = source
        self._quarantine = quarantine
        self._on_batch = on_batch
        self._id = ""
        self._begun = Event()

    def begin(self, id: str) -> None:
        """Batches wait until the stream's id is known."""
        self._id = id
        self._begun.set()

    def take(self, frame: DataFrame, number: int) -> None:
        """Spark is told of a failure too, and knows then that the batch is not done; the error itself is kept for the caller."""
        self._begun.wait()
        self.idle.clear()
        try:
            batch = self._applied(frame, number)
            self.progress = _later(self.progress, batch)
            if self._on_batch is not None:
                self._on_batch(batch)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.idle.set()

    def _applied(self, frame: DataFrame, number: int) -> MicroBatch[R]:
        read = operations_of(frame, self._items)
        if read.rejected and self._quarantine is None:
            raise _with_way_out(read.rejected[0].error)
        failpoints.hit("stream:batch")
        result = self._db.commit_operations(read.operations, key=f"stream:{self._id}:{number}") if read.operations else None
        failpoints.hit("stream:committed")
        if read.rejected and self._quarantine is not None:
            put_into_quarantine(frame.sparkSession, self._quarantine, self._id, number, read.rejected)
        self._db.state.acknowledge(_cursor(self._id, self._source), self._db.state.version)
        failpoints.hit("stream:quarantined")
        if self._db.state.lake is not None and result is not None:
            self._db.settle(wait=False)
        return MicroBatch(number, read.rows, len(read.rejected), result)


def operations_of(frame: DataFrame, items: Items) -> Decoded:
    """A micro-batch as operations: the one place where its rows come to the driver."""
    return gathered(items(frame.toArrow()))


def _with_way_out(error: DataError) -> RederiveError:
    way = "nothing of the batch was applied; mend it, or leave such rows out: on_error=quarantine"
    error.hint = f"{error.hint}; {way}" if error.hint else way
    return error


def _later(progress: StreamProgress, batch: MicroBatch[R]) -> StreamProgress:
    result = batch.result
    return replace(
        progress,
        batches=progress.batches + 1,
        rows=progress.rows + batch.rows,
        quarantined=progress.quarantined + batch.quarantined,
        repeated=progress.repeated + (result is not None and result.repeated),
        version=progress.version if result is None else result.version,
    )
