"""Functions that take BINARY where others take STRING: the type of the first argument decides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rederive.lang.sql.array_functions import concat_arrays
from rederive.lang.sql.column_defaults import Lowered
from rederive.lang.sql.invocation import Handler, Invocation, SqlFunction
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.types import BIGINT, BOOL, BYTES, INT, STRING, SqlType
from rederive.scalar.sql.binaries import BINARIES

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

_TYPES: Final[dict[str, SqlType]] = {"binary": BYTES, "string": STRING, "int": INT, "bigint": BIGINT, "boolean": BOOL}
_OF_BYTES: Final = {found.name.removesuffix(" of bytes"): found for found in BINARIES if found.name.endswith(" of bytes")}


def of_bytes(name: str, other: SqlFunction) -> SqlFunction:
    """The function of texts, or of bytes where its first argument is BINARY; concat and reverse also take arrays."""
    found = _OF_BYTES[name]

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        # Whatever decides is lowered once: where each level lowered it again, nested calls took time exponential in their depth.
        decisive = len(call.arguments) if name == "concat" else 1
        typed = [lower.lower(part) for part in call.arguments[:decisive]]
        call = replace(call, arguments=[*(Lowered(typed=one) for one in typed), *call.arguments[decisive:]])
        if typed and typed[0].type.element is not None and name in ("concat", "reverse"):
            return _of_arrays(lower, name, call)
        # As in Spark, a concat of bytes and texts is a text.
        if not typed or any(one.type != BYTES for one in typed):
            return other.lower(lower, call)
        words = [found.takes[min(i, len(found.takes) - 1)] for i in range(len(call.arguments))]
        arguments = [
            lower.cast(lower.lower(part), _TYPES[word], call.node) for part, word in zip(call.arguments, words, strict=True)
        ]
        return lower.call(found.name, arguments, _TYPES[found.gives], nullable=True if found.maybe_null else None)

    signature = f"{other.signature}; {found.signature}"
    if name in ("concat", "reverse"):
        signature += f"; array{' ...' if name == 'concat' else ''} -> array"
    return SqlFunction(other.least, other.most, handler, other.refused, signature, other.nulls, other.fails)


def _of_arrays(lower: ExpressionLowering, name: str, call: Invocation) -> TypedTerm:
    parts = [lower.lower(part) for part in call.arguments]
    return concat_arrays(lower, parts, call.node) if name == "concat" else lower.call("array_reverse", parts, parts[0].type)


def _decode(other: SqlFunction) -> Handler:
    """decode(binary, charset); with other arguments it is a CASE."""

    def handler(lower: ExpressionLowering, call: Invocation) -> TypedTerm:
        if len(call.arguments) != 2:
            return other.lower(lower, call)
        data, charset = (lower.lower(part) for part in call.arguments)
        arguments = [lower.cast(data, BYTES, call.node), lower.cast(charset, STRING, call.node)]
        return lower.call("decode_bytes", arguments, STRING)

    return handler


def binary_functions(others: dict[str, SqlFunction]) -> dict[str, SqlFunction]:
    """The functions that take BINARY, too, in the place of those that take STRING alone."""
    decode = others["decode"]
    return {
        **{name: of_bytes(name, others[name]) for name in _OF_BYTES},
        "decode": SqlFunction(
            2, None, _decode(decode), decode.refused, f"binary, string -> string; {decode.signature}", decode.nulls, True
        ),
    }
