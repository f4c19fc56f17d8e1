"""The parts that `rederive.open` makes a database from. Spark is imported where it is needed: nothing else starts a JVM."""

from __future__ import annotations

from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rederive.engines.auto import AutoEngine
from rederive.engines.protocol import Engine
from rederive.engines.resident.engine import ResidentEngine
from rederive.errors import PlaceError, UnknownOption
from rederive.ir.terms import UTC
from rederive.limits import Limits
from rederive.locations import Location, RemoteAddress, local_folder, parse_location
from rederive.store.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rederive.lake.tables import Lake

ENGINES: Final = ("auto", "resident", "spark")
STORE: Final = "_store"  # the store's folder in a lake that is a local folder


def make_engine(
    name: str, limits: Limits | None, spark: SparkSession | None, lake: Lake | None = None, zone: str = UTC
) -> Engine:
    """Make the engine of that name; `auto` starts Spark when it moves there. On a cluster, intermediate rows go to the lake."""

    def on_spark() -> Engine:
        from rederive.engines.spark.engine import SparkEngine
        from rederive.lake.session import spark_session, zone_options
        from rederive.lake.staging import SAVED, SCRATCH

        scratch, saved = (f"{lake.root.rstrip('/')}/{name}" if lake is not None else None for name in (SCRATCH, SAVED))
        return SparkEngine(spark or spark_session(options=zone_options(zone)), limits, scratch=scratch, saved=saved)

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


def places(path: str | Path | None, store: str | Path | None, lake: str | Path | None) -> tuple[Path | None, Location | None]:
    """The folder of the store and the location of the lake; refused where one cannot be used, before anything is created."""
    if path is not None and store is not None:
        raise PlaceError("the folder of the store is given twice", hint="give it as the path, or as store=").at(str(store))
    given = path if path is not None else store
    folder = local_folder(given, "a store") if given is not None else None
    root = parse_location(lake) if lake is not None else None
    # The journal is a SQLite file, which is not durable on an object store (decision 0053).
    if folder is None and isinstance(root, RemoteAddress):
        hint = "add store=FOLDER (--store FOLDER), a local or mounted folder that stays with the lake"
        raise PlaceError("a lake that is not a local folder needs a folder for its store", hint=hint).at(str(root))
    return folder or (root / STORE if isinstance(root, Path) else None), root


def lake_at(root: Location, spark: SparkSession | None, zone: str, schema: str | None = None) -> Lake:
    """The lake at a location, which Spark must be able to reach. `schema`: where Spark's catalog lists the tables of views."""
    from rederive.lake.file_system import spark_path
    from rederive.lake.session import spark_session, zone_options
    from rederive.lake.tables import Lake

    session = spark_session(spark, options=zone_options(zone))
    return Lake(session, spark_path(session, root), zone, schema)


def attach_lake(store: Store, lake: Lake) -> None:
    """Give an open store its lake."""
    from rederive.store.lake_sync import LakeSync

    store.lake = LakeSync(lake, store.journal)
