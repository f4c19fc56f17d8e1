"""Types, values and terms."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from rederive.errors import Span

# bool is a subclass of int and datetime of date in Python: a `match` on values tests the subclass first. An array is a tuple;
# structs and maps are the tuples of `ir.nested`.
Value: TypeAlias = (
    str | int | float | bool | bytes | Decimal | datetime.date | datetime.datetime | datetime.timedelta | tuple[Any, ...] | None
)
Row: TypeAlias = tuple[Value, ...]
UTC = "UTC"  # the default time zone of a database; values of kind timestamp are always in it


class Kind(Enum):
    """What a column may hold; the values are the names of the types in Datalog."""

    SYMBOL = "symbol"
    NUMBER = "number"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    DECIMAL = "decimal"
    BINARY = "binary"
    INTERVAL = "interval"  # of days and parts of a day
    ARRAY = "array"
    STRUCT = "struct"
    MAP = "map"

    # Types are keys of dictionaries everywhere: by identity, as members are singletons, and not by a call of Python.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a nested type: the element of an array, a field of a struct, the key or the value of a map."""

    name: str
    type: Type
    bits: int = 64  # the width of its integers or floats; 0 is the type of a bare NULL

    def __str__(self) -> str:
        has_width = self.type.kind in (Kind.NUMBER, Kind.FLOAT) and self.bits < 64
        return f"{self.type}:{self.bits}" if has_width else str(self.type)


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a column. Only decimals have a precision and a scale, and only nested types have parts."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    parts: tuple[Part, ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case Kind.DECIMAL:
                return f"decimal({self.precision},{self.scale})"
            case Kind.STRUCT:
                return f"struct<{', '.join(f'`{part.name}` {part}' for part in self.parts)}>"
            case Kind.ARRAY | Kind.MAP:
                return f"{self.kind.value}<{', '.join(map(str, self.parts))}>"
        return str(self.kind.value)

    def contains(self, kind: Kind) -> bool:
        """Whether the type or one of its parts is of a kind."""
        return self.kind is kind or any(part.type.contains(kind) for part in self.parts)


SYMBOL = Type(Kind.SYMBOL)
NUMBER = Type(Kind.NUMBER)
UNSIGNED = Type(Kind.UNSIGNED)
FLOAT = Type(Kind.FLOAT)
BOOLEAN = Type(Kind.BOOLEAN)
DATE = Type(Kind.DATE)
TIMESTAMP = Type(Kind.TIMESTAMP)
BINARY = Type(Kind.BINARY)
INTERVAL = Type(Kind.INTERVAL)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of one rule. A name that starts with a digit is that of a `_`, and occurs once in the text."""

    # Scoped to its rule: the same name in two rules is two variables.
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def is_anonymous(self) -> bool:
        """Whether it was written as `_`."""
        return self.name[0].isdigit()


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the type that its place in the rule needs."""

    value: Value
    # `1` may be a number, an unsigned, a float or a decimal: inference decides by its place.
    type: Type
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A functor applied to terms, see `scalar.datalog.signatures`; or a scalar function, see `scalar.sql.signatures`.

    `gives`: of a scalar function, the type of its result. Scalar functions take and return NULL; functors do not.
    """

    functor: str
    arguments: tuple[Term, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    # The type is inferred for a functor, from its arguments, and declared for a scalar function of SQL.
    gives: Type | None = field(default=None, repr=False)


class Lambda(NamedTuple):
    """A lambda of SQL: a constant argument of a higher-order function.

    `parameters`: the names that the body has for its arguments: those of the lambda, then the variables of the rule that it
    mentions. The values of these are further arguments of the call, so that whatever rewrites terms sees them.
    """

    parameters: tuple[str, ...]
    types: tuple[Type, ...]
    body: Term


Term: TypeAlias = Variable | Constant | Call
# What an atom may hold. Lowering flattens calls into equations, so joins compare simple terms only.
Simple: TypeAlias = Variable | Constant


def variables(term: Term) -> tuple[Variable, ...]:
    """The variables of a term, from left to right, repeated as they occur.

    >>> [v.name for v in variables(Call("+", (Variable("x"), Call("*", (Variable("y"), Variable("x"))))))]
    ['x', 'y', 'x']
    """
    match term:
        case Variable():
            return (term,)
        case Constant():
            return ()
        case Call():
            return tuple(v for argument in term.arguments for v in variables(argument))
