"""The quarantine: a Delta table of input from streams that could not be read, each input once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from rederive.ingest.micro_batch import RejectedInput
from rederive.lake.delta_log import retry_on_conflict
from rederive.lake.types import frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = StructType(
    [
        StructField("stream", StringType()),
        StructField("batch", LongType()),
        StructField("source", StringType()),
        StructField("raw", StringType()),
        StructField("code", StringType()),
        StructField("message", StringType()),
        StructField("at", TimestampType()),
    ]
)
"""The stream and its batch, the place in the source, the text as it came, the code and message of the error, the time."""


_TEXT, _INSTANT = pyarrow.string(), pyarrow.timestamp("us", "UTC")
_ARROW: Final = pyarrow.schema(zip(SCHEMA.names, (_TEXT, pyarrow.int64(), _TEXT, _TEXT, _TEXT, _TEXT, _INSTANT), strict=True))


def quarantine(spark: SparkSession, path: str, stream: str, batch: int, rejected: Sequence[RejectedInput]) -> None:
    """Append the rejected input of a batch. The table's log has the last batch of each stream: a repetition appends nothing."""
    rows = [(stream, batch, r.error.place, r.raw, r.error.code, r.error.message, datetime.now(UTC)) for r in rejected]
    columns = dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True))
    frame = frame_of(spark, pyarrow.table(columns, _ARROW), SCHEMA)
    idempotent = {"txnAppId": stream, "txnVersion": str(batch)}
    retry_on_conflict(lambda: frame.write.format("delta").mode("append").options(**idempotent).save(path), path)
