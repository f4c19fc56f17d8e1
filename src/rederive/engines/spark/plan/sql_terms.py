"""Terms of SQL as expressions of Spark: conditions and choices natively, every other term as one Python function.

Spark may evaluate an expression for rows that another literal rules out, and its own functions end the query where they fail.
So a term that may fail is one Python function: it evaluates only the arguments that decide, and returns its error (decision 31).
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rederive.engines.spark.plan.expressions import (
    CaseWhen,
    Cast,
    Expression,
    FunctionCall,
    Infix,
    InList,
    LogicalNot,
    NullTest,
    TypedValue,
)
from rederive.engines.spark.session.types import is_read, value_reader
from rederive.engines.term_functions import row_function
from rederive.ir.nested import plain
from rederive.ir.terms import Call, Constant, Kind, Lambda, Row, Term, Type, Value, Variable, variables
from rederive.scalar.failures import ScalarError

# Comparisons and connectives cannot fail and have SQL's three-valued meaning in both engines. Arithmetic is not here: it may
# overflow.
_INFIX = {"=": "=", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "<=>": "<=>", "and": "AND", "or": "OR"}


def native_term(term: Term, columns: Mapping[str, Expression]) -> Expression | None:
    """The term in Spark's own operators, where it can neither fail nor mean something else there; else None.

    >>> from rederive.engines.spark.plan.expressions import ColumnRef
    >>> from rederive.ir.terms import BOOLEAN
    >>> native_term(Call("is null", (Variable("x"),), gives=BOOLEAN), {"x": ColumnRef("c1", "a0")})
    NullTest(value=ColumnRef(name='c1', alias='a0'), is_null=True)
    """
    match term:
        case Variable(name):
            return columns[name]
        case Constant(value, type):
            return TypedValue(value, type)
        case Call(functor, arguments, _, gives):
            given = [native_term(argument, columns) for argument in arguments]
            # All arguments or none: a term with a part that may fail is one Python function as a whole.
            native = [one for one in given if one is not None]
            return _native_call(functor, native, gives) if gives is not None and len(native) == len(given) else None


def _native_call(functor: str, a: Sequence[Expression], gives: Type) -> Expression | None:
    match functor:
        case "is null" | "is not null":
            return NullTest(a[0], functor == "is null")
        case "not":
            return LogicalNot(a[0])
        case "in":
            return InList(a[0], tuple(a[1:]))
        case "case":
            branches = tuple((a[i], a[i + 1]) for i in range(0, len(a) - 1, 2))
            # Spark widens the branches to a common type of its own; the cast restores the declared one.
            return Cast(CaseWhen(branches, a[-1]), gives) if branches else a[0]
        case "coalesce":
            return Cast(FunctionCall("coalesce", tuple(a)), gives)
        case _ if functor in _INFIX:
            return Infix(_INFIX[functor], tuple(a))
    return None


@dataclass(slots=True)
class TermFunction:
    """A term as a Python function of its variables' values, which an executor compiles when it first calls it."""

    term: Term
    names: tuple[str, ...]
    types: dict[str, Type]
    _function: Callable[[Row], Value] | None = field(default=None, repr=False, compare=False)
    _readers: dict[int, Callable[[Any], Value]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, term: Term, types: Mapping[str, Type]) -> TermFunction:
        """The function of a term whose variables have these types."""
        names = tuple(dict.fromkeys(variable.name for variable in variables(term)))
        return cls(_without_spans(term), names, {name: types[name] for name in names})

    def evaluate(self, *values: Any) -> tuple[Any, str | None]:
        """The value, or NULL and the text of the error."""
        if self._function is None:
            self._function = row_function(self.term, self.names, self.types)
            given = ((i, self.types[name]) for i, name in enumerate(self.names))
            self._readers = {i: value_reader(type) for i, type in given if is_read(type) and type.kind is not Kind.UNSIGNED}
        if self._readers:
            values = tuple([self._readers[i](value) if i in self._readers else value for i, value in enumerate(values)])
        try:
            return plain(self._function(values)), None
        except ScalarError as error:
            return None, str(error)

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled functions cannot be pickled: an executor gets the term and compiles it.
        return TermFunction, (self.term, self.names, self.types)

    @property
    def name(self) -> str:
        """A name for the function; equal functions have the same one."""
        return f"rederive_{hashlib.sha256(pickle.dumps((self.term, self.names, self.types))).hexdigest()[:32]}"


def _without_spans(term: Term) -> Term:
    """The term without its place in a program, so that equal terms are one function."""
    match term:
        case Variable(name):
            return Variable(name)
        case Constant(Lambda() as function, type):
            return Constant(function._replace(body=_without_spans(function.body)), type)
        case Constant(value, type):
            return Constant(value, type)
        case Call():
            return Call(term.functor, tuple(map(_without_spans, term.arguments)), None, term.gives)
