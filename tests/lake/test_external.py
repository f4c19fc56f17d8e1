"""Tables and files of somebody else: read exactly, or refused with the reason before anything is written."""

from __future__ import annotations

import datetime
from decimal import Decimal
from math import inf
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rederive.errors import RederiveError
from rederive.ir.floats import NAN
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UNSIGNED, Kind, Row, Type
from rederive.lake.external import ExternalData, ExternalFormat, read_external
from rederive.lake.types import collect
from tests.selection import fast_only

STOCK = Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER)), (0,))
PAIR = Relation("pair", (Column("a", SYMBOL), Column("b", SYMBOL)))
ALL = Relation(
    "all",
    (
        Column("s", SYMBOL),
        Column("u", UNSIGNED),
        Column("f", FLOAT),
        Column("b", BOOLEAN),
        Column("d", DATE),
        Column("t", TIMESTAMP),
        Column("m", Type(Kind.DECIMAL, 10, 2)),
    ),
)
ROW: Row = (
    'say "x", y',
    2**64 - 1,
    1500.0,
    True,
    datetime.date(1, 1, 1),
    datetime.datetime(2024, 2, 29, 10, 30, 0, 5),
    Decimal("1.50"),
)
CSV = 's,u,f,b,d,t,m\n"say ""x"", y",18446744073709551615,1.5e3,true,0001-01-01,2024-02-29T12:30:00.000005+02:00,1.500\n'
JSON = (
    '{"s": "say \\"x\\", y", "u": 18446744073709551615, "f": 1.5e3, "b": true, "d": "0001-01-01", '
    '"t": "2024-02-29T12:30:00.000005+02:00", "m": "1.5"}\n'
)


def read(spark: SparkSession, format: ExternalFormat, location: object, relation: Relation = STOCK, **options: str) -> list[Row]:
    return sorted(collect(read_external(spark, ExternalData(format, str(location), options), relation), relation))


def written(folder: Path, text: str) -> Path:
    file = folder / "rows.txt"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(("format", "text"), [(ExternalFormat.CSV, CSV), (ExternalFormat.JSON, JSON)])
def test_text_means_what_it_means_elsewhere(spark: SparkSession, tmp_path: Path, format: ExternalFormat, text: str) -> None:
    file = written(tmp_path, text)
    assert read(spark, format, file, ALL) == [ROW]
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        assert read(spark, format, file, ALL) == [ROW]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_rows_are_a_set_and_columns_go_by_name(spark: SparkSession, tmp_path: Path) -> None:
    assert read(spark, ExternalFormat.CSV, written(tmp_path, "n,item\n3,bolt\n3,bolt\n4,nut\n")) == [("bolt", 3), ("nut", 4)]
    assert read(spark, ExternalFormat.CSV, written(tmp_path, "bolt;3\n"), header="false", sep=";") == [("bolt", 3)]
    assert read(spark, ExternalFormat.CSV, written(tmp_path, 'a,b\n"",x\n'), PAIR) == [("", "x")]


