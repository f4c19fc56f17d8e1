"""Functors in Spark SQL: natively where Spark computes the same, else by the resident engine's own function.

Spark may evaluate an expression for rows that another literal rules out, so every expression is total: where the functor is not
defined it gives NULL, and an error text beside it, which counts only for rows that the whole body lets through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType, StructField, StructType, _parse_datatype_string

from rederive.analysis.types import term_type
from rederive.engines.spark.plan.sql_terms import Evaluated, in_sql
from rederive.engines.spark.session.types import from_spark, literal, sql_type
from rederive.ir.rules import Comparison, Operator
from rederive.ir.terms import BOOLEAN, SYMBOL, Call, Constant, Kind, Term, Type, Variable
from rederive.scalar.datalog.implementations import functor_function
from rederive.scalar.failures import ScalarError
from rederive.scalar.regex.matching import is_match

_TESTS = {Operator.LT: "<", Operator.LE: "<=", Operator.GT: ">", Operator.GE: ">="}
_CHECKED = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}
_LEAST = "CAST('-9223372036854775808' AS BIGINT)"
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Expression:
    """SQL that gives a value, and SQL that gives an error text where it cannot."""

    text: str
    errors: tuple[str, ...] = ()


class Functions:
    """Prints terms; registers the functions of the resident engine with a session when a term first needs them."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._registered: set[str] = set()

    def term(self, term: Term, columns: Mapping[str, str], types: Mapping[str, Type]) -> Expression:
        match term:
            case Variable(name):
                return Expression(columns[name])
            case Constant(value, type):
                return Expression(literal(value, type))
            case Call():
                return self._call(term, columns, types)

    def test(self, comparison: Comparison, columns: Mapping[str, str], types: Mapping[str, Type]) -> Expression:
        """A condition; an error in it is one of the row that it is asked for."""
        operator = comparison.operator
        left, right = (self.term(side, columns, types) for side in (comparison.left, comparison.right))
        errors = left.errors + right.errors
        match operator:
            case Operator.EQ:
                return Expression(f"{left.text} <=> {right.text}", errors)
            case Operator.NE:
                return Expression(f"NOT ({left.text} <=> {right.text})", errors)
            case Operator.CONTAINS:
                return Expression(f"contains({right.text}, {left.text})", errors)
            case Operator.NOT_CONTAINS:
                return Expression(f"NOT contains({right.text}, {left.text})", errors)
            case Operator.MATCH | Operator.NOT_MATCH:
                found = self._python("match", is_match, (SYMBOL, SYMBOL), BOOLEAN, (left.text, right.text))
                negation = "NOT " if operator is Operator.NOT_MATCH else ""
                return Expression(f"{negation}{found.text}", errors + found.errors)
            case _:
                return Expression(f"{left.text} {_TESTS[operator]} {right.text}", errors)

    def _sql(self, call: Call, columns: Mapping[str, str], types: Mapping[str, Type]) -> Expression:
        """A term of SQL: as Spark writes it, or as one function."""
        if (text := in_sql(call, columns)) is not None:
            return Expression(text)
        function = Evaluated.of(call, types)
        self._register(function.name, function.total, term_type(call, types))
        called = f"{function.name}({', '.join(columns[name] for name in function.names)})"
        return Expression(f"{called}.value", (f"{called}.error",))

    def _call(self, call: Call, columns: Mapping[str, str], types: Mapping[str, Type]) -> Expression:
        if call.gives is not None:
            return self._sql(call, columns, types)
        given = [self.term(argument, columns, types) for argument in call.arguments]
        arguments = tuple(one.text for one in given)
        kinds = tuple(term_type(argument, types) for argument in call.arguments)
        found = _native(call.functor, kinds, arguments)
        if found is None:
            function = functor_function(call.functor, kinds[0], len(arguments))
            found = self._python(call.functor, function, kinds, term_type(call, types), arguments)
        return Expression(found.text, tuple(error for one in given for error in one.errors) + found.errors)

    def _python(
        self, name: str, function: Callable[..., Any], kinds: tuple[Type, ...], result: Type, arguments: tuple[str, ...]
    ) -> Expression:
        """A function of the resident engine, called in Spark's Python workers."""
        registered = "rederive_" + "".join(c if c.isalnum() else f"_{ord(c)}_" for c in f"{name} {' '.join(map(str, kinds))}")
        self._register(registered, _total(function, kinds, result), result)
        called = f"{registered}({', '.join(arguments)})"
        return Expression(f"{called}.value", (f"{called}.error",))

    def _register(self, name: str, function: Callable[..., Any], result: Type) -> None:
        if name not in self._registered:
            field = StructField("value", _parse_datatype_string(sql_type(result)))
            structure = StructType([field, StructField("error", StringType())])
            self.session.udf.register(name, udf(function, structure, useArrow=False))
            self._registered.add(name)


