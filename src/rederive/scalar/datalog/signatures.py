"""The functors that terms of Datalog can call: their names, arguments and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rederive.ir.terms import BOOLEAN, DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UNSIGNED, Kind, Type

INTEGERS = frozenset({Kind.NUMBER, Kind.UNSIGNED})
NUMERIC = INTEGERS | {Kind.FLOAT, Kind.DECIMAL}
ANY = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Functor:
    """The signature of a functor.

    `same`: all arguments have one type of these kinds, which is also the type of the result. Otherwise, `takes` are the kinds of
    each argument, the last one for all further arguments, and `gives` is the type of the result.
    `fallible`: it may fail on some arguments. It is evaluated after every literal that can discard the binding, because a
    failure matters only for bindings that the rest of the body accepts.
    `overflows`: it fails on few arguments. It is evaluated early; if it fails, it is evaluated again at the end.
    """

    name: str
    arity: tuple[int, int]
    same: frozenset[Kind] = frozenset()
    takes: tuple[frozenset[Kind], ...] = ()
    gives: Type | None = None
    fallible: bool = False
    overflows: bool = False

    def accepts(self, position: int) -> frozenset[Kind]:
        """The kinds that the argument at `position` can have."""
        return self.same or self.takes[min(position, len(self.takes) - 1)]

    def result(self, arguments: Sequence[Type | None]) -> Type | None:
        """The type of the result; None if the types of the arguments are not known yet."""
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
