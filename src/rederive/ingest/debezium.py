"""Debezium envelopes: what happened to one row of a table, as JSON, with or without its schema.

    {"op": "u", "before": {"id": 7, "n": 1}, "after": {"id": 7, "n": 2}, "source": {...}}

`c` and `r` insert a row, `u` replaces one, `d` deletes one. A message without a value, a tombstone, adds nothing to the `d`
before it. A relation with a key is changed by key, so the source may log only the key of an old row.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from rederive.engines.protocol import Action, Operation
from rederive.errors import DataError, IllTypedRow, MalformedInput, nearest
from rederive.ingest.strict_json import Json, parse_line
from rederive.ir.nested import Array, Map, struct
from rederive.ir.rules import Relation
from rederive.ir.terms import Kind, Row, Type, Value
from rederive.rows import typed_json_rows, typed_rows, wrong_names
from rederive.values import from_python

_OPERATIONS: Final = ("c", "d", "r", "u")
_UNAVAILABLE: Final = "__debezium_unavailable_value"
_EPOCH: Final = datetime(1970, 1, 1)
_FULL: Final = "declare a key for the relation, or have the source log whole rows (REPLICA IDENTITY FULL)"

Fields = Mapping[str, Mapping[str, Any]]
"""What the envelope's schema says about each column; empty without a schema."""


def envelope_operations(message: str | None, relation: Relation, place: str) -> tuple[Operation, ...]:
    """The operations of a message on `relation`, in the order in which they apply.

    >>> from rederive.ir.rules import Column
    >>> from rederive.ir.terms import NUMBER
    >>> stock = Relation("stock", (Column("item", NUMBER), Column("n", NUMBER)), key=(0,))
    >>> for step in envelope_operations('{"op": "u", "before": null, "after": {"item": 7, "n": 2}}', stock, "stock[0]@1"):
    ...     print(step.action.value, step.rows)
    upsert ((7, 2),)
    """
    # A tombstone, for the log compaction of Kafka.
    if message is None:
        return ()
    envelope, fields = _open_envelope(message, place)
    before, after = (_image(envelope, name, place) for name in ("before", "after"))
    match envelope.get("op"):
        case "c" | "r":
            return _insertion(after, relation, fields, place)
        case "d":
            return _deletion(before, relation, fields, place)
        case "u":
            return _replacement(before, after, relation, fields, place)
        case other:
            hint = nearest(str(other), _OPERATIONS)
            raise MalformedInput(f"{other!r} is not an operation on a row", hint=hint).at(place)


def _open_envelope(message: str, place: str) -> tuple[Mapping[str, Json], Fields]:
    """The envelope, and the schema of its row images if the converter sends one."""
    value = parse_line(message, place, 1)
    if not isinstance(value, dict):
        raise MalformedInput("an envelope must be a JSON object").at(place)
    # The converter sends envelopes bare with `schemas.enable=false`.
    if "payload" not in value:
        return value, {}
    payload, schema = value["payload"], value.get("schema")
    if not isinstance(payload, dict):
        raise MalformedInput("the payload must be a JSON object").at(place)
    return payload, _fields(schema)


def _fields(schema: Any) -> Fields:
    """The fields of both images, which have the same columns."""
    try:
        images = {field["field"]: field["fields"] for field in schema["fields"] if field.get("field") in ("before", "after")}
        # A schema that cannot be read is none: values are then typed as plain JSON, and refused if they do not fit.
        return {field["field"]: field for field in images.get("after") or images["before"]}
    except (KeyError, TypeError, AttributeError):
        return {}


def _image(envelope: Mapping[str, Json], name: str, place: str) -> Mapping[str, Json] | None:
    image = envelope.get(name)
    if image is not None and not isinstance(image, dict):
        raise MalformedInput(f"'{name}' must be an object by column name, or null").at(place)
    return image


# Operations


def _insertion(after: Mapping[str, Json] | None, relation: Relation, fields: Fields, place: str) -> tuple[Operation, ...]:
    # Debezium delivers at least once, and repeats its snapshot (`r`) after
    # some failures: with a key, a repetition replaces a row by itself.
    action = Action.UPSERT if relation.key else Action.INSERT
    return (Operation(action, relation.name, (_row(after, "after", relation, fields, place),)),)


def _deletion(before: Mapping[str, Json] | None, relation: Relation, fields: Fields, place: str) -> tuple[Operation, ...]:
    if not relation.key:
        try:
            return (Operation(Action.DELETE, relation.name, (_row(before, "before", relation, fields, place),)),)
        except DataError as error:
            error.hint = error.hint or _FULL
            raise
    # The other columns of the row to delete are unknown: upsert a row with the key, then delete that row. This reads no state, so
    # reading a message again gives the same operations.
    row = _key_row(before, relation, fields, place)
    return tuple(Operation(action, relation.name, (row,)) for action in (Action.UPSERT, Action.DELETE))


