"""Relations and changes of any size, on Spark: what comes to the driver, and whether the views are what Spark answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import functions as F
from pyspark.sql.pandas.conversion import SparkConversionMixin

import rederive
from rederive.engines.spark.run.data_frames import DataFrameRows
from rederive.engines.spark.tuning import Tuning
from rederive.lake.bags import expand_copies
from rederive.lake.types import dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ITEMS: Final = 100
SMALL: Final = Tuning(
    driver_rows=20,
    arrow_rows=-1,
    python_rows=-1,
    collected_rows=20,
    python_totals=-1,
    broadcast_rows=200,
    broadcast_request_rows=200,
)
TABLES: Final = """
    CREATE TABLE item (id BIGINT PRIMARY KEY, kind STRING NOT NULL, price BIGINT NOT NULL);
    CREATE TABLE sale (id BIGINT PRIMARY KEY, item BIGINT NOT NULL, shop BIGINT NOT NULL, amount BIGINT NOT NULL);
    CREATE TABLE click (item BIGINT, page BIGINT);
"""
VIEWS: Final = {
    "star": "SELECT kind, shop, sum(amount) AS total, count(*) AS sales FROM sale JOIN item ON sale.item = item.id "
    "GROUP BY kind, shop",
    "buyers": "SELECT item, count(DISTINCT shop) AS shops FROM sale GROUP BY item",
    "best": "SELECT shop, id, amount FROM (SELECT shop, id, amount, row_number() OVER (PARTITION BY shop "
    "ORDER BY amount DESC, id) AS place FROM sale) AS numbered WHERE place <= 3",
    "priced": "SELECT sale.id, amount * price AS cents, kind FROM sale JOIN item ON sale.item = item.id WHERE amount >= 500",
    "visits": "SELECT click.item, page, kind FROM click JOIN item ON click.item = item.id WHERE page % 10 < 9",
    "pages": "SELECT page, count(*) AS clicks FROM click GROUP BY page",
}
"""`priced` has half of the rows of `sale`; `visits` is a bag with most of those of `click`."""


def sales(spark: SparkSession, start: int, end: int, step: int = 1) -> DataFrame:
    columns = "id", f"id * 7919 % {ITEMS} AS item", "id * 104729 % 500 AS shop", "id * 31 % 1000 AS amount"
    return spark.range(start, end, step).selectExpr(*columns)


def clicks(spark: SparkSession, start: int, end: int, step: int = 1) -> DataFrame:
    """Each row twice; some have no item."""
    return spark.range(start, end, step).selectExpr(f"nullif(id DIV 2 * 7919 % {ITEMS}, 7) AS item", "id DIV 2 AS page")


@dataclass
class Collected:
    """The rows that came to this process by each call, and those that it sent or wrote itself."""

    calls: list[tuple[str, int]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(rows for _, rows in self.calls)

    @property
    def most(self) -> int:
        return max((rows for _, rows in self.calls), default=0)


@contextmanager
def collected_rows() -> Iterator[Collected]:
    """Count the rows that any code takes out of Spark or files into this process, or hands over to Spark."""
    from pyspark.sql.classic.dataframe import DataFrame

    found = Collected()
    watched: list[tuple[Any, str, Any]] = [
        (DataFrame, name, getattr(DataFrame, name))
        for name in ("collect", "toArrow", "toPandas", "toLocalIterator", "take", "head")
    ]
    watched += [(SparkConversionMixin, "createDataFrame", SparkConversionMixin.createDataFrame)]
    watched += [(pyarrow.parquet, "read_table", pyarrow.parquet.read_table)]

    def counting(name: str, original: Any) -> Any:
        def counted(*given: Any, **options: Any) -> Any:
            result = original(*given, **options)
            one = given[1] if name == "createDataFrame" else result
            rows = one.num_rows if isinstance(one, pa.Table) else len(one) if isinstance(one, list | tuple) else 0
            found.calls.append((name, rows))
            return result

        return counted

    try:
        for owner, name, original in watched:
            setattr(owner, name, counting(name, original))
        yield found
    finally:
        for owner, name, original in watched:
            setattr(owner, name, original)


class Scale:
    """One run: base relations of `rows` sales and half as many clicks, and a change of a tenth of both."""

    def __init__(self, db: rederive.Database, spark: SparkSession, rows: int) -> None:
        self.db, self.spark, self.rows = db, spark, rows

    def load(self) -> None:
        """The tables, and then the views over them."""
        db, spark = self.db, self.spark
        db.sql(TABLES)
        db.load("item", spark.range(ITEMS).selectExpr("id", "concat('kind', id % 20) AS kind", "id % 97 + 1 AS price"))
        db.load("sale", sales(spark, 0, self.rows))
        db.load("click", clicks(spark, 0, self.rows // 2))

    def define(self) -> None:
        for view, query in VIEWS.items():
            self.db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}")

    def change(self) -> rederive.Result:
        """Every 20th sale and click leaves, and as many new ones enter."""
        spark, rows, few = self.spark, self.rows, self.rows // 2
        with self.db.transaction() as tx:
            tx.delete("sale", sales(spark, 0, rows, 20))
            tx.insert("sale", sales(spark, rows, rows + rows // 20))
            tx.delete("click", clicks(spark, 0, few, 20))
            tx.insert("click", clicks(spark, few, few + few // 20))
        return tx.result

    def bases(self) -> Mapping[str, DataFrame]:
        """The base relations after the change, worked out by Spark alone."""
        spark, rows, few = self.spark, self.rows, self.rows // 2
        kept = sales(spark, 0, rows).where("id % 20 <> 0").unionAll(sales(spark, rows, rows + rows // 20))
        clicked = clicks(spark, 0, few).exceptAll(clicks(spark, 0, few, 20)).unionAll(clicks(spark, few, few + few // 20))
        items = spark.range(ITEMS).selectExpr("id", "concat('kind', id % 20) AS kind", "id % 97 + 1 AS price")
        return {"sale": kept, "click": clicked, "item": items}

    def check(self) -> dict[str, int]:
        """The number of rows of each view, if it has the rows that Spark answers."""
        for name, frame in self.bases().items():
            frame.createOrReplaceTempView(name)
        counts = {}
        for view, query in VIEWS.items():
            ours, theirs = fingerprint(self.view(view)), fingerprint(self.spark.sql(query))
            assert ours == theirs, (view, ours, theirs)
            counts[view] = ours[0]
        return counts

    def view(self, name: str) -> DataFrame:
        """The rows of a view, of a bag each as often as it is there: from its table in the lake, or from the engine."""
        state = self.db.pipeline.state
        if state.lake is not None:
            return self.db.tables.frame(name)
        relation = state.program.relations[counting := state.program.counting_relation(name)]
        rows = state.engine.extent(counting)
        frame = rows.data if isinstance(rows, DataFrameRows) else dataframe(self.spark, relation, rows)
        return frame if counting == name else expand_copies(frame, frame.columns[-1])


def fingerprint(rows: DataFrame) -> tuple[int, int]:
    """The number of rows, and the sum of their hashes."""
    # As text: an INT here may be a BIGINT there, whose hash is another one.
    typed = (F.col(name).cast("string") for name in rows.columns)
    (found,) = rows.agg(F.count("*"), F.sum(F.xxhash64(*typed).cast("decimal(38,0)"))).collect()
    return found[0], int(found[1])
