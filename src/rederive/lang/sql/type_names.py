"""The names of types in SQL: which types of Spark are supported, and what is refused."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from rederive.errors import Redefined, TypeClash
from rederive.ir.terms import UTC
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import (
    BIGINT,
    BOOL,
    BYTES,
    DAY,
    DOUBLE,
    DURATION,
    INT,
    MAX_PRECISION,
    MOMENT,
    SINGLE,
    SMALLINT,
    STRING,
    TINYINT,
    WALL_TIME,
    SqlType,
    array_of,
    decimal,
    map_of,
    struct_of,
)

_KNOWN_TYPES: Final = (
    "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(p,s)", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "BINARY",
    "INTERVAL DAY TO SECOND", "ARRAY<...>", "STRUCT<...>", "MAP<..., ...>",
)  # fmt: skip
_TYPES: Final = {
    exp.DType.TINYINT: TINYINT,
    exp.DType.SMALLINT: SMALLINT,
    exp.DType.INT: INT,
    exp.DType.BIGINT: BIGINT,
    exp.DType.FLOAT: SINGLE,
    exp.DType.DOUBLE: DOUBLE,
    exp.DType.TEXT: STRING,
    exp.DType.VARCHAR: STRING,
    exp.DType.BOOLEAN: BOOL,
    exp.DType.BINARY: BYTES,
    exp.DType.VARBINARY: BYTES,
    exp.DType.DATE: DAY,
    exp.DType.TIMESTAMP: MOMENT,
    exp.DType.TIMESTAMPTZ: MOMENT,
    exp.DType.TIMESTAMPLTZ: MOMENT,
    exp.DType.TIMESTAMPNTZ: WALL_TIME,
}


def text_length(node: exp.DataType) -> int | None:
    """The most characters of a VARCHAR(n); None for other types."""
    if node.this is not exp.DType.VARCHAR or len(node.expressions) != 1 or not node.expressions[0].name.isdecimal():
        return None
    return int(node.expressions[0].name)


def named_type(node: exp.DataType, context: StatementContext, *, is_column: bool = False) -> SqlType:
    """The type that a type name means; types that are not supported are refused. `is_column`: whether a table stores it."""
    if node.this is exp.DType.DECIMAL:
        return _decimal(node, context)
    # A TIMESTAMP_NTZ is a wall clock time. In UTC it equals the TIMESTAMP of that time; in another zone it does not.
    if node.this is exp.DType.TIMESTAMPNTZ and context.builder.zone != UTC:
        what = f"TIMESTAMP_NTZ in a database whose time zone is {context.builder.zone}"
        raise context.unsupported(what, node, "use TIMESTAMP, or open the database with zone='UTC'")
    if is_column and (text_length(node) or 0) > 0:
        return STRING
    if node.this in _TYPES and not node.expressions:
        return _TYPES[node.this]
    if isinstance(node.this, exp.Interval):
        return _interval(node.this, context)
    if node.this in (exp.DType.ARRAY, exp.DType.STRUCT, exp.DType.MAP) and node.expressions:
        return _nested(node, context)
    parameters = ", ".join(parameter.name for parameter in node.expressions)
    name = f"{getattr(node.this, 'value', node.this)}{f'({parameters})' if parameters else ''}"
    hint = f"use one of {', '.join(_KNOWN_TYPES)}"
    if node.this in (exp.DType.CHAR, exp.DType.VARCHAR):
        hint = "use STRING" if not is_column else "use VARCHAR(n), or STRING"
    raise context.unsupported(f"the type {name}", node, hint)


def _nested(node: exp.DataType, context: StatementContext) -> SqlType:
    """ARRAY<element>, MAP<key, value> or STRUCT<name: type, ...>."""
    if node.this is exp.DType.STRUCT:
        if part := next((part for part in node.expressions if part.args.get("constraints")), None):
            raise context.unsupported(f"a constraint of the field '{part.name}'", part, "omit it: a field may be NULL")
        names = [part.name for part in node.expressions]
        if double := next((name for i, name in enumerate(names) if name.lower() in map(str.lower, names[:i])), None):
            raise Redefined(f"two fields of a struct are called '{double}'", context.span(node))
        return struct_of((part.name, named_type(part.args["kind"], context)) for part in node.expressions)
    parts = [named_type(part, context) for part in node.expressions]
    if node.this is exp.DType.ARRAY and len(parts) == 1:
        return array_of(parts[0])
    if node.this is exp.DType.MAP and len(parts) == 2:
        if not parts[0].is_comparable:
            raise TypeClash(f"{parts[0]} cannot be the type of a key", context.span(node))
        return map_of(*parts)
    raise context.unsupported(f"the type {node.sql('spark')}", node, "write ARRAY<INT> or MAP<STRING, INT>")


def _interval(node: exp.Interval, context: StatementContext) -> SqlType:
    units = node.args.get("unit")
    names = (
        [units.name] if isinstance(units, exp.Var) else [part.name for part in (units.this, units.expression)] if units else []
    )
    if names and all(name.upper() in ("DAY", "HOUR", "MINUTE", "SECOND") for name in names):
        return DURATION
    hint = "use INTERVAL DAY TO SECOND, or a number of months"
    raise context.unsupported(f"the type {node.sql('spark')}", node, hint)


def _decimal(node: exp.DataType, context: StatementContext) -> SqlType:
    # DECIMAL by itself is DECIMAL(10,0).
    numbers = [parameter.name for parameter in node.expressions] or ["10"]
    precision, scale = (int(text) if text.isdecimal() else -1 for text in (*numbers, "0")[:2])
    if len(numbers) > 2 or not 0 <= scale <= precision <= MAX_PRECISION or precision == 0:
        hint = f"write DECIMAL(p,s) with s <= p <= {MAX_PRECISION}"
        raise TypeClash(f"{node.sql('spark')} is not a type", context.span(node), hint=hint)
    return decimal(precision, scale)
