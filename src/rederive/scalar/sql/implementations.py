"""What the scalar functions of SQL compute, as Spark does in its ANSI mode. NULL is None; strict functions never see it.

The lazy functions are not here: the engines compile them to branches.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from rederive.ir.nested import nested_class
from rederive.ir.terms import Type, Value
from rederive.scalar.failures import ScalarError
from rederive.scalar.sql.built_in import Implementation
from rederive.scalar.sql.built_ins import BUILT_INS
from rederive.scalar.sql.casts import CASTS, cast
from rederive.scalar.sql.lowering_functions import OF_LOWERING
from rederive.scalar.sql.numbers import ARITHMETIC, ROUNDING, arithmetic
from rederive.scalar.sql.signatures import SCALARS


def scalar_function(name: str, arguments: Sequence[Type], gives: Type) -> Implementation:
    """The function that computes a scalar function on values of these types.

    >>> from rederive.ir.terms import NUMBER
    >>> scalar_function("+", (NUMBER, NUMBER), NUMBER)(1, None) is None
    True
    """
    if name.startswith("try_"):
        function = _null_on_failure(_implementation(name.removeprefix("try_"), gives))
    else:
        function = _implementation(name, gives)
    if gives.parts:
        function = _make_nested(function, gives)
    return _make_strict(function) if SCALARS[name].strict else function


def _make_nested(function: Implementation, gives: Type) -> Implementation:
    """The function whose tuples are values of a nested type."""
    make = nested_class(gives)
    return lambda *arguments: None if (found := function(*arguments)) is None else make(found)


def membership_test(options: Sequence[Value]) -> Implementation:
    """The test whether a value is one of these constants. It gives NULL if it is none of them and one is NULL.

    >>> [membership_test([1, 2, None])(value) for value in (1, 3, None)]
    [True, None, None]
    """
    # x IN (a, NULL) is x = a OR NULL: TRUE for a, NULL for every other x.
    known, otherwise = frozenset(options), None if None in options else False

    def found(value: Any) -> bool | None:
        if value is None:
            return None
        return True if value in known else otherwise

    return found


def _make_strict(function: Implementation) -> Implementation:
    """The function that gives NULL if an argument is NULL."""

    def strict(*arguments: Any) -> Any:
        return None if None in arguments else function(*arguments)

    return strict


def _null_on_failure(function: Implementation) -> Implementation:
    """The function that gives NULL where the other one fails, as TRY_CAST does."""

    def tried(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ScalarError:
            return None

    return tried


def _implementation(name: str, gives: Type) -> Implementation:
    """The function of a name. That of a cast, of rounding and of arithmetic depends on the type of the result."""
    if name in CASTS:
        return cast(name, gives)
    if name in ROUNDING:
        return partial(ROUNDING[name], gives)
    if name in ARITHMETIC:
        return arithmetic(name, gives)
    if name in BUILT_INS and BUILT_INS[name].typed:
        return partial(BUILT_INS[name].compute, gives)
    return _FIXED[name]


_NULL_AND_ORDER: Final[dict[str, Implementation]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    # None == None is true in Python, as NULL <=> NULL is in SQL. It is not strict, so it sees NULL.
    "<=>": operator.eq,
    "not": operator.not_,
    "is null": lambda value: value is None,
    "is not null": lambda value: value is not None,
    "greatest": lambda *values: max((v for v in values if v is not None), default=None),
    "least": lambda *values: min((v for v in values if v is not None), default=None),
}
_FIXED: Final[dict[str, Implementation]] = {
    **_NULL_AND_ORDER,
    **{name: found.compute for name, found in BUILT_INS.items()},
    **OF_LOWERING,
}
