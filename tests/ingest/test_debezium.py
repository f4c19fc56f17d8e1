"""Debezium's envelopes: each operation, with whole rows and with keys alone, with and without schema; and what is refused."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow
import pytest

import rederive
from rederive.errors import DataError
from rederive.ingest.debezium import envelope_operations
from rederive.ingest.kafka_messages import message_items
from rederive.ingest.micro_batch import decode_batch
from rederive.ir.rules import Relation
from rederive.lang import compile_program

PROGRAM = """
.decl stock(item: symbol, n: number) key(item)
.decl edge(x: symbol, y: symbol)
.decl event(id: number, day: date, at: timestamp, price: decimal(9,2), ok: boolean, f: float, u: unsigned) key(id)
.decl low(item: symbol)
low(item) :- stock(item, n), n < 10.
"""
RELATIONS = compile_program(PROGRAM).relations
STOCK, EDGE, EVENT = RELATIONS["stock"], RELATIONS["edge"], RELATIONS["event"]


def steps(envelope: object, relation: Relation) -> list[tuple[Any, ...]]:
    text = None if envelope is None else json.dumps(envelope)
    return [(step.action.value, *step.rows) for step in envelope_operations(text, relation, "t[0]@7")]


def row(x: str, y: str) -> dict[str, str]:
    return {"x": x, "y": y}


def test_rows_without_a_key() -> None:
    assert steps({"op": "c", "before": None, "after": row("a", "b")}, EDGE) == [("insert", ("a", "b"))]
    assert steps({"op": "r", "after": row("a", "b"), "source": {}}, EDGE) == [("insert", ("a", "b"))]
    update = {"op": "u", "before": row("a", "b"), "after": row("a", "c")}
    assert steps(update, EDGE) == [("delete", ("a", "b")), ("insert", ("a", "c"))]
    assert steps({"op": "d", "before": row("a", "b"), "after": None}, EDGE) == [("delete", ("a", "b"))]
    assert steps(None, EDGE) == []


def test_rows_with_a_key_need_no_more_of_the_old_row() -> None:
    assert steps({"op": "c", "after": {"item": "bolt", "n": 3}}, STOCK) == [("upsert", ("bolt", 3))]
    assert steps({"op": "u", "before": None, "after": {"item": "bolt", "n": 4}}, STOCK) == [("upsert", ("bolt", 4))]
    moved = {"op": "u", "before": {"item": "bolt"}, "after": {"item": "nut", "n": 4}}
    assert steps(moved, STOCK) == [("upsert", ("bolt", 0)), ("delete", ("bolt", 0)), ("upsert", ("nut", 4))]


def test_deleting_by_key_deletes_whatever_row_has_it() -> None:
    db = rederive.open()
    db.define(PROGRAM)
    history = [
        {"op": "c", "after": {"item": "bolt", "n": 3}},
        {"op": "c", "after": {"item": "nut", "n": 0}},
        {"op": "u", "before": None, "after": {"item": "bolt", "n": 5}},
        {"op": "d", "before": {"item": "bolt", "n": None}},
        {"op": "d", "before": {"item": "absent"}},
        {"op": "u", "before": {"item": "nut"}, "after": {"item": "gear", "n": 7}},
    ]
    together = [step for envelope in history for step in envelope_operations(json.dumps(envelope), STOCK, "t")]
    assert db.pipeline.commit_operations(together).changes["low"].plus == [("gear",)]
    assert db.rows("stock") == [("gear", 7)]
    last = envelope_operations('{"op": "d", "before": {"item": "gear"}}', STOCK, "t")
    assert db.pipeline.commit_operations(last).changes["low"].minus == [("gear",)]
    assert db.rows("stock") == []
    # Keys of every type, and other columns of every type.
    values = {"id": 1, "day": "2024-02-29", "at": "2024-02-29T12:00:00", "price": "1.50", "ok": True, "f": 0.5, "u": 7}
    for envelope in ({"op": "c", "after": values}, {"op": "d", "before": {"id": 1}}):
        db.pipeline.commit_operations(envelope_operations(json.dumps(envelope), EVENT, "t"))
    assert db.rows("event") == []


def test_a_schema_tells_what_numbers_mean() -> None:
    cents = base64.b64encode((-12345).to_bytes(2, "big", signed=True)).decode()
    fields: list[dict[str, Any]] = [
        {"field": "id", "type": "int64"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        *({"field": name, "type": "x"} for name in ("ok", "f", "u")),
    ]
    after: dict[str, Any] = {"id": 1, "day": 19782, "at": 1709208000123456, "price": cents, "ok": True, "f": 0.5, "u": 7}
    schema = {"fields": [{"field": "before", "fields": fields}, {"field": "after", "fields": fields}, {"field": "op"}]}
    envelope = {"schema": schema, "payload": {"op": "c", "after": after}}
    expected = (1, date(2024, 2, 29), datetime(2024, 2, 29, 12, 0, 0, 123456), Decimal("-123.45"), True, 0.5, 7)
    assert steps(envelope, EVENT) == [("upsert", expected)]
    fields[2]["name"] = "io.debezium.time.NanoTimestamp"
    after["at"] = 1709208000123456789
    refused(envelope, EVENT, "ill_typed", "finer than a microsecond")
    fields[2]["name"] = "io.debezium.time.Timestamp"
    after["at"] = 1709208000123
    assert steps(envelope, EVENT)[0][1][2] == datetime(2024, 2, 29, 12, 0, 0, 123000)
    after["price"] = base64.b64encode((10**31 + 1).to_bytes(14, "big", signed=True)).decode()
    refused(envelope, EVENT, "ill_typed", "price", f"{10**29}.01")
    after["price"] = "?"
    refused(envelope, EVENT, "ill_typed", "price")
    assert steps({"schema": None, "payload": {"op": "c", "after": row("a", "b")}}, EDGE) == [("insert", ("a", "b"))]


def refused(envelope: object, relation: Relation, code: str, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        steps(envelope, relation)
    assert caught.value.code == code
    assert (caught.value.place or "").startswith("t[0]@7")
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("envelope", "relation", "code", "word"),
    [
        ([], EDGE, "malformed", "object"),
        ({"payload": 7}, EDGE, "malformed", "payload"),
        ({"op": "t"}, EDGE, "malformed", "'t'"),
        ({"after": row("a", "b")}, EDGE, "malformed", "None"),
        ({"op": "c"}, EDGE, "malformed", "after"),
        ({"op": "c", "after": [1]}, EDGE, "malformed", "after"),
        ({"op": "c", "after": {"x": "a"}}, EDGE, "malformed", "'y'"),
        ({"op": "c", "after": {"x": "a", "z": "b"}}, EDGE, "unknown_column", "'z'"),
        ({"op": "c", "after": {"item": "a", "n": "three"}}, STOCK, "ill_typed", "three"),
        ({"op": "c", "after": {"item": "a", "n": None}}, STOCK, "ill_typed", "null"),
        ({"op": "c", "after": row("a", "__debezium_unavailable_value")}, EDGE, "ill_typed", "'y'"),
        ({"op": "d", "before": None}, EDGE, "malformed", "REPLICA IDENTITY FULL"),
        ({"op": "d", "before": {"x": "a", "y": None}}, EDGE, "ill_typed", "REPLICA IDENTITY FULL"),
        ({"op": "u", "before": None, "after": row("a", "b")}, EDGE, "malformed", "REPLICA IDENTITY FULL"),
        ({"op": "d", "before": None}, STOCK, "malformed", "before"),
        ({"op": "d", "before": {"n": 3}}, STOCK, "malformed", "'item'"),
        ({"op": "d", "before": {"item": 3}}, STOCK, "ill_typed", "3"),
    ],
)
def test_what_is_refused(envelope: object, relation: Relation, code: str, word: str) -> None:
    refused(envelope, relation, code, word)


def test_messages_come_in_the_order_of_their_offsets() -> None:
    values = [b'{"op": "d", "before": {"x": "a", "y": "b"}}', b'{"op": "c", "after": {"x": "a", "y": "b"}}', None, b"\xff", b"{"]
    value = pyarrow.array(values, pyarrow.binary())
    table = pyarrow.table({"topic": ["e"] * 5, "partition": [0, 0, 0, 0, 1], "offset": [2, 1, 3, 4, 0], "value": value})
    read = decode_batch(message_items(table, {"e": EDGE}))
    assert [step.action.value for step in read.operations] == ["insert", "delete"]
    assert [item.error.place for item in read.rejected] == ["e[0]@4", "e[1]@0:1:2"]