def _total(function: Callable[..., Any], kinds: tuple[Type, ...], result: Type) -> Callable[..., tuple[Any, str | None]]:
    unsigned = result.kind is Kind.UNSIGNED

    def total(*arguments: Any) -> tuple[Any, str | None]:
        if any(argument is None for argument in arguments):
            return None, None
        try:
            (values,) = from_spark([arguments], kinds)
            value = function(*values)
        except ScalarError as error:
            return None, str(error)
        return Decimal(value) if unsigned else value, None

    return total


def _native(functor: str, kinds: tuple[Type, ...], a: tuple[str, ...]) -> Expression | None:
    """The functor in Spark's own functions, where these agree with ours on every value."""
    match functor, kinds[0].kind:
        case "+" | "-" | "*", Kind.NUMBER:
            x, y = a if len(a) == 2 else ("0L", a[0])
            value = f"{_CHECKED[functor]}({x}, {y})"
            listed = ", ', ', ".join(a)
            shown = f"concat('{functor} overflows 64 bits: ', {listed})"
            return Expression(value, (f"CASE WHEN {value} IS NULL AND {x} IS NOT NULL AND {y} IS NOT NULL THEN {shown} END",))
        case "/", Kind.NUMBER:
            value = f"CASE WHEN {a[1]} = 0 OR ({a[0]} = {_LEAST} AND {a[1]} = -1) THEN NULL ELSE {a[0]} div {a[1]} END"
            zero = f"WHEN {a[1]} = 0 THEN concat('division by zero: ', {a[0]}, ' / 0')"
            over = f"WHEN {a[0]} = {_LEAST} AND {a[1]} = -1 THEN '/ overflows 64 bits: -9223372036854775808, -1'"
            return Expression(f"({value})", (f"CASE {zero} {over} END",))
        case "%", Kind.NUMBER:
            error = f"CASE WHEN {a[1]} = 0 THEN concat('division by zero: ', {a[0]}, ' % 0') END"
            return Expression(f"(CASE WHEN {a[1]} = 0 THEN NULL ELSE {a[0]} % {a[1]} END)", (error,))
        case "min" | "max", kind if kind is not Kind.FLOAT:
            least = f"{'least' if functor == 'min' else 'greatest'}({', '.join(a)})"
            return Expression(f"(CASE WHEN {' AND '.join(f'{one} IS NOT NULL' for one in a)} THEN {least} END)")
        case "cat", _:
            return Expression(f"concat({', '.join(a)})")
        case "strlen", _:
            return Expression(f"CAST(char_length({a[0]}) AS BIGINT)")
        case "substr", _:
            inside = f"{a[1]} >= 0 AND {a[1]} < {_MOST}"
            length = f"CAST(CASE WHEN {a[2]} < 0 THEN {_MOST}L ELSE least({a[2]}, {_MOST}L) END AS INT)"
            part = f"substring({a[0]}, CAST({a[1]} AS INT) + 1, {length})"
            given = " AND ".join(f"{one} IS NOT NULL" for one in a)
            return Expression(f"(CASE WHEN {given} AND {inside} THEN {part} WHEN {given} THEN '' END)")
    return None