def _replacement(
    before: Mapping[str, Json] | None, after: Mapping[str, Json] | None, relation: Relation, fields: Fields, place: str
) -> tuple[Operation, ...]:
    insertion = _insertion(after, relation, fields, place)
    # With an equal key the upsert replaces the old row. With another key the old row would stay, so it is deleted first.
    if relation.key and (before is None or _key_row(before, relation, fields, place) == _key_row(after, relation, fields, place)):
        return insertion
    return (*_deletion(before, relation, fields, place), *insertion)


# Rows


def _row(image: Mapping[str, Json] | None, name: str, relation: Relation, fields: Fields, place: str) -> Row:
    if image is None:
        raise MalformedInput(f"the envelope has no '{name}'", hint=_FULL if name == "before" else None).at(place)
    # Debezium's placeholder for a large column that the update did not touch, which PostgreSQL does not log.
    if _UNAVAILABLE in image.values():
        column = next(column for column, value in image.items() if value == _UNAVAILABLE)
        raise IllTypedRow(f"the source did not send the value of column '{column}'", hint=_FULL).at(place)
    # Without a schema, decimals and timestamps must come in the forms that `values` reads.
    if not fields:
        return typed_json_rows([dict(image)], relation, lambda _: place)[0]
    names = [column.name for column in relation.columns]
    if image.keys() != set(names):
        raise wrong_names(list(image), relation).at(place)
    columns = [[_logical(image[name], fields.get(name, {}), relation, name, place)] for name in names]
    return typed_rows(columns, relation, from_python, lambda _: place)[0] if names else ()


def _key_row(image: Mapping[str, Json] | None, relation: Relation, fields: Fields, place: str) -> Row:
    """A row with the image's key, and arbitrary values in the other columns."""
    if image is None:
        raise MalformedInput("the envelope has no 'before'", hint=_FULL).at(place)
    # Only the key is read: without REPLICA IDENTITY FULL, PostgreSQL logs nothing else of an old row.
    columns = tuple(relation.columns[i] for i in relation.key)
    names = [column.name for column in columns]
    if missing := [name for name in names if name not in image]:
        raise wrong_names([name for name in names if name not in missing], Relation(relation.name, columns)).at(place)
    key = Relation(relation.name, columns)
    values = dict(zip(names, _row({name: image[name] for name in names}, "before", key, fields, place), strict=True))
    # Which values does not matter: the row exists only between the upsert and the delete of one transaction.
    return tuple(values.get(column.name, _any(column.type)) for column in relation.columns)


def _any(type: Type) -> Value:
    """An arbitrary value of a type."""
    match type.kind:
        case Kind.SYMBOL:
            return ""
        case Kind.NUMBER | Kind.UNSIGNED:
            return 0
        case Kind.FLOAT:
            return 0.0
        case Kind.BOOLEAN:
            return False
        case Kind.DATE:
            return _EPOCH.date()
        case Kind.TIMESTAMP:
            return _EPOCH
        case Kind.DECIMAL:
            return Decimal(0).scaleb(-type.scale)
        case Kind.BINARY:
            return b""
        case Kind.INTERVAL:
            return timedelta()
        case Kind.STRUCT:
            return struct(tuple(part.name for part in type.parts), tuple(_any(part.type) for part in type.parts))
        case Kind.ARRAY | Kind.MAP:
            return Array() if type.kind is Kind.ARRAY else Map()


# Values whose meaning depends on the schema


def _logical(value: Json, field: Mapping[str, Any], relation: Relation, name: str, place: str) -> object:
    read = _LOGICAL.get(str(field.get("name")))
    if read is None or value is None:
        return value
    try:
        return read(value, field)
    except (TypeError, ValueError, KeyError, OverflowError, binascii.Error) as error:
        message = f"column '{name}' of relation '{relation.name}': {value!r} is not a {field['name']} ({error})"
        raise IllTypedRow(message).at(place) from None


def _since_epoch(**unit: int) -> Callable[[Any, Mapping[str, Any]], datetime]:
    return lambda value, _: _EPOCH + timedelta(**{name: _exactly(value, parts) for name, parts in unit.items()})


def _exactly(value: int, parts: int) -> int:
    """The value in our unit; raises ValueError if it is finer than a microsecond."""
    if value % parts:
        raise ValueError("finer than a microsecond")
    return value // parts


def _day(value: Any, _: Mapping[str, Any]) -> date:
    return _EPOCH.date() + timedelta(days=value)


def _unscaled(value: Any, field: Mapping[str, Any]) -> Decimal:
    # Kafka Connect writes a decimal as the two's complement of its digits, the most significant byte first.
    number = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -int(field["parameters"]["scale"])))  # whatever its digits: a shift would round to 28


_LOGICAL: Final[dict[str, Callable[[Any, Mapping[str, Any]], object]]] = {
    "io.debezium.time.Date": _day,
    "org.apache.kafka.connect.data.Date": _day,
    "io.debezium.time.Timestamp": _since_epoch(milliseconds=1),
    "org.apache.kafka.connect.data.Timestamp": _since_epoch(milliseconds=1),
    "io.debezium.time.MicroTimestamp": _since_epoch(microseconds=1),
    "io.debezium.time.NanoTimestamp": _since_epoch(microseconds=1000),
    "org.apache.kafka.connect.data.Decimal": _unscaled,
}
