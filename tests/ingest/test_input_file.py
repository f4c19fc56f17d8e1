"""Files of initial rows, good and bad."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rederive.errors import DataError, IllTypedRow, MalformedInput, MissingFile, UnknownColumn, UnknownName, Unsupported
from rederive.ingest.input_file import CSV, FACTS, DelimitedText, JsonLines, Parquet, layout_of, read_input, read_rows
from rederive.ir.rules import Column, Input, Relation
from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UNSIGNED, Kind, Row, Type

EDGE = Relation("edge", (Column("x", SYMBOL), Column("y", SYMBOL)))
STOCK = Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER)))
TAG = Relation("tag", (Column("name", SYMBOL),))
FLAG = Relation("flag", ())
EVERY = Relation(
    "every",
    (
        Column("s", SYMBOL),
        Column("n", NUMBER),
        Column("u", UNSIGNED),
        Column("f", FLOAT),
        Column("b", BOOLEAN),
        Column("d", DATE),
        Column("t", TIMESTAMP),
        Column("m", Type(Kind.DECIMAL, 10, 2)),
    ),
)
EVERY_ROW: Row = (
    "a",
    -1,
    2,
    0.5,
    True,
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30, 0, 250),
    Decimal("1.25"),
)

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def refusal(error: type[DataError], path: Path, relation: Relation, layout: DelimitedText | None = None) -> DataError:
    with pytest.raises(error) as caught:
        read_rows(path, relation, layout)
    return caught.value


# Layouts


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("a.facts", FACTS),
        ("a.tsv", FACTS),
        ("a.b.csv", CSV),
        ("a.csv.gz", CSV),
        ("a.json", JsonLines()),
        ("a.jsonl", JsonLines()),
        ("a.ndjson.gz", JsonLines()),
        ("a.parquet", Parquet()),
    ],
)
def test_ending_tells_layout(name: str, layout: object) -> None:
    assert layout_of(Path(name)) == layout


@pytest.mark.parametrize("name", ["a.xlsx", "a", "a.gz"])
def test_unknown_ending(name: str) -> None:
    with pytest.raises(MalformedInput, match="ending"):
        layout_of(Path(name))


# Facts


@pytest.mark.parametrize("name", ["edge.facts", "edge.tsv", "edge.facts.gz"])
def test_facts_are_tab_separated_without_header_or_quotes(write: Write, name: str) -> None:
    path = write(name, 'x\ty\n"a"\tb, c\n\t\n')
    assert read_rows(path, EDGE) == [("x", "y"), ('"a"', "b, c"), ("", "")]


@pytest.mark.parametrize("text", ["a\tb\nc\td", "a\tb\nc\td\n", "a\tb\r\nc\td\r\n", "\ufeffa\tb\nc\td\n"])
def test_line_ends_and_byte_order_mark(write: Write, text: str) -> None:
    assert read_rows(write("edge.facts", text), EDGE) == [("a", "b"), ("c", "d")]


def test_only_newlines_end_lines(write: Write) -> None:
    assert read_rows(write("edge.facts", "a\u2028\tb\x0b\x0c\x85\n"), EDGE) == [("a\u2028", "b\x0b\x0c\x85")]


def test_empty_line_is_the_empty_symbol(write: Write) -> None:
    assert read_rows(write("tag.facts", "\na\n"), TAG) == [("",), ("a",)]


@pytest.mark.parametrize("name", ["edge.facts", "edge.csv", "edge.jsonl"])
def test_empty_file_has_no_rows(write: Write, name: str) -> None:
    assert read_rows(write(name, ""), EDGE) == []


@pytest.mark.parametrize(("name", "text"), [("f.facts", "()\n"), ("f.facts", "\n"), ("f.csv", "x\n"), ("f.jsonl", "[]\n")])
def test_relation_without_columns(write: Write, name: str, text: str) -> None:
    assert read_rows(write(name, text), FLAG) == [()]
    assert read_rows(write(name, ""), FLAG) == []


@pytest.mark.parametrize(("line", "width"), [("a", 1), ("a\tb\tc", 3), ("", 1)])
def test_facts_with_wrong_width(write: Write, line: str, width: int) -> None:
    path = write("edge.facts", f"a\tb\n{line}\n")
    error = refusal(IllTypedRow, path, EDGE)
    assert error.place == f"{path}:2"
    assert error.message == f"relation 'edge(x, y)' has 2 columns, the row has {width}"


def test_ill_typed_value_names_file_line_column_and_text(write: Write) -> None:
    path = write("stock.facts", "a\t1\nb\tx1\nc\ty\n")
    error = refusal(IllTypedRow, path, STOCK)
    assert error.place == f"{path}:2"
    assert str(error) == f"{path}:2: error[ill_typed]: column 'n' of relation 'stock': \"x1\" is not a number"


@pytest.mark.parametrize("text", ["", "1_0", " 1", "١", "+-1", "1-", "1.0", "0x1", "9223372036854775808", "-9223372036854775809"])
def test_not_a_number(write: Write, text: str) -> None:
    path = write("stock.facts", f"a\t1\nb\t{text}\n")
    assert refusal(IllTypedRow, path, STOCK).place == f"{path}:2"


def test_numbers_at_the_ends_of_their_range(write: Write) -> None:
    rows = [("a", -(2**63)), ("b", 2**63 - 1), ("c", 7)]
    assert read_rows(write("stock.facts", "a\t-9223372036854775808\nb\t+9223372036854775807\nc\t007\n"), STOCK) == rows
    lines = "".join(f'["{item}", {n}]\n' for item, n in rows)
    path = write("stock.jsonl", lines)
    assert read_rows(path, STOCK) == rows
    assert refusal(IllTypedRow, write("stock.jsonl", f'{lines}["d", {2**63}]\n'), STOCK).place == f"{path}:4"


def test_first_bad_line_is_named_not_first_bad_column(write: Write) -> None:
    relation = Relation("r", (Column("a", NUMBER), Column("b", NUMBER)))
    path = write("r.facts", "1\tx\ny\t1\n")
    error = refusal(IllTypedRow, path, relation)
    assert error.place == f"{path}:1"
    assert "column 'b'" in error.message


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "edge.facts"
    path.write_bytes(b"a\tb\nc\t\xff\n")
    assert refusal(MalformedInput, path, EDGE).place == f"{path}:2"


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "edge.facts"
    assert str(refusal(MissingFile, path, EDGE)) == f"{path}: error[missing_file]: no such file"


def test_folder_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "edge.csv"
    path.mkdir()
    assert "cannot be read" in refusal(MissingFile, path, EDGE).message


GZIPPED = gzip.compress(b"a\tb\n", mtime=0)


@pytest.mark.parametrize("data", [b"plain", GZIPPED[:-6], GZIPPED[:12] + b"\xff" * 9], ids=["plain", "cut off", "overwritten"])
def test_broken_gzip(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "edge.facts.gz"
    path.write_bytes(data)
    assert "gzip" in refusal(MalformedInput, path, EDGE).message


# CSV


def test_csv_by_name(write: Write) -> None:
    assert read_rows(write("stock.csv", 'n,item\n3,"bolt, ""long"""\n'), STOCK) == [('bolt, "long"', 3)]


