"""Terms of SQL as Spark SQL: tests and choices in Spark's own words, everything else by the resident engine's functions.

Spark may evaluate an expression for rows that another literal rules out, and its own functions end the query where they fail.
So what may fail is one Python function for the whole term: it evaluates only the arguments that decide, and says how it failed.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rederive.engines.resident.compile.expressions import row_function
from rederive.engines.spark.session.types import literal, sql_type
from rederive.ir.terms import Call, Constant, Row, Term, Type, Value, Variable, variables
from rederive.scalar.failures import ScalarError

_COMPARED = {"=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>", "and": "AND", "or": "OR"}


def in_sql(term: Term, columns: Mapping[str, str]) -> str | None:
    """The term in Spark's own words, where it can neither fail nor mean something else there.

    >>> from rederive.ir.terms import BOOLEAN
    >>> in_sql(Call("is null", (Variable("x"),), gives=BOOLEAN), {"x": "a0.c1"})
    '(a0.c1 IS NULL)'
    """
    match term:
        case Variable(name):
            return columns[name]
        case Constant(value, type):
            return literal(value, type)
        case Call(functor, arguments, _, gives):
            given = [in_sql(argument, columns) for argument in arguments]
            printed = [text for text in given if text is not None]
            return _printed(functor, printed, gives) if gives is not None and len(printed) == len(given) else None


def _printed(functor: str, a: list[str], gives: Type) -> str | None:
    match functor:
        case "is null" | "is not null":
            return f"({a[0]} {functor.upper()})"
        case "not":
            return f"(NOT {a[0]})"
        case "in":
            return f"({a[0]} IN ({', '.join(a[1:])}))"
        case "case":
            cases = (f"WHEN {a[i]} THEN {a[i + 1]}" for i in range(0, len(a) - 1, 2))
            return f"CAST(CASE {' '.join(cases)} ELSE {a[-1]} END AS {sql_type(gives)})" if len(a) > 1 else a[0]
        case "coalesce":
            return f"CAST(coalesce({', '.join(a)}) AS {sql_type(gives)})"
        case _ if functor in _COMPARED:
            return f"({f' {_COMPARED[functor]} '.join(a)})"
    return None


@dataclass(slots=True)
class Evaluated:
    """A term as a function of its variables' values: its value, or how it failed. Compiled where it is called."""

    term: Term
    names: tuple[str, ...]
    types: dict[str, Type]
    _function: Callable[[Row], Value] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, term: Term, types: Mapping[str, Type]) -> Evaluated:
        names = tuple(dict.fromkeys(variable.name for variable in variables(term)))
        return cls(_bare(term), names, {name: types[name] for name in names})

    def total(self, *values: Any) -> tuple[Any, str | None]:
        if self._function is None:
            self._function = row_function(self.term, self.names, self.types)
        try:
            return self._function(values), None
        except ScalarError as error:
            return None, str(error)

    def __reduce__(self) -> tuple[Any, ...]:
        return Evaluated, (self.term, self.names, self.types)

    @property
    def name(self) -> str:
        """The same for the same function."""
        return f"rederive_{hashlib.sha256(pickle.dumps((self.term, self.names, self.types))).hexdigest()[:32]}"


def _bare(term: Term) -> Term:
    """A term without the text that it came from."""
    match term:
        case Variable(name):
            return Variable(name)
        case Constant(value, type):
            return Constant(value, type)
        case Call():
            return Call(term.functor, tuple(map(_bare, term.arguments)), None, term.gives)
