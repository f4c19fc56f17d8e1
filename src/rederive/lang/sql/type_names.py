"""The names of types in SQL: which types of Spark are supported, and what is refused."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from rederive.errors import TypeClash
from rederive.ir.terms import UTC
from rederive.lang.sql.statement_context import StatementContext
from rederive.lang.sql.types import (
    BIGINT,
    BOOL,
    DAY,
    DOUBLE,
    INT,
    MAX_PRECISION,
    MOMENT,
    SMALLINT,
    STRING,
    TINYINT,
    SqlType,
    decimal,
)

_KNOWN_TYPES: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "DECIMAL(p,s)", "STRING", "BOOLEAN", "DATE", "TIMESTAMP")
_TYPES: Final = {
    exp.DType.TINYINT: TINYINT,
    exp.DType.SMALLINT: SMALLINT,
    exp.DType.INT: INT,
    exp.DType.BIGINT: BIGINT,
    exp.DType.DOUBLE: DOUBLE,
    exp.DType.TEXT: STRING,
    exp.DType.VARCHAR: STRING,
    exp.DType.BOOLEAN: BOOL,
    exp.DType.DATE: DAY,
    exp.DType.TIMESTAMP: MOMENT,
    exp.DType.TIMESTAMPTZ: MOMENT,
    exp.DType.TIMESTAMPLTZ: MOMENT,
    exp.DType.TIMESTAMPNTZ: MOMENT,
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
    parameters = ", ".join(parameter.name for parameter in node.expressions)
    name = f"{getattr(node.this, 'value', node.this)}{f'({parameters})' if parameters else ''}"
    hint = f"use one of {', '.join(_KNOWN_TYPES)}"
    if node.this in (exp.DType.CHAR, exp.DType.VARCHAR):
        hint = "use STRING" if not is_column else "use VARCHAR(n), or STRING"
    raise context.unsupported(f"the type {name}", node, hint)


def _decimal(node: exp.DataType, context: StatementContext) -> SqlType:
    # DECIMAL by itself is DECIMAL(10,0).
    numbers = [parameter.name for parameter in node.expressions] or ["10"]
    precision, scale = (int(text) if text.isdecimal() else -1 for text in (*numbers, "0")[:2])
    if len(numbers) > 2 or not 0 <= scale <= precision <= MAX_PRECISION or precision == 0:
        hint = f"write DECIMAL(p,s) with s <= p <= {MAX_PRECISION}"
        raise TypeClash(f"{node.sql('spark')} is not a type", context.span(node), hint=hint)
    return decimal(precision, scale)
