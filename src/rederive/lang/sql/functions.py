"""The functions of Spark SQL that expressions may call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from rederive.errors import TypeClash, WrongArity
from rederive.ir.terms import Constant
from rederive.lang.sql.relation import Typed
from rederive.lang.sql.types import BIGINT, BOOL, DAY, DOUBLE, INT, MOMENT, STRING, SqlType, decimal

if TYPE_CHECKING:
    from rederive.lang.sql.expressions import Expressions

Handler = Callable[["Expressions", exp.Expr], Typed]

# Functions whose arguments have fixed types: how the trees hold them, what they take, what they give.
_PLAIN: Final[dict[str, tuple[tuple[str, ...], tuple[SqlType, ...], SqlType]]] = {
    "length": (("this",), (STRING,), INT),
    "upper": (("this",), (STRING,), STRING),
    "lower": (("this",), (STRING,), STRING),
    "substring": (("this", "start", "length"), (STRING, INT, INT), STRING),
    "replace": (("this", "expression", "replacement"), (STRING, STRING, STRING), STRING),
    "left": (("this", "expression"), (STRING, INT), STRING),
    "right": (("this", "expression"), (STRING, INT), STRING),
    "reverse": (("this",), (STRING,), STRING),
    "repeat": (("this", "times"), (STRING, INT), STRING),
    "startswith": (("this", "expression"), (STRING, STRING), BOOL),
    "endswith": (("this", "expression"), (STRING, STRING), BOOL),
    "contains": (("this", "expression"), (STRING, STRING), BOOL),
    "year": (("this",), (DAY,), INT),
    "month": (("this",), (DAY,), INT),
    "day": (("this",), (DAY,), INT),
    "quarter": (("this",), (DAY,), INT),
    "dayofweek": (("this",), (DAY,), INT),
    "dayofyear": (("this",), (DAY,), INT),
    "weekofyear": (("this",), (DAY,), INT),
    "last_day": (("this",), (DAY,), DAY),
    "datediff": (("this", "expression"), (DAY, DAY), INT),
    "hour": (("this",), (MOMENT,), INT),
    "minute": (("this",), (MOMENT,), INT),
    "second": (("this",), (MOMENT,), INT),
    "add_months": (("this", "expression"), (DAY, INT), DAY),
    "power": (("this", "expression"), (DOUBLE, DOUBLE), DOUBLE),
    "sqrt": (("this",), (DOUBLE,), DOUBLE),
    "exp": (("this",), (DOUBLE,), DOUBLE),
    "ln": (("this",), (DOUBLE,), DOUBLE),
    "sign": (("this",), (DOUBLE,), DOUBLE),
}
_NAMES: Final[dict[type[exp.Expr], str]] = {
    exp.Substring: "substring",
    exp.StrPosition: "instr",
    exp.StartsWith: "startswith",
    exp.EndsWith: "endswith",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfWeek: "dayofweek",
    exp.DayOfYear: "dayofyear",
    exp.WeekOfYear: "weekofyear",
    exp.LastDay: "last_day",
    exp.DateDiff: "datediff",
    exp.AddMonths: "add_months",
    exp.Pow: "power",
    exp.Concat: "concat",
    exp.DPipe: "concat",
    exp.ConcatWs: "concat_ws",
    exp.TsOrDsAdd: "date_add",
    exp.DateAdd: "date_add",
    exp.RegexpLike: "rlike",
    exp.DateTrunc: "trunc",
    exp.TimestampTrunc: "date_trunc",
    exp.TsOrDsToDate: "to_date",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.CountIf: "count_if",
}


def function_name(node: exp.Expr) -> str:
    """What the user calls it, about."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return _NAMES.get(type(node)) or node.key


