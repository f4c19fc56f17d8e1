"""What the log of a Delta table says: its columns, its properties, and the last version of ours that was written to it.

Idempotent writes are built on that: a write carries its version, and Delta skips it if the table has that version already. So
whoever is killed between a write and its note in the journal may repeat the write. Only this module uses Delta's Java classes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delta import exceptions as delta_exceptions
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from rederive.errors import NotATable, WriteConflict
from rederive.lake.names import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APPLICATION: Final = "rederive"
"""The application id under which a table's log holds the last version of ours that was written to it."""

FAILURES: Final = (PySparkException, Py4JJavaError)
"""What a Spark query raises."""

_SETTINGS: Final = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}
LOG: Final = "_delta_log"
_BEFORE_COMMIT: Final = re.compile(r"\.|_staged_commits$|_commits$|_sidecars$")  # temporary files, and folders
_DATA: Final = re.compile(r"\.?part-\d+-")
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.2  # seconds after the first attempt; twice that after the second, and so on
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableState:
    """A Delta table at a commit, by default the last one. `id`: Delta's identity of the table, which a replacement changes.

    `written`: the last version of ours that was written to it. `size`: bytes in all its files. `comment`: empty if it has none.
    """

    id: str
    version: int
    schema: StructType
    properties: dict[str, str]
    written: int | None
    files: int
    size: int
    comment: str = ""


def table_state(spark: SparkSession, path: str, version: int | None = None) -> TableState | None:
    """The table at `path` as it is now, or as of a commit; None if there is no Delta table."""
    jvm: Any = spark._jvm
    none = jvm.scala.Option.empty()
    try:
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
        # False: a stale snapshot, which Delta would refresh in the background, is not good enough.
        state = log.update(False, none, none) if version is None else log.getSnapshotAt(version, none, none, False)
    except FAILURES as error:
        raise NotATable(f"the log of the table cannot be read: {java_reason(error)}", hint="restore its _delta_log").at(
            path
        ) from None
    # Delta gives version -1 to a folder without a log.
    if state.version() < 0:
        return None
    written = state.transactions().get(APPLICATION)
    return TableState(
        id=state.metadata().id(),
        version=state.version(),
        schema=StructType.fromJson(json.loads(state.schema().json())),
        properties=_properties(state.metadata().configuration()),
        written=int(written.get()) if written.isDefined() else None,
        files=state.numOfFiles(),
        size=state.sizeInBytes(),
        comment=state.metadata().description() or "",
    )


def set_comments(spark: SparkSession, path: str, comment: str, columns: Mapping[str, str]) -> None:
    """Give the table at `path` this comment, and its columns theirs; what it has already makes no commit."""
    state = table_state(spark, path)
    if state is None:
        return
    table = f"delta.{quote(path)}"
    if comment != state.comment:
        spark.sql(f"COMMENT ON TABLE {table} IS {_text(comment)}")
    for field in state.schema.fields:
        if (wanted := columns.get(field.name, "")) != (field.metadata or {}).get("comment", ""):
            spark.sql(f"ALTER TABLE {table} ALTER COLUMN {quote(field.name)} COMMENT {_text(wanted)}")


