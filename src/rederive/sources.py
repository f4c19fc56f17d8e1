"""The sources of streams that `Database.ingest` takes. Importing this module imports no Spark and starts no JVM.

    import rederive
    from rederive.sources import ChangeFiles

    with rederive.open("store") as db:
        db.define(".decl edge(x: symbol, y: symbol)")
        db.ingest(ChangeFiles("/data/changes")).wait()

| source | what it reads | `relation=` |
|---|---|---|
| `ChangeFiles` | a folder of JSON lines, one transaction each | none: the lines name their relations |
| `CsvFiles`, `ParquetFiles` | a folder of rows with an operation column | the relation of the rows |
| `ChangeFeed` | the change data feed of a Delta table | the relation of the rows |
| `KafkaTopics` | Kafka topics of Debezium envelopes | none: each topic is mapped to a relation |

>>> CsvFiles("/data/edges", operation="action")
CsvFiles(path='/data/edges', operation='action', options={})
"""

from rederive.ingest.stream_sources import ChangeFeed, ChangeFiles, CsvFiles, KafkaTopics, ParquetFiles, StreamSource

__all__ = ["ChangeFeed", "ChangeFiles", "CsvFiles", "KafkaTopics", "ParquetFiles", "StreamSource"]
