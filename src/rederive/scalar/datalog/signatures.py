"""The functors that terms may call: their names, argument types and results. Engines bring the implementations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UNSIGNED, Kind, Type

INTEGERS = frozenset({Kind.NUMBER, Kind.UNSIGNED})
NUMERIC = INTEGERS | {Kind.FLOAT, Kind.DECIMAL}
ANY = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Functor:
    """`same`: all arguments share one type out of these kinds, which is the result's too.

    `takes`: otherwise the fixed argument types, or the kinds of a single argument, and `gives` the result.
    `fallible`: it may fail on some arguments, so it is evaluated after everything that can rule the binding out.
    `overflows`: it fails for few arguments; it is evaluated early, and where it fails once more at the end.
    """

    name: str
    arity: tuple[int, int]
    same: frozenset[Kind] = frozenset()
    takes: tuple[frozenset[Kind], ...] = ()
    gives: Type | None = None
    fallible: bool = False
    overflows: bool = False

    def accepts(self, position: int) -> frozenset[Kind]:
        """The kinds that the argument at `position` may have."""
        return self.same or self.takes[min(position, len(self.takes) - 1)]

    def result(self, arguments: Sequence[Type | None]) -> Type | None:
        """The type of the result, or None while the arguments do not tell yet."""
        return self.gives if self.gives is not None else next((t for t in arguments if t is not None), None)


_SYMBOL = frozenset({Kind.SYMBOL})
_NUMBER = frozenset({Kind.NUMBER})
_MANY = 255

_ALL = (
    *(Functor(name, (2, 2), same=NUMERIC, overflows=True) for name in ("+", "*")),
    Functor("-", (1, 2), same=NUMERIC, overflows=True),
    *(Functor(name, (2, 2), same=NUMERIC, fallible=True) for name in ("/", "^")),
    Functor("%", (2, 2), same=INTEGERS, fallible=True),
    Functor("bshl", (2, 2), same=INTEGERS, overflows=True),
    *(Functor(name, (2, 2), same=INTEGERS) for name in ("band", "bor", "bxor", "bshr", "land", "lor", "lxor")),
    *(Functor(name, (1, 1), same=INTEGERS) for name in ("bnot", "lnot")),
    *(Functor(name, (2, _MANY), same=ANY) for name in ("min", "max")),
    Functor("cat", (2, _MANY), takes=(_SYMBOL,), gives=SYMBOL),
    Functor("strlen", (1, 1), takes=(_SYMBOL,), gives=NUMBER),
    Functor("substr", (3, 3), takes=(_SYMBOL, _NUMBER, _NUMBER), gives=SYMBOL),
    Functor("ord", (1, 1), takes=(_SYMBOL,), gives=NUMBER),
    Functor("to_string", (1, 1), takes=(ANY,), gives=SYMBOL),
    Functor("to_number", (1, 1), takes=(NUMERIC | _SYMBOL,), gives=NUMBER, fallible=True),
    Functor("to_unsigned", (1, 1), takes=(NUMERIC | _SYMBOL,), gives=UNSIGNED, fallible=True),
    Functor("to_float", (1, 1), takes=(NUMERIC | _SYMBOL,), gives=FLOAT, fallible=True),
    Functor("to_boolean", (1, 1), takes=(_SYMBOL,), gives=BOOLEAN, fallible=True),
    Functor("to_date", (1, 1), takes=(_SYMBOL | {Kind.TIMESTAMP},), gives=DATE, fallible=True),
    Functor("to_timestamp", (1, 1), takes=(_SYMBOL | {Kind.DATE},), gives=TIMESTAMP, fallible=True),
)

FUNCTORS = {functor.name: functor for functor in _ALL}
