"""Batches of files, read without Spark: order, operations, and what is rejected, with its place, its text and the reason."""

from __future__ import annotations

import gzip
import io
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rederive.engines.protocol import Action, Operation
from rederive.ingest.change_feed import feed_items
from rederive.ingest.micro_batch import Item, RejectedInput, decode_batch
from rederive.ingest.streamed_files import StreamedFile, change_items, csv_items, file_items, parquet_items
from rederive.ir.rules import Column, Program, Relation
from rederive.ir.terms import NUMBER, SYMBOL, UNSIGNED
from rederive.lang import compile_program
from tests.ingest.conftest import CLOSURE, STOCK

PROGRAM = compile_program(STOCK)
STOCKED = PROGRAM.relations["stock"]
FLAG = Relation("flag", ())


def batch(*files: tuple[str, int, bytes]) -> pyarrow.Table:
    names, times, contents = zip(*files, strict=True)
    return pyarrow.table(
        {"path": names, "modificationTime": [datetime.fromtimestamp(time) for time in times], "content": contents}
    )


def reasons(items: list[Item]) -> list[tuple[str, str | None, str | None]]:
    return [(item.error.code, item.error.place, item.raw) for item in items if isinstance(item, RejectedInput)]


def operations(items: list[Item]) -> list[tuple[str, Any]]:
    return [(step.action.value, step.rows) for step in decode_batch(items).operations]


def test_files_are_read_by_age_and_then_by_name() -> None:
    table = batch(
        ("file:/in/b%20c.jsonl", 5, b'{"insert": {"stock": [["b", 1]]}}'),
        ("file:/in/a.jsonl", 5, b'{"delete": {"stock": [["b", 1]]}}'),
        ("file:/in/z.jsonl.gz", 4, gzip.compress(b'{"insert": {"stock": [["z", 1]]}}\r\n')),
        ("s3a://bucket/q.jsonl", 6, b"{"),
    )
    items = list(file_items(table, lambda file: change_items(file, PROGRAM)))
    assert operations(items) == [("insert", (("z", 1),)), ("delete", (("b", 1),)), ("insert", (("b", 1),))]
    assert reasons(items) == [("malformed", "s3a://bucket/q.jsonl:1:2", "{")]
    spaced = batch(("file:/in/b%20c.jsonl", 5, b"{"))
    assert reasons(list(file_items(spaced, lambda file: change_items(file, PROGRAM))))[0][1] == "/in/b c.jsonl:1:2"


def test_a_line_is_taken_as_a_whole_or_rejected_as_a_whole() -> None:
    lines = [
        b'{"insert": {"stock": [["bolt", 3], ["nut", "x"]]}}',
        b'{"insert": {"stcok": [["bolt", 3]]}}',
        b'{"insert": {"low": [["bolt"]]}}',
        b'{"upsert": {"stock": [{"item": "nut", "m": 4}]}}',
        b'{"upsert": {"stock": [{"item": "nut", "n": 4}]}}',
        b"\xff",
        b"[]",
    ]
    items = list(change_items(StreamedFile("c.jsonl", b"\n".join(lines)), PROGRAM))
    assert operations(items) == [("upsert", (("nut", 4),))]
    codes = ["ill_typed", "unknown_relation", "not_a_base", "unknown_column", "malformed", "malformed"]
    assert [code for code, _, _ in reasons(items)] == codes
    assert reasons(items)[0] == ("ill_typed", "c.jsonl:1: insert.stock[1]", lines[0].decode())
    assert reasons(items)[4] == ("malformed", "c.jsonl:6:1", "\ufffd")


def test_a_batch_read_again_is_the_same_transaction() -> None:
    from rederive.store.codec import digest

    data = b'{"insert": {"edge": [["a", "b"]]}}\n{"delete": {"edge": [["a", "b"]]}}\n{"insert": {"edge": [["c", "d"]]}}\n'
    program = compile_program(CLOSURE)
    one, two = (decode_batch(change_items(StreamedFile("c", data), program)).operations for _ in range(2))
    assert digest(one) == digest(two)
    assert [step.action for step in one] == [Action.INSERT, Action.DELETE, Action.INSERT]


