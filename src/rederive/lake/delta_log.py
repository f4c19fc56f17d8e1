"""What is asked of a Delta table's log: what it is, what it holds, who wrote last. Only here are Delta's classes used."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from delta import exceptions as delta_exceptions
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from rederive.errors import NotATable, PlaceError, WriteConflict
from rederive.locations import Location, RemoteAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION: Final = "rederive"
"""The name under which a table remembers the last version of ours that was written to it."""

FAILURES: Final = (PySparkException, Py4JJavaError)
"""What a query raises."""

_SETTINGS: Final = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}
_LOG: Final = "_delta_log"
_BEFORE_COMMIT: Final = re.compile(r"\.|_staged_commits$|_commits$|_sidecars$")  # temporary files, and folders
_DATA: Final = re.compile(r"\.?part-\d+-")
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A Delta table as it is now. `written`: the last version of ours that was written to it."""

    version: int
    schema: StructType
    properties: dict[str, str]
    written: int | None
    files: int
    size: int


def snapshot(spark: SparkSession, path: str) -> Snapshot | None:
    """The table at `path` as it is now; None where there is no Delta table."""
    jvm: Any = spark._jvm
    none = jvm.scala.Option.empty()
    try:
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
        state = log.update(False, none, none)
    except FAILURES as error:
        raise NotATable(f"the log of the table cannot be read: {_reason(error)}", hint="restore its _delta_log").at(
            path
        ) from None
    if state.version() < 0:
        return None
    written = state.transactions().get(APPLICATION)
    return Snapshot(
        version=state.version(),
        schema=StructType.fromJson(json.loads(state.schema().json())),
        properties=_properties(state.metadata().configuration()),
        written=int(written.get()) if written.isDefined() else None,
        files=state.numOfFiles(),
        size=state.sizeInBytes(),
    )


def _reason(error: Exception) -> str:
    """What Java says, without the trace."""
    said = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    return said.partition("\n")[0]


def _properties(configuration: Any) -> dict[str, str]:
    pairs, found = configuration.iterator(), {}
    while pairs.hasNext():
        pair = pairs.next()
        found[pair._1()] = pair._2()
    return found


def spark_path(spark: SparkSession, place: Location) -> str:
    """What Spark calls a place. A path without a scheme means a local folder to us, and to Spark its default file system."""
    jvm: Any = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    default = jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(configuration).getScheme()
    path = str(place) if isinstance(place, RemoteAddress) or default == "file" else f"file://{place}"
    try:
        jvm.org.apache.hadoop.fs.Path(path).getFileSystem(configuration)
    except FAILURES as error:
        hint = "start the session with the file system's jar and settings, or name another place"
        raise PlaceError(f"Spark cannot reach it: {_reason(error)}", hint=hint).at(str(place)) from None
    return path


def exists(spark: SparkSession, path: str) -> bool:
    """Whether anything at all is at the path."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return bool(place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).exists(place))


def names_in(spark: SparkSession, path: str) -> list[str] | None:
    """The names in a folder; None where there is no folder."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    files = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(place) or not files.getFileStatus(place).isDirectory():
        return None
    return [status.getPath().getName() for status in files.listStatus(place)]


def is_unfinished(spark: SparkSession, path: str) -> bool:
    """Whether a first write was stopped before its commit. Nobody can read what it left, and the next first write goes over it.

    Delta makes the folder of the log, then data files, then the commit. Anything else in the folder is somebody's.
    """
    names = names_in(spark, path)
    if not names:
        return names is not None
    log = names_in(spark, f"{path}/{_LOG}")
    return log is not None and all(map(_BEFORE_COMMIT.match, log)) and all(name == _LOG or _DATA.match(name) for name in names)


def remove(spark: SparkSession, path: str) -> None:
    """Delete the folder at the path, if there is one."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).delete(place, True)
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, place)


def once(version: int | None) -> dict[str, str]:
    """The options of a write that is done once for each version: Delta skips it where the table remembers this one or a later.

    >>> once(None)
    {}
    """
    if version is None:
        return {}
    return {"txnAppId": APPLICATION, "txnVersion": str(version), "userMetadata": json.dumps({APPLICATION: version})}


@contextmanager
def written_as(private: SparkSession, version: int) -> Iterator[None]:
    """The same for a MERGE, which takes no options: they are settings of a session, which nobody else may write with."""
    settings = {_SETTINGS[name]: value for name, value in once(version).items()}
    for name, value in settings.items():
        private.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            private.conf.unset(name)


def version_noted(note: str | None) -> int | None:
    """The version of ours that a commit carries.

    >>> version_noted('{"rederive": 7}'), version_noted(None), version_noted("by hand")
    (7, None, None)
    """
    try:
        found = json.loads(note or "null")
    except ValueError:
        return None
    return found.get(APPLICATION) if isinstance(found, dict) else None


def retried(write: Callable[[], T], place: str) -> T:
    """What `write` gives. Where another writer was faster, it is tried again on the table as that one left it, a few times."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return write()
        except _CONFLICTS:
            time.sleep(_PAUSE * attempt)
    try:
        return write()
    except _CONFLICTS as error:
        raise WriteConflict(
            f"another writer changed the table during each of {_ATTEMPTS} attempts",
            hint="base tables, views and change tables of a lake are written by rederive alone: stop the other writer",
        ).at(place) from error


_CONFLICTS: Final = (
    delta_exceptions.ConcurrentAppendException,
    delta_exceptions.ConcurrentDeleteDeleteException,
    delta_exceptions.ConcurrentDeleteReadException,
    delta_exceptions.ConcurrentTransactionException,
    delta_exceptions.ConcurrentWriteException,
    delta_exceptions.MetadataChangedException,
)
