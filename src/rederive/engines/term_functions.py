"""Terms as Python expressions, for both engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from rederive.analysis.types import term_type
from rederive.ir.terms import Call, Constant, Lambda, Row, Term, Type, Value, Variable
from rederive.scalar.datalog.implementations import functor_function
from rederive.scalar.sql.implementations import membership_test, scalar_function
from rederive.scalar.sql.signatures import LAZY

Name = Callable[[str, Any], str]
_MISSED: Final = object()  # no condition of a CASE was true


class Expressions:
    """Writes terms: `name` puts an object into the text's scope, `variable` is how the text calls a variable's value."""

    def __init__(self, name: Name, variable: Callable[[Variable], str], types: Mapping[str, Type]) -> None:
        self.name = name
        self.variable = variable
        self.types = types
        self.numbers = count()

    def value(self, term: Term) -> str:
        """An expression for a term's value, not its code."""
        match term:
            case Variable():
                return self.variable(term)
            case Constant(value=Lambda() as written):
                return self.name("function", lambda_function(written))
            case Constant():
                # By reference, not as text: no constant has to survive a round trip through repr.
                return self.name("constant", term.value)
            case Call("in", (tested, *options)) if term.gives is not None:
                return self.call(
                    self.name("member", membership_test([o.value for o in options if isinstance(o, Constant)])), [tested]
                )
            case Call() if term.functor in LAZY and term.gives is not None:
                return self.lazy(term)
            case Call(gives=Type() as gives):
                types = tuple(term_type(argument, self.types) for argument in term.arguments)
                return self.call(self.name("scalar", scalar_function(term.functor, types, gives)), term.arguments)
            case Call():
                first = term_type(term.arguments[0], self.types)
                function = functor_function(term.functor, first, len(term.arguments))
                return self.call(self.name("functor", function), term.arguments)

    def call(self, function: str, arguments: Sequence[Term]) -> str:
        """Return the text of a call with these arguments."""
        return f"{function}({', '.join(map(self.value, arguments))})"

    def lazy(self, term: Call) -> str:
        """Only the arguments that decide are evaluated: what guards a division must come before it."""
        match term.functor:
            case "coalesce":
                return self.coalesce(term.arguments)
            case "case":
                return self.case(term.arguments)
            case connective:
                return self.connective(term.arguments, decisive=str(connective == "or"))

    # Many arguments are written as halves of halves: Python nests two hundred parentheses, and no more.

    def case(self, arguments: Sequence[Term]) -> str:
        """Return the text of a CASE whose arguments are conditions and results in turn, and at last the ELSE."""
        *branches, otherwise = arguments
        pairs = list(zip(branches[::2], branches[1::2], strict=True))
        return self.chosen(pairs, self.value(otherwise)) if pairs else self.value(otherwise)

    def chosen(self, pairs: Sequence[tuple[Term, Term]], otherwise: str) -> str:
        """The result of the first condition that is true."""
        if len(pairs) == 1:
            ((condition, result),) = pairs
            return f"({self.value(result)} if {self.value(condition)} is True else {otherwise})"
        half, local, missed = len(pairs) // 2, self.local(), self.name("missed", _MISSED)
        first = self.chosen(pairs[:half], missed)
        return f"({local} if ({local} := {first}) is not {missed} else {self.chosen(pairs[half:], otherwise)})"

    def coalesce(self, arguments: Sequence[Term]) -> str:
        """Return the text for the first argument that is not NULL; those after it are not evaluated."""
        if len(arguments) == 1:
            return self.value(arguments[0])
        half, local = len(arguments) // 2, self.local()
        first, others = self.coalesce(arguments[:half]), self.coalesce(arguments[half:])
        return f"({local} if ({local} := {first}) is not None else {others})"

    def connective(self, arguments: Sequence[Term], decisive: str) -> str:
        """Three-valued: a decisive part decides; without one, NULL makes it NULL."""
        if len(arguments) == 1:
            return self.value(arguments[0])
        # `:=` evaluates each part once, and the second only where the first does not decide.
        half, left, right = len(arguments) // 2, self.local(), self.local()
        other = "False" if decisive == "True" else "True"
        unknown = f"None if {left} is None or {right} is None else {other}"
        rest = f"{decisive} if ({right} := {self.connective(arguments[half:], decisive)}) is {decisive} else {unknown}"
        return f"({decisive} if ({left} := {self.connective(arguments[:half], decisive)}) is {decisive} else {rest})"

    def local(self) -> str:
        """Return a new name for a part of an expression that is read twice."""
        return f"part_{next(self.numbers)}"


def row_function(term: Term, columns: Sequence[str], types: Mapping[str, Type]) -> Callable[[Row], Value]:
    """A term as a function of a row whose columns are these variables.

    >>> from rederive.ir.terms import NUMBER
    >>> row_function(Call("*", (Variable("x"), Variable("x")), gives=NUMBER), ["x"], {"x": NUMBER})((3,))
    9
    """
    return _compiled("row", lambda variable: f"row[{columns.index(variable.name)}]", types, term)


def lambda_function(function: Lambda) -> Callable[..., Any]:
    """A lambda as a function of the values of its parameters.

    >>> from rederive.ir.terms import NUMBER
    >>> lambda_function(Lambda(("x", "y"), (NUMBER, NUMBER), Call("+", (Variable("x"), Variable("y")), gives=NUMBER)))(1, 2)
    3
    """
    names = {name: f"a{i}" for i, name in enumerate(function.parameters)}
    types = dict(zip(function.parameters, function.types, strict=True))
    return _compiled(", ".join(names.values()), lambda variable: names[variable.name], types, function.body)


def _compiled(parameters: str, variable: Callable[[Variable], str], types: Mapping[str, Type], term: Term) -> Callable[..., Any]:
    scope: dict[str, Any] = {}

    def name(stem: str, value: Any) -> str:
        scope[f"{stem}{len(scope)}"] = value
        return f"{stem}{len(scope) - 1}"

    text = Expressions(name, variable, types).value(term)
    # The scope holds objects by name, so a value is never written into the text.
    function: Callable[..., Any] = eval(f"lambda {parameters}: {text}", scope)
    return function