def test_parquet_delta_and_jdbc(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 3 n, 'bolt' item")
    frame.write.parquet(str(tmp_path / "parquet"))
    frame.write.format("delta").save(str(tmp_path / "delta"))
    assert read(spark, ExternalFormat.PARQUET, tmp_path / "parquet") == [("bolt", 3)]
    assert read(spark, ExternalFormat.DELTA, tmp_path / "delta") == [("bolt", 3)]
    with pytest.raises(RederiveError, match="not plain Parquet"):
        read(spark, ExternalFormat.PARQUET, tmp_path / "delta")
    url = "jdbc:derby:memory:stock;create=true"  # a real database inside the JVM
    frame.write.format("jdbc").options(url=url, dbtable="stock").save()
    assert read(spark, ExternalFormat.JDBC, url, dbtable="stock") == [("bolt", 3)]
    with pytest.raises(RederiveError, match=r"error.not_a_table.: the table cannot be opened: .*NOTHING. does not exist"):
        read(spark, ExternalFormat.JDBC, url, dbtable="nothing")


REFUSED = {
    "a missing column": (ExternalFormat.CSV, "item\nbolt\n", "schema_mismatch.: column 'n' of relation 'stock' is missing"),
    "a column too many": (ExternalFormat.CSV, "item,n,m\nbolt,3,4\n", "schema_mismatch.: relation 'stock' has no column 'm'"),
    "a short row": (ExternalFormat.CSV, "item,n\nbolt\n", "malformed"),
    "no number": (
        ExternalFormat.CSV,
        "item,n\nbolt,three\n",
        "ill_typed.: relation 'stock': column 'n': 'three' is not a number",
    ),
    "a number with spaces": (ExternalFormat.CSV, "item,n\nbolt, 3\n", "' 3' is not a number"),
    "a number out of range": (ExternalFormat.CSV, "item,n\nbolt,9223372036854775808\n", "'9223372036854775808' is not a number"),
    "two rows with one key": (
        ExternalFormat.CSV,
        "item,n\nbolt,3\nbolt,4\n",
        "duplicate_key.: relation 'stock' has the key .item.",
    ),
    "no JSON": (ExternalFormat.JSON, "{bolt}\n", "malformed.: relation 'stock': not a JSON object: {bolt}"),
    "a JSON array": (ExternalFormat.JSON, "[1]\n", "malformed.: relation 'stock': not a JSON object: .1."),
    "an unknown name": (ExternalFormat.JSON, '{"item": "a", "n": 1, "m": 2}\n', "unknown column 'm'; known: item, n"),
    "a JSON string for a number": (
        ExternalFormat.JSON,
        '{"item": "a", "n": "1"}\n',
        "a JSON value of type string is not a number",
    ),
    "a JSON number for a symbol": (ExternalFormat.JSON, '{"item": 1, "n": 1}\n', "a JSON value of type bigint is not a symbol"),
    "null in a key": (
        ExternalFormat.JSON,
        '{"item": null, "n": 1}\n',
        "null_in_key.: relation 'stock': a row has no value in column 'item'",
    ),
    "an absent field": (
        ExternalFormat.JSON,
        '{"item": "a"}\n',
        "null_in_key.: relation 'stock': a row has no value in column 'n'",
    ),
}


FAST = ("a missing column", "a short row", "no number", "two rows with one key", "no JSON", "null in a key")


@pytest.mark.parametrize("case", fast_only(REFUSED, *FAST))
def test_bad_rows_are_refused(spark: SparkSession, tmp_path: Path, case: str) -> None:
    format, text, message = REFUSED[case]
    file = written(tmp_path, text)
    with pytest.raises(RederiveError, match=message) as caught:
        read(spark, format, file)
    assert str(caught.value).startswith(f"{file}: error[")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'3' n", "column 'n' is string, which does not fit number"),
        ("3.5BD n", "does not fit number"),
        ("array(1) n", "column 'n' is array<int>, which does not fit number"),
        ("CAST(NULL AS INT) n", "null_in_key"),
    ],
)
def test_types_that_do_not_fit_are_refused(spark: SparkSession, tmp_path: Path, expression: str, message: str) -> None:
    spark.sql(f"SELECT 'bolt' item, {expression}").write.parquet(str(tmp_path / "t"))
    with pytest.raises(RederiveError, match=message):
        read(spark, ExternalFormat.PARQUET, tmp_path / "t")


def test_values_beyond_ours_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    for number, (type, expression) in enumerate({UNSIGNED: "-1L", DATE: "DATE'+10000-01-01'"}.items()):
        spark.sql(f"SELECT {expression} x").write.parquet(str(tmp_path / str(number)))
        with pytest.raises(RederiveError, match=f"is not a {type}"):
            read(spark, ExternalFormat.PARQUET, tmp_path / str(number), Relation("r", (Column("x", type),)))


def test_floats_that_are_not_finite(spark: SparkSession, tmp_path: Path) -> None:
    numbers = Relation("r", (Column("x", FLOAT, bits=32),))
    spark.sql("SELECT explode(array(double('nan'), double('inf'), 0.1D, -0.0D)) x").write.parquet(str(tmp_path / "p"))
    (tmp_path / "t.csv").write_text("x\nNaN\n-Infinity\n0.1\n")
    (tmp_path / "t.json").write_text('{"x": "NaN"}\n{"x": "-Infinity"}\n{"x": 0.1}\n')
    found = read(spark, ExternalFormat.PARQUET, tmp_path / "p", numbers)
    assert sorted(found) == [(0.0,), (0.10000000149011612,), (inf,), (NAN,)]
    for format, name in ((ExternalFormat.CSV, "t.csv"), (ExternalFormat.JSON, "t.json")):
        found = read(spark, format, tmp_path / name, numbers)
        assert sorted(found) == [(-inf,), (0.10000000149011612,), (NAN,)]


def test_nulls_outside_the_key_by_choice(spark: SparkSession, tmp_path: Path) -> None:
    file = written(tmp_path, '{"item": "a", "n": null}\n')
    source = ExternalData(ExternalFormat.JSON, str(file))
    assert collect(read_external(spark, source, STOCK, nulls=True), STOCK) == [("a", None)]


@pytest.mark.parametrize("format", [ExternalFormat.CSV, ExternalFormat.JSON, ExternalFormat.PARQUET])
def test_nothing_there(spark: SparkSession, tmp_path: Path, format: ExternalFormat) -> None:
    with pytest.raises(RederiveError, match=r"error.missing_file.: no such path"):
        read(spark, format, tmp_path / "none")
    with pytest.raises(RederiveError, match=r"error.not_a_table.: no Delta table"):
        read(spark, ExternalFormat.DELTA, tmp_path)