def set_not_null(spark: SparkSession, path: str, columns: Collection[str]) -> None:
    """Make columns of the table at `path` NOT NULL; none of its rows may have NULL there.

    Spark refuses ALTER COLUMN SET NOT NULL, and Delta's own transaction does not.
    """
    if not columns:
        return
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    transaction = log.startTransaction()
    old = transaction.metadata()
    schema = StructType.fromJson(json.loads(old.schemaString()))
    for field in schema.fields:
        field.nullable = field.nullable and field.name not in columns
    found = (old.id(), old.name(), old.description(), old.format(), schema.json(), old.partitionColumns(), old.configuration())
    transaction.updateMetadata(old.copy(*found, old.createdTime()), False)
    nothing = getattr(getattr(jvm.scala.collection.immutable, "Nil$"), "MODULE$")
    operation = getattr(getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
    transaction.commit(nothing, operation)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def commit_changes(spark: SparkSession, path: str, after: int, upto: int, *, from_files: bool) -> DataFrame:
    """The rows that the commits after `after` up to `upto` put in and took out, with Delta's column `_change_type`.

    By the change data feed, or, with `from_files`, from the files that the log adds and removes, with their deletion vectors.
    Either way a commit that only rearranges files (dataChange=false) has no rows.
    """
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    none = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    end = jvm.scala.Option.apply(log.getSnapshotAt(upto, none, none, False))
    reader = jvm.org.apache.spark.sql.delta.commands.cdc.CDCReader
    rows = reader.changesToBatchDF(log, after + 1, upto, spark._jsparkSession, none, end, from_files, none)
    return DataFrame(rows, spark)


def table_location(spark: SparkSession, table: str) -> str:
    """The path of a Delta table that is given by its path or by its name in the catalog.

    >>> table_location(None, "/data/sale"), table_location(None, "delta.`s3://shop/sale`")
    ('/data/sale', 's3://shop/sale')
    """
    if table.startswith("delta.`") and table.endswith("`"):
        return table[len("delta.`") : -1]
    if "/" in table:
        return table
    from delta.tables import DeltaTable  # pulls in much of pyspark, which a path does not need

    try:
        return str(DeltaTable.forName(spark, table).detail().collect()[0]["location"])
    except FAILURES as error:
        raise NotATable(f"the catalog has no Delta table '{table}': {java_reason(error)}", hint="give its name or path") from None


def java_reason(error: Exception) -> str:
    """The first line of what Java reports, without the stack trace."""
    # Py4J's own text begins with the call and not with the reason.
    said = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    return said.partition("\n")[0]


def _properties(configuration: Any) -> dict[str, str]:
    # A map of Scala, which Py4J does not convert.
    pairs, found = configuration.iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        found[pair._1()] = pair._2()
    return found


def write_checkpoint(spark: SparkSession, path: str) -> None:
    """Write a checkpoint of the table's log, so that readers need not read every commit. Old commits are removed, too."""
    jvm: Any = spark._jvm
    none = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    log.checkpoint(log.update(False, none, none), none)


def forget_table(spark: SparkSession, path: Any) -> None:
    """Drop what Delta has cached about the table at a Hadoop path."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, path)


def is_first_write_unfinished(log: list[str] | None, names: list[str]) -> bool:
    """Whether a folder holds only what a first write leaves that was killed before its commit.

    `log`: the names in its `_delta_log`, None without one. `names`: those in the folder. Delta makes the folder of the log, then
    data files, then the commit. So nobody can read what is there, and the next first write replaces it. Any other file in the
    folder belongs to somebody else.

    >>> is_first_write_unfinished([], ["_delta_log", "part-00000-x.parquet"]), is_first_write_unfinished(None, ["notes.txt"])
    (True, False)
    """
    if not names:
        return True
    # Files that look like ours are not enough: without the folder of a log they may be somebody's plain Parquet.
    return log is not None and all(map(_BEFORE_COMMIT.match, log)) and all(name == LOG or _DATA.match(name) for name in names)


def idempotent_options(version: int | None) -> dict[str, str]:
    """The options of a write that belongs to a version: Delta skips it if the table has this version or a later one.

    >>> idempotent_options(None)
    {}
    """
    if version is None:
        return {}
    # The log keeps only the last txnVersion. The metadata stay with each commit, and time travel finds a version by them.
    return {"txnAppId": APPLICATION, "txnVersion": str(version), "userMetadata": json.dumps({APPLICATION: version})}


@contextmanager
def idempotent_session(private: SparkSession, version: int) -> Iterator[None]:
    """The same for MERGE, which takes no options: they become settings of a session that nobody else writes in."""
    settings = {_SETTINGS[name]: value for name, value in idempotent_options(version).items()}
    for name, value in settings.items():
        private.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            private.conf.unset(name)


def version_in(note: str | None) -> int | None:
    """The version of ours that the metadata of a Delta commit name; None if they name none.

    >>> version_in('{"rederive": 7}'), version_in(None), version_in("by hand")
    (7, None, None)
    """
    try:
        # Other writers of Delta put any text there.
        found = json.loads(note or "null")
    except ValueError:
        return None
    return found.get(APPLICATION) if isinstance(found, dict) else None


def retry_on_conflict(write: Callable[[], T], place: str) -> T:
    """The result of `write`, which is repeated on the new state of the table if another writer committed first."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return write()
        except _CONFLICTS:
            # Delta has rolled back: nothing of the attempt is in the table.
            time.sleep(_PAUSE * attempt)
    try:
        return write()
    except _CONFLICTS as error:
        raise WriteConflict(
            f"another writer changed the table during each of {_ATTEMPTS} attempts",
            hint="stop the other writer: only rederive may write the tables of a lake",
        ).at(place) from error


_CONFLICTS: Final = (
    delta_exceptions.ConcurrentAppendException,
    delta_exceptions.ConcurrentDeleteDeleteException,
    delta_exceptions.ConcurrentDeleteReadException,
    delta_exceptions.ConcurrentTransactionException,
    delta_exceptions.ConcurrentWriteException,
    delta_exceptions.MetadataChangedException,
)
