"""Delta tables as plain Spark writes them, and a refresh that tests kill: `python in_place_load.py STORE [LAKE]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import rederive
from rederive import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = {
    "by_kind": "SELECT kind, sum(amount) AS total, count(*) AS n FROM sale JOIN item ON sale.item = item.item GROUP BY kind",
    "unsold": "SELECT item.item, kind FROM item LEFT JOIN sale ON item.item = sale.item WHERE sale.id IS NULL",
}
# The table of sales has a key and a change data feed. That of items is a bag with deletion vectors, and one row twice.
STATEMENTS = {
    "SALES": "CREATE TABLE {sale} (id INT NOT NULL, item INT, amount INT) USING DELTA "
    "TBLPROPERTIES (delta.enableChangeDataFeed = true)",
    "ITEMS": "CREATE TABLE {item} (item INT, Kind STRING, tags ARRAY<STRING>) USING DELTA "
    "TBLPROPERTIES (delta.enableDeletionVectors = true)",
    "FIRST_SALES": "INSERT INTO {sale} VALUES (1, 1, 10), (2, 1, 20), (3, 2, 30)",
    "FIRST_ITEMS": "INSERT INTO {item} VALUES (1, 'a', NULL), (2, 'b', NULL), (2, 'b', NULL), (3, NULL, NULL)",
    "MERGE": "MERGE INTO {sale} t USING (SELECT * FROM VALUES (1, 3, 11), (4, 2, 40), (3, NULL, 0) AS v(id, item, amount)) s "
    "ON t.id = s.id WHEN MATCHED AND s.item IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "APPEND_ITEMS": "INSERT INTO {item} VALUES (2, 'b', NULL), (4, 'c', array('new'))",
    "UPDATE": "UPDATE {sale} SET amount = amount + 1 WHERE id >= 2",
    "DELETE_ITEMS": "DELETE FROM {item} WHERE item = 3 OR item = 1",
    "DELETE_SALE": "DELETE FROM {sale} WHERE id = 1",
    "MAP_COLUMNS": "ALTER TABLE {sale} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "OPTIMIZE": "OPTIMIZE {item}",
    "NEW_COLUMN": "ALTER TABLE {sale} ADD COLUMN note STRING",
    "SET_NEW_COLUMN": "UPDATE {sale} SET note = 'seen'",
    "RESTORE": "RESTORE TABLE {sale} TO VERSION AS OF 1",
    "REPLACE": "CREATE OR REPLACE TABLE {item} USING DELTA AS SELECT 1 AS item, 'z' AS kind, array('new') AS tags",
    "VACUUM": "VACUUM {item} RETAIN 0 HOURS",
}


def run(spark: SparkSession, folder: Path, *names: str) -> None:
    """Run statements as any other job would."""
    unchecked = "spark.databricks.delta.retentionDurationCheck.enabled"
    for name in names:
        if name == "VACUUM":
            spark.conf.set(unchecked, "false")
        spark.sql(STATEMENTS[name].format(sale=f"delta.`{folder}/sale`", item=f"delta.`{folder}/item`"))
        if name == "VACUUM":
            spark.conf.unset(unchecked)


def make_sources(spark: SparkSession, folder: Path) -> None:
    """The two tables with their first rows."""
    run(spark, folder, "SALES", "ITEMS", "FIRST_SALES", "FIRST_ITEMS")


def open_mart(db: Database, folder: Path) -> None:
    """Attach the tables, and define the views over them, in one version."""
    with db.setup():
        db.attach("sale", f"{folder}/sale", key=["id"])
        db.sql(f"CREATE TABLE item USING DELTA LOCATION '{folder}/item'")
        for view, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}")


def main(store: str, lake: str | None = None) -> None:
    """Refresh a store whose sources have changed; with a lake, on Spark, with the tables of the views."""
    from rederive.lake.session import spark_session

    options = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        # The process lives for one refresh: what is compiled is hardly used, as in tests/conftest.py.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    spark = spark_session(master="local[1]", options=options)
    with rederive.open(store, lake=lake, spark=spark, engine="spark" if lake is not None else "resident") as db:
        db.refresh()


if __name__ == "__main__":
    main(*sys.argv[1:])
