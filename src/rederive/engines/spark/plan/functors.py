"""Terms and comparisons as expressions of Spark: natively where Spark computes the same, else by a Python function.

Spark may evaluate an expression for rows that another literal rules out, so every expression is total: where a functor is not
defined it gives NULL, and an error text apart from it, which counts only for rows that the whole body lets through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from rederive.analysis.types import term_type
from rederive.engines.spark.plan.expressions import (
    CaseWhen,
    Cast,
    Expression,
    FieldOf,
    FunctionCall,
    Infix,
    LogicalNot,
    NullTest,
    TypedValue,
    call,
    conjunction,
    equal,
    infix,
    number,
)
from rederive.engines.spark.plan.sql_terms import TermFunction, native_term
from rederive.engines.spark.session.types import CODE, from_spark
from rederive.ir.nested import plain
from rederive.ir.rules import Comparison, Operator
from rederive.ir.terms import BOOLEAN, NUMBER, SYMBOL, Call, Constant, Kind, Term, Type, Variable
from rederive.scalar.datalog.implementations import functor_function
from rederive.scalar.failures import ScalarError
from rederive.scalar.regex.matching import is_match

_TESTS: Final = {Operator.LT: "<", Operator.LE: "<=", Operator.GT: ">", Operator.GE: ">="}
_CHECKED: Final = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_LEAST: Final = number(-(2**63))
_MOST: Final = number(2**31 - 1)  # characters of a string
_EMPTY: Final = TypedValue("", SYMBOL)

# Makes a Python function known to Spark under a name. It returns a struct of the value, in the given type, and an error text.
Register: TypeAlias = Callable[[str, Callable[..., Any], Type], None]


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression for a value, and expressions for an error text where it has none."""

    value: Expression
    errors: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Functors:
    """Translates terms. Python functions are registered when a term first needs them."""

    register: Register

    def term(self, term: Term, columns: Mapping[str, Expression], types: Mapping[str, Type]) -> Checked:
        """A term over variables whose values are in these columns."""
        match term:
            case Variable(name):
                return Checked(columns[name])
            case Constant(value, type):
                return Checked(TypedValue(value, type))
            case Call():
                return self._call(term, columns, types)

    def test(self, comparison: Comparison, columns: Mapping[str, Expression], types: Mapping[str, Type]) -> Checked:
        """A comparison as a condition; an error in it is an error of the row that it is evaluated for."""
        operator = comparison.operator
        left, right = (self.term(side, columns, types) for side in (comparison.left, comparison.right))
        one, other, errors = left.value, right.value, left.errors + right.errors
        match operator:
            case Operator.EQ:
                # Identity, not SQL's equality: a null test is a literal of its own where SQL needs one.
                return Checked(equal(one, other), errors)
            case Operator.NE:
                return Checked(LogicalNot(equal(one, other)), errors)
            case Operator.CONTAINS:
                return Checked(call("contains", other, one), errors)
            case Operator.NOT_CONTAINS:
                return Checked(LogicalNot(call("contains", other, one)), errors)
            case Operator.MATCH | Operator.NOT_MATCH:
                found = self._python("match", is_match, (SYMBOL, SYMBOL), BOOLEAN, (one, other))
                value = LogicalNot(found.value) if operator is Operator.NOT_MATCH else found.value
                return Checked(value, errors + found.errors)
            case _:
                return Checked(infix(_TESTS[operator], one, other), errors)

    def _call(self, called: Call, columns: Mapping[str, Expression], types: Mapping[str, Type]) -> Checked:
        if called.gives is not None:
            return self._sql_call(called, columns, types)
        given = [self.term(argument, columns, types) for argument in called.arguments]
        arguments = tuple(one.value for one in given)
        argument_types = tuple(term_type(argument, types) for argument in called.arguments)
        found = _native(called.functor, argument_types, arguments)
        if found is None:
            function = functor_function(called.functor, argument_types[0], len(arguments))
            found = self._python(called.functor, function, argument_types, term_type(called, types), arguments)
        return Checked(found.value, tuple(error for one in given for error in one.errors) + found.errors)

    def _sql_call(self, called: Call, columns: Mapping[str, Expression], types: Mapping[str, Type]) -> Checked:
        """A term of SQL: native, or as one function of its variables."""
        if (native := native_term(called, columns)) is not None:
            return Checked(native)
        function = TermFunction.of(called, types)
        self.register(function.name, function.evaluate, term_type(called, types))
        return _result(FunctionCall(function.name, tuple(columns[name] for name in function.names)))

    def _python(
        self, name: str, function: Callable[..., Any], types: tuple[Type, ...], result: Type, arguments: tuple[Expression, ...]
    ) -> Checked:
        """A functor's Python implementation, called by Spark's Python workers."""
        # One registration for a functor and its argument types; every character that SQL does not allow is its code point.
        registered = "rederive_" + "".join(c if c.isalnum() else f"_{ord(c)}_" for c in f"{name} {' '.join(map(str, types))}")
        self.register(registered, _total(function, types, result), result)
        return _result(FunctionCall(registered, arguments))


