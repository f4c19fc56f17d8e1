"""`python produce.py SERVERS FILE`: write the messages of a JSON file, a list of [topic, value or null], to Kafka by Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rederive.lake.session import spark_session


def main(servers: str, file: str) -> None:
    spark = spark_session(master="local[1]", options={"spark.driver.memory": "512m"})
    messages = json.loads(Path(file).read_text())
    rows = [(topic, None if value is None else json.dumps(value)) for topic, value in messages]
    frame = spark.createDataFrame(rows, "topic string, value string").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", servers).save()


if __name__ == "__main__":
    main(*sys.argv[1:])