def test_csv_by_position(write: Write) -> None:
    assert read_rows(write("edge.csv.gz", "src,dst\na,b\n\nc,d\n"), EDGE) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("header", "error", "says", "hint"),
    [
        ("x,y,z", UnknownColumn, "no column 'z'", "known: x, y"),
        ("x,z", UnknownColumn, "no column 'z'", "known: y"),
        ("a,b,c", UnknownColumn, "no column 'a'", "known: x, y"),
        ("x", MalformedInput, "column 'y' of relation 'edge' is missing", None),
        ("x,x", MalformedInput, "column 'x' occurs twice", None),
    ],
)
def test_csv_header_that_does_not_fit(write: Write, header: str, error: type[DataError], says: str, hint: str | None) -> None:
    path = write("edge.csv", f"{header}\n")
    caught = refusal(error, path, EDGE)
    assert caught.place == f"{path}:1"
    assert says in caught.message
    assert caught.hint == hint


def test_csv_header_hint_names_the_nearest(write: Write) -> None:
    assert refusal(UnknownColumn, write("stock.csv", "itme,n\n"), STOCK).hint == "did you mean 'item'?"


def test_csv_lines_are_counted_through_quoted_line_ends(write: Write) -> None:
    path = write("stock.csv", 'item,n\n"a\nb",1\n\nc,x\n')
    assert refusal(IllTypedRow, path, STOCK).place == f"{path}:5"
    path = write("stock.csv", 'item,n\n"a\nb",1\n"c\nd"\n')
    assert refusal(IllTypedRow, path, STOCK).place == f"{path}:4"


@pytest.mark.parametrize("line", ['"a,b', '"a"b,c'])
def test_malformed_csv(write: Write, line: str) -> None:
    path = write("edge.csv", f"x,y\na,b\n{line}\nc,d\ne,f\n")
    error = refusal(MalformedInput, path, EDGE)
    assert error.place == f"{path}:3"
    assert error.message.startswith("not CSV: ")


FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1)


@given(st.lists(st.tuples(FIELDS, st.integers(-(2**63), 2**63 - 1))))
def test_csv_gives_back_what_was_written(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("item", "n"), *rows])
    path = tmp_path_factory.getbasetemp() / "stock.csv"
    path.write_bytes(out.getvalue().encode())
    assert read_rows(path, STOCK) == rows


# JSON lines


@pytest.mark.parametrize("name", ["stock.jsonl", "stock.ndjson", "stock.json", "stock.jsonl.gz"])
def test_json_lines(write: Write, name: str) -> None:
    assert read_rows(write(name, '["bolt", 3]\n\n{"n": 4, "item": "nut"}\n'), STOCK) == [("bolt", 3), ("nut", 4)]