def test_csv() -> None:
    data = 'n,_op,item\n3,insert,bolt\n4,I,"a ""b"",\nc"\n\nx,I,nut\n5,U,nut\n1,D\n6,replace,nut\n7,d,nut\n'
    items = list(csv_items(StreamedFile("s.csv", data.encode()), STOCKED, "_op"))
    assert operations(items) == [
        ("insert", (("bolt", 3), ('a "b",\nc', 4))),
        ("upsert", (("nut", 5),)),
        ("delete", (("nut", 7),)),
    ]
    assert sorted(reasons(items)) == [
        ("ill_typed", "s.csv:6", "x,I,nut"),
        ("ill_typed", "s.csv:8", "1,D"),
        ("malformed", "s.csv:9", "6,replace,nut"),
    ]


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        (b"item,n\nbolt,3\n", "malformed", "f:1"),  # no operation column
        (b"", "malformed", "f:1"),
        (b"item,m,_op\nbolt,3,I\n", "unknown_column", "f:1"),
        (b"item,_op\nbolt,I\n", "malformed", "f:1"),
        (b"item,item,n,_op\n", "malformed", "f:1"),
        (b'item,n,_op\nbolt,3,I\n"nut,4,I\n', "malformed", "f:3"),  # a quote left open
        (b"item,n,_op\n\xff,3,I\n", "malformed", "f:2"),
    ],
)
def test_csv_that_is_rejected_as_a_whole(content: bytes, code: str, place: str) -> None:
    items = list(file_items(batch(("f", 1, content)), lambda file: csv_items(file, STOCKED, "_op")))
    assert reasons(items) == [(code, place, None)]
    assert not operations(items)


def test_gzip_that_is_cut_off() -> None:
    cut = gzip.compress(b"item,n,_op\nbolt,3,I\n")[:-9]
    items = list(file_items(batch(("f.csv.gz", 1, cut)), lambda file: csv_items(file, STOCKED, "_op")))
    assert reasons(items) == [("malformed", "f.csv.gz", None)]


def parquet(table: pyarrow.Table) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def test_parquet() -> None:
    table = pyarrow.table({"_op": ["I", "I", "delete", None], "item": ["bolt", None, "nut", "x"], "n": [1, 2, 3, 4]})
    items = list(parquet_items(StreamedFile("s.parquet", parquet(table)), STOCKED, "_op"))
    assert operations(items) == [("insert", (("bolt", 1),)), ("delete", (("nut", 3),))]
    assert reasons(items) == [
        ("ill_typed", "s.parquet: row 2", '{"_op": "I", "item": null, "n": 2}'),
        ("malformed", "s.parquet: row 4", '{"_op": null, "item": "x", "n": 4}'),
    ]


def test_parquet_of_unsigned_numbers_and_of_nothing() -> None:
    big = Relation("big", (Column("u", UNSIGNED), Column("n", NUMBER), Column("s", SYMBOL)))
    table = pyarrow.table({"u": [Decimal(2**64 - 1)], "n": [Decimal("7.5")], "s": ["a"], "_op": ["I"]})
    items = list(parquet_items(StreamedFile("b", parquet(table)), big, "_op"))
    assert reasons(items)[0][0] == "ill_typed"
    whole = table.set_column(1, "n", pyarrow.array([Decimal(7)]))
    assert operations(list(parquet_items(StreamedFile("b", parquet(whole)), big, "_op"))) == [("insert", ((2**64 - 1, 7, "a"),))]
    flags = pyarrow.table({"_op": ["I", "D"]})
    steps = list(parquet_items(StreamedFile("f", parquet(flags)), FLAG, "_op"))
    assert steps == [Operation(Action.INSERT, "flag", ((),)), Operation(Action.DELETE, "flag", ((),))]


def test_what_is_not_parquet() -> None:
    items = list(file_items(batch(("f", 1, b"PAR1")), lambda file: parquet_items(file, STOCKED, "_op")))
    assert reasons(items) == [("malformed", "f", None)]
    assert decode_batch([]) == decode_batch(change_items(StreamedFile("f", b"\n{}\n"), Program({}, ())))


def test_a_change_feed_goes_by_commits_and_leaves_before_it_enters() -> None:
    """In whatever order Spark hands the rows out."""
    changes = [
        ("nut", 1, "insert", 1),
        ("bolt", 1, "insert", 1),
        ("bolt", 2, "update_postimage", 2),
        ("bolt", 1, "update_preimage", 2),
        ("nut", 1, "insert", 2),
        ("nut", 1, "delete", 2),
        (None, 5, "insert", 3),
        ("gear", 9, "delete", 3),
    ]
    names = ("item", "n", "_change_type", "_commit_version")

    def read(rows: list[tuple[Any, ...]]) -> list[Item]:
        columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        return list(feed_items(pyarrow.table({**columns, "_commit_timestamp": [0] * len(rows)}), STOCKED, "/t"))

    items = read(changes)
    assert items[:-1] == read(changes[::-1])[:-1]
    assert operations(items) == [
        ("insert", (("bolt", 1), ("nut", 1))),
        ("delete", (("bolt", 1), ("nut", 1))),
        ("insert", (("bolt", 2), ("nut", 1))),
        ("delete", (("gear", 9),)),
    ]
    assert reasons(items) == [("ill_typed", "/t@3", '{"item": null, "n": 5, "_change_type": "insert", "_commit_version": 3}')]