def _plain(name: str) -> Handler:
    keys, takes, gives = _PLAIN[name]

    def handler(lower: Expressions, node: exp.Expr) -> Typed:
        if isinstance(node, exp.Anonymous):
            nodes = list(node.expressions)
        else:
            nodes = [part for key in keys if (part := node.args.get(key)) is not None]
        if len(nodes) > len(takes) or (len(nodes) < len(takes) and name not in ("substring", "replace")):
            raise WrongArity(f"'{name}' takes {len(takes)} arguments, not {len(nodes)}", lower.context.span(node))
        arguments = [lower.cast(lower.lower(part), type, node) for part, type in zip(nodes, takes, strict=False)]
        return lower.call(name, arguments, gives)

    return handler


def _concat(lower: Expressions, node: exp.Expr) -> Typed:
    nodes = node.expressions if isinstance(node, exp.Concat) else [node.this, node.expression]
    return lower.call("concat", [lower.cast(lower.lower(part), STRING, node) for part in nodes], STRING)


def _concat_ws(lower: Expressions, node: exp.Expr) -> Typed:
    parts = [lower.cast(lower.lower(part), STRING, node) for part in node.expressions]
    return lower.call("concat_ws", parts, STRING, nullable=parts[0].nullable)


def _like(lower: Expressions, node: exp.Expr) -> Typed:
    sides = [lower.cast(lower.lower(part), STRING, node) for part in (node.this, node.expression)]
    test = lower.call("rlike" if isinstance(node, exp.RegexpLike) else "like", sides, BOOL)
    return lower.call("not", [test], BOOL) if node.args.get("negate") else test


def _ilike(lower: Expressions, node: exp.Expr) -> Typed:
    sides = [lower.call("lower", [lower.cast(lower.lower(part), STRING, node)], STRING) for part in (node.this, node.expression)]
    return lower.call("like", sides, BOOL)


def _trim(lower: Expressions, node: exp.Expr) -> Typed:
    if node.args.get("expression") is not None:
        raise lower.context.unsupported("trim with the characters to remove", node)
    position = str(node.args.get("position") or "").upper()
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(position, "trim")
    return lower.call(name, [lower.cast(lower.lower(node.this), STRING, node)], STRING)


def _instr(lower: Expressions, node: exp.Expr) -> Typed:
    if node.args.get("position") is not None:
        raise lower.context.unsupported("locate with a position", node)
    sides = [lower.cast(lower.lower(part), STRING, node) for part in (node.this, node.args["substr"])]
    return lower.call("instr", sides, INT)


def _pad(lower: Expressions, node: exp.Expr) -> Typed:
    fill = node.args.get("fill_pattern")
    text = lower.cast(lower.lower(node.this), STRING, node)
    width = lower.cast(lower.lower(node.expression), INT, node)
    padding = lower.lower(fill) if fill is not None else lower.lower(exp.Literal.string(" "))
    return lower.call("lpad" if node.args.get("is_left") else "rpad", [text, width, padding], STRING)


def _abs(lower: Expressions, node: exp.Expr) -> Typed:
    typed = _number(lower, node.this)
    result = lower.call("abs", [typed], typed.type)
    return _within(lower, result, node)


def _within(lower: Expressions, typed: Typed, node: exp.Expr) -> Typed:
    """The result of integer arithmetic, in its width."""
    if typed.type.integer and typed.type.bits < 64:
        return Typed(lower.call(typed.type.functor, [typed], typed.type).term, typed.type, typed.nullable)
    return typed


def _number(lower: Expressions, node: exp.Expr) -> Typed:
    typed = lower.lower(node)
    if not typed.type.numeric:
        raise TypeClash(f"a number is needed here, not {typed.type}", lower.context.span(node))
    return typed


def _round(lower: Expressions, node: exp.Expr) -> Typed:
    typed = _number(lower, node.this)
    places = lower.lower(node.args["decimals"]) if node.args.get("decimals") is not None else None
    if places is not None and not isinstance(places.term, Constant):
        raise lower.context.unsupported("round to a number of places that is not a literal", node)
    digits = places.term.value if places is not None and isinstance(places.term, Constant) else 0
    assert isinstance(digits, int)
    gives = typed.type
    if gives.decimal:
        scale = max(0, min(gives.type.scale, digits))
        gives = decimal(min(38, gives.type.precision - gives.type.scale + scale + 1), scale)
    arguments = [typed] + ([places] if places is not None else [])
    return _within(lower, lower.call("round", arguments, gives), node)