def _result(called: FunctionCall) -> Checked:
    return Checked(FieldOf(called, "value"), (FieldOf(called, "error"),))


def _total(function: Callable[..., Any], types: tuple[Type, ...], result: Type) -> Callable[..., tuple[Any, str | None]]:
    """The function for all arguments: NULL gives NULL, a failure gives its text."""
    is_unsigned = result.kind is Kind.UNSIGNED

    def total(*arguments: Any) -> tuple[Any, str | None]:
        if any(argument is None for argument in arguments):
            return None, None
        try:
            # Unsigned numbers are decimals in Spark and integers for the functor.
            (values,) = from_spark([arguments], types)
            value = function(*values)
        except ScalarError as error:
            return None, str(error)
        return Decimal(value) if is_unsigned else plain(value), None

    return total


def _native(functor: str, types: tuple[Type, ...], a: tuple[Expression, ...]) -> Checked | None:
    """The functor in Spark's own functions, where these agree with ours on every value; else None."""
    match functor, types[0].kind:
        case "+" | "-" | "*", Kind.NUMBER:
            return _arithmetic(functor, a)
        case "/", Kind.NUMBER:
            return _division(*a)
        case "%", Kind.NUMBER:
            # ANSI mode raises on division by zero, also for rows that another literal rules out: the case must come first.
            is_zero = infix("=", a[1], number(0))
            error = CaseWhen(((is_zero, _text("division by zero: ", a[0], " % 0")),))
            return Checked(CaseWhen(((is_zero, TypedValue(None, NUMBER)),), infix("%", *a)), (error,))
        case "min" | "max", kind if kind is not Kind.FLOAT:
            # Spark's `least` skips NULL; ours is NULL where an argument is.
            return Checked(CaseWhen(((_are_known(a), FunctionCall("least" if functor == "min" else "greatest", a)),)))
        case "cat", _:
            return Checked(FunctionCall("concat", a))
        case "strlen", _:
            return Checked(Cast(call("char_length", a[0]), NUMBER))
        case "substr", _:
            return Checked(_substring(*a))
    return None


def _are_known(values: Sequence[Expression]) -> Expression:
    return conjunction([NullTest(value, is_null=False) for value in values])


def _text(before: str, *parts: Expression | str) -> FunctionCall:
    """The text of an error."""
    shown = (TypedValue(part, SYMBOL) if isinstance(part, str) else part for part in parts)
    return FunctionCall("concat", (TypedValue(before, SYMBOL), *shown))


def _arithmetic(functor: str, a: tuple[Expression, ...]) -> Checked:
    # -x is 0 - x, which overflows for the least number alone.
    x, y = a if len(a) == 2 else (number(0), a[0])
    value = call(_CHECKED[functor], x, y)
    listed = [part for one in a for part in (TypedValue(", ", SYMBOL), one)][1:]
    # try_add and its like give NULL on overflow; it is an error only where no argument is NULL.
    overflows = Infix("AND", (NullTest(value), NullTest(x, is_null=False), NullTest(y, is_null=False)))
    return Checked(value, (CaseWhen(((overflows, _text(f"{functor} overflows 64 bits: ", *listed)),)),))


def _division(one: Expression, other: Expression) -> Checked:
    is_zero = infix("=", other, number(0))
    # -2^63 / -1 is the one quotient of 64-bit numbers that does not fit.
    overflows = infix("AND", infix("=", one, _LEAST), infix("=", other, number(-1)))
    value = CaseWhen(((infix("OR", is_zero, overflows), TypedValue(None, NUMBER)),), infix("div", one, other))
    over = TypedValue("/ overflows 64 bits: -9223372036854775808, -1", SYMBOL)
    return Checked(value, (CaseWhen(((is_zero, _text("division by zero: ", one, " / 0")), (overflows, over))),))


def _substring(text: Expression, start: Expression, length: Expression) -> Expression:
    """A start outside of the text gives an empty text, a negative length all of the rest."""
    is_inside = infix("AND", infix(">=", start, number(0)), infix("<", start, _MOST))
    # Lengths of Spark are 32-bit numbers: longer ones are cut to the longest possible string.
    whole = CaseWhen(((infix("<", length, number(0)), _MOST),), call("least", length, _MOST))
    first = infix("+", Cast(start, CODE), TypedValue(1, CODE))  # Spark counts from 1, in 32 bits
    known = _are_known((text, start, length))
    part = call("substring", text, first, Cast(whole, CODE))
    return CaseWhen(((infix("AND", known, is_inside), part), (known, _EMPTY)))
