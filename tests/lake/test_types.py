"""Every value of every type survives the way into a Delta table and back, for us and for an independent reader."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from rederive.ir.rules import Column, Relation
from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UNSIGNED, Kind, Row, Type
from rederive.lake import types
from rederive.lake.tables import Area, Lake
from rederive.lake.types import arrow_table, collect, column_type, dataframe, rows_of, schema_of
from tests.lake import witness
from tests.lake.test_tables import net_changes

DECIMAL = Type(Kind.DECIMAL, 38, 10)
EVERY = Relation(
    "every",
    tuple(
        Column(f"c_{type.kind.value}", type, nullable=True)
        for type in (SYMBOL, NUMBER, UNSIGNED, FLOAT, BOOLEAN, DATE, TIMESTAMP, DECIMAL)
    ),
)
LEAST: Row = (
    "",
    -(2**63),
    0,
    -1.7976931348623157e308,
    False,
    datetime.date.min,
    datetime.datetime.min,
    Decimal("-9999999999999999999999999999.9999999999"),
)
GREATEST: Row = (
    "\U0010ffff\0\n\"'`\\",
    2**63 - 1,
    2**64 - 1,
    5e-324,
    True,
    datetime.date.max,
    datetime.datetime.max,
    Decimal("9999999999999999999999999999.9999999999"),
)
OLD: Row = ("ä", 0, 1, 0.1, True, datetime.date(1582, 10, 10), datetime.datetime(1900, 1, 1, 0, 0, 0, 1), Decimal("0E-10"))
NULLS: Row = (None,) * EVERY.arity
VALUES = st.tuples(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0),
    st.booleans(),
    st.dates(),
    st.datetimes(),
    st.decimals(-(10**27), 10**27, places=10),
)


@given(st.lists(VALUES, max_size=20))
@example([LEAST, GREATEST, OLD, NULLS])
def test_rows_survive_arrow(rows: list[Row]) -> None:
    assert rows_of(arrow_table(EVERY, rows), EVERY) == rows


@settings(max_examples=5)
@given(rows=st.lists(VALUES, min_size=1, max_size=30))
@example(rows=[LEAST, GREATEST, OLD, NULLS])
def test_rows_survive_spark(spark: SparkSession, rows: list[Row]) -> None:
    assert collect(dataframe(spark, EVERY, rows), EVERY) == rows


def test_boundary_values_survive_a_table(lake: Lake) -> None:
    rows = [LEAST, GREATEST, OLD, NULLS]
    lake.replace(Area.BASE, EVERY, dataframe(lake.spark, EVERY, rows))
    table = lake.read(Area.BASE, EVERY)
    assert sorted(collect(table, EVERY), key=repr) == sorted(rows, key=repr)
    assert witness.rows(lake.path(Area.BASE, "every")) == sorted(
        (tuple(Decimal(v) if i == 2 and v is not None else v for i, v in enumerate(row)) for row in rows),  # type: ignore[arg-type]
        key=repr,
    )
    assert [column_type(field) for field in table.schema.fields] == list(EVERY.types)


@pytest.mark.slow
def test_a_deleted_row_is_found_by_any_of_its_values(lake: Lake) -> None:
    """NULL is identical to NULL, and no rounding makes two values one."""
    lake.replace(Area.BASE, EVERY, dataframe(lake.spark, EVERY, [LEAST, GREATEST, OLD, NULLS]))
    lake.apply_changes(Area.BASE, EVERY, net_changes(lake, EVERY, [NULLS, GREATEST, LEAST], [], 1), 1)
    assert collect(lake.read(Area.BASE, EVERY), EVERY) == [OLD]


def test_many_rows_go_by_way_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[Row] = [
        (f"s{i}", i, i, float(i), i % 2 == 0, datetime.date.min, datetime.datetime.max, Decimal(i)) for i in range(9)
    ]
    rows = rows * (types.MANY_ROWS // len(rows) + 1)
    frame = dataframe(spark, EVERY, rows, str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 1
    assert frame.schema == schema_of(EVERY)
    assert sorted(collect(frame, EVERY)) == sorted(rows)


def test_types_without_our_mark_are_widened(spark: SparkSession) -> None:
    query = (
        "SELECT 1Y a, 2S b, 3 c, 4L d, 1.5F e, 2.5D f, 'x' g, true h, 1.25BD i, DATE'2024-01-01' j, TIMESTAMP_NTZ'2024-01-01' k"
    )
    found = [column_type(field) for field in spark.sql(query).schema.fields]
    decimal = Type(Kind.DECIMAL, 3, 2)
    assert found == [NUMBER, NUMBER, NUMBER, NUMBER, FLOAT, FLOAT, SYMBOL, BOOLEAN, decimal, DATE, TIMESTAMP]


def test_no_rows_have_the_types_too() -> None:
    assert arrow_table(EVERY, []).schema.field("c_unsigned").type == pyarrow.decimal128(20, 0)
