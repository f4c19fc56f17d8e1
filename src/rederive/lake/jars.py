"""The Java libraries that Delta tables need, fetched once: `python -m rederive.lake.jars`; and those of `... kafka postgresql`.

Spark's own resolver does it, the one behind `spark.jars.packages`, so a mirror that is set up for Spark is used here too. What it
finds is kept in this Python environment (or in `$REDERIVE_JARS`), and every later session starts from there, without a network.
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
"""For Spark 4.2 and Scala 2.13. The wheel of delta-spark holds Python alone; its patch release may differ from the jars'."""

KAFKA: Final = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",)
"""For streams of Kafka's topics alone, so they are fetched apart, and used where they are there."""

POSTGRESQL: Final = ("org.postgresql:postgresql:42.7.4",)
"""The JDBC driver, for remote relations that live in PostgreSQL; fetched apart too."""

OPTIONAL: Final = {"kafka": KAFKA, "postgresql": POSTGRESQL}

# Spark brings its own release of these; a second one on the class path would only be in its way.
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
    """Where the jars are kept."""
    chosen = os.environ.get("REDERIVE_JARS")
    place = Path(chosen) if chosen else Path(sys.prefix) / "share" / "rederive" / "jars"
    apart = [name for name, found in OPTIONAL.items() if found == packages]
    return place.joinpath(*apart)


def resolved(place: Path | None = None, packages: Sequence[str] = PACKAGES) -> tuple[Path, ...] | None:
    """The jars, or None where they were not fetched yet, or only for another release.

    >>> resolved(Path("/nowhere")) is None
    True
    """
    place = place or folder(packages)
    try:
        found = json.loads((place / "resolved.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    jars = tuple(place / "jars" / name for name in found["jars"])
    return jars if found["packages"] == list(packages) and all(jar.exists() for jar in jars) else None


def resolve(place: Path | None = None, packages: Sequence[str] = PACKAGES) -> tuple[Path, ...]:
    """The jars, fetched if they are not there yet."""
    place = place or folder(packages)
    if jars := resolved(place, packages):
        return jars
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as fresh:
        _fetch(packages, Path(fresh))
        kept = place / "jars"
        kept.mkdir(exist_ok=True)
        names = sorted(jar.name for jar in Path(fresh, "jars").iterdir())
        for name in names:
            Path(fresh, "jars", name).replace(kept / name)
    # Last of all and at once: before it nothing counts as fetched.
    draft = place / "resolved.json.new"
    draft.write_text(json.dumps({"packages": packages, "jars": names}, indent=1), encoding="utf-8")
    draft.replace(place / "resolved.json")
    return tuple(kept / name for name in names)


def _fetch(packages: Sequence[str], place: Path) -> None:
    settings = {
        "spark.jars.packages": ",".join(packages),
        "spark.jars.excludes": ",".join(_WITH_SPARK),
        "spark.jars.ivy": str(place),
    }
    arguments = [part for setting in settings.items() for part in setting]
    done = subprocess.run([sys.executable, "-c", _RESOLVE, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingDependency(
            f"the jars of {', '.join(packages)} cannot be fetched: {_reason(done.stderr)}",
            hint="a network is needed this once; a mirror is named in DEFAULT_ARTIFACT_REPOSITORY or in Spark's own settings; "
            f"on a machine without network, copy {folder()} from another one",
        )


def _reason(log: str) -> str:
    lines = [line.strip() for line in log.splitlines()]
    telling = [line for line in lines if line.startswith(("Exception in thread", "Error:")) or "Error" in line.split(":")[0]]
    return (telling or [line for line in lines if line] or ["no reason given"])[0]


def main(arguments: Sequence[str] = ()) -> int:
    """Fetch, and say where."""
    for packages in [OPTIONAL[name] for name in arguments if name in OPTIONAL] or [PACKAGES]:
        try:
            jars = resolve(packages=packages)
        except RederiveError as error:
            print(error, file=sys.stderr)
            return 2
        print(f"The jars of {', '.join(packages)} are there: {len(jars)} in {folder(packages)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
