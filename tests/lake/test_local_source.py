"""Tables in place that this process reads: the same change as Spark finds, or a reason why it is left to Spark."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rederive.engines.spark.engine import SparkEngine
from rederive.engines.spark.session.types import from_arrow
from rederive.engines.spark.tuning import Tuning
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UTC, Kind, Type
from rederive.lake import local_writes
from rederive.lake.change_table import CHANGE, COUNT, MINUS, PLUS, VERSION
from rederive.lake.declaration import table_properties
from rederive.lake.local_log import Action, LocalLog, remove_action
from rederive.lake.local_source import LeftToSpark, LocalSource, ReadBudget
from rederive.lake.source_table import SourceTable
from rederive.lake.tables import Area, table_schema
from rederive.lake.types import arrow_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUDGET = ReadBudget(1_000, 1_000)
SALE = Relation("sale", (Column("id", NUMBER), Column("price", FLOAT, nullable=True)), key=(0,))
NAN = float("nan")


def written(place: Path, *versions: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]) -> LocalLog:
    """A table whose commits put in and take out rows, with deletion vectors."""
    log = LocalLog(place)
    log.create(table_schema(Area.VIEWS, SALE), table_properties(SALE, UTC))
    for number, (plus, minus) in enumerate(versions, 1):
        rows = arrow_table(SALE, [*plus, *minus])
        own = {
            VERSION: pa.array([number] * len(rows), pa.int64()),
            CHANGE: pa.array([PLUS] * len(plus) + [MINUS] * len(minus), pa.string()),
            COUNT: pa.array([1] * len(rows), pa.int64()),
        }
        changes = pa.table([*own.values(), *rows.columns], names=[*own, *rows.column_names])
        local_writes.apply_changes(SALE, log, changes, number)
    return log


def opened(place: Path, version: int | None = None, budget: ReadBudget = BUDGET) -> LocalSource:
    return LocalSource.open(str(place), UTC, budget, version)


def change(source: LocalSource, after: int) -> tuple[list[Any], list[Any]]:
    minus, plus = (sorted(from_arrow(side, SALE.types)) for side in source.net_change(SALE, after))
    return minus, plus


def test_commits_add_up(tmp_path: Path) -> None:
    written(tmp_path, ([(1, 1.0), (2, 2.0), (3, None)], []), ([(1, 5.0)], [(1, 1.0)]), ([(1, 1.0)], [(1, 5.0), (2, 2.0)]))
    source = opened(tmp_path)
    assert change(source, 1) == ([(2, 2.0)], [])  # the row 1 is as it was
    assert change(source, 2) == ([(1, 5.0), (2, 2.0)], [(1, 1.0)])
    assert change(opened(tmp_path, 2), 1) == ([(1, 1.0)], [(1, 5.0)])
    assert sorted(from_arrow(source.rows(SALE), SALE.types)) == [(1, 1.0), (3, None)]
    assert source.number_of_rows == 2


def test_a_zero_and_a_nan_that_were_rewritten_are_no_change(tmp_path: Path) -> None:
    log = written(tmp_path, ([(1, 0.0), (2, NAN)], []))
    other = pa.table({"id": [1, 2], "price": pa.array([-0.0, NAN])})
    (file,) = log.files.values()
    added = local_writes.first_file(log, SALE, other)
    log.commit([remove_action(file), *added], "WRITE", None, after=log.version)
    assert change(opened(tmp_path), 1) == ([], [])


@pytest.mark.parametrize("rows", [[(1, 5.0)], [(7, 1.0), (7, 2.0)]])
def test_two_rows_with_one_key_are_left_to_spark(tmp_path: Path, rows: list[tuple[Any, ...]]) -> None:
    written(tmp_path, ([(1, 1.0), (9, 9.0)], []), (rows, []))
    with pytest.raises(LeftToSpark, match="twice"):
        change(opened(tmp_path), 1)


def test_files_of_other_keys_are_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, ([(1, 1.0), (9, 9.0)], []), ([(20, 1.0)], []), ([(5, 1.0)], []))
    read: list[str] = []
    found = LocalSource._open

    def noted(self: LocalSource, file: Action) -> object:
        read.append(file["path"])
        return found(self, file)

    monkeypatch.setattr(LocalSource, "_open", noted)
    change(opened(tmp_path, 2), 1)
    assert len(set(read)) == 1  # the new file alone: no other can have the key 20
    read.clear()
    change(opened(tmp_path), 2)
    assert len(set(read)) == 2


@pytest.mark.parametrize("budget", [ReadBudget(1, 1_000), ReadBudget(1_000, 1), ReadBudget(-1, -1)])
def test_a_budget_is_not_exceeded(tmp_path: Path, budget: ReadBudget) -> None:
    written(tmp_path, ([(1, 1.0)], []), ([(i, 1.0) for i in range(10, 20)], []))
    with pytest.raises(LeftToSpark, match="too many rows"):
        change(opened(tmp_path, budget=budget), 1)


REFUSED: list[dict[str, Any]] = [
    {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["typeWidening"], "writerFeatures": []}},
    {"metaData": {"partitionColumns": ["id"]}},
    {"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}},
]


@pytest.mark.parametrize("action", REFUSED, ids=json.dumps)
def test_tables_that_are_not_understood_are_left_to_spark(tmp_path: Path, action: dict[str, Any]) -> None:
    log = written(tmp_path, ([(1, 1.0)], []))
    changed = {"metaData": {**log.metadata, **action["metaData"]}} if "metaData" in action else action
    log.commit([changed], "UPGRADE", None, after=log.version)
    with pytest.raises(LeftToSpark):
        opened(tmp_path)


@pytest.mark.parametrize("location", ["s3a://bucket/sale", "/nowhere/sale"])
def test_tables_elsewhere_are_left_to_spark(location: str) -> None:
    with pytest.raises(LeftToSpark):
        LocalSource.open(location, UTC, BUDGET)


def test_a_file_that_is_gone_is_left_to_spark(tmp_path: Path) -> None:
    log = written(tmp_path, ([(1, 1.0)], []), ([(2, 1.0)], []))
    for file in log.files:
        (tmp_path / file).unlink()
    with pytest.raises(LeftToSpark, match="cannot be read"):
        change(opened(tmp_path), 1)


WIDE = Relation(
    "wide",
    (
        Column("id", NUMBER, bits=32),
        Column("name", SYMBOL, nullable=True),
        Column("price", FLOAT, nullable=True),
        Column("day", DATE, nullable=True),
        Column("at", TIMESTAMP, nullable=True),
        Column("cost", Type(Kind.DECIMAL, 10, 2), nullable=True),
    ),
    key=(0,),
)
VALUES = (
    "SELECT CAST(id AS INT) AS id, CAST(id % 3 AS STRING) AS name, CAST(IF(id % 4 = 0, 'NaN', id / 7) AS DOUBLE) AS price, "
    "date_add(DATE'2024-01-01', CAST(id AS INT)) AS day, timestamp_seconds(id * 1000) AS at, "
    "CAST(id / 4 AS DECIMAL(10,2)) AS cost FROM range({}, {})"
)
CHANGES = (
    "UPDATE {t} SET price = -0.0, at = at + INTERVAL 1 HOUR WHERE id % 5 = 1",
    "DELETE FROM {t} WHERE id BETWEEN 30 AND 40",
    "INSERT INTO {t} " + VALUES.format(30, 35),
    "MERGE INTO {t} t USING (" + VALUES.format(90, 110) + ") s ON t.id = s.id WHEN MATCHED AND s.id < 95 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET name = NULL WHEN NOT MATCHED THEN INSERT *",
    "OPTIMIZE {t}",
    "RESTORE TABLE {t} TO VERSION AS OF 2",
    "INSERT OVERWRITE {t} " + VALUES.format(0, 50),
)


@pytest.mark.slow
@pytest.mark.parametrize("feed", ["true", "false"])
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_the_same_change_as_spark_finds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, feed: str, vectors: str
) -> None:
    table = f"delta.`{tmp_path}/t`"
    properties = f"delta.enableChangeDataFeed = {feed}, delta.enableDeletionVectors = {vectors}"
    spark.sql(f"CREATE TABLE {table} USING DELTA TBLPROPERTIES ({properties}) AS {VALUES.format(0, 100)}")
    for statement in CHANGES:
        spark.sql(statement.format(t=table))
    source = SourceTable(spark, f"{tmp_path}/t", UTC)
    for after in range(len(CHANGES)):
        for upto in (after + 1, len(CHANGES)):
            local = source._local(upto)
            ours = [Counter(from_arrow(side, WIDE.types)) for side in local.net_change(WIDE, after)]
            with monkeypatch.context() as patch:
                patch.setattr(SparkEngine, "default_tuning", Tuning(local_file_rows=-1))
                with source.net_change(WIDE, WIDE, after, upto) as delta:
                    theirs = [Counter(delta.minus), Counter(delta.plus)]
            assert _shown(ours) == _shown(theirs), (after, upto)
    rows = Counter(from_arrow(source._local().rows(WIDE), WIDE.types))
    assert _shown([rows]) == _shown([Counter(source.pinned_rows(WIDE, WIDE, len(CHANGES)))])
    assert source._local().number_of_rows == rows.total() == 50


def _shown(sides: list[Counter[Any]]) -> list[Counter[str]]:
    """By their texts: NaN is not equal to itself."""
    return [Counter({repr(row): n for row, n in side.items()}) for side in sides]
