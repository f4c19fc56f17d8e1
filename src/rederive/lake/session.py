"""Spark sessions that can read and write Delta tables.

A session that is passed in, or that runs already, is used as it is, and its configuration does not change. A new one is built
only if no Spark context runs in this process. What it needs (pyspark, Java, the jars) is checked before anything starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rederive.boundary import guard
from rederive.errors import Mismatch, MissingDependency, Unsupported
from rederive.time_zones import zone_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_ZONE: Final = "spark.sql.session.timeZone"
_SETTINGS: Final = {
    **DELTA,
    "spark.log.level": "ERROR",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    _ZONE: "UTC",
    "spark.ui.enabled": "false",
}
_OLDEST_JAVA: Final = 17
_DEFAULT_PYTHON: Final = "python3"  # what Spark starts where nothing is set


@guard
def spark_session(
    existing: SparkSession | None = None, *, master: str | None = None, options: Mapping[str, str] | None = None
) -> SparkSession:
    """`existing`, or the running session, or a new one with our settings and `options`, which win."""
    _import_pyspark()
    from pyspark.sql import SparkSession

    from rederive.engines.spark.session.sessions import running_session

    if running := existing or running_session():
        _reach_workers(require_classic(running))
        _log_progress(running)
        return require_delta(running)
    require_java()
    builder = SparkSession.builder.appName("rederive")
    for name, value in settings(master, options).items():
        builder = builder.config(name, value)
    built = builder.getOrCreate()
    _reach_workers(built)
    _log_progress(built)
    return require_delta(built)


def _log_progress(spark: SparkSession) -> None:
    from rederive.lake.progress import log_progress

    log_progress(spark)


def _reach_workers(spark: SparkSession) -> None:
    """Have Python workers on this machine run this interpreter, and find this package, whatever the PATH leads to.

    On a cluster, executors have interpreters of their own: where one lacks the package, the error says what to set.
    """
    context = spark.sparkContext
    if not (context.master or "").startswith("local"):
        return
    # What the user has chosen stays: an interpreter by the environment, and one that was set on the context.
    if "PYSPARK_PYTHON" not in os.environ and context.pythonExec == _DEFAULT_PYTHON:
        context.pythonExec = sys.executable
    folder = str(Path(__file__).parent.parent.parent)
    paths = context.environment.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in paths:
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*paths, folder]))


def zone_options(zone: str) -> dict[str, str]:
    """The options of a new session in a time zone."""
    return {_ZONE: zone}


def session_in(zone: str, master: str | None = None) -> SparkSession:
    """A session of our own in a time zone, on the running context, or on a new one."""
    from rederive.engines.spark.session.sessions import like_session

    found = like_session(spark_session(master=master, options=zone_options(zone)))
    found.conf.set(_ZONE, zone)
    return found


def session_zone(spark: SparkSession | None) -> str | None:
    """The time zone of a session, by default the running one; None if none runs. This starts no session and imports no Spark."""
    if spark is None and "pyspark.sql" in sys.modules:
        from rederive.engines.spark.session.sessions import running_session

        spark = running_session()
    return zone_name(str(spark.conf.get(_ZONE))) if spark is not None else None


def check_zone(spark: SparkSession | None, zone: str) -> None:
    """Refuse a session whose time zone differs from the database's: a text would mean two different times."""
    if spark is not None and (found := session_zone(spark)) != zone:
        raise Mismatch(
            f"the Spark session is in the time zone '{found}', and the database in '{zone}'",
            hint=f"set it in the session: spark.conf.set('spark.sql.session.timeZone', '{zone}')",
        )


def settings(master: str | None = None, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """The configuration of a new session; with few partitions if Spark runs inside this process.

    Under spark-submit, the submit command chooses the master and the jars.
    """
    shown = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}  # Spark's progress bar, on a terminal only
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        return {**_SETTINGS, **shown, **(options or {})}
    master = master or "local[*]"
    local = _local(master) if master.startswith("local[") else {}
    found = {"spark.master": master, "spark.jars": ",".join(map(str, _jars())), **_SETTINGS, **shown, **local}
    return {**found, **(options or {})}


def _local(master: str) -> dict[str, str]:
    """Settings for Spark inside this process. Few partitions: a task costs more than a partition of a small relation."""
    # `local[*]` has no number: all cores of the machine.
    cores = re.match(r"local\[(\d+)", master)
    partitions = cores[1] if cores else str(os.cpu_count() or 2)
    return {
        "spark.sql.shuffle.partitions": partitions,
        # Delta's default for the state of one table is 50 partitions.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": partitions,
    }


def _jars() -> tuple[Path, ...]:
    from rederive.lake import jars  # not at the top: `python -m rederive.lake.jars` would import itself twice

    found = jars.find_jars()
    if found is None:
        raise MissingDependency("the jars of Delta Lake are missing", hint=f"fetch them once: {jars.COMMAND}").at(
            str(jars.folder())
        )
    return found + tuple(jar for packages in jars.OPTIONAL.values() for jar in jars.find_jars(packages=packages) or ())


def require_classic(session: SparkSession) -> SparkSession:
    """The session itself, unless it is one of Spark Connect, which has no JVM of its own."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise Unsupported(
            "a session of Spark Connect: rederive plans queries and reads the logs of tables in the driver's JVM",
            hint="run rederive in a process with a classic session (builder.master(...)), and read its tables from here",
        )
    return session


def require_delta(spark: SparkSession) -> SparkSession:
    """The session itself if it can write Delta tables; otherwise an error names the settings that are missing."""
    lacking = [f"{name}={value}" for name, value in DELTA.items() if value not in (spark.conf.get(name, "") or "")]
    if not has_class(spark, DELTA["spark.sql.catalog.spark_catalog"]):
        from rederive.lake.jars import PACKAGES

        lacking.append(f"spark.jars.packages={','.join(PACKAGES)}")
    if lacking:
        raise MissingDependency(
            f"the Spark session cannot write Delta tables: it was started without {' and '.join(lacking)}",
            hint="start it with these settings, or let rederive build the session",
        )
    return spark


def has_class(spark: SparkSession, name: str) -> bool:
    """Whether a class is on the session's class path."""
    from py4j.java_gateway import JavaPackage  # type: ignore[import-untyped]

    found: object = spark._jvm
    # Py4J resolves a class name part by part.
    for part in name.split("."):
        found = getattr(found, part)
    # py4j takes every unknown name for a package.
    return not isinstance(found, JavaPackage)


def require_java() -> None:
    """Raise MissingDependency if Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    hint = f"install Java {_OLDEST_JAVA} (`make java`), and let JAVA_HOME or PATH lead to it"
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise MissingDependency(f"Spark needs Java, and there is none {where}", hint=hint)
    # Java prints its version to standard error.
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    major = re.search(r'version "(\d+)', said)
    if major is None or int(major[1]) < _OLDEST_JAVA:
        raise MissingDependency(
            f"Spark needs Java {_OLDEST_JAVA}, and {java} is {said.splitlines()[0] if said else 'broken'}", hint=hint
        )


def _import_pyspark() -> None:
    with warnings.catch_warnings():
        # The warning about pandas 3 concerns pyspark's pandas API, which rederive does not use.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        import delta  # noqa: F401
        import pyspark.sql  # noqa: F401
