"""Calls of aggregates, of groups and of windows: which function of the IR each one is, its arguments and its type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from sqlglot import exp

from rederive.errors import TypeClash, WrongArity
from rederive.ir.nested import Array
from rederive.ir.rules import Function
from rederive.ir.terms import NUMBER, Constant, Value, variables
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.invocation import AGGREGATES, function_name
from rederive.lang.sql.literals import numeric_literal
from rederive.lang.sql.lowered_relation import TypedTerm
from rederive.lang.sql.types import BIGINT, BOOL, DOUBLE, STRING, SqlType, array_of, mean_type, sum_type

# FALSE is less than TRUE: the least of conditions is their conjunction, the greatest their disjunction. Where Spark may choose
# any value of a group, the least one is chosen for the first, and the greatest one for the last.
_FUNCTIONS: Final = {
    "count": Function.COUNT,
    "count_if": Function.COUNT,
    "sum": Function.SUM,
    "avg": Function.MEAN,
    "mean": Function.MEAN,
    "min": Function.MIN,
    "max": Function.MAX,
    "bool_and": Function.MIN,
    "every": Function.MIN,
    "bool_or": Function.MAX,
    "some": Function.MAX,
    "any_value": Function.MIN,
    "first": Function.MIN,
    "first_value": Function.MIN,
    "last": Function.MAX,
    "last_value": Function.MAX,
    "std": Function.STDDEV_SAMP,
    "stddev": Function.STDDEV_SAMP,
    "variance": Function.VAR_SAMP,
    "string_agg": Function.LISTAGG,
    "median": Function.PERCENTILE,
    "percentile_cont": Function.PERCENTILE,
    **{name: Function(name) for name in ("stddev_samp", "stddev_pop", "var_samp", "var_pop", "skewness", "kurtosis", "product")},
    **{name: Function(name) for name in ("covar_pop", "covar_samp", "corr", "percentile", "percentile_disc", "mode", "listagg")},
    "array_agg": Function.COLLECT_LIST,
    **{name: Function(name) for name in ("collect_list", "collect_set")},
    **{name: Function(name) for name in ("max_by", "min_by", "bit_and", "bit_or", "bit_xor")},
}
_CONDITIONS: Final = ("bool_and", "every", "bool_or", "some")
_PAIRS: Final = ("covar_pop", "covar_samp", "corr", "max_by", "min_by")
_ORDERED: Final = ("percentile_cont", "percentile_disc")  # the argument is what WITHIN GROUP orders by
_ANY: Final = ("any_value", "first", "first_value", "last", "last_value")
_FLOATS: Final = frozenset({
    Function.VAR_POP, Function.VAR_SAMP, Function.STDDEV_POP, Function.STDDEV_SAMP, Function.SKEWNESS, Function.KURTOSIS,
    Function.COVAR_POP, Function.COVAR_SAMP, Function.CORR, Function.PERCENTILE, Function.PERCENTILE_DISC, Function.PRODUCT,
})  # fmt: skip
_COLLECTING: Final = frozenset({Function.COLLECT_LIST, Function.COLLECT_SET})
_BITS: Final = frozenset({Function.BIT_AND, Function.BIT_OR, Function.BIT_XOR})
REFUSED_AGGREGATES: Final = {
    "approx_count_distinct": "count(DISTINCT ...), which is exact",
    "approx_percentile": "percentile(...), which is exact",
    "percentile_approx": "percentile(...), which is exact",
    "try_sum": "sum(...): try_sum is not supported here",
    "try_avg": "avg(...): try_avg is not supported here",
    "count_min_sketch": "GROUP BY, which counts exactly",
    "histogram_numeric": "width_bucket in GROUP BY, which is exact",
    "hll_sketch_agg": "count(DISTINCT ...), which is exact",
    "approx_top_k": "GROUP BY with ORDER BY count(*) DESC LIMIT k, which is exact",
}


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: its function, its arguments (none for count(*)), the type of its result, and the order of its values."""

    function: Function
    arguments: tuple[TypedTerm, ...]
    gives: SqlType
    distinct: bool = False
    keys: tuple[tuple[TypedTerm, exp.Expr], ...] = ()
    parameters: tuple[Value, ...] = ()

    @property
    def empty(self) -> Constant:
        """The result of a group without rows."""
        if self.function in _COLLECTING:
            return Constant(Array(), self.gives.type)
        return Constant(0, NUMBER) if self.function is Function.COUNT else Constant(None, self.gives.type)

    @property
    def may_be_null(self) -> bool:
        """Whether a group with rows may have the result NULL."""
        if self.function in _COLLECTING:
            return False
        nullable = any(argument.nullable for argument in self.arguments)
        return self.function is not Function.COUNT and (nullable or self.function in _FLOATS or len(self.arguments) > 1)


