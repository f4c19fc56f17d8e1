"""The variables, constants and terms of a rule in the text of its function.

A variable is a local that holds its code. A comparison of simple terms compares codes; order, patterns and functors need the
values behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rederive.engines.resident.compile.function_text import FunctionText
from rederive.engines.resident.storage.codes import Codes
from rederive.engines.resident.storage.table import PRESENT
from rederive.engines.term_functions import Expressions
from rederive.ir.rules import Atom, Operator
from rederive.ir.terms import Call, Constant, Simple, Term, Type, Variable, variables
from rederive.scalar.datalog.implementations import contains
from rederive.scalar.regex.matching import is_match


class TermText(FunctionText):
    """Writes terms. `bound`: the variables that have a value where the next line is written."""

    def __init__(self, scope: dict[str, Any], codes: Codes, types: Mapping[str, Type]) -> None:
        super().__init__(scope)
        self.codes = codes
        self.types = types
        self.bound: set[str] = set()
        self.locals: dict[str, int] = {}
        self.expressions = Expressions(self.name, self.variable, types)

    def local(self, variable: str) -> str:
        """The variable's name in the function; `?x` and `_x` must not meet."""
        number = self.locals.setdefault(variable, len(self.locals))
        return f"v{number}_{variable.replace('?', '')}"

    def slot(self, term: Simple) -> str:
        """The code of a simple term: a local name, or a number."""
        match term:
            case Variable():
                return self.local(term.name)
            case Constant():
                # A constant is written as its code, which is fixed for the life of the engine.
                return str(self.codes.codec(term.type).encode(term.value))

    def slots(self, atom: Atom) -> list[str]:
        """The codes of an atom's terms; an atom without columns has one row, whose code is PRESENT."""
        return [self.slot(term) for term in atom.terms] or [str(PRESENT)]

    def known(self, term: Simple) -> bool:
        """Whether a term has a value where the text is written."""
        return isinstance(term, Constant) or term.name in self.bound

    def key(self, slots: Sequence[str]) -> str:
        """The key of an index: one code by itself, several as a tuple."""
        return slots[0] if len(slots) == 1 else f"({', '.join(slots)})"

    def value(self, term: Term) -> str:
        """An expression for a term's value. A functor gives NULL where an argument is NULL; scalars of SQL see to that."""
        text = self.expressions.value(term)
        if not isinstance(term, Call) or term.gives is not None or not variables(term):
            return text
        return f"({text} if {self.present(term)} else None)"

    def present(self, term: Term) -> str:
        """Whether no variable of a term is NULL, whose code is 0."""
        return " and ".join(dict.fromkeys(self.local(v.name) for v in variables(term)))

    def variable(self, variable: Variable) -> str:
        """An expression for a variable's value, not its code."""
        return f"{self.name('values', self.codes.codec(self.types[variable.name]).values)}[{self.local(variable.name)}]"

    def test(self, operator: Operator, left: Term, right: Term) -> str:
        """An expression that is true where the comparison holds."""
        match operator:
            # Identical values, and only they, share a code, so equality of simple terms needs no decoding.
            case Operator.EQ | Operator.NE if not isinstance(left, Call) and not isinstance(right, Call):
                sign = "==" if operator is Operator.EQ else "!="
                return f"{self.slot(left)} {sign} {self.slot(right)}"
            case Operator.EQ | Operator.NE:
                sign = "==" if operator is Operator.EQ else "!="
                return f"{self.value(left)} {sign} {self.value(right)}"
        # Order and patterns need the values. Both sides are tested for NULL first: a comparison with NULL does not hold.
        (one, first), (two, second) = self.not_null(left), self.not_null(right)
        match operator:
            case Operator.MATCH | Operator.NOT_MATCH:
                holds = f"{self.name('matches', is_match)}({one}, {two})"
            case Operator.CONTAINS | Operator.NOT_CONTAINS:
                holds = f"{self.name('contains', contains)}({one}, {two})"
            case _:
                holds = f"{one} {operator.value} {two}"
        negated = operator in (Operator.NOT_MATCH, Operator.NOT_CONTAINS)
        return " and ".join(part for part in (first, second, f"not {holds}" if negated else holds) if part)

    def not_null(self, term: Term) -> tuple[str, str]:
        """An expression for a term's value, and the test that it is not NULL: NULL is not more or less than anything.

        What else would rule NULL out, a column that has none or a test, may come later in the join.
        """
        match term:
            case Constant(None):
                return "None", "False"
            case Call(gives=Type()):
                local = self.expressions.local()
                return local, f"({local} := {self.value(term)}) is not None"
            case _:
                return self.expressions.value(term), self.present(term)
