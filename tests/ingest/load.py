"""A stream that tests kill: `python load.py STORE FOLDER` takes all files of the folder in, one a batch, and says `done N`."""

from __future__ import annotations

import sys
from pathlib import Path

import rederive
from rederive.ingest.ingestion import ingest
from rederive.lake.session import spark_session
from rederive.sources import ChangeFiles
from tests.ingest.conftest import CLOSURE


def main(store: str, folder: str) -> None:
    spark = spark_session(
        master="local[2]",
        options={
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.local.dir": str(Path(store).parent),
        },
    )
    with rederive.open(store) as db:
        db.migrate(CLOSURE)
        source = ChangeFiles(folder, {"maxFilesPerTrigger": "1"})
        progress = ingest(db.pipeline, source, on_error="quarantine", spark=spark).wait()
        print("done", progress.batches, progress.repeated, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
