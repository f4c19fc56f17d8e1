"""Spark sessions that can read and write Delta tables.

A session that is handed in, or that runs already, is used as it is: nothing of its configuration is changed. Only where no
context runs in the process is one built. What is missing for it (pyspark, Java, the jars) is found out, and said, before anything
starts.
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

from rederive.errors import Mismatch, MissingDependency
from rederive.lake import jars
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


def spark_session(
    existing: SparkSession | None = None, *, master: str | None = None, options: Mapping[str, str] | None = None
) -> SparkSession:
    """`existing`, or the session that runs already, or a new one with `options` on top of ours."""
    _require_pyspark()
    from pyspark.sql import SparkSession

    from rederive.engines.spark.session.sessions import running_session

    if running := existing or running_session():
        return require_delta(running)
    require_java()
    builder = SparkSession.builder.appName("rederive")
    for name, value in settings(master, options).items():
        builder = builder.config(name, value)
    built = builder.getOrCreate()
    if (built.sparkContext.master or "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        built.sparkContext.pythonExec = sys.executable  # workers are of this environment, not the first python3 on the PATH
    return require_delta(built)


def zoned(zone: str) -> dict[str, str]:
    """The options of a session that is built here for a database."""
    return {_ZONE: zone}


def session_in(zone: str, master: str | None = None) -> SparkSession:
    """A session of our own in a time zone, on the context that runs, or on one that is started for it."""
    from rederive.engines.spark.session.sessions import like_session

    found = like_session(spark_session(master=master, options=zoned(zone)))
    found.conf.set(_ZONE, zone)
    return found


def session_zone(spark: SparkSession | None) -> str | None:
    """The time zone of a session, or of the one that runs already; None where none does. Starts nothing and imports nothing."""
    if spark is None and "pyspark.sql" in sys.modules:
        from rederive.engines.spark.session.sessions import running_session

        spark = running_session()
    return zone_name(str(spark.conf.get(_ZONE))) if spark is not None else None


def check_zone(spark: SparkSession | None, zone: str) -> None:
    """Refuse a session in which the same text would mean another time than in the database."""
    if spark is not None and (found := session_zone(spark)) != zone:
        raise Mismatch(
            f"the Spark session is in the time zone '{found}', and the database in '{zone}'",
            hint=f"set it in the session: spark.conf.set('spark.sql.session.timeZone', '{zone}')",
        )


def settings(master: str | None = None, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """The configuration of a session that is built here; small where Spark runs inside this process.

    Under spark-submit, the master and the jars are its own to choose.
    """
    shown = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}  # Spark's own progress, where somebody sees it
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        return {**_SETTINGS, **shown, **(options or {})}
    master = master or "local[*]"
    local = _local(master) if master.startswith("local[") else {}
    found = {"spark.master": master, "spark.jars": ",".join(map(str, _jars())), **_SETTINGS, **shown, **local}
    return {**found, **(options or {})}


def _local(master: str) -> dict[str, str]:
    """Few partitions: a task costs more than a partition of a small relation."""
    cores = re.match(r"local\[(\d+)", master)
    partitions = cores[1] if cores else str(os.cpu_count() or 2)
    return {
        "spark.sql.shuffle.partitions": partitions,
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": partitions,
    }


def _jars() -> tuple[Path, ...]:
    found = jars.resolved()
    if found is None:
        raise MissingDependency("the jars of Delta Lake are missing", hint=f"fetch them once: {jars.COMMAND}").at(
            str(jars.folder())
        )
    return found + tuple(jar for packages in jars.OPTIONAL.values() for jar in jars.resolved(packages=packages) or ())


def require_delta(spark: SparkSession) -> SparkSession:
    """`spark` itself if it has Delta; otherwise the error says which settings it lacks."""
    lacking = [f"{name}={value}" for name, value in DELTA.items() if value not in (spark.conf.get(name, "") or "")]
    if not has_class(spark, DELTA["spark.sql.catalog.spark_catalog"]):
        lacking.append(f"spark.jars.packages={','.join(jars.PACKAGES)}")
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
    for part in name.split("."):
        found = getattr(found, part)
    return not isinstance(found, JavaPackage)


def require_java() -> None:
    """Refuse to start where Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    hint = f"install Java {_OLDEST_JAVA} (`make java`), and let JAVA_HOME or PATH lead to it"
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise MissingDependency(f"Spark needs Java, and there is none {where}", hint=hint)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    major = re.search(r'version "(\d+)', said)
    if major is None or int(major[1]) < _OLDEST_JAVA:
        raise MissingDependency(
            f"Spark needs Java {_OLDEST_JAVA}, and {java} is {said.splitlines()[0] if said else 'broken'}", hint=hint
        )


def _require_pyspark() -> None:
    try:
        with warnings.catch_warnings():
            # What pyspark says about pandas 3 concerns its pandas API, which is not used here.
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
            import delta  # noqa: F401
            import pyspark.sql  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingDependency(f"the Python package '{error.name}' is missing", hint="pip install 'rederive[spark]'") from None
