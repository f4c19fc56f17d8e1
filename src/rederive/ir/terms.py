"""Types, values and terms."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from rederive.errors import Span

Value: TypeAlias = str | int | float | bool | Decimal | datetime.date | datetime.datetime | None
Row: TypeAlias = tuple[Value, ...]
UTC = "UTC"  # the zone of a database that was not given another one; values of kind timestamp are in it always


class Kind(Enum):
    """What a column may hold; the names are the language's."""

    SYMBOL = "symbol"
    NUMBER = "number"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    DECIMAL = "decimal"


@dataclass(frozen=True, slots=True)
class Type:
    """A column's type; precision and scale belong to decimals alone."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.kind is Kind.DECIMAL else self.kind.value


SYMBOL = Type(Kind.SYMBOL)
NUMBER = Type(Kind.NUMBER)
UNSIGNED = Type(Kind.UNSIGNED)
FLOAT = Type(Kind.FLOAT)
BOOLEAN = Type(Kind.BOOLEAN)
DATE = Type(Kind.DATE)
TIMESTAMP = Type(Kind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of one rule. Names that start with a digit stand for `_`: each occurs once."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def anonymous(self) -> bool:
        return self.name[0].isdigit()


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal value, already of the type that its place asks for."""

    value: Value
    type: Type
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A functor applied to terms: arithmetic and string functions alike. See `scalar.datalog.signatures`.

    With `gives`, it is one of `scalar.sql.signatures`, which know NULL, and this is its result's type.
    """

    functor: str
    arguments: tuple[Term, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    gives: Type | None = field(default=None, repr=False)


Term: TypeAlias = Variable | Constant | Call
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
