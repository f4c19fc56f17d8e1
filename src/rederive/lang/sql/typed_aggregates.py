"""Aggregates that are others for some types of their argument: sums and means of intervals, try_sum and try_avg.

avg(b - a)          sum(b - a) / count(b - a)
sum(b - a)          the interval of sum(the microseconds of b - a)
try_sum(n)          TRY_CAST(sum(CAST(n AS DECIMAL(20, 0))) AS BIGINT)          for an integer n
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlglot import exp

from rederive.lang.sql.aggregate_calls import is_aggregate, unwrap_call
from rederive.lang.sql.expressions import ExpressionLowering
from rederive.lang.sql.invocation import function_name
from rederive.lang.sql.types import DURATION, SqlType, decimal

_SUMS: Final = ("sum", "try_sum")
_MEANS: Final = ("avg", "mean", "try_avg")
_WIDEST: Final = decimal(20, 0)  # of every BIGINT
_FITTING: Final = 28
_Wrap = Callable[[str, list[exp.Expr]], exp.Expr]


def replace_typed_aggregates(node: exp.Select, lower: ExpressionLowering) -> exp.Select:
    """The query with sums and means of intervals, try_sum and try_avg as other aggregates."""
    copied = node.copy()
    parts = [*copied.expressions, *(copied.args.get(part) for part in ("having", "qualify", "order"))]
    calls = [call for part in parts if part is not None for call in part.find_all(exp.Anonymous)]
    found = [call for call in calls if function_name(call) in (*_SUMS, *_MEANS) and call.find_ancestor(exp.Select) is copied]
    replaced = [_replace(call, lower) for call in found]
    return copied if any(replaced) else node


def _replace(call: exp.Anonymous, lower: ExpressionLowering) -> bool:
    """Replace one call, with its FILTER and OVER; whether it is replaced."""
    if len(call.expressions) != 1:
        return False
    value = call.expressions[0].expressions[0] if isinstance(call.expressions[0], exp.Distinct) else call.expressions[0]
    # The argument of a window over an aggregate has a type only above the grouping.
    if isinstance(value, exp.Star) or value.find(exp.Query) or any(map(is_aggregate, value.walk())):
        return False
    name, type = function_name(call), lower.lower(value).type
    if type != DURATION and not name.startswith("try_"):
        return False
    # A sum of fewer than 10^10 values of up to 28 digits fits its type.
    if name.startswith("try_") and type.is_decimal and type.type.precision > _FITTING:
        raise lower.context.unsupported(
            f"{name} of {type}", call, f"use {name.removeprefix('try_')}, which fails if it overflows"
        )
    whole: exp.Expr = call
    while isinstance(whole.parent, exp.Filter | exp.Window) and unwrap_call(whole.parent.this) is call:
        whole = whole.parent

    def wrap(function: str, arguments: list[exp.Expr]) -> exp.Expr:
        other = exp.Anonymous(this=function, expressions=arguments)
        if whole is call:
            return other
        around = whole.copy()
        unwrap_call(around.this if isinstance(around, exp.Window) else around).replace(other)
        return around

    found = exp.paren(_other(name, type, call, wrap), copy=False)
    for part in found.walk():
        part.meta.update(call.meta)
    whole.replace(found)
    return True


def _other(name: str, type: SqlType, call: exp.Anonymous, wrap: _Wrap) -> exp.Expr:
    given = call.expressions[0]
    value = given.expressions[0] if isinstance(given, exp.Distinct) else given

    def argument(one: exp.Expr) -> list[exp.Expr]:
        return [exp.Distinct(expressions=[one]) if isinstance(given, exp.Distinct) else one]

    if type == DURATION:
        micros = exp.Anonymous(this="interval micros", expressions=[value.copy()])
        total = exp.Anonymous(this="interval of micros", expressions=[wrap("sum", argument(micros))])
        if name in _SUMS:
            return total
        return exp.Div(this=total, expression=wrap("count", argument(value.copy())), typed=True)
    if name == "try_avg" or not type.is_integer:
        return wrap(name.removeprefix("try_"), argument(value.copy()))
    wide = exp.Cast(this=value.copy(), to=exp.DataType.build(str(_WIDEST), dialect="spark"))
    return exp.TryCast(this=wrap("sum", argument(wide)), to=exp.DataType.build("BIGINT"))
