"""What a database is put together from. Spark is imported when something needs it: nothing else starts a JVM."""

from __future__ import annotations

from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rederive.engines.auto import AutoEngine
from rederive.engines.base import Engine
from rederive.engines.resident.engine import ResidentEngine
from rederive.engines.resident.fixpoint import Limits
from rederive.errors import UnknownOption
from rederive.ir.terms import UTC
from rederive.monitor.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rederive.monitor.lakeside import Lakeside

ENGINES: Final = ("auto", "resident", "spark")


def make_engine(
    name: str, limits: Limits | None, spark: SparkSession | None, lake: str | Path | None = None, zone: str = UTC
) -> Engine:
    """The engine of that name; `auto` starts Spark when it moves there. On a cluster, rows on their way are kept in the lake."""

    def on_spark() -> Engine:
        from rederive.engines.spark.engine import SparkEngine
        from rederive.lake.session import spark_session, zoned

        scratch = f"{_absolute(str(lake))}/_scratch" if lake is not None else None
        return SparkEngine(spark or spark_session(options=zoned(zone)), limits, scratch=scratch)

    def cores() -> int:
        return spark.sparkContext.defaultParallelism if spark is not None else cpu_count() or 1

    match name:
        case "resident":
            return ResidentEngine(limits)
        case "spark":
            return on_spark()
        case "auto":
            return AutoEngine(limits or Limits(), on_spark, cores)
        case _:
            raise UnknownOption("engine", name, ENGINES)


def lakeside(store: Store, root: str | Path, spark: SparkSession | None) -> Lakeside:
    """The lake of a store."""
    from rederive.lake.session import spark_session, zoned
    from rederive.lake.tables import Lake
    from rederive.monitor.lakeside import Lakeside

    session = spark_session(spark, options=zoned(store.options.zone))
    return Lakeside(Lake(session, _absolute(str(root)), store.options.zone), store.journal)


def _absolute(root: str) -> str:
    """A local path is made absolute, as Spark's workers have other working folders."""
    return root if "://" in root else str(Path(root).absolute())
