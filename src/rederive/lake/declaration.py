"""What a table of a lake declares about itself, as table properties: its format, its relation and its time zone."""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql.types import DataType, StructType

from rederive.errors import Mismatch, NewerFormat, NotATable, SchemaMismatch
from rederive.ir.rules import Column, Relation
from rederive.ir.terms import UTC
from rederive.lake.delta_log import TableState
from rederive.lake.types import schema_of, type_named

FORMAT: Final = 2
"""Of format 1 are tables in which a TIMESTAMP is a TIMESTAMP_NTZ in UTC; they keep that type."""
_FORMAT: Final = "rederive.format"
_RELATION: Final = "rederive.relation"
_ZONE: Final = "rederive.zone"
_KEY: Final = "rederive.key"  # for readers: Delta has no primary keys
SINCE: Final = "rederive.since"
"""Of a change table: the version up to which its changes were removed."""


def table_properties(relation: Relation, zone: str) -> dict[str, str]:
    """The properties of a table that holds `relation`, in a database of this time zone."""
    columns = [[column.name, str(column.type), *_domain(column)] for column in relation.columns]
    declaration = {"name": relation.name, "columns": columns, "key": list(relation.key)}
    own = {_FORMAT: str(FORMAT), _RELATION: json.dumps(declaration), _ZONE: zone}
    if relation.key:
        own[_KEY] = ", ".join(relation.columns[i].name for i in relation.key)
    # With deletion vectors a small MERGE marks rows as deleted and does not rewrite their files.
    return {"delta.enableDeletionVectors": "true", **own}


def _domain(column: Column) -> list[bool | int]:
    """What only columns of SQL have: whether they may be NULL, and the width of narrow integers."""
    return [column.nullable, column.bits] if column.nullable or column.bits < 64 else []


def table_format(table: TableState) -> int:
    """The format that a table was created with; the present one for a table that is not ours."""
    return int(table.properties.get(_FORMAT, FORMAT))


def retained_since(table: TableState) -> int:
    """The version after which a change table has all changes."""
    return int(table.properties.get(SINCE, 0))


def declared_relation(table: TableState, place: str) -> Relation:
    """The relation that a table holds; raises an error if a later release of rederive, or somebody else, wrote the table."""
    if _FORMAT not in table.properties:
        raise NotATable(
            "a Delta table, but not one of a lake of rederive", hint="register it as initial data or as a base relation instead"
        ).at(place)
    if (found := table_format(table)) > FORMAT:
        raise NewerFormat(
            f"the table has format {found}, and this rederive reads formats up to {FORMAT}", hint="upgrade rederive"
        ).at(place)
    declaration = json.loads(table.properties[_RELATION])
    columns = tuple(Column(name, type_named(type), *domain) for name, type, *domain in declaration["columns"])
    return Relation(declaration["name"], columns, tuple(declaration["key"]))


def check_table(table: TableState, relation: Relation, schema: StructType, place: str, zone: str) -> None:
    """Refuse a table that does not hold `relation`, or whose columns somebody changed, naming the first difference."""
    found = declared_relation(table, place)
    # A table without the property is older than zones, when every database was in UTC.
    if (other := table.properties.get(_ZONE, UTC)) != zone:
        raise Mismatch(f"the table is of a database in the time zone '{other}', not '{zone}'", hint="use another lake").at(place)
    if found.name != relation.name:
        raise SchemaMismatch(f"the table holds relation '{found.name}', not '{relation.name}'").at(place)
    if difference := _difference(found, relation):
        raise SchemaMismatch(
            f"the declaration of relation '{relation.name}' differs from its table: {difference}",
            hint="declare it as it was, or add a column at the end with a default, or start a new lake",
        ).at(place)
    if difference := schema_difference(table.schema, schema):
        raise SchemaMismatch(f"the table of relation '{relation.name}' was changed by somebody else: {difference}").at(place)


def _difference(found: Relation, asked: Relation) -> str | None:
    for number, (old, new) in enumerate(zip(found.columns, asked.columns, strict=False), 1):
        if old != new:
            return f"column {number} is '{_shown(old)}' in the table and '{_shown(new)}' in the program"
    if found.arity != asked.arity:
        return f"it has {found.arity} columns in the table and {asked.arity} in the program"
    if found.key != asked.key:
        keys = [", ".join(relation.columns[i].name for i in relation.key) or "all columns" for relation in (found, asked)]
        return f"its key is ({keys[0]}) in the table and ({keys[1]}) in the program"
    return None


def _shown(column: Column) -> str:
    width = f", {column.bits} bits" if column.bits < 64 else ""
    return f"{column.name}: {column.type}{width}{', may be NULL' if column.nullable else ''}"


def schema_difference(found: StructType, asked: StructType) -> str | None:
    """The first difference of two schemas in names or types of columns; whether NULL is allowed does not matter.

    >>> schema_difference(StructType().add("x", "long"), StructType().add("x", "string"))
    "column 'x' is bigint instead of string"
    """
    for old, new in zip(found.fields, asked.fields, strict=False):
        if old.name != new.name:
            return f"column '{old.name}' is found where '{new.name}' is expected"
        if not is_same_type(old.dataType, new.dataType):
            return f"column '{new.name}' is {old.dataType.simpleString()} instead of {new.dataType.simpleString()}"
    if len(found.fields) > len(asked.fields):
        return f"column '{found.fields[len(asked.fields)].name}' is not expected"
    if len(found.fields) < len(asked.fields):
        return f"column '{asked.fields[len(found.fields)].name}' is missing"
    return None


def is_same_type(one: DataType, two: DataType) -> bool:
    """Whether two types have the same values; whether Spark knows that some part is never NULL does not matter."""
    return one == two or one.simpleString() == two.simpleString()


def check_frame(schema: StructType, relation: Relation) -> None:
    """Refuse a data frame whose columns have other types than the relation's. Their order matters, their names do not."""
    asked = schema_of(relation).fields
    if relation.columns and len(schema.fields) != len(asked):
        raise SchemaMismatch(f"relation '{relation.name}' has {len(asked)} columns, the DataFrame has {len(schema.fields)}")
    for column, old, new in zip(relation.columns, schema.fields, asked, strict=False):
        if not is_same_type(old.dataType, new.dataType):
            raise SchemaMismatch(
                f"column '{column.name}' of relation '{relation.name}' is {column.type}, "
                f"so {new.dataType.simpleString()} is expected, and the DataFrame has {old.dataType.simpleString()}",
                hint="cast the column",
            )
