"""Invocations of functions: the name and the arguments as written, and how many arguments a function takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import WrongArity
from rederive.lang.sql.lowered_relation import TypedTerm

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import ExpressionLowering

AGGREGATES: Final = frozenset({
    "count", "count_if", "sum", "avg", "mean", "min", "max", "bool_and", "every", "bool_or", "some", "any_value", "first",
    "first_value", "last", "last_value", "std", "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop",
    "skewness", "kurtosis", "covar_pop", "covar_samp", "corr", "percentile", "percentile_cont", "percentile_disc", "median",
    "mode", "listagg", "string_agg", "collect_list", "collect_set", "array_agg",
    "max_by", "min_by", "bit_and", "bit_or", "bit_xor", "product",
})  # fmt: skip

WINDOW_FUNCTIONS: Final = frozenset({
    "row_number", "rank", "dense_rank", "ntile", "percent_rank", "cume_dist", "lag", "lead", "nth_value",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call of a function: its name in lower case, its arguments, and its node."""

    name: str
    arguments: Sequence[exp.Expr]
    node: exp.Expr


Handler = Callable[["ExpressionLowering", Invocation], TypedTerm]


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function of SQL: how many arguments it takes, and how a call of it is lowered.

    `most` is None if there is no limit. `refused` are the numbers of arguments that Spark accepts and rederive does not: the
    number, what that argument means, and what to write instead. `signature`, `nulls` and `fails` are for the reader: the types,
    when the result is NULL, and whether some values are refused.
    """

    least: int
    most: int | None
    lower: Handler
    refused: tuple[tuple[int, str, str | None], ...] = ()
    signature: str = ""
    nulls: str = "an argument is NULL"
    fails: bool = False

    def check(self, call: Invocation, lower: ExpressionLowering) -> None:
        """Refuse a call with a wrong number of arguments."""
        count = len(call.arguments)
        for refused, what, hint in self.refused:
            if count == refused:
                raise lower.context.unsupported(f"{call.name} with {what}", call.node, hint)
        if count < self.least or (self.most is not None and count > self.most):
            raise WrongArity(f"'{call.name}' takes {self._arity()}, not {count}", lower.context.span(call.node))

    def _arity(self) -> str:
        if self.most is None:
            return f"{self.least} or more arguments"
        least = f"{self.least} to " if self.least < self.most else ""
        return f"{least}{self.most} argument{'s' if self.most != 1 else ''}"


def invocation_of(node: exp.Expr) -> Invocation:
    """The call that a node means, also if it has a syntax of its own, as `a || b` has.

    >>> from sqlglot import parse_one
    >>> [(call.name, len(call.arguments)) for text in ("a || b", "a RLIKE b") if (call := invocation_of(parse_one(text)))]
    [('concat', 2), ('rlike', 2)]
    """
    match node:
        case exp.Anonymous():
            return Invocation(function_name(node), node.expressions, node)
        case exp.Concat():
            return Invocation("concat", node.expressions, node)
        case exp.Substring():
            return Invocation("substring", _present(node, "this", "start", "length"), node)
        case exp.Escape():
            return Invocation(function_name(node.this), [*_present(node.this, "this", "expression"), node.expression], node)
        case exp.Trim():
            return Invocation("trim_syntax", (), node)
        case exp.DPipe() | exp.Like() | exp.ILike() | exp.RegexpLike():
            return Invocation(function_name(node), _present(node, "this", "expression"), node)
        case _:
            return Invocation(function_name(node), (), node)


_NAMES: Final[dict[type[exp.Expr], str]] = {
    exp.DPipe: "concat",
    exp.RegexpLike: "rlike",
    exp.CurrentDate: "current_date",
    exp.CurrentTimestamp: "current_timestamp",
}


def function_name(node: exp.Expr) -> str:
    """The name of a function as the user knows it."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else _NAMES.get(type(node)) or node.key


def _present(node: exp.Expr, *parts: str) -> list[exp.Expr]:
    return [part for name in parts if (part := node.args.get(name)) is not None]
