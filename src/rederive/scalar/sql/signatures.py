"""The scalar functions of SQL that terms can call: what they do with NULL, and whether they can fail.

A call carries the type of its result. A *strict* function gives NULL if an argument is NULL. *Lazy* functions (`case`,
`coalesce`, `and`, `or`) evaluate only the arguments that decide the result: `false and NULL` is false, and a branch of `case`
that is not taken cannot fail. `in` tests its first argument against the others, which are constants.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scalar:
    """The signature of a scalar function. A `fallible` one is evaluated after every literal that can discard the binding."""

    name: str
    strict: bool = True
    fallible: bool = False


_LAZY = ("case", "coalesce", "and", "or")
_LENIENT = ("is null", "is not null", "<=>", "greatest", "least", "concat_ws", "in", *_LAZY)
_ARITHMETIC = ("+", "-", "*", "/", "div", "%", "negative", "abs", "power", "sqrt", "exp", "ln", "round", "floor", "ceil")
_CASTS = ("tinyint", "smallint", "int", "bigint", "double", "decimal", "boolean", "date", "timestamp")
_DATES = ("add_days", "add_months", "add_seconds")
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "not", "like", "rlike", "startswith", "endswith", "contains")
_TEXT = (
    "string", "concat", "length", "upper", "lower", "substring", "trim", "ltrim", "rtrim", "replace", "instr", "left", "right",
    "lpad", "rpad", "reverse", "repeat",
)  # fmt: skip
_PARTS = (
    "year", "month", "day", "quarter", "hour", "minute", "second", "dayofweek", "dayofyear", "weekofyear", "datediff",
    "trunc", "date_trunc", "last_day", "sign",
)  # fmt: skip

# A TRY cast gives NULL instead of failing, so it is not fallible.
SCALARS = {
    **{name: Scalar(name, fallible=True) for name in (*_ARITHMETIC, *_CASTS, *_DATES)},
    **{name: Scalar(name) for name in (*_COMPARISONS, *_TEXT, *_PARTS)},
    **{name: Scalar(name, strict=False) for name in _LENIENT},
    **{f"try_{name}": Scalar(f"try_{name}") for name in _CASTS},
}
LAZY = frozenset(_LAZY)
ZONED = frozenset({
    "hour", "minute", "second", "date_trunc", "date", "try_date", "timestamp", "try_timestamp", "string", *_DATES,
})  # fmt: skip
"""Functions that depend on the time zone if they take or give a timestamp. If it is not UTC, it is their last argument."""
