"""Tables in place followed by Structured Streaming: each micro-batch is some commits of them, and one refresh.

The stream reads the names of the files that commits add to the logs of the tables, and nothing else of them: what the commits
changed is read by the refresh. Spark's checkpoint says which commits were seen. The journal says which are followed, so a batch
that is repeated after a kill changes nothing, and a new checkpoint does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from rederive.engines.spark.session.sessions import acting, like_session
from rederive.ingest.ingestion import BatchLoop, Ingestion, MicroBatch, OnBatch, start_stream
from rederive.lake.delta_log import LOG
from rederive.lake.file_system import spark_path
from rederive.locations import parse_location
from rederive.result import Result

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_NAMES: Final = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
_OPTIONS: Final = {"pathGlobFilter": "*.json", "maxFileAge": "36500d"}
"""Spark silently skips files that are older than the newest one by more than an age."""


def stream_commits(
    refresh: Callable[[Mapping[str, int]], Result | None],
    tables: Mapping[str, str],
    spark: SparkSession,
    checkpoint: str | Path,
    *,
    once: bool,
    trigger: str | None,
    commits: int | None,
    on_batch: OnBatch | None,
) -> Ingestion:
    """Start to call `refresh` with the last commits of each micro-batch. `tables`: the location of each, by its name.

    `commits`: of each table, at most so many in one micro-batch.
    """
    session = like_session(spark)
    with acting(session):
        logs = [_commits(session, name, location, commits) for name, location in tables.items()]
        frame = reduce(lambda one, other: one.unionAll(other), logs)

        def apply(batch: DataFrame, number: int, id: str) -> MicroBatch:
            files = [(name, path) for name, path in batch.collect()]
            found = last_commits(files)
            return MicroBatch(number, len(files), 0, refresh(found) if found else None)

        place = spark_path(session, parse_location(checkpoint))
        return start_stream(frame, BatchLoop(apply, on_batch), place, once=once, trigger=trigger)


def last_commits(files: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The last commit of each table, given the names of tables and of files in their logs. Other files are left out.

    >>> last_commits([("sale", "/t/_delta_log/00000000000000000003.json"), ("sale", "/t/_delta_log/_last_checkpoint.json")])
    {'sale': 3}
    """
    found: dict[str, int] = {}
    for name, path in files:
        if number := _COMMIT.fullmatch(path.rpartition("/")[2]):
            found[name] = max(int(number[1]), found.get(name, 0))
    return found


def _commits(spark: SparkSession, name: str, location: str, most: int | None) -> DataFrame:
    limit = {} if most is None else {"maxFilesPerTrigger": str(most)}
    log = f"{spark_path(spark, parse_location(location))}/{LOG}"
    files = spark.readStream.format("binaryFile").schema(_NAMES).options(**_OPTIONS, **limit).load(log)
    return files.select(F.lit(name), "path")