def _whole(lower: Expressions, node: exp.Expr) -> Typed:
    """floor and ceil: BIGINT, of a decimal a decimal."""
    if node.args.get("decimals") is not None:
        raise lower.context.unsupported("floor or ceil to places", node)
    typed = _number(lower, node.this)
    gives = decimal(min(38, typed.type.type.precision - typed.type.type.scale + 1), 0) if typed.type.decimal else BIGINT
    return lower.call(node.key, [typed], gives)


def _extreme(lower: Expressions, node: exp.Expr) -> Typed:
    parts = lower.alike([lower.lower(part) for part in (node.this, *node.expressions)], node)
    return lower.call(node.key, parts, parts[0].type, nullable=all(part.nullable for part in parts))


def _nullif(lower: Expressions, node: exp.Expr) -> Typed:
    left, right = lower.lower(node.this), lower.lower(node.expression)
    test = lower.comparison("=", left, right, node)
    nothing = lower.cast(lower.lower(exp.Null()), left.type, node)
    return lower.call("case", [test, nothing, left], left.type, nullable=True)


def _extract(lower: Expressions, node: exp.Expr) -> Typed:
    unit = node.this.name.lower()
    if unit not in ("year", "month", "day", "quarter", "hour", "minute"):
        raise lower.context.unsupported(f"extract({unit} ...)", node)
    needed = MOMENT if unit in ("hour", "minute") else DAY
    return lower.call(unit, [lower.cast(lower.lower(node.expression), needed, node)], INT)


def _date_add(lower: Expressions, node: exp.Expr) -> Typed:
    unit = node.args.get("unit")
    if unit is not None and unit.name.upper() not in ("DAY", "DAYS"):
        raise lower.context.unsupported("date_add in units other than days", node, "add an INTERVAL")
    moment = lower.cast(lower.lower(node.this), DAY, node)
    return lower.call("add_days", [moment, lower.cast(lower.lower(node.expression), INT, node)], DAY)


def _trunc(lower: Expressions, node: exp.Expr) -> Typed:
    unit = lower.lower(exp.Literal.string(node.args["unit"].name))
    moment = lower.lower(node.this)
    if isinstance(node, exp.DateTrunc):
        return lower.call("trunc", [lower.cast(moment, DAY, node), unit], DAY, nullable=True)
    return lower.call("date_trunc", [unit, lower.cast(moment, MOMENT, node)], MOMENT, nullable=True)


def _to_date(lower: Expressions, node: exp.Expr) -> Typed:
    return lower.cast(lower.lower(node.this), DAY, node)


def _isnull(name: str) -> Handler:
    def handler(lower: Expressions, node: exp.Expr) -> Typed:
        parts: Sequence[exp.Expr] = node.expressions
        if len(parts) != 1:
            raise WrongArity(f"'{function_name(node)}' takes 1 argument, not {len(parts)}", lower.context.span(node))
        return lower.call(name, [lower.lower(parts[0])], BOOL, nullable=False)

    return handler


FUNCTIONS: Final[dict[str, Handler]] = {
    **{name: _plain(name) for name in _PLAIN},
    "concat": _concat,
    "concat_ws": _concat_ws,
    "like": _like,
    "rlike": _like,
    "ilike": _ilike,
    "trim": _trim,
    "instr": _instr,
    "pad": _pad,
    "abs": _abs,
    "positive": lambda lower, node: _number(lower, node.expressions[0]),
    "round": _round,
    "floor": _whole,
    "ceil": _whole,
    "greatest": _extreme,
    "least": _extreme,
    "nullif": _nullif,
    "extract": _extract,
    "date_add": _date_add,
    "trunc": _trunc,
    "date_trunc": _trunc,
    "to_date": _to_date,
    "isnull": _isnull("is null"),
    "isnotnull": _isnull("is not null"),
}
