"""The changes file, good and bad."""

from __future__ import annotations

import gzip
import io
import sys
from itertools import islice
from pathlib import Path

import pytest

from rederive.engines.protocol import Action, Operation
from rederive.errors import DataError, IllTypedRow, MalformedInput, MissingFile, NotABase, UnknownColumn, UnknownRelation
from rederive.ingest.change_file import RequestedChanges, parse_change_line, read_change_file, read_changes, type_change_line
from rederive.ir.rules import Atom, Column, Program, Relation, Rule
from rederive.ir.terms import NUMBER, SYMBOL, Variable

X, Y = Variable("x"), Variable("y")
EDGE = Relation("edge", (Column("x", SYMBOL), Column("y", SYMBOL)))
STOCK = Relation("stock", (Column("item", SYMBOL), Column("n", NUMBER)), key=(0,))
FLAG = Relation("flag", ())
BACK = Relation("back", (Column("x", SYMBOL), Column("y", SYMBOL)))
HELPER = Relation("back.1", (Column("x", SYMBOL),))
PROGRAM = Program(
    {r.name: r for r in (EDGE, STOCK, FLAG, BACK, HELPER)},
    (Rule(Atom("back", (X, Y)), (Atom("edge", (Y, X)),)), Rule(Atom("back.1", (X,)), (Atom("edge", (X, Y)),))),
)


def one(line: str) -> RequestedChanges:
    return type_change_line(parse_change_line(line, "changes.jsonl", 1), PROGRAM)


def test_insert_delete_and_upsert() -> None:
    line = '{"insert": {"edge": [["h", "d"]]}, "delete": {"edge": [["b", "c"]]}, "upsert": {"stock": [{"n": 3, "item": "bolt"}]}}'
    assert one(line) == RequestedChanges({"edge": (("h", "d"),)}, {"edge": (("b", "c"),)}, {"stock": (("bolt", 3),)})


def test_deletes_apply_before_inserts_whatever_the_order_of_keys() -> None:
    line = '{"upsert": {"stock": [["bolt", 3]]}, "insert": {"edge": [["a", "b"]]}, "delete": {"edge": [["a", "b"]], "stock": []}}'
    assert one(line).operations == (
        Operation(Action.DELETE, "edge", (("a", "b"),)),
        Operation(Action.DELETE, "stock", ()),
        Operation(Action.INSERT, "edge", (("a", "b"),)),
        Operation(Action.UPSERT, "stock", (("bolt", 3),)),
    )
    assert one(line).place == "changes.jsonl:1"


def test_nothing_is_a_transaction_too() -> None:
    assert one("{}") == one('{"insert": {}}') == RequestedChanges()
    assert one('{"insert": {"edge": []}}') == RequestedChanges(insert={"edge": ()})


def test_relation_without_columns() -> None:
    assert one('{"insert": {"flag": [[]]}, "delete": {"flag": [{}, []]}}') == RequestedChanges(
        {"flag": ((),)}, {"flag": ((), ())}
    )


@pytest.mark.parametrize(
    ("line", "error", "place", "says"),
    [
        ("[]", MalformedInput, ":1:1", "a transaction must be a JSON object"),
        ("null", MalformedInput, ":1:1", "a transaction must be a JSON object"),
        ('{"insert": {}} {}', MalformedInput, ":1:16", "Extra data"),
        ('{"insert": {"x": []}, "x": {}}', MalformedInput, ":1:23", "unknown key 'x'"),
        ('{"insert": {}, "inserts": {}}', MalformedInput, ":1:16", "unknown key 'inserts'"),
        ('{"insert": {}, "insert": {}}', MalformedInput, ":1:16", "occurs twice"),
        ('{"insert": {"stock": [["a", NaN]]}}', MalformedInput, ":1:29", "NaN"),
        ('{"insert": []}', MalformedInput, ":1:2", "'insert' must be an object"),
        ('{"insert": {"edge": {}}}', MalformedInput, ":1:2", "'insert' must give a list of rows for 'edge'"),
        ('{"insert": {"egde": []}}', UnknownRelation, ":1: insert.egde", "unknown relation 'egde'"),
        ('{"insert": {"back.1": []}}', UnknownRelation, ":1: insert.back.1", "unknown relation 'back.1'"),
        ('{"delete": {"back": []}}', NotABase, ":1: delete.back", "'back' is a view"),
        ('{"insert": {"edge": [["a"]]}}', IllTypedRow, ":1: insert.edge[0]", "the row has 1"),
        ('{"insert": {"edge": [["a", "b"], "ab"]}}', IllTypedRow, ":1: insert.edge[1]", "not 'ab'"),
        ('{"upsert": {"stock": [["a", 1], ["b", "x"]]}}', IllTypedRow, ":1: upsert.stock[1]", "column 'n'"),
        ('{"delete": {"stock": [[1, 1]]}}', IllTypedRow, ":1: delete.stock[0]", "column 'item'"),
        ('{"delete": {"stock": [{"itm": "a", "n": 1}]}}', UnknownColumn, ":1: delete.stock[0]", "no column 'itm'"),
        ('{"insert": {"flag": [["a"]]}}', IllTypedRow, ":1: insert.flag[0]", "the row has 1"),
    ],
)
def test_refused(line: str, error: type[DataError], place: str, says: str) -> None:
    with pytest.raises(error) as caught:
        one(line)
    assert caught.value.place == f"changes.jsonl{place}"
    assert says in caught.value.message


def test_hints_name_the_nearest() -> None:
    with pytest.raises(UnknownRelation) as relation:
        one('{"insert": {"egde": []}}')
    assert relation.value.hint == "did you mean 'edge'?"
    with pytest.raises(MalformedInput) as key:
        one('{"inserts": {}}')
    assert key.value.hint == "did you mean 'insert'?"


# Files

LINES = b'\xef\xbb\xbf{"insert": {"edge": [["a", "b"]]}}\r\n\n  \n{}\n{"delete": {"edge": [["a", "b"]]}}'
TRANSACTIONS = (
    RequestedChanges(insert={"edge": (("a", "b"),)}),
    RequestedChanges(),
    RequestedChanges(delete={"edge": (("a", "b"),)}),
)


def test_file_with_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    path.write_bytes(LINES)
    assert read_change_file(path, PROGRAM) == TRANSACTIONS


def test_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl.gz"
    path.write_bytes(gzip.compress(LINES))
    assert read_change_file(path, PROGRAM) == TRANSACTIONS


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES + b"\n[]")))
    changes = read_changes(Path("-"), PROGRAM)
    assert tuple(islice(changes, 3)) == TRANSACTIONS
    with pytest.raises(MalformedInput) as caught:
        next(changes)
    assert caught.value.place == "<stdin>:6:1"


def test_lines_are_read_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    path.write_text("{}\n[]\n", encoding="utf-8")
    changes = read_changes(path, PROGRAM)
    assert next(changes) == RequestedChanges()
    with pytest.raises(MalformedInput):
        next(changes)
    with pytest.raises(MalformedInput) as caught:
        read_change_file(path, PROGRAM)
    assert caught.value.place == f"{path}:2:1"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="no such file"):
        read_change_file(tmp_path / "changes.jsonl", PROGRAM)


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    path.write_bytes(b'{}\n{"\xc3\xa9\xff": 1}\n')
    with pytest.raises(MalformedInput, match="not UTF-8: byte 0xff") as caught:
        read_change_file(path, PROGRAM)
    assert caught.value.place == f"{path}:2:4"
