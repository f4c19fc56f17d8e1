"""The Java libraries of Delta Lake, fetched once by `python -m rederive.lake.jars`; with `kafka` or `postgresql`, those drivers.

Spark's own resolver fetches them, the one behind `spark.jars.packages`, so a mirror that is configured for Spark is used. They
are stored in this Python environment, or in `$REDERIVE_JARS`, and every session starts from there, without a network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rederive.errors import MissingDependency, RederiveError

PACKAGES: Final = ("io.delta:delta-spark_4.2_2.13:4.4.0",)
"""For Spark 4.2 and Scala 2.13. The wheel of delta-spark has no jars; its patch release may differ from theirs."""

KAFKA: Final = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",)
"""Only streams of Kafka topics need these, so they are fetched separately, and used if they are present."""

POSTGRESQL: Final = ("org.postgresql:postgresql:42.7.4",)
"""The JDBC driver for remote relations in PostgreSQL; fetched separately too."""

OPTIONAL: Final = {"kafka": KAFKA, "postgresql": POSTGRESQL}

# Spark has its own release of these; a second one on the class path could shadow it.
_WITH_SPARK: Final = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:*",
    "com.google.code.findbugs:*",
    "commons-logging:*",
    "commons-pool:*",
    "io.airlift:*",
    "javax.annotation:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.checkerframework:*",
    "org.locationtech.jts:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
_RESOLVE: Final = """
import sys
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway
launch_gateway(SparkConf(loadDefaults=False).setAll(list(zip(sys.argv[1::2], sys.argv[2::2])))).shutdown()
"""
COMMAND: Final = "python -m rederive.lake.jars"


def folder(packages: Sequence[str] = PACKAGES) -> Path:
    """The folder of the jars."""
    chosen = os.environ.get("REDERIVE_JARS")
    place = Path(chosen) if chosen else Path(sys.prefix) / "share" / "rederive" / "jars"
    separate = [name for name, found in OPTIONAL.items() if found == packages]
    return place.joinpath(*separate)


def find_jars(place: Path | None = None, packages: Sequence[str] = PACKAGES) -> tuple[Path, ...] | None:
    """The jars; None if they were not fetched yet, or only those of another release.

    >>> find_jars(Path("/nowhere")) is None
    True
    """
    place = place or folder(packages)
    try:
        found = json.loads((place / "resolved.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    jars = tuple(place / "jars" / name for name in found["jars"])
    return jars if found["packages"] == list(packages) and all(jar.exists() for jar in jars) else None


def fetch_jars(place: Path | None = None, packages: Sequence[str] = PACKAGES) -> tuple[Path, ...]:
    """The jars, which are fetched if they are missing."""
    place = place or folder(packages)
    if jars := find_jars(place, packages):
        return jars
    place.mkdir(parents=True, exist_ok=True)
    # On the same file system as the target, so that moving a jar is a rename.
    with tempfile.TemporaryDirectory(dir=place) as fresh:
        _fetch(packages, Path(fresh))
        jars_folder = place / "jars"
        jars_folder.mkdir(exist_ok=True)
        names = sorted(jar.name for jar in Path(fresh, "jars").iterdir())
        for name in names:
            Path(fresh, "jars", name).replace(jars_folder / name)
    # The list is written last, by an atomic rename: without it nothing counts as fetched, and the next call fetches again.
    draft = place / "resolved.json.new"
    draft.write_text(json.dumps({"packages": packages, "jars": names}, indent=1), encoding="utf-8")
    draft.replace(place / "resolved.json")
    return tuple(jars_folder / name for name in names)


def _fetch(packages: Sequence[str], place: Path) -> None:
    settings = {
        "spark.jars.packages": ",".join(packages),
        "spark.jars.excludes": ",".join(_WITH_SPARK),
        "spark.jars.ivy": str(place),
    }
    arguments = [part for setting in settings.items() for part in setting]
    # A process of its own: resolving starts a JVM, and a process can start only one.
    done = subprocess.run([sys.executable, "-c", _RESOLVE, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingDependency(
            f"the jars of {', '.join(packages)} cannot be fetched: {_reason(done.stderr)}",
            hint="connect to a network once, or name a mirror in DEFAULT_ARTIFACT_REPOSITORY or in Spark's settings; "
            f"on a machine without network, copy {folder()} from another one",
        )


def _reason(log: str) -> str:
    lines = [line.strip() for line in log.splitlines()]
    telling = [line for line in lines if line.startswith(("Exception in thread", "Error:")) or "Error" in line.split(":")[0]]
    return (telling or [line for line in lines if line] or ["no reason given"])[0]


def main(arguments: Sequence[str] = ()) -> int:
    """Fetch jars, and print where they are."""
    if unknown := [name for name in arguments if name not in OPTIONAL]:
        print(
            f"unknown jars '{unknown[0]}'; known: {', '.join(OPTIONAL)}, or no name for Delta Lake's",
            file=sys.stderr,
        )
        return 2
    for packages in [OPTIONAL[name] for name in arguments] or [PACKAGES]:
        try:
            jars = fetch_jars(packages=packages)
        except RederiveError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"The jars of {', '.join(packages)} are there: {len(jars)} in {folder(packages)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