def unwrap_call(node: exp.Expr) -> exp.Expr:
    """The call inside FILTER, WITHIN GROUP and IGNORE NULLS."""
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node calls an aggregate. sqlglot reads `any(condition)` as ANY, which is `some(condition)`."""
    node = unwrap_call(node)
    if isinstance(node, exp.Any):
        return not node.find(exp.Query) and not isinstance(node.parent, exp.Like | exp.ILike)
    return isinstance(node, exp.Anonymous) and (function_name(node) in AGGREGATES or function_name(node) in REFUSED_AGGREGATES)


def skips_null(node: exp.Expr) -> bool:
    """Whether a call has IGNORE NULLS, after it or after its argument."""
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.RespectNulls):
        node = node.this
    return isinstance(node, exp.IgnoreNulls) or any(
        isinstance(part, exp.IgnoreNulls) for part in node.args.get("expressions", ())
    )


def call_arguments(node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a call, without IGNORE NULLS."""
    if isinstance(node, exp.Any):
        return [node.this]
    return [part.this if isinstance(part, exp.IgnoreNulls | exp.RespectNulls) else part for part in node.expressions]


class AggregateCalls:
    """Lowers the aggregate calls of one query."""

    def __init__(self, lower: ExpressionLowering) -> None:
        self.lower = lower
        self.context = lower.context
        self.body = lower.scope.body

    def call(self, node: exp.Expr) -> AggregateCall:
        """The aggregate that a node calls; its arguments are assigned in the body of the query."""
        call = unwrap_call(node)
        name = "some" if isinstance(call, exp.Any) else function_name(call)
        if name in REFUSED_AGGREGATES:
            raise self.context.unsupported(f"'{name}'", call, f"use {REFUSED_AGGREGATES[name]}")
        arguments = call_arguments(call)
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        arguments = arguments[0].expressions if distinct else arguments
        within = next((part.expression for part in _wrappers(node) if isinstance(part, exp.WithinGroup)), None)
        condition = next((part.expression.this for part in _wrappers(node) if isinstance(part, exp.Filter)), None)
        arguments, parameters, order = self._parameters(name, arguments, within, call)
        function = _FUNCTIONS[name]
        tests = [self.lower.boolean(condition)] if condition is not None else []
        typed = self._arguments(name, arguments, tests, call, distinct=distinct)
        if function is not Function.COUNT:
            typed = tuple(self._cast(function, name, one, call) for one in typed)
        keys = tuple((self._assign(self.lower.lower(o.this), "key", call), o) for o in order)
        if distinct and keys and [key.term for key, _ in keys] != [one.term for one in typed]:
            raise self.context.unsupported(f"{name} of DISTINCT values in the order of another", call, "order by the argument")
        return AggregateCall(function, typed, self._gives(function, typed, call), distinct, keys, parameters)

    def _parameters(
        self, name: str, arguments: list[exp.Expr], within: exp.Expr | None, call: exp.Expr
    ) -> tuple[list[exp.Expr], tuple[Value, ...], list[exp.Expr]]:
        """The arguments that vary from row to row, those that are constant, and the order."""
        order = list(within.expressions) if within is not None else []
        ordered_by = [o.this for o in order]
        self._check_arity(name, arguments, order, call)
        match name:
            case "median":
                return arguments, (Decimal("0.5"),), order
            case "percentile":
                return arguments[:1], (self._percentage(arguments[1], call),), order
            case "percentile_cont" | "percentile_disc":
                return ordered_by, (self._percentage(arguments[0], call),), order
            case "mode":
                return ordered_by or arguments[:1], (), order
            case "listagg" | "string_agg":
                separator = self._constant(arguments[1], call) if len(arguments) > 1 else None
                return arguments[:1], ("" if separator is None else str(separator),), order
            case _ if name in _ANY:
                return arguments[:1], (), order
        if order:
            raise self.context.unsupported(f"WITHIN GROUP of '{name}'", call)
        return arguments, (), order

    def _check_arity(self, name: str, arguments: Sequence[exp.Expr], order: Sequence[exp.Expr], call: exp.Expr) -> None:
        least = most = 2 if name in (*_PAIRS, "percentile") else 1
        if name in ("listagg", "string_agg", *_ANY):
            most = 2
        if name == "mode":
            least, most = (0, 0) if order else (1, 2)
        if name == "count":
            most = len(arguments)
        if name in ("max_by", "min_by", "percentile") and len(arguments) == 3:
            what = "a frequency" if name == "percentile" else "a number of values"
            raise self.context.unsupported(f"{name} with {what}", call)
        if not least <= len(arguments) <= most:
            takes = f"{least} to {most}" if least < most else str(least)
            plural = "s" if most != 1 else ""
            raise WrongArity(f"'{name}' takes {takes} argument{plural}, not {len(arguments)}", self.context.span(call))
        if name in _ORDERED and len(order) != 1:
            raise self.context.unsupported(f"'{name}' without WITHIN GROUP", call, f"write {name}(p) WITHIN GROUP (ORDER BY x)")

    def _constant(self, node: exp.Expr, call: exp.Expr) -> Value:
        typed = self.lower.lower(node)
        if not isinstance(typed.term, Constant):
            raise self.context.unsupported(f"an argument of '{function_name(call)}' that is not a literal", call)
        return typed.term.value

    def _percentage(self, node: exp.Expr, call: exp.Expr) -> Value:
        found = self._constant(node, call)
        if not isinstance(found, int | float | Decimal) or not 0 <= found <= 1:
            hint = "call it once for each percentage"
            raise TypeClash(
                f"'{function_name(call)}' needs a number from 0 to 1, not {found!r}", self.context.span(call), hint=hint
            )
        return found

    def _arguments(
        self, name: str, nodes: Sequence[exp.Expr], tests: list[TypedTerm], call: exp.Expr, *, distinct: bool
    ) -> tuple[TypedTerm, ...]:
        lower = self.lower
        if any(isinstance(node, exp.Star) for node in nodes):
            if name != "count" or distinct or len(nodes) > 1:
                raise self.context.unsupported("* in this aggregate", call, "name the columns")
            values = [numeric_literal("1")]
        elif name == "count_if":
            tests.append(lower.boolean(nodes[0]))
            values = [numeric_literal("1")]
        else:
            values = [lower.lower(node) for node in nodes]
        if name == "count" and len(values) > 1 and not distinct:
            # count(a, b) counts the rows in which no argument is NULL.
            tests += [lower.call("is not null", [value], BOOL, nullable=False) for value in values]
            values = [numeric_literal("1")]
        if name == "count" and not tests and not distinct and not values[0].nullable:
            return ()  # count(x) of a value that is never NULL is count(*)
        return tuple(self._assign(self._tested(value, tests), f"{name}_of", call) for value in values)

    def _tested(self, value: TypedTerm, tests: Sequence[TypedTerm]) -> TypedTerm:
        """The value of the rows that fulfil the conditions. Aggregates skip NULL, so the other rows give NULL."""
        if not tests:
            return value
        lower = self.lower
        test = tests[0] if len(tests) == 1 else lower.call("and", tests, BOOL, nullable=any(t.nullable for t in tests))
        parts = [test, value, TypedTerm(Constant(None, value.type.type), value.type, True)]
        return lower.call("case", parts, value.type, nullable=True)

    def _assign(self, value: TypedTerm, name: str, call: exp.Expr) -> TypedTerm:
        if any(variable.name in self.body.outer for variable in variables(self.body.term(value.term))):
            raise self.context.unsupported(
                "an aggregate of columns of an enclosing query", call, "join the table of that query instead"
            )
        return self.body.assign(value, name)

    def _cast(self, function: Function, name: str, typed: TypedTerm, call: exp.Expr) -> TypedTerm:
        """The argument in the type in which it is aggregated."""
        if name in _CONDITIONS and typed.type != BOOL:
            raise TypeClash(f"'{name}' needs BOOLEAN, not {typed.type}", self.context.span(call))
        if function in _BITS and not typed.type.is_integer:
            raise TypeClash(f"'{name}' needs an integer type, not {typed.type}", self.context.span(call))
        to = typed.type
        if function in _FLOATS:
            to = DOUBLE
        elif function is Function.LISTAGG:
            to = STRING
        elif function in (Function.SUM, Function.MEAN) and not typed.type.is_numeric:
            to = self._gives(function, (typed,), call)
        return self.body.assign(self.lower.cast(typed, to, call), f"{name}_of") if to != typed.type else typed

    def _gives(self, function: Function, arguments: Sequence[TypedTerm], call: exp.Expr) -> SqlType:
        if function is Function.COUNT or not arguments:
            return BIGINT
        type = arguments[0].type
        if function in _COLLECTING:
            if function is Function.COLLECT_SET:
                self.lower.check_comparable(type, call)
            return array_of(type)
        self.lower.check_comparable(type if function not in (Function.MAX_BY, Function.MIN_BY) else arguments[1].type, call)
        gives = DOUBLE if function in _FLOATS else type
        found = sum_type(type) if function is Function.SUM else mean_type(type) if function is Function.MEAN else gives
        if found is None:
            raise TypeClash(f"'{function.value}' does not accept {type}", self.context.span(call))
        return found


def _wrappers(node: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        found.append(node)
        node = node.this
    return found
