"""The scalar functions of SQL that terms can call: what they do with NULL, and whether they can fail.

A call carries the type of its result. A *strict* function gives NULL if an argument is NULL. *Lazy* functions (`case`,
`coalesce`, `and`, `or`) evaluate only the arguments that decide the result: `false and NULL` is false, and a branch of `case`
that is not taken cannot fail. `in` tests its first argument against the others, which are constants.
"""

from __future__ import annotations

from dataclasses import dataclass

from rederive.scalar.sql.built_ins import BUILT_INS


@dataclass(frozen=True, slots=True)
class Scalar:
    """The signature of a scalar function. A `fallible` one is evaluated after every literal that can discard the binding."""

    name: str
    strict: bool = True
    fallible: bool = False


_LAZY = ("case", "coalesce", "and", "or")
_LENIENT = ("is null", "is not null", "<=>", "greatest", "least", "in", *_LAZY)
_ARITHMETIC = ("+", "-", "*", "/", "div", "%", "pmod", "pmod of floats", "negative", "abs")
_ROUNDING = ("round", "bround", "floor", "ceil", "floor_to", "ceil_to")
_CASTS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "date", "timestamp", "interval")
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "not")

_GIVEN = {
    **{name: Scalar(name, fallible=True) for name in (*_ARITHMETIC, *_ROUNDING, *_CASTS)},
    **{name: Scalar(name) for name in (*_COMPARISONS, "string", "binary")},
    **{name: Scalar(name, strict=False) for name in _LENIENT},
    **{name: Scalar(name, found.strict, found.fallible) for name, found in BUILT_INS.items()},
    # Of lowering: the value of a scalar subquery, and the identity and the level of a row of a recursion.
    "only value": Scalar("only value", strict=False, fallible=True),
    "row path": Scalar("row path", strict=False),
    "next level": Scalar("next level", fallible=True),
}
# What is tried gives NULL instead of failing, so it is not fallible.
SCALARS = {**_GIVEN, **{f"try_{name}": Scalar(f"try_{name}", found.strict) for name, found in _GIVEN.items() if found.fallible}}
LAZY = frozenset(_LAZY)
_ZONED = ("date", "timestamp", "string", *(name for name, found in BUILT_INS.items() if found.zoned))
ZONED = frozenset({*_ZONED, *(f"try_{name}" for name in _ZONED)})
"""Functions that depend on the time zone if they take or give a timestamp. If it is not UTC, it is their last argument."""