@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ("[", MalformedInput, "not JSON"),
        ("7", IllTypedRow, "an array, or an object by column name, not 7"),
        ('["nut"]', IllTypedRow, "the row has 1"),
        ('["nut", "x"]', IllTypedRow, "column 'n'"),
        ("[1, 2]", IllTypedRow, "column 'item'"),
        ('["nut", true]', IllTypedRow, "column 'n'"),
        ('["nut", [1]]', IllTypedRow, "column 'n'"),
        ('{"item": "nut"}', MalformedInput, "column 'n' of relation 'stock' is missing"),
        ('{"item": "nut", "n": 1, "m": 2}', UnknownColumn, "no column 'm'"),
    ],
)
def test_json_line_that_is_refused(write: Write, line: str, error: type[DataError], says: str) -> None:
    path = write("stock.jsonl", f'["bolt", 3]\n\n{line}\n')
    caught = refusal(error, path, STOCK)
    assert caught.place is not None
    assert caught.place.startswith(f"{path}:3")
    assert says in caught.message


# Parquet


def parquet(path: Path, columns: dict[str, object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_by_name_and_by_position(tmp_path: Path) -> None:
    named = parquet(tmp_path / "a.parquet", {"n": [3], "item": ["bolt"]})
    placed = parquet(tmp_path / "b.parquet", {"what": ["bolt"], "many": [3]})
    assert read_rows(named, STOCK) == read_rows(placed, STOCK) == [("bolt", 3)]


def test_parquet_without_columns(tmp_path: Path) -> None:
    assert read_rows(parquet(tmp_path / "a.parquet", {"x": [1]}), FLAG) == [()]
    assert read_rows(parquet(tmp_path / "b.parquet", {"x": pa.array([], pa.int64())}), FLAG) == []


def test_parquet_that_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    assert "not Parquet" in refusal(MalformedInput, broken, STOCK).message
    path = parquet(tmp_path / "a.parquet", {"item": ["bolt", "nut"], "n": ["3", "x"]})
    assert refusal(IllTypedRow, path, STOCK).place == f"{path}: row 1"
    assert "'m'" in refusal(UnknownColumn, parquet(tmp_path / "b.parquet", {"item": ["a"], "m": [1]}), STOCK).message


# Every type in every format


def test_every_type(write: Write, tmp_path: Path) -> None:
    texts = ["a", "-1", "2", "0.5", "true", "2024-02-29", "2024-02-29T12:30:00.000250", "1.25"]
    assert read_rows(write("every.facts", "\t".join(texts) + "\n"), EVERY) == [EVERY_ROW]
    line = '["a", -1, 2, 0.5, true, "2024-02-29", "2024-02-29T12:30:00.000250", "1.25"]\n'
    assert read_rows(write("every.jsonl", line), EVERY) == [EVERY_ROW]
    names = [column.name for column in EVERY.columns]
    path = parquet(tmp_path / "every.parquet", {name: [value] for name, value in zip(names, EVERY_ROW, strict=True)})
    assert read_rows(path, EVERY) == [EVERY_ROW]


# The .input directive


def test_input_reads_facts_by_default(write: Write) -> None:
    path = write("edge.facts", "a\tb\n")
    assert read_input(Input("edge"), EDGE, path.parent) == [("a", "b")]


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("e.csv", "x,y\na,b\n", {}),
        ("e.csv", "a,b\n", {"headers": "false"}),
        ("e.csv", "a,b\n", {"delimiter": ","}),
        ("e.facts", "x|y\na|b\n", {"delimiter": "|", "headers": "true"}),
        ("e.facts", '"a";b\n', {"delimiter": ";", "rfc4180": "true"}),
        ("e.facts", "a::b\n", {"delimiter": "::"}),
        ("e.jsonl", '["a", "b"]\n', {"IO": "file"}),
        ("e.txt", '["a", "b"]\n', {"format": "jsonl"}),
    ],
)
def test_input_options(write: Write, name: str, text: str, options: dict[str, str]) -> None:
    folder = write(name, text).parent
    directive = Input("edge", (("filename", name), *options.items()))
    assert read_input(directive, EDGE, folder) == [("a", "b")]


def test_input_options_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="option 'filenam'"):
        read_input(Input("edge", (("filenam", "x"),)), EDGE, tmp_path)
    with pytest.raises(UnknownName, match="format 'xml'"):
        read_input(Input("edge", (("format", "xml"),)), EDGE, tmp_path)
    with pytest.raises(Unsupported, match="IO=sqlite"):
        read_input(Input("edge", (("IO", "sqlite"),)), EDGE, tmp_path)
    with pytest.raises(Unsupported, match="delimiter"):
        read_input(Input("edge", (("delimiter", "::"), ("rfc4180", "true"))), EDGE, tmp_path)
    with pytest.raises(MissingFile):
        read_input(Input("edge"), EDGE, tmp_path)
