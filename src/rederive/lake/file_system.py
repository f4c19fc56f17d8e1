"""Folders and files wherever Spark can reach them, by Hadoop's file systems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rederive.errors import PlaceError
from rederive.lake.delta_log import FAILURES, forget_table, java_reason
from rederive.locations import Location, RemoteAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_path(spark: SparkSession, location: Location) -> str:
    """What Spark calls a location. To us a path without a scheme is a local folder; to Spark it is on its default file system."""
    jvm: Any = spark._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    default = jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(configuration).getScheme()
    path = str(location) if isinstance(location, RemoteAddress) or default == "file" else f"file://{location}"
    try:
        jvm.org.apache.hadoop.fs.Path(path).getFileSystem(configuration)
    except FAILURES as error:
        hint = "start the session with the file system's jar and settings, or name another place"
        raise PlaceError(f"Spark cannot reach it: {java_reason(error)}", hint=hint).at(str(location)) from None
    return path


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or folder at the path."""
    files, place = _opened(spark, path)
    return bool(files.exists(place))


def names_in(spark: SparkSession, path: str) -> list[str] | None:
    """The names in a folder; None if there is no folder."""
    files, place = _opened(spark, path)
    if not files.exists(place) or not files.getFileStatus(place).isDirectory():
        return None
    return [status.getPath().getName() for status in files.listStatus(place)]


def remove(spark: SparkSession, path: str) -> None:
    """Delete the folder at the path, if there is one, and what Delta remembers of it."""
    files, place = _opened(spark, path)
    files.delete(place, True)
    # Delta caches logs by path, and would take a new table at this path for the old one.
    forget_table(spark, place)


def _opened(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's file system of a path, and the path."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), place
